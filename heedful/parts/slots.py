"""Slots: a cache whose rows come and go, so that a text can join a batch that is being written, and leave it.

The token at position p of a row is in slot p of that row. Attention is handed the rows that are in use and
the slots of the longest of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .cache import Cache, GrowingCache, KeysValues, LayerCache, check_rows, count_on
from .places import IN_ORDER, At, Source
from .view import right_padded


class SlotCache(Cache):
    """Keys and values of rows of unequal length. Lengths are kept on the host: no step waits for a device."""

    def __init__(self, layers: int) -> None:
        self.layers: list[SlotLayer] = [SlotLayer(self) for _ in range(layers)]
        self.lengths: list[int] = []  # tokens of each row
        self.source_lengths: list[int] = []  # of the source that each row attends to; empty without sources
        self.pending = 0  # tokens that are being added to each row
        self.at_BT: Tensor | None = None  # where they go; None: behind rows of one length

    @property
    def rows(self) -> int:
        """Rows in use."""
        return len(self.lengths)

    @property
    def bytes(self) -> int:
        """Memory of all buffers."""
        return sum(layer.bytes for layer in self.layers)

    # Rows come and go.

    def join(self, cache: GrowingCache, lengths: Sequence[int], source_lengths: Sequence[int] = ()) -> None:
        """Add the rows of a cache behind those that are here. lengths: the real tokens of each.

        If this fails, nothing has joined.
        """
        check_rows(len(lengths), len(cache.lengths()), "the cache that joins")
        for layer, other in zip(self.layers, cache.layers, strict=True):
            assert other.kv is not None
            layer.own.put(self.rows, other.kv, lengths, self.lengths)
            if source_lengths:
                assert other.source_kv is not None
                layer.sources.put(self.rows, other.source_kv, source_lengths, self.source_lengths)
        self.lengths += lengths
        self.source_lengths += source_lengths

    def leave(self, row: int) -> None:
        """Drop a row; the last one takes its place."""
        for layer in self.layers:
            layer.own.move(self.rows - 1, row, self.lengths[-1])
            if self.source_lengths:
                layer.sources.move(self.rows - 1, row, self.source_lengths[-1])
        for lengths in filter(None, (self.lengths, self.source_lengths)):
            lengths[row] = lengths[-1]
            lengths.pop()
        for layer in self.layers:
            layer.own.shrink(self.lengths)
            layer.sources.shrink(self.source_lengths)

    def source(self) -> Source | None:
        """The sources of all rows, as a decoder is given them: their keys and values are remembered here."""
        if not self.source_lengths:
            return None
        device, longest = self.layers[0].sources.device, max(self.source_lengths)
        shape_only = torch.empty(1, 1, 1, device=device).expand(self.rows, longest, 1)
        if min(self.source_lengths) == longest:
            return Source(shape_only, IN_ORDER)
        lengths_B = torch.tensor(self.source_lengths, device=device)
        return Source(shape_only, At(right_padded(lengths_B, longest)))

    # What every cache does.

    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor | None:
        if lengths_B is not None:
            raise ValueError("every row of these slots takes as many tokens as the others: leave out lengths")
        if min(self.lengths) == max(self.lengths):
            return None
        return count_on(torch.tensor(self.lengths, device=self.layers[0].own.device), T, None)

    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor | None]:
        check_rows(B, self.rows, "the cache")
        self.pending, self.at_BT = T, q_pos
        longest = max(self.lengths) + T
        if q_pos is None:
            if min(self.lengths) != max(self.lengths):
                raise ValueError("rows of this cache have different lengths: positions must be given")
            return longest, None
        return longest, right_padded(q_pos[:, -1] + 1, longest)

    def advance(self) -> None:
        self.lengths = [length + self.pending for length in self.lengths]
        self.pending = 0

    def reorder(self, rows: Tensor) -> None:
        raise ValueError("rows of these slots belong to different texts: use a GrowingCache for a search")

    def rewind(self, lengths_B: Tensor) -> None:
        self.lengths = [min(pair) for pair in zip(self.lengths, lengths_B.tolist(), strict=True)]


class SlotLayer(LayerCache):
    """One layer's buffers: of its own tokens, and of the sources."""

    def __init__(self, whole: SlotCache) -> None:
        super().__init__()
        self.whole, self.own, self.sources = whole, Buffers(), Buffers()

    @property
    def bytes(self) -> int:
        return self.own.bytes + self.sources.bytes

    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        (B, _, T, _), start = k_BGTK.shape, max(self.whole.lengths)
        self.own.make_room(B, start + T)
        if self.whole.at_BT is None:
            self.own.k[:B, :, start : start + T], self.own.v[:B, :, start : start + T] = k_BGTK, v_BGTL
        else:
            rows_B1 = torch.arange(B, device=k_BGTK.device)[:, None]
            self.own.k[rows_B1, :, self.whole.at_BT] = k_BGTK.transpose(1, 2)
            self.own.v[rows_B1, :, self.whole.at_BT] = v_BGTL.transpose(1, 2)
        return self.own.first(B, start + T)

    def source(self, compute: Callable[[], KeysValues]) -> KeysValues:
        return self.sources.first(self.whole.rows, max(self.whole.source_lengths))


