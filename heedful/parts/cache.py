"""Caches: keys and values already computed, so that each new token costs one token.

A cache is an argument of a call, never an attribute of a model. The shell opens a call with `begin`, which
tells the positions of all keys there will be; every layer then appends its own keys and values; `advance`
makes it all count. A call that fails in between has changed nothing. Two kinds: `GrowingCache` grows as it
must; `StaticCache` writes into buffers of a fixed size, so that a compiled step or a captured graph sees the
same shapes every time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

KeysValues = tuple[Tensor, Tensor]


class LayerCache(ABC):
    """One layer's keys and values: its own tokens', and those of the source it attends to."""

    def __init__(self) -> None:
        self.source_kv: KeysValues | None = None

    @abstractmethod
    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        """Add the new tokens; get everything so far."""

    def source(self, compute: Callable[[], KeysValues]) -> KeysValues:
        """Keys and values of the source: computed at the first call, remembered after."""
        if self.source_kv is None:
            self.source_kv = compute()
        return self.source_kv

    def shared_source(self, compute: Callable[[], KeysValues]) -> tuple[KeysValues, int]:
        """The same, for those who can read one source for several rows side by side: second, for how many."""
        return self.source(compute), 1


class Cache(ABC):
    """What a decoder remembers of the tokens it has seen: one `LayerCache` a layer, and their positions."""

    layers: Sequence[LayerCache]

    @abstractmethod
    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor | None:
        """Positions of the next T tokens of each row, lengths[b] of them real; None if plainly in order."""

    @abstractmethod
    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor | None]:
        """Announce T new tokens in B rows; get how many keys there will be, and where (None if in order)."""

    @abstractmethod
    def advance(self) -> None:
        """Every layer has appended: the new tokens are part of the past now."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was (beam search)."""

    @abstractmethod
    def rewind(self, lengths_B: Tensor) -> None:
        """Forget everything from position lengths[b] on (speculative decoding)."""


def count_on(start_B: Tensor, T: int, lengths_B: Tensor | None) -> Tensor:
    """start, start + 1, ... for T tokens a row; -1 past lengths[b] of them."""
    steps_T = torch.arange(T, device=start_B.device)
    positions_BT = start_B[:, None] + steps_T
    return positions_BT if lengths_B is None else torch.where(steps_T < lengths_B[:, None], positions_BT, -1)


def check_rows(found: int, expected: int, what: str) -> None:
    """Rows that do not match would be broadcast, and every answer silently be wrong."""
    if found != expected:
        raise ValueError(f"{what} has {expected} rows, but {found} were given")


class GrowingCache(Cache):
    """A cache that grows with its tokens: keys, values and positions of each layer.

    As long as no row is padded, positions stay implicit and kernels need no mask. A decoder makes its own by
    `growing_cache()`.

    Args:
        layers: Number of layers.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> cache = model.growing_cache()
        >>> scores = model(torch.tensor([[5, 7, 9]]), cache=cache)
        >>> model(torch.tensor([[4]]), cache=cache).shape, cache.size  # the new token alone is computed
        (torch.Size([1, 1, 1028]), 4)
    """

    def __init__(self, layers: int) -> None:
        self.layers: list[GrowingLayer] = [GrowingLayer() for _ in range(layers)]
        self.k_pos: Tensor | None = None  # [B, size], once rows differ
        self.pending: Tensor | None = None
        self.spare: list[
            Tensor
        ] = []  # a buffer of no use to anyone: fresh memory costs more than writing to it

    @property
    def size(self) -> int:
        """Slots in use."""
        return self.layers[0].used

    def lengths(self) -> Tensor:
        """Real tokens in each row; an empty cache has no rows yet."""
        if self.layers[0].room is None:
            return torch.zeros(0, dtype=torch.long)
        k, _ = self.layers[0].room
        return (
            torch.full((len(k),), self.size, device=k.device)
            if self.k_pos is None
            else self.k_pos.amax(-1) + 1
        )

    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor | None:
        if self.k_pos is None and lengths_B is None:
            return None
        start_B = torch.zeros_like(lengths_B) if lengths_B is not None and not self.size else self.lengths()
        return count_on(start_B, T, lengths_B)

    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor | None]:
        if self.layers[0].room is not None:
            check_rows(B, len(self.layers[0].room[0]), "the cache")
        if q_pos is None:
            if self.k_pos is not None:
                raise ValueError("rows of this cache have different lengths: positions must be given")
            self.pending = None
        else:
            past = torch.arange(self.size, device=q_pos.device) if self.k_pos is None else self.k_pos
            self.pending = torch.cat([past.expand(B, -1), q_pos.expand(B, -1)], dim=-1)
        return self.size + T, self.pending

    def advance(self) -> None:
        self.k_pos = self.pending
        for layer in self.layers:
            layer.advance()

    def reorder(self, rows: Tensor) -> None:
        room = self.layers[0].room
        if room is not None and is_order(rows, len(room[0])):
            return
        for layer in self.layers:
            layer.reorder(rows, self.spare)
        self.k_pos = None if self.k_pos is None else self.k_pos[rows]

    def rewind(self, lengths_B: Tensor) -> None:
        if not self.size:
            return
        even = self.k_pos is None and len(set(lengths_B.tolist())) == 1  # rows stay plainly in order
        k_pos = torch.arange(self.size, device=lengths_B.device) if self.k_pos is None else self.k_pos
        k_pos = torch.where(k_pos < lengths_B[:, None], k_pos, -1)
        used = int(((k_pos >= 0).any(0) * torch.arange(1, self.size + 1, device=k_pos.device)).max())
        self.k_pos = k_pos[:, :used] if used and not even else None
        for layer in self.layers:
            if layer.kv is not None:
                layer.kv = (layer.kv[0][:, :, :used], layer.kv[1][:, :, :used]) if used else None


