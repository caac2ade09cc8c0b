"""The learning-rate finder (Smith 2017): a few steps at rates from tiny to absurd, and where the loss broke.

Below some rate nothing is learned, above some other the loss explodes; the loss is lowest just before it
does. A tenth of that rate is a good one to begin with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import NotFinite
from .loop import Progress
from .schedule import Schedule

LOWEST, HIGHEST = 1e-6, 1.0
STEPS = 100
SMOOTH = 0.8  # how much of the loss before counts: single batches differ
BROKEN = 1.5  # times the lowest loss


@dataclass(frozen=True)
class Tried:
    """A learning rate, and the smoothed loss there.

    Attributes:
        rate: The learning rate.
        loss: Moving average of the loss up to this rate, in nats per token.

    Example:
        >>> Tried(rate=1e-3, loss=2.5).rate
        0.001
    """

    rate: float
    loss: float


def growing(steps: int = STEPS) -> Schedule:
    """LOWEST at the first step, HIGHEST at the last, by equal factors."""
    return lambda step: LOWEST * (HIGHEST / LOWEST) ** ((step - 1) / (steps - 1))


def tried(made: Iterator[Progress]) -> Iterator[Tried]:
    """The smoothed loss at each rate, until it is clear that the last was too high."""
    mean, lowest, count = 0.0, math.inf, 0
    while True:
        try:
            progress = next(made)
        except (NotFinite, StopIteration):
            return
        count += 1
        mean = SMOOTH * mean + (1 - SMOOTH) * progress.loss
        loss = mean / (1 - SMOOTH**count)  # the first ones count for more, as in Adam
        yield Tried(progress.rate, loss)
        lowest = min(lowest, loss)
        if loss > BROKEN * lowest:
            return


def suggest(found: list[Tried]) -> float:
    """Suggest a learning rate: a tenth of the rate where the loss was lowest, to two digits.

    Args:
        found: What `find_rate` has found.

    Returns:
        The learning rate.

    Example:
        >>> suggest([Tried(1e-3, 2.5), Tried(1e-2, 2.0), Tried(1e-1, 9.0)])
        0.001
    """
    best = min(found, key=lambda one: one.loss)
    return float(f"{best.rate / 10:.1e}")
