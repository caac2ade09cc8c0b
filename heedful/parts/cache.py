"""Caches: keys and values already computed, so that each new token costs one token.

A cache is an argument of a call, never an attribute of a model. The shell opens each call with
`begin(positions)`, which tells the positions of all keys there will be; every layer then adds its own
keys and values. Two kinds: `GrowingCache` concatenates; `StaticCache` writes into buffers of a fixed
size, so that a compiled step or a captured graph sees the same shapes every time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

KeysValues = tuple[Tensor, Tensor]


class LayerCache(ABC):
    """One layer's keys and values: its own tokens', and those of the source it attends to."""

    def __init__(self) -> None:
        self.source_kv: KeysValues | None = None

    @abstractmethod
    def append(self, k_BGTK: Tensor, v_BGTK: Tensor) -> KeysValues:
        """Add the new tokens; get everything so far."""

    def source(self, compute: Callable[[], KeysValues]) -> KeysValues:
        """Keys and values of the source: computed at the first call, remembered after."""
        if self.source_kv is None:
            self.source_kv = compute()
        return self.source_kv


class Cache(ABC):
    """What a decoder remembers of the tokens it has seen: one `LayerCache` a layer, and their positions."""

    layers: list[LayerCache]

    @abstractmethod
    def next_positions(self, T: int, lengths: Tensor | None = None) -> Tensor | None:
        """Positions of the next T tokens of each row, of which lengths[b] are real; None if plainly in order."""

    @abstractmethod
    def begin(self, q_pos: Tensor | None, T: int) -> tuple[int, Tensor | None]:
        """Announce T new tokens; get how many keys there will be, and their positions (None if in order)."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was (beam search)."""

    @abstractmethod
    def rewind(self, lengths: Tensor) -> None:
        """Forget everything from position lengths[b] on (speculative decoding)."""


class GrowingCache(Cache):
    """Concatenates. As long as no row is padded, positions stay implicit and kernels need no mask."""

    def __init__(self, layers: int) -> None:
        self.grown = [GrowingLayer() for _ in range(layers)]
        self.layers = list(self.grown)
        self.size = 0  # slots used
        self.k_pos: Tensor | None = None  # [B, size], once rows differ

    def next_positions(self, T: int, lengths: Tensor | None = None) -> Tensor | None:
        if self.k_pos is None and lengths is None:
            return None
        if lengths is None:
            return self.lengths()[:, None] + torch.arange(T, device=self.device)
        start = self.lengths() if self.size else torch.zeros_like(lengths)
        steps_T = torch.arange(T, device=lengths.device)
        return torch.where(steps_T < lengths[:, None], start[:, None] + steps_T, -1)

    def lengths(self) -> Tensor:
        """Real tokens in each row."""
        if self.k_pos is None:
            k, _ = self.grown[0].kv
            return torch.full((len(k),), self.size, device=k.device)
        return self.k_pos.amax(-1) + 1

    @property
    def device(self) -> torch.device:
        return self.grown[0].kv[0].device

    def begin(self, q_pos: Tensor | None, T: int) -> tuple[int, Tensor | None]:
        if q_pos is not None:
            q_pos = torch.atleast_2d(q_pos)
            if self.k_pos is None:
                self.k_pos = torch.arange(self.size, device=q_pos.device).expand(len(q_pos), -1)
            self.k_pos = torch.cat([self.k_pos, q_pos], dim=-1)
        elif self.k_pos is not None:
            raise ValueError("rows of this cache have different lengths: positions must be given")
        self.size += T
        return self.size, self.k_pos

    def reorder(self, rows: Tensor) -> None:
        for layer in self.grown:
            layer.kv = (layer.kv[0][rows], layer.kv[1][rows])
            if layer.source_kv is not None:
                layer.source_kv = (layer.source_kv[0][rows], layer.source_kv[1][rows])
        if self.k_pos is not None:
            self.k_pos = self.k_pos[rows]

    def rewind(self, lengths: Tensor) -> None:
        if self.k_pos is None:
            self.k_pos = torch.arange(self.size, device=lengths.device).expand(len(lengths), -1)
        self.k_pos = torch.where(self.k_pos < lengths[:, None], self.k_pos, -1)


