"""Language models with a memory: segments of a text follow each other, and each sees those before.

Transformer-XL reads a text segment after segment. So the rows of a batch are places in the text, step N has
the Nth segment of every row (`SegmentPlan`), and what the model remembers of it is carried to step N + 1. The
memory was made by the weights of its time: it cannot be computed again, and is saved with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.plan import SegmentPlan, shares
from ..data.shards import Stream, rows_at
from ..errors import BadInput
from ..models.base.shells import Decoder
from ..parts.long.segments import RecurrentAttention, SegmentMemory
from ..train.loss import Loss, scores_of, sequence_loss

# Sizes.


# Segments.


@dataclass(frozen=True)
class SegmentBatch(Tensors):
    """The same segment of several rows, one token longer than what the model reads."""

    tokens_BT: Tensor
    step: int
    place: int  # of the segment in its row: the first has nothing before it
    row: int  # the number of the first row
    ids: tuple[int, ...] = ()  # where the segments start

    @property
    def count(self) -> int:
        return len(self.tokens_BT) * (self.tokens_BT.shape[1] - 1)


class Segments:
    """One stream, cut into as many rows as a batch has, and each row into segments that follow each other."""

    unit = "segments"

    def __init__(self, stream: Stream, context: int, lengths: np.ndarray) -> None:
        self.stream, self.context = stream, context
        self.tokens = len(stream)
        self.enough = len(stream) > 1

    @property
    def length(self) -> int:
        return min(self.context, len(self.stream) - 1)

    def plan(self, rows: int, seed: int) -> SegmentPlan:
        return SegmentPlan(len(self.stream), self.context, rows, seed)

    def batches(
        self, plan: SegmentPlan, step: int, micros: int, rank: int = 0, world: int = 1
    ) -> list[SegmentBatch]:
        """The micro-batches of a step."""
        if world > 1:
            raise BadInput("xl carries a memory from step to step, in one process: start it without torchrun")
        found, row = [], 0
        for starts in shares(plan.batch(step), micros):
            found.append(self.batch(starts, step, plan.place(step), row))
            row += len(starts)
        return found

    def batch(self, starts: np.ndarray, step: int, place: int, row: int = 0) -> SegmentBatch:
        tokens_BT = torch.from_numpy(rows_at(self.stream, starts, self.length + 1))
        return SegmentBatch(tokens_BT, step, place, row, tuple(starts.tolist()))

    def apart(self) -> np.ndarray:
        """Segments that do not overlap."""
        return np.arange(0, len(self.stream) - self.length, self.length)

    def held_out(self, most: int | None, rows: int) -> list[SegmentBatch]:
        """Held-out segments, `rows` side by side: all of each row, or as many as make up `most`."""
        rows = min(rows, len(self.apart()))
        plan = SegmentPlan(len(self.stream), self.length, rows, shifts=False)
        steps = plan.batches if most is None else min(plan.batches, -(-most // plan.rows))
        return [self.batch(plan.batch(step), step, step) for step in range(steps)]

    def __str__(self) -> str:
        return f"segments of {self.context}"


class Recurrent:
    """The loss of segments, each seeing what the model remembers of those before it in the same row.

    A step that is asked for twice sees the same both times.
    """

    def __init__(self, memory: int, smoothing: float = 0.0) -> None:
        self.memory, self.smoothing = memory, smoothing
        self.step = -1  # the last one
        self.before: dict[
            int, list[Tensor]
        ] = {}  # by the number of the first row: hidden states, layer by layer
        self.after: dict[int, list[Tensor]] = {}

    def __call__(self, model: Decoder, batch: SegmentBatch) -> Loss:
        if batch.step != self.step:
            follows = batch.step == self.step + 1
            self.step, self.before, self.after = batch.step, self.after if follows else {}, {}
        states = self.states_of(batch) if batch.place else None
        memory = SegmentMemory(len(model.stack.blocks), self.memory, states)
        hidden_BTD = model.hidden(batch.tokens_BT[:, :-1], cache=memory)
        self.after[batch.row] = memory.states()
        answers_BT = batch.tokens_BT[:, 1:]
        return sequence_loss(scores_of(model), hidden_BTD, answers_BT, batch.count, self.smoothing)

    def states_of(self, batch: SegmentBatch) -> list[Tensor]:
        """What was remembered of the rows of a batch, however they were shared out then."""
        rows, found = len(batch.tokens_BT), self.before.get(batch.row)
        if found is None or len(found[0]) != rows:
            found = [layer[batch.row : batch.row + rows] for layer in in_one_piece(self.before)]
        if not found or len(found[0]) != rows:
            raise ValueError(f"step {batch.step + 1} goes on with segments whose memory is not there")
        return [layer.to(batch.tokens_BT.device) for layer in found]

    # For checkpoints.

    def tensors(self) -> dict[str, Tensor]:
        """The memory after the last step."""
        return {f"layer {i}": layer for i, layer in enumerate(in_one_piece(self.after))}

    def load(self, tensors: dict[str, Tensor], steps: int) -> None:
        """Go on after so many steps with the memory that was saved."""
        self.step, self.before = steps - 1, {}
        self.after = {0: [tensors[f"layer {i}"] for i in range(len(tensors))]}


def in_one_piece(parts: dict[int, list[Tensor]]) -> list[Tensor]:
    """The states of all rows, layer by layer."""
    in_order = [parts[row] for row in sorted(parts)]
    return [torch.cat(layers) for layers in zip(*in_order, strict=True)]


def recurrent_losses(model: Decoder, batches: Iterable[SegmentBatch]) -> Iterator[Loss]:
    """The losses of held-out segments, with the memory that a model has while it is evaluated."""
    attention: Any = model.attentions()[0]
    assert isinstance(attention, RecurrentAttention)
    loss, device = Recurrent(attention.reach), model.inputs.tokens.weight.device
    return (loss(model, batch.to(device)) for batch in batches)
