"""Findings: what a check found, and how two computations that must agree are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

OK, WARN, FAIL = "ok", "warn", "fail"
# Relative to the values compared: rounding in fp32 is a hundredth of that, an error is much more.
ROUNDING = 1e-4


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        verdict: "ok", "warn" or "fail".
        number: What was measured; None if it is not finite.
        summary: What was found, in a phrase.
        limit: What it must be.
        remedy: What to do.
        name: Name of the check.

    Example:
        >>> Finding("ok", 1e-7, "relative difference 1.0e-07", "≤ 1e-04", "").verdict
        'ok'
    """

    verdict: str
    number: float | None
    summary: str
    limit: str
    remedy: str
    name: str = ""


class NotApplicable(Exception):
    """A check has nothing to check in this model, and says why."""


def apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the root mean square of what is expected."""
    size = expected.square().mean().sqrt().clamp(min=1e-12)
    return float((found - expected).abs().max() / size) if found.numel() else 0.0


def compared(difference: float, remedy: str) -> Finding:
    """A finding on two computations that must agree but for rounding."""
    verdict = OK if difference <= ROUNDING else FAIL  # not a number is no agreement
    summary = f"relative difference {short(difference)}" if math.isfinite(difference) else "not finite"
    return Finding(verdict, finite(difference), summary, f"≤ {ROUNDING:.0e}", remedy)


def finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def short(number: float) -> str:
    return f"{number:.1e}" if number else "0"


def worse(a: float, b: float) -> float:
    """The larger of two differences; not a number is the worst."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)