def select(kv: KeysValues | None, rows: Tensor) -> KeysValues | None:
    return None if kv is None else (kv[0].index_select(0, rows), kv[1].index_select(0, rows))


class GrowingLayer(LayerCache):
    """Keys and values in buffers with spare room: most tokens are written without copying those before."""

    def __init__(self) -> None:
        super().__init__()
        self.room: KeysValues | None = None  # [B, G, slots, K]
        self.used = 0  # of the slots
        self.own = False  # whether the room was made here, and nobody else has it
        self.pending: tuple[KeysValues, int, bool] | None = None
        self.shares = False  # whether rows side by side may have one source between them
        self.sharing = 1  # how many have

    @property
    def kv(self) -> KeysValues | None:
        """What is remembered."""
        return None if self.room is None else first(self.room, self.used)

    @kv.setter
    def kv(self, kv: KeysValues | None) -> None:
        self.room, self.used, self.own = kv, 0 if kv is None else kv[0].shape[-2], False

    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        size = self.used + k_BGTK.shape[-2]
        if self.room is None:
            room = (k_BGTK, v_BGTL)
        elif self.apart(k_BGTK):
            k_BGSK, v_BGSL = first(self.room, self.used)
            room = (torch.cat([k_BGSK, k_BGTK], -2), torch.cat([v_BGSL, v_BGTL], -2))
        else:
            room = self.room if slots(self.room) >= size else larger(self.room, self.used, size)
            for kept, new in zip(room, (k_BGTK, v_BGTL), strict=True):
                kept.narrow(2, self.used, size - self.used).copy_(new)
        self.pending = room, size, self.room is not None
        return first(room, size)

    def apart(self, k_BGTK: Tensor) -> bool:
        """Whether to concatenate: gradients and another precision want tensors of their own, and those of
        inference mode can be written to in inference mode only."""
        assert self.room is not None
        k_BGSK, _ = self.room
        kept = k_BGSK.is_inference() and not torch.is_inference_mode_enabled()
        return kept or k_BGTK.requires_grad or k_BGSK.requires_grad or k_BGSK.dtype != k_BGTK.dtype

    def advance(self) -> None:
        if self.pending is not None:
            (self.room, self.used, self.own), self.pending = self.pending, None

    def shared_source(self, compute: Callable[[], KeysValues]) -> tuple[KeysValues, int]:
        self.shares = True
        return self.source(compute), self.sharing

    def reorder(self, rows: Tensor, spare: list[Tensor]) -> None:
        """The room for more stays: the next token needs it. Into spare buffers where they fit."""
        if self.room is not None:
            k, v = (reordered(x, rows, spare, self.own) for x in self.room)
            self.room, self.own = (k, v), True
        if self.source_kv is not None:
            sources, self.sharing = sharers(rows // self.sharing) if self.shares else (rows, 1)
            if not is_order(sources, len(self.source_kv[0])):
                self.source_kv = select(self.source_kv, sources)


def reordered(x: Tensor, rows: Tensor, spare: list[Tensor], own: bool) -> Tensor:
    """x[rows], in a spare buffer if there is one of this size; x is the next, if it is ours to write on."""
    shape = (len(rows), *x.shape[1:])
    into = spare.pop() if spare and spare[-1].shape == shape and spare[-1].dtype == x.dtype else None
    if into is None or torch.is_grad_enabled() and x.requires_grad:
        into = x.index_select(0, rows)
    else:
        torch.index_select(x, 0, rows, out=into)
    spare[:] = [x] if own and x.is_contiguous() and not x.is_inference() else []
    return into


def is_order(rows: Tensor, size: int) -> bool:
    """Whether `rows` keeps each of `size` rows in place; False where looking would wait for a device."""
    return rows.device.type == "cpu" and len(rows) == size and torch.equal(rows, torch.arange(size))


def sharers(sources_R: Tensor) -> tuple[Tensor, int]:
    """(the sources, how many rows side by side share each); one source per row if the counts differ."""
    sources_N, counts_N = torch.unique_consecutive(sources_R, return_counts=True)
    count = len(sources_R) // max(1, len(sources_N))
    return (sources_N, count) if bool((counts_N == count).all()) else (sources_R, 1)


def slots(room: KeysValues) -> int:
    return room[0].shape[-2]


def first(room: KeysValues, size: int) -> KeysValues:
    """What is in the first so many slots."""
    return room if slots(room) == size else (room[0].narrow(-2, 0, size), room[1].narrow(-2, 0, size))


def larger(room: KeysValues, used: int, size: int) -> KeysValues:
    """Room for `size` tokens and a quarter more, with what was there: a token is copied about four times."""
    length = -(-(size + size // 4) // 8) * 8
    k, v = (x.new_empty(*x.shape[:-2], length, x.shape[-1]) for x in room)
    k[:, :, :used], v[:, :, :used] = room[0][:, :, :used], room[1][:, :, :used]
    return k, v


class StaticCache(Cache):
    """Buffers for `capacity` tokens a row, so that a compiled step always sees the same sizes.

    The token at position p lives in slot p, so rows of unequal length need no care and rewinding is a number;
    what has no position (padding) goes to a spare slot. lengths is a tensor: a Python number would make a
    compiled step compile again at every token.

    Args:
        batch: Rows.
        capacity: Tokens of a row.
        shapes: (key/value heads, key width, value width) of each layer.
        device: Where the buffers are.
        dtype: Type of keys and values.

    Example:
        >>> cache = StaticCache(batch=2, capacity=16, shapes=[(2, 8, 8)])
        >>> cache.capacity
        16
    """

    def __init__(
        self,
        batch: int,
        capacity: int,
        shapes: Sequence[tuple[int, int, int]],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """shapes: (key/value heads, key width, value width) of each layer."""
        self.batch, self.capacity = batch, capacity
        self.slots = (capacity // 8 + 1) * 8  # at least one spare, and a good multiple for kernels
        self.lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self.pending = self.lengths
        self.at_BT = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.layers: list[StaticLayer] = [StaticLayer(self, *shape, device, dtype) for shape in shapes]

    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor:
        return count_on(self.lengths, T, lengths_B)

    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor]:
        check_rows(B, self.batch, "the cache")
        q_BT = (self.next_positions(T) if q_pos is None else q_pos).expand(B, T)
        self.check_capacity(q_BT)
        self.at_BT = torch.where(q_BT >= 0, q_BT, self.slots - 1)
        self.pending = torch.maximum(self.lengths, q_BT.amax(-1) + 1)
        slots_S = torch.arange(self.slots, device=q_BT.device)
        return self.slots, torch.where(slots_S < self.pending[:, None], slots_S, -1)

    def check_capacity(self, q_BT: Tensor) -> None:
        """Refuse positions past the buffers: with a message where looking is free, else on the device."""
        if q_BT.device.type == "cpu" and not torch.compiler.is_compiling():
            if int(q_BT.max()) >= self.capacity:
                raise ValueError(
                    f"position {int(q_BT.max())} does not fit a cache of {self.capacity}: make it longer"
                )
        else:
            torch._assert_async((q_BT < self.capacity).all(), "a position does not fit the static cache")

    def advance(self) -> None:
        self.lengths.copy_(self.pending)

    def reorder(self, rows: Tensor) -> None:
        check_rows(len(rows), self.batch, "a static cache cannot change its size: it")
        for layer in self.layers:
            for kept in (layer.k, layer.v, *(layer.source_kv or ())):
                kept.copy_(kept[rows])
        self.lengths.copy_(self.lengths[rows])

    def rewind(self, lengths_B: Tensor) -> None:
        self.lengths.copy_(torch.minimum(self.lengths, lengths_B))


class StaticLayer(LayerCache):
    def __init__(
        self,
        whole: StaticCache,
        kv_heads: int,
        key_width: int,
        value_width: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.whole = whole
        self.k = torch.zeros(whole.batch, kv_heads, whole.slots, key_width, device=device, dtype=dtype)
        self.v = torch.zeros(whole.batch, kv_heads, whole.slots, value_width, device=device, dtype=dtype)

    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        at_B1T1 = self.whole.at_BT[:, None, :, None]
        self.k.scatter_(2, at_B1T1.expand_as(k_BGTK), k_BGTK.to(self.k.dtype))
        self.v.scatter_(2, at_B1T1.expand_as(v_BGTL), v_BGTL.to(self.v.dtype))
        return self.k, self.v
