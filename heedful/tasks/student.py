"""Student's distribution: how far a mean of few figures may lie from the truth. Fisher's: a variance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

LEVEL = 0.05  # the chance to call noise a difference


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges on this side only
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + term * d), 1 + term / c
            value *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * value / a


def p_value(t: float, freedom: int) -> float:
    """The chance of a t at least as far from 0, on either side."""
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def variance_ratio_p_value(ratio: float, freedom: float, other: float) -> float:
    """The chance that one estimate of a variance is at least so many times another (Fisher's F)."""
    return incomplete_beta(other / (other + freedom * ratio), other / 2, freedom / 2)


def quantile(freedom: int, level: float = LEVEL) -> float:
    """The t beyond which, on both sides, lies a share `level`: 12.71 for two figures, 4.30 for three."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle, freedom) > level else (low, middle)
    return (low + high) / 2


def mean_interval(figures: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The t interval of the mean of two or more figures; it leaves out a share `level`, on both sides."""
    mean = statistics.fmean(figures)
    half = quantile(len(figures) - 1, level) * statistics.stdev(figures) / math.sqrt(len(figures))
    return mean - half, mean + half
