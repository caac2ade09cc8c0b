"""A whole training step as one CUDA graph: forward, backward, clipping and update, a thousand kernels in one launch.

A small model's step is all launches: the device waits for the host most of the time. A graph is recorded once and then
replayed on other numbers in the same places; so it serves batches of one shape. A shape is done openly at first, so that
all that is made once (compiled kernels, the optimizer's memory) is there; then it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Shapes = tuple[tuple[int, ...], ...]

OPENLY = 3  # times that a shape is met before it is recorded
MOST = 16  # shapes that are recorded; steps of others stay as they are


@dataclass(frozen=True)
class Recorded:
    """A graph, where it reads its batch, and where it leaves what was seen."""

    graph: torch.cuda.CUDAGraph
    given: list[Tensor]
    seen: Tensor


class Captured:
    """Steps, replayed where their shapes are known: step(batches, tokens) gives a tensor of what was seen."""

    def __init__(
        self,
        step: Callable[[Sequence[Any], Tensor], Tensor],
        optimizers: list[torch.optim.Optimizer],
        device: torch.device,
    ) -> None:
        self.step, self.optimizers, self.device = step, optimizers, device
        self.met: dict[Shapes, int] = {}
        self.recorded: dict[Shapes, Recorded] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, micro: Sequence[Any], tokens: Tensor) -> Tensor:
        given = [*(t for batch in micro for t in batch.tensors().values()), tokens]
        shapes = tuple(tuple(t.shape) for t in given)
        found = self.recorded.get(shapes)
        if found is None:
            self.met[shapes] = self.met.get(shapes, 0) + 1
            if self.met[shapes] <= OPENLY or len(self.recorded) == MOST:
                return self.step(micro, tokens)
            found = self.recorded[shapes] = self.record(micro, tokens)
        for place, new in zip(found.given, given, strict=True):
            place.copy_(new, non_blocking=True)
        found.graph.replay()
        return found.seen

    def record(self, micro: Sequence[Any], tokens: Tensor) -> Recorded:
        """Nothing is computed yet."""
        # Copies: where a batch is on the device already, `to` would hand back its own tensors, and others be put there later.
        held = [batch.with_each(lambda t: t.to(self.device, copy=True)) for batch in micro]
        tokens = tokens.clone()
        graph = torch.cuda.CUDAGraph()
        with (
            recordable(self.optimizers),
            torch.cuda.graph(graph, self.pool, capture_error_mode="thread_local"),
        ):
            seen = self.step(held, tokens)
        return Recorded(graph, [*(t for batch in held for t in batch.tensors().values()), tokens], seen)


@contextmanager
def recordable(optimizers: list[torch.optim.Optimizer]) -> Iterator[None]:
    """torch's optimizers want to be told that they are being recorded."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False
