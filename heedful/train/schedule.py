"""Schedules: what the setting learning_rate is multiplied by at each step (steps count from 1).

Four are a share of the peak, which learning_rate is. Noam is the paper's learning rate itself, and
learning_rate is a factor before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def noam(width: int, warmup: int) -> Schedule:
    """Up in a line, then down with the root of the step: width^-0.5 min(step^-0.5, step warmup^-1.5).

    The peak, at the end of the warm-up, is (width * warmup)^-0.5: 7.0e-4 for the base model (width 512, 4000
    steps). Vaswani et al. 2017, equation 3: https://arxiv.org/abs/1706.03762

    Args:
        width: Width D of the model.
        warmup: Steps of the rise.

    Returns:
        The learning rate at a step, as a function.

    Example:
        >>> f"{noam(512, 4000)(4000):.1e}"
        '7.0e-04'
    """
    if warmup == 0:
        return lambda step: width**-0.5 * step**-0.5
    return lambda step: width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def rising(step: int, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


def cosine(warmup: int, steps: int, floor: float = 0.0) -> Schedule:
    """Up in a line, then down half a cosine to `floor`.

    Args:
        warmup: Steps of the rise.
        steps: Steps of the run.
        floor: Share of the peak at the end.

    Returns:
        The share of the peak at a step, as a function.

    Example:
        >>> rate = cosine(warmup=10, steps=100)
        >>> rate(5), rate(10), rate(100)
        (0.5, 1.0, 0.0)
    """

    def rate(step: int) -> float:
        done = min(1.0, max(0, step - warmup) / max(1, steps - warmup))
        return rising(step, warmup) * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))

    return rate


def linear(warmup: int, steps: int, floor: float = 0.0) -> Schedule:
    """Up in a line, then down in a line to `floor`.

    Args:
        warmup: Steps of the rise.
        steps: Steps of the run.
        floor: Share of the peak at the end.

    Returns:
        The share of the peak at a step, as a function.

    Example:
        >>> linear(warmup=0, steps=100)(50)
        0.5
    """

    def rate(step: int) -> float:
        done = min(1.0, max(0, step - warmup) / max(1, steps - warmup))
        return rising(step, warmup) * (1 - (1 - floor) * done)

    return rate


def warmup_stable_decay(warmup: int, steps: int, decay: float = 0.2, floor: float = 0.0) -> Schedule:
    """Up in a line, level, and down in a line over the last `decay` of the steps.

    Args:
        warmup: Steps of the rise.
        steps: Steps of the run.
        decay: Share of the steps that go down.
        floor: Share of the peak at the end.

    Returns:
        The share of the peak at a step, as a function.

    Example:
        >>> rate = warmup_stable_decay(warmup=10, steps=100)
        >>> rate(80), rate(90)
        (1.0, 0.5)
    """
    start = steps - round(decay * steps)

    def rate(step: int) -> float:
        done = min(1.0, max(0, step - start) / max(1, steps - start))
        return rising(step, warmup) * (1 - (1 - floor) * done)

    return rate


def constant(warmup: int) -> Schedule:
    """Up in a line, then level.

    Args:
        warmup: Steps of the rise.

    Returns:
        The share of the peak at a step, as a function.

    Example:
        >>> constant(warmup=10)(1000)
        1.0
    """
    return lambda step: rising(step, warmup)


SCHEDULES = ("noam", "cosine", "linear", "wsd", "constant")


def schedule(name: str, warmup: int, steps: int, floor: float = 0.0, width: int = 1) -> Schedule:
    """A schedule by name.

    Args:
        name: "noam", "cosine", "linear", "wsd" or "constant".
        warmup: Steps of the rise.
        steps: Steps of the run.
        floor: Share of the peak at the end.
        width: Width of the model, which only noam depends on.

    Returns:
        The factor of the setting learning_rate at a step, as a function.

    Raises:
        ValueError: There is no such schedule.

    Example:
        >>> schedule("linear", warmup=0, steps=100)(50)
        0.5
    """
    known = {
        "noam": lambda: noam(width, warmup),
        "cosine": lambda: cosine(warmup, steps, floor),
        "linear": lambda: linear(warmup, steps, floor),
        "wsd": lambda: warmup_stable_decay(warmup, steps, floor=floor),
        "constant": lambda: constant(warmup),
    }
    if name not in known:
        raise ValueError(f'there is no schedule "{name}"; there are {", ".join(known)}')
    return known[name]()
