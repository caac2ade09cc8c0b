"""Findings: what a check found, and how two computations that must agree are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

OK, WARN, FAIL = "ok", "warn", "fail"
# Of the size of the numbers compared: fp32 differs by a hundredth of that, a fault by much more.
ROUNDING = 1e-4


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    verdict: str  # ok, warn or fail
    number: float | None  # None: it is not finite
    told: str  # the number in words
    limit: str  # what it must be
    remedy: str
    name: str = ""  # as in the table of checks


class NotApplicable(Exception):
    """A check has nothing to check in this model, and says why."""


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, measured by the size of what is expected."""
    size = expected.square().mean().sqrt().clamp(min=1e-12)
    return float((found - expected).abs().max() / size) if found.numel() else 0.0


def compared(difference: float, remedy: str) -> Finding:
    """A finding on two computations that must agree but for rounding."""
    verdict = OK if difference <= ROUNDING else FAIL  # not a number is no agreement
    told = f"differs by {short(difference)}" if math.isfinite(difference) else "not a number"
    return Finding(verdict, finite(difference), told, f"≤ {ROUNDING:.0e}", remedy)


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def short(number: float) -> str:
    return f"{number:.1e}" if number else "0"


def worse(a: float, b: float) -> float:
    """The larger of two differences; not a number is the worst."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)
