"""Kept steps: what a model has read of a conversation need not be read again for the next answer.

For one text at a time, and for decoders whose cache is keys and values. A prompt is compared with what was
fed before, token by token, and read from where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..parts.cache import GrowingCache
from .step import DecoderStep, Step

Read = Callable[[DecoderStep, Tensor], Tensor]  # how a step is fed


class KeptStep(Step):
    """A step that outlives its answer, and goes on from what the next prompt has in common with it."""

    def __init__(self) -> None:
        self.step: DecoderStep | None = None
        self.tokens: list[int] = []  # that it was fed
        self.begins = True  # whether a prompt comes next

    def instead_of(self, fresh: Step) -> Step:
        """This step for a fresh one of the same model; the fresh one, if its cache cannot be kept."""
        if (
            type(fresh) is not DecoderStep
            or fresh.source is not None
            or type(fresh.cache) is not GrowingCache
        ):
            return fresh
        if self.step is None:
            self.step, self.tokens = fresh, []
        self.begins = True
        return self

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Scores after each token: a prompt is read from its beginning, so that all of them are computed."""
        return self.feed(tokens_BT, lengths_B, 0, DecoderStep.__call__)

    def last(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Scores after the last token: a prompt is read from where it differs from what was fed before."""
        known = min(common(self.tokens, tokens_BT[0].tolist()), tokens_BT.shape[1] - 1)
        return self.feed(tokens_BT, lengths_B, known, DecoderStep.last)

    def feed(self, tokens_BT: Tensor, lengths_B: Tensor | None, known: int, read: Read) -> Tensor:
        """Read the tokens of one row. known: how many of a prompt's tokens need not be read again."""
        assert self.step is not None and lengths_B is None
        (row,), step = tokens_BT.tolist(), self.step
        self.step = None  # whatever fails or is interrupted leaves nothing half read
        if not self.begins:
            known = 0
        else:
            step.rewind(torch.tensor([known], device=tokens_BT.device))
            step.fed, self.begins = known, False
            del self.tokens[known:]
        scores = read(step, tokens_BT[:, known:])
        self.tokens += row[known:]
        self.step = step
        return scores

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        if rows.tolist() != [0]:
            raise ValueError(f"a kept step has one row, not {rows.tolist()}: use a fresh step")

    def rewind(self, lengths_B: Tensor) -> None:
        assert self.step is not None
        self.step.rewind(lengths_B)
        del self.tokens[int(lengths_B) :]


Keep = Callable[[Step], Step]  # a step that is kept for a fresh one


def common(some: Sequence[int], others: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    pairs = zip(some, others, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(some), len(others)))
