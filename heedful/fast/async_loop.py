"""The asynchronous training loop, for one GPU: the host never waits for a step that nobody wants to look at.

`loop.train` looks at every loss before it changes a weight. Here a flag on the device guards the weights
instead, the figures of a step are read when they have arrived, and a thread makes batches while the device
works:

    host     step 1  step 2  step 3  [loss 1]  step 4  [loss 2] ...
    device   ------step 1------ ------step 2------ ------step 3------

A step whose figures are not finite changes nothing, nor does any step after it. So when the host reads them,
the model is still as that step found it. Steps whose batches all have one shape become one CUDA graph
(`captured_step`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..data.batch import Tensors, seen_in
from ..decode.streaming import HostCopy
from ..errors import NotFinite
from ..train.loop import Batch, LoopSettings, Progress, accumulate, clip, not_finite, seed_device, seed_for
from ..train.loss import Loss
from ..train.optimizer import guard, rate_on, set_rate
from .captured_step import CapturedStep

LEAD = 3  # steps that the host may be ahead
READY = 3  # steps whose batches are made ahead of them


def train_async(
    model: nn.Module,
    batches: Callable[[int], Sequence[Batch]],
    loss_of: Callable[[nn.Module, Any], Loss],
    optimizers: list[torch.optim.Optimizer],
    settings: LoopSettings,
    start: int = 0,
    look: Callable[[int], bool] = lambda step: False,
    after: Callable[[int], None] = lambda step: None,
    steady: bool = False,
) -> Iterator[Progress]:
    """Steps start + 1 to settings.steps, as `loop.train` makes them.

    look: whether the caller wants the model as it is after a step; that step's Progress comes before the next
    step is made, and is `settled`. after: called when a step is on its way, for what follows it on the
    device. steady: every batch has one shape, and the loss never waits for the device.
    """
    model.train()
    device = settings.device
    bad, weights = torch.zeros((), device=device), list(model.parameters())
    rate_on(optimizers, device)
    guard(optimizers, bad)

    def step_of(micro: Sequence[Batch], tokens: Tensor) -> Tensor:
        """Everything that a step does on the device: (loss, norm of the gradient)."""
        nll, _ = accumulate(model, micro, loss_of, tokens, settings, None)
        norm = clip(weights, settings)
        seen = torch.stack([nll / tokens, norm])
        bad.copy_(torch.maximum(bad, (~seen.isfinite()).any().to(bad.dtype)))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return seen

    made = CapturedStep(step_of, optimizers, device) if steady and device.type == "cuda" else step_of
    waiting: deque[PendingStep] = deque()
    last = time.perf_counter()
    with BatchPrefetcher(batches, start, settings.steps, device) as prepared:
        for step in range(start, settings.steps):
            micro = prepared.take(step)
            count = sum(batch.count for batch in micro)
            rate = settings.rate * settings.schedule(step + 1)
            seed_device(seed_for(settings.seed, "step", step, 0), device)
            set_rate(optimizers, rate)
            seen = made(micro, torch.full((), count, device=device))
            after(step + 1)
            waiting.append(PendingStep(step, HostCopy(seen), micro, count, rate))
            pause = look(step + 1) or step + 1 == settings.steps
            while waiting and (pause or len(waiting) > LEAD):
                sent = waiting.popleft()
                loss, norm = sent.seen.wait()[0].tolist()
                if not (torch.tensor([loss, norm]).isfinite().all()):
                    why = not_finite(model, sent.micro, loss_of, settings, sent.step, loss=loss, norm=norm)
                    raise NotFinite(why, {"step": sent.step + 1, "loss": loss, "norm": norm})
                now = time.perf_counter()
                seconds, last = now - last, now
                figures = (sent.step + 1, loss, sent.count, sent.rate, norm, seconds)
                yield Progress(*figures, settled=not waiting, seen=seen_in(sent.micro))
                last += time.perf_counter() - now  # what the caller did meanwhile is no part of a step


@dataclass(frozen=True)
class PendingStep:
    """A step that the device was given."""

    step: int
    seen: HostCopy
    micro: Sequence[Batch]
    count: int
    rate: float


class BatchPrefetcher:
    """Batches made by a thread, a few steps before they are due; a batch depends on its step alone."""

    def __init__(
        self, batches: Callable[[int], Sequence[Batch]], start: int, steps: int, device: torch.device
    ) -> None:
        self.batches, self.steps, self.pin = batches, steps, device.type == "cuda"
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self.coming: deque[Future[Sequence[Batch]]] = deque()
        self.next = start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.thread.shutdown(wait=True, cancel_futures=True)

    def take(self, step: int) -> Sequence[Batch]:
        """The micro-batches of a step; steps are asked for in order."""
        while self.next < min(step + 1 + READY, self.steps):
            self.coming.append(self.thread.submit(self.make, self.next))
            self.next += 1
        return self.coming.popleft().result()

    def make(self, step: int) -> Sequence[Batch]:
        found = self.batches(step)
        return [pinned(batch) for batch in found] if self.pin else found


def pinned(batch: Any) -> Any:
    """A batch in memory that the device can copy from while the host goes on."""
    if not isinstance(batch, Tensors):
        return batch
    return batch.with_each(lambda t: t if t.is_cuda else t.pin_memory())
