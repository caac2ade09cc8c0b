"""Noise: which differences between variants are more than what another seed would do.

Two variants are compared seed by seed: with the same seed both see the same examples in the same order. The
test is Student's t of these differences, two-sided. It is kept careful where seeds are few: a spread that
came out small by luck is replaced by that of all pairs together, and all pairs are judged at once (Holm
1979), so that among many variants one does not win by chance. With one seed no difference is significant.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..tasks.student import LEVEL, p_value, quantile

TEST = (
    "paired t-test over seeds, two-sided, at 5 % over all pairs (Holm); "
    "the variance is that of the pair or the pooled variance of all pairs, "
    "whichever is larger"
)
Figures = Mapping[int, float]  # {seed: figure}


def interval(figures: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds; None for a single seed, which shows no spread."""
    if len(figures) < 2:
        return None
    mean = statistics.fmean(figures)
    half = quantile(len(figures) - 1) * statistics.stdev(figures) / math.sqrt(len(figures))
    return mean - half, mean + half


# Pairs.


@dataclass(frozen=True)
class VariantPair:
    """Two variants, and whether their difference is significant."""

    first: str
    second: str
    difference: float  # the mean, over the seeds that both have, of first - second
    p: float | None  # corrected for the number of pairs; None if there was nothing to judge by

    @property
    def distinguishable(self) -> bool:
        return self.p is not None and self.p < LEVEL


def pairs(figures: Mapping[str, Figures]) -> list[VariantPair]:
    """Every pair of variants, judged together."""
    found = {
        (a, b): [
            figures[a][seed] - figures[b][seed] for seed in sorted(figures[a].keys() & figures[b].keys())
        ]
        for a, b in combinations(figures, 2)
    }
    spreads = [statistics.variance(d) for d in found.values() if len(d) > 1]
    pooled = math.sqrt(statistics.fmean(spreads)) if spreads else 0.0
    chances = {pair: chance(differences, pooled) for pair, differences in found.items()}
    corrected = holm({pair: p for pair, p in chances.items() if p is not None})
    return [
        VariantPair(*pair, statistics.fmean(d) if d else math.nan, corrected.get(pair))
        for pair, d in found.items()
    ]


def chance(differences: Sequence[float], pooled: float) -> float | None:
    """The p-value of a mean difference; None where no noise was seen that it could be compared with."""
    if len(differences) < 2:
        return None
    spread = max(statistics.stdev(differences), pooled)
    if not spread:
        return None
    t = statistics.fmean(differences) / (spread / math.sqrt(len(differences)))
    return p_value(t, len(differences) - 1)


def holm(chances: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The p-values corrected by Holm's method: all of them may be held against one level."""
    corrected: dict[tuple[str, str], float] = {}
    highest, left = 0.0, len(chances)
    for pair in sorted(chances, key=lambda pair: chances[pair]):
        highest = max(highest, min(1.0, left * chances[pair]))
        corrected[pair], left = highest, left - 1
    return corrected
