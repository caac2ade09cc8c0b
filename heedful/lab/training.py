"""Training on toy tasks: AdamW, a short warm-up, a linear decay, and the better of two learning rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .results import at
from .toys import ToyBatch

RATE, WARMUP = 3e-3, 30
RATES = {"quick": (RATE,), "standard": (1e-3, RATE), "full": (1e-3, RATE)}  # learning rates to try
TEST, VALIDATION = -1, -2  # the steps whose batches are held out
SMOOTHED = 10  # steps over which a loss is averaged before it is said to have reached a level

Batches = Callable[[int], ToyBatch]


def cross_entropy(model: nn.Module, batch: ToyBatch) -> Tensor:
    """The mean negative log-likelihood of what is to be predicted, in nats."""
    scores = model(batch.tokens_BT)
    return F.cross_entropy(scores.flatten(0, -2), batch.targets.flatten(), ignore_index=-1)


def trained(
    model: nn.Module, batches: Batches, steps: int, rate: float = RATE, until: float | None = None
) -> list[float]:
    """Train on the batches of steps 0 to steps - 1; returns the loss of each step, in nats.

    until: stop as soon as the loss is below this number, averaged over ten steps.
    """
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    model.train()
    losses: list[float] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / WARMUP, (steps - step) / steps)
        loss = cross_entropy(model, batches(step))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if until is not None and steps_to(losses, until) <= len(losses):
            break
    return losses


def last_loss(losses: Sequence[float]) -> float:
    """The mean of the last tenth."""
    some = losses[-max(1, len(losses) // 10) :]
    return sum(some) / len(some)


def steps_to(losses: Sequence[float], level: float) -> int:
    """After how many steps the mean of ten losses is below a level; if it never is, one more than all."""
    for step in range(SMOOTHED, len(losses) + 1):
        if sum(losses[step - SMOOTHED : step]) < SMOOTHED * level:
            return step
    return len(losses) + 1


# Held-out data.


@torch.no_grad()
def accuracy(model: nn.Module, batch: ToyBatch) -> float:
    """The share of predictions that are right."""
    model.eval()
    right, asked = model(batch.tokens_BT).argmax(-1) == batch.targets, batch.targets >= 0
    return float(right[asked].double().mean())


@torch.no_grad()
def held_out_loss(model: nn.Module, batch: ToyBatch) -> float:
    """The loss in nats."""
    model.eval()
    return float(cross_entropy(model, batch))


def likelihood(model: nn.Module, batch: ToyBatch) -> float:
    """The negative loss: larger is better, as with accuracy."""
    return -held_out_loss(model, batch)


@dataclass(frozen=True)
class Fit:
    """A trained model, its losses, and the learning rates that were tried."""

    model: nn.Module
    losses: list[float]
    rate: float
    tried: dict[float, float]  # {learning rate: score on validation data}

    @property
    def numbers(self) -> dict[str, float]:
        """The learning rates for a record: the report prints all that were tried."""
        return {"learning rate": self.rate, **{at("validation", rate): s for rate, s in self.tried.items()}}


def fitted(
    make: Callable[[], nn.Module],
    batches: Batches,
    steps: int,
    rates: Sequence[float],
    score: Callable[[nn.Module, ToyBatch], float] = accuracy,
    until: float | None = None,
) -> Fit:
    """Train with each learning rate from the same first weights, and keep the best on validation data.

    score: a function of a model and a held-out batch; larger is better.
    """
    begin, best, tried = torch.get_rng_state(), None, dict[float, float]()
    for rate in rates:
        torch.set_rng_state(begin)
        model = make()
        losses = trained(model, batches, steps, rate, until)
        tried[rate] = score(model, batches(VALIDATION))
        if best is None or tried[rate] > tried[best.rate]:
            best = Fit(model, losses, rate, tried)
    assert best is not None, "no learning rate was given"
    return best