class GrowingLayer(LayerCache):
    def __init__(self) -> None:
        super().__init__()
        self.kv: KeysValues = (torch.empty(0), torch.empty(0))

    def append(self, k_BGTK: Tensor, v_BGTK: Tensor) -> KeysValues:
        k, v = self.kv
        self.kv = (torch.cat([k, k_BGTK], -2), torch.cat([v, v_BGTK], -2)) if k.numel() else (k_BGTK, v_BGTK)
        return self.kv


class StaticCache(Cache):
    """Buffers for `capacity` tokens a row. The token at position p lives in slot p, so rows of unequal
    length need no care and rewinding is a number; what has no position (padding) goes to a spare slot.

    lengths is a tensor: a Python number would make a compiled step compile again at every token.
    """

    def __init__(
        self,
        batch: int,
        capacity: int,
        shapes: list[tuple[int, int, int]],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """shapes: (key/value heads, key width, value width) of each layer."""
        self.capacity = capacity
        self.slots = (capacity // 8 + 1) * 8  # at least one spare, and a good multiple for kernels
        self.lengths = torch.zeros(batch, dtype=torch.long, device=device)
        self.at = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.buffers = [StaticLayer(self, batch, *shape, device, dtype) for shape in shapes]
        self.layers = list(self.buffers)

    def next_positions(self, T: int, lengths: Tensor | None = None) -> Tensor:
        steps_T = torch.arange(T, device=self.lengths.device)
        positions_BT = self.lengths[:, None] + steps_T
        return positions_BT if lengths is None else torch.where(steps_T < lengths[:, None], positions_BT, -1)

    def begin(self, q_pos: Tensor | None, T: int) -> tuple[int, Tensor]:
        q_pos = (
            self.next_positions(T) if q_pos is None else torch.atleast_2d(q_pos).expand(len(self.lengths), -1)
        )
        if (
            q_pos.device.type == "cpu"
            and not torch.compiler.is_compiling()
            and int(q_pos.max()) >= self.capacity
        ):
            raise ValueError(
                f"position {int(q_pos.max())} does not fit a cache of {self.capacity}: make it longer"
            )
        self.at = torch.where(q_pos >= 0, q_pos, self.slots - 1)
        self.lengths.copy_(torch.maximum(self.lengths, q_pos.amax(-1) + 1))
        slots_S = torch.arange(self.slots, device=q_pos.device)
        return self.slots, torch.where(slots_S < self.lengths[:, None], slots_S, -1)

    def reorder(self, rows: Tensor) -> None:
        for layer in self.buffers:
            layer.k.copy_(layer.k[rows])
            layer.v.copy_(layer.v[rows])
            if layer.source_kv is not None:
                for kept in layer.source_kv:
                    kept.copy_(kept[rows])
        self.lengths.copy_(self.lengths[rows])

    def rewind(self, lengths: Tensor) -> None:
        self.lengths.copy_(torch.minimum(self.lengths, lengths))


class StaticLayer(LayerCache):
    def __init__(
        self,
        whole: StaticCache,
        batch: int,
        kv_heads: int,
        key_width: int,
        value_width: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.whole = whole
        self.k = torch.zeros(batch, kv_heads, whole.slots, key_width, device=device, dtype=dtype)
        self.v = torch.zeros(batch, kv_heads, whole.slots, value_width, device=device, dtype=dtype)

    def append(self, k_BGTK: Tensor, v_BGTK: Tensor) -> KeysValues:
        at_B1T1 = self.whole.at[:, None, :, None]
        self.k.scatter_(2, at_B1T1.expand_as(k_BGTK), k_BGTK)
        self.v.scatter_(2, at_B1T1.expand_as(v_BGTK), v_BGTK)
        return self.k, self.v
