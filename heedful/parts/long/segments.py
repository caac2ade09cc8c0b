"""Segment recurrence (Dai et al. 2019): each segment of a text sees the hidden states of those before.

    h~ = [StopGrad(memory) ; h]      queries from h, keys and values from h~

In training the memory holds hidden states, so that keys and values are made of them by the weights of now,
and no gradient goes into what was read before. While a text is written, keys and values of the last tokens
are the same thing, made once. Distances are relative (`TransformerXL` in positions), so a segment need not
know where in the text it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..cache import Cache, KeysValues, LayerCache, check_rows
from ..view import View
from .windowed_cache import RecentAttention, RecentLayer


class SegmentLayer(LayerCache):
    """The hidden states of one layer before this segment, and after it those that the next segment sees."""

    def __init__(self, before_BMD: Tensor | None, length: int) -> None:
        super().__init__()
        self.before_BMD, self.length = before_BMD, length
        self.after_BMD: Tensor | None = None

    def extended(self, x_BTD: Tensor) -> Tensor:
        """[memory ; x]: what keys and values are made of."""
        source_BSD = x_BTD if self.before_BMD is None else torch.cat([self.before_BMD, x_BTD], dim=1)
        self.after_BMD = source_BSD[:, max(0, source_BSD.shape[1] - self.length) :].detach()
        return source_BSD

    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        raise TypeError("a memory of segments holds hidden states: only a recurrent attention reads it")


class SegmentMemory(Cache):
    """The memory of a segment: at most `length` hidden states of each layer before it, without gradients.

    It serves one call and is not changed by it, so that a layer can be computed again (activation
    checkpointing): `after` is the memory of the next segment.
    """

    def __init__(self, layers: int, length: int, before: Sequence[Tensor] | None = None) -> None:
        self.length = length
        self.layers: list[SegmentLayer] = [
            SegmentLayer(None if before is None else before[i], length) for i in range(layers)
        ]

    @property
    def size(self) -> int:
        """Tokens that are remembered."""
        before = self.layers[0].before_BMD
        return 0 if before is None else before.shape[1]

    def after(self) -> SegmentMemory:
        """The memory of the next segment."""
        return SegmentMemory(len(self.layers), self.length, self.states())

    def states(self) -> list[Tensor]:
        """The hidden states that the next segment sees, layer by layer."""
        found = [layer.after_BMD for layer in self.layers if layer.after_BMD is not None]
        if len(found) < len(self.layers):
            raise ValueError("a memory has nothing for the next segment before the model has read this one")
        return found

    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor | None:
        if lengths_B is not None:
            raise ValueError(
                "segments that follow each other have no padding between them: leave out lengths"
            )
        return None

    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor | None]:
        if q_pos is not None:
            raise ValueError("segments follow each other: leave out positions")
        before = self.layers[0].before_BMD
        if before is not None:
            check_rows(B, len(before), "the memory")
        return self.size + T, None

    def advance(self) -> None:
        """Nothing changes: see `after`."""

    def reorder(self, rows: Tensor) -> None:
        raise ValueError("a memory of segments cannot change its rows: decode with growing_cache()")

    def rewind(self, lengths_B: Tensor) -> None:
        raise ValueError("a memory of segments cannot be rewound: decode with growing_cache()")


class RecurrentAttention(RecentAttention):
    """Attention to this segment and to the memory before it. `reach`: the memory it has while it writes."""

    keeps_packed_rows = False  # a memory is of one long text

    def forward(
        self,
        x_BTD: Tensor,
        view: View,
        source_BSD: Tensor | None = None,
        cache: SegmentLayer | RecentLayer | None = None,
    ) -> Tensor:
        if isinstance(cache, SegmentLayer):
            return self.inner(x_BTD, view, cache.extended(x_BTD))
        return super().forward(x_BTD, view, source_BSD, cache)
