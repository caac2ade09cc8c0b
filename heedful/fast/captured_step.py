"""A whole training step as one CUDA graph: forward, backward, clipping and update, a thousand kernels in one
launch.

The step of a small model is all launches: the device waits for the host most of the time. A graph is recorded
once and then replayed on other numbers in the same places, so it serves batches of one shape. The first few
steps of a shape run without a graph, so that everything that is made once (compiled kernels, the optimizer's
memory) is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Shapes = tuple[tuple[int, ...], ...]

WARMUP = 3  # steps of a shape before it is recorded
MOST = 16  # shapes that are recorded; steps of others stay as they are


@dataclass(frozen=True)
class RecordedStep:
    """A graph, the tensors it reads its batch from, and the tensor it leaves its result in."""

    graph: torch.cuda.CUDAGraph
    given: list[Tensor]
    seen: Tensor


class CapturedStep:
    """A training step, replayed where the shapes are known.

    step(batches, tokens) gives a tensor of figures.
    """

    def __init__(
        self,
        step: Callable[[Sequence[Any], Tensor], Tensor],
        optimizers: list[torch.optim.Optimizer],
        device: torch.device,
    ) -> None:
        self.step, self.optimizers, self.device = step, optimizers, device
        self.met: dict[Shapes, int] = {}
        self.recorded: dict[Shapes, RecordedStep] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, micro: Sequence[Any], tokens: Tensor) -> Tensor:
        given = [*(t for batch in micro for t in batch.tensors().values()), tokens]
        shapes = tuple(tuple(t.shape) for t in given)
        found = self.recorded.get(shapes)
        if found is None:
            self.met[shapes] = self.met.get(shapes, 0) + 1
            if self.met[shapes] <= WARMUP or len(self.recorded) == MOST:
                return self.step(micro, tokens)
            found = self.recorded[shapes] = self.record(micro, tokens)
        for place, new in zip(found.given, given, strict=True):
            place.copy_(new, non_blocking=True)
        found.graph.replay()
        return found.seen

    def record(self, micro: Sequence[Any], tokens: Tensor) -> RecordedStep:
        """Record the step; nothing is computed yet."""
        # Copies: of a batch on the device already, `to` would give its own tensors, and these are
        # overwritten.
        held = [batch.with_each(lambda t: t.to(self.device, copy=True)) for batch in micro]
        tokens = tokens.clone()
        graph = torch.cuda.CUDAGraph()
        with (
            recordable(self.optimizers),
            torch.cuda.graph(graph, self.pool, capture_error_mode="thread_local"),
        ):
            seen = self.step(held, tokens)
        return RecordedStep(graph, [*(t for batch in held for t in batch.tensors().values()), tokens], seen)


@contextmanager
def recordable(optimizers: list[torch.optim.Optimizer]) -> Iterator[None]:
    """Tell torch's optimizers that they are being recorded."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False
