"""Schedules: the learning rate as a function of the step, as a share of its peak (steps count from 1)."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def noam(warmup: int) -> Schedule:
    """Up in a line, then down with the root of the step (Vaswani et al. 2017).

    The paper's lrate = width^-0.5 * min(step^-0.5, step * warmup^-1.5) is this times a peak of
    (width * warmup)^-0.5: see `noam_peak`.
    """
    return lambda step: min(step / warmup, math.sqrt(warmup / step)) if warmup else 1 / math.sqrt(step)


def noam_peak(width: int, warmup: int) -> float:
    """The paper's learning rate at the end of the warm-up."""
    return 1 / math.sqrt(width * warmup)


def rising(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


def cosine(warmup: int, steps: int, floor: float = 0.0) -> Schedule:
    """Up in a line, then down half a cosine to `floor`."""

    def rate(step: int) -> float:
        done = min(1.0, max(0, step - warmup) / max(1, steps - warmup))
        return rising(step, warmup) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))

    return rate


def linear(warmup: int, steps: int, floor: float = 0.0) -> Schedule:
    """Up in a line, then down in a line to `floor`."""

    def rate(step: int) -> float:
        done = min(1.0, max(0, step - warmup) / max(1, steps - warmup))
        return rising(step, warmup) * (1 - (1 - floor) * done)

    return rate


def warmup_stable_decay(warmup: int, steps: int, decay: float = 0.2, floor: float = 0.0) -> Schedule:
    """Up in a line, level, and down in a line over the last `decay` of the steps."""
    start = steps - round(decay * steps)

    def rate(step: int) -> float:
        done = min(1.0, max(0, step - start) / max(1, steps - start))
        return rising(step, warmup) * (1 - (1 - floor) * done)

    return rate


def constant(warmup: int) -> Schedule:
    """Up in a line, then level."""
    return lambda step: rising(step, warmup)


SCHEDULES = ("noam", "cosine", "linear", "wsd", "constant")


def schedule(name: str, warmup: int, steps: int, floor: float = 0.0) -> Schedule:
    """A schedule by name."""
    known = {
        "noam": lambda: noam(warmup),
        "cosine": lambda: cosine(warmup, steps, floor),
        "linear": lambda: linear(warmup, steps, floor),
        "wsd": lambda: warmup_stable_decay(warmup, steps, floor=floor),
        "constant": lambda: constant(warmup),
    }
    if name not in known:
        raise ValueError(f'there is no schedule "{name}"; there are {", ".join(known)}')
    return known[name]()