class Buffers:
    """Keys and values [rows, heads, slots, width], with room for more of both. What is unused holds zeros or
    old numbers, never NaN: attention multiplies them by 0."""

    def __init__(self) -> None:
        self.k = self.v = torch.empty(0, 0, 0, 0)

    @property
    def device(self) -> torch.device:
        return self.k.device

    @property
    def bytes(self) -> int:
        return self.k.nbytes + self.v.nbytes

    def put(self, start: int, kv: KeysValues, lengths: Sequence[int], others: Sequence[int]) -> None:
        """Copy rows of these lengths in, from row `start` on. others: the lengths of those before."""
        if not self.k.numel():
            self.k, self.v = (x.new_zeros(0, x.shape[1], 0, x.shape[3]) for x in kv)
        end, longest = start + len(lengths), max(lengths)
        self.make_room(end, max(longest, *others) if others else longest)
        for mine, new in zip((self.k, self.v), kv, strict=True):
            mine[start:end, :, :longest] = new[:, :, :longest]

    def move(self, row: int, to: int, length: int) -> None:
        """Copy a row over another."""
        if row != to:
            self.k[to, :, :length], self.v[to, :, :length] = self.k[row, :, :length], self.v[row, :, :length]

    def first(self, rows: int, slots: int) -> KeysValues:
        """What is in the first rows and slots."""
        return self.k[:rows, :, :slots], self.v[:rows, :, :slots]

    def make_room(self, rows: int, slots: int) -> None:
        """Let so many rows and slots fit."""
        R, _, S, _ = self.k.shape
        if rows > R or slots > S:
            self.resize(*room_for(rows, slots))

    def shrink(self, lengths: Sequence[int]) -> None:
        """Give memory back once rows of these lengths need a quarter of it."""
        R, _, S, _ = self.k.shape
        rows, slots = room_for(len(lengths), max(lengths, default=0))
        if R * S >= 4 * max(1, rows * slots):
            self.resize(rows, slots)

    def resize(self, rows: int, slots: int) -> None:
        R, G, S, _ = self.k.shape
        R, S = min(R, rows), min(S, slots)
        k, v = (x.new_zeros(rows, G, slots, x.shape[3]) for x in (self.k, self.v))
        k[:R, :, :S], v[:R, :, :S] = self.k[:R, :, :S], self.v[:R, :, :S]
        self.k, self.v = k, v


def room_for(rows: int, slots: int) -> tuple[int, int]:
    """The size of buffers for so many rows of so many slots: a few more, so that few rows cause a copy."""
    return rounded(rows), 32 * rounded(-(-slots // 32))


def rounded(count: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 and so on."""
    power = 1 << max(0, count - 1).bit_length()
    return 0 if not count else 3 * power // 4 if power >= 4 and count <= 3 * power // 4 else power
