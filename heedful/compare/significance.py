"""Noise: which differences between variants are more than what another seed would do.

The figures are a two-way layout: with the same seed all variants see the same examples in the same order. A
figure is the sum of what the variant does, what the seed does, and noise:

    figure[v, s] = variant[v] + seed[s] + noise[v, s]

The variance that this leaves has (V - 1)(S - 1) degrees of freedom. All pairs are judged by it together with
Tukey's studentized range, so that among many variants one does not win by chance. Where a variant lacks a
seed, the sum is fitted by least squares, and each pair has the standard error of its own difference (Tukey
and Kramer). A variant that varies far more than the others is uneven: its pairs have their own variance if
that is larger, and must also pass a paired t-test over seeds. With one seed no difference is significant.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ..tasks.student import LEVEL, mean_interval, p_value, variance_ratio_p_value
from .studentized_range import range_p_value

TEST = (
    "Tukey's test of all pairs together, two-sided, at 5 %; seeds are paired; "
    "a variant that varies far more than the others must also pass a paired t-test"
)
UNEVEN = 0.02  # the level at which a variant is found to vary more than the others
Figures = Mapping[int, float]  # {seed: figure}


def interval(figures: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds.

    Args:
        figures: One figure for each seed.

    Returns:
        Its two ends; None for a single seed, which shows no spread.

    Example:
        >>> low, high = interval([1.0, 2.0, 3.0])
        >>> round(low, 2), round(high, 2)
        (-0.48, 4.48)
    """
    return mean_interval(figures) if len(figures) > 1 else None


# The layout.


class AdditiveFit:
    """Variants and seeds, fitted by least squares; seeds may be missing."""

    def __init__(self, figures: Mapping[str, Figures]) -> None:
        names, seeds = list(figures), sorted({seed for one in figures.values() for seed in one})
        cells = [(name, seed, value) for name, one in figures.items() for seed, value in one.items()]
        design = np.zeros((len(cells), len(names) + len(seeds)))
        for row, (name, seed, _) in enumerate(cells):
            design[row, names.index(name)] = design[row, len(names) + seeds.index(seed)] = 1
        y = np.array([value for _, _, value in cells])
        center = y.mean()
        self.places = {name: i for i, name in enumerate(names)}
        self.inverse = np.linalg.pinv(design.T @ design)
        effects = self.inverse @ design.T @ (y - center)
        rest = y - center - design @ effects
        rank = int(np.linalg.matrix_rank(design))
        self.freedom = len(cells) - rank
        self.effects = effects[: len(names)]
        self.linked = rank == len(names) + len(seeds) - 1  # all variants, by seeds that they share
        shared = float(effects[len(names) :].mean()) + center
        self.means = {
            name: float(self.effects[i]) + shared if self.linked else statistics.fmean(figures[name].values())
            for name, i in self.places.items()
        }
        smallest = 1e-12 * float(np.abs(y).max())  # below this it is rounding
        spread = math.sqrt(float(rest @ rest) / self.freedom) if self.freedom else 0.0
        self.variance = spread**2 if spread > smallest else 0.0
        self.projection = self.inverse @ (design.T @ design)

    def difference(self, a: str, b: str) -> tuple[float, float] | None:
        """The difference of two variants, and its variance in units of that of a figure: 2 / S if none is
        missing. None if no seeds link them."""
        contrast = np.zeros(len(self.inverse))
        contrast[self.places[a]], contrast[self.places[b]] = 1, -1
        if not (self.linked or np.allclose(contrast @ self.projection, contrast, atol=1e-6)):
            return None
        found = float(self.effects[self.places[a]] - self.effects[self.places[b]])
        return found, float(contrast @ self.inverse @ contrast)


def variant_means(figures: Mapping[str, Figures]) -> dict[str, float]:
    """The mean of each variant, as if it had all seeds."""
    return AdditiveFit(figures).means


# Variants that vary far more than the others.


def differences(a: Figures, b: Figures) -> list[float]:
    """Seed by seed, of the seeds that both have."""
    return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]


def variance_of(figures: Sequence[float]) -> float:
    """As statistics.variance, which is exact and slow."""
    mean = math.fsum(figures) / len(figures)
    return math.fsum((one - mean) ** 2 for one in figures) / (len(figures) - 1)


def uneven_variants(figures: Mapping[str, Figures]) -> set[str]:
    """Variants whose variance is too large for chance, from the largest down, each beside those left.

    Where pairs are too few to tell, all that are left count as uneven.
    """
    left = dict(figures)
    found: set[str] = set()
    while len(left) > 2:  # two have one difference, whose variance is the pooled one
        variances = own_variances(left)
        if variances is None:
            return found | left.keys()
        name = max(variances, key=lambda one: variances[one])
        others = [one for one in left if one != name]
        usual = statistics.fmean(variances[one] for one in others)
        freedom = sum(len(left[one]) - 1 for one in others) * (1 - 1 / len(others))
        if variances[name] <= 0 or (
            usual > 0
            and variance_ratio_p_value(variances[name] / usual, len(left[name]) - 1, freedom) >= UNEVEN
        ):
            break
        found.add(name)
        del left[name]
    return found


def own_variances(figures: Mapping[str, Figures]) -> dict[str, float] | None:
    """The variance of each variant, whatever a seed does to all of them; None if pairs are too few.

    The variance of a difference is the sum of two variances: those of all pairs give each one by least
    squares (Grubbs 1948). It may come out below 0.
    """
    places = {name: i for i, name in enumerate(figures)}
    seen = [
        (places[a], places[b], variance_of(d))
        for a, b in combinations(figures, 2)
        if len(d := differences(figures[a], figures[b])) > 1
    ]
    sums = np.zeros((len(seen), len(places)))
    for row, (a, b, _) in enumerate(seen):
        sums[row, a] = sums[row, b] = 1
    found, _, rank, _ = np.linalg.lstsq(sums, np.array([variance for *_, variance in seen]), rcond=None)
    return dict(zip(places, found.tolist(), strict=True)) if rank == len(places) else None


# Pairs.


@dataclass(frozen=True)
class VariantPair:
    """Two variants, and whether their difference is significant."""

    first: str
    second: str
    difference: float  # of first - second, with the same seeds for both; nan if no seeds link them
    p: float | None  # of all pairs together; None if there was nothing to judge by

    @property
    def distinguishable(self) -> bool:
        return self.p is not None and self.p < LEVEL


def pairs(figures: Mapping[str, Figures]) -> list[VariantPair]:
    """Every pair of variants, judged together. A variant with a single figure is not judged."""
    if not figures:
        return []
    fit = AdditiveFit(figures)
    judged = {name: one for name, one in figures.items() if len(one) > 1}
    uneven = uneven_variants(judged)
    return [judged_pair(a, b, figures, fit, len(judged), uneven) for a, b in combinations(figures, 2)]


def judged_pair(
    a: str, b: str, figures: Mapping[str, Figures], fit: AdditiveFit, groups: int, uneven: set[str]
) -> VariantPair:
    """One pair among `groups` variants."""
    found = fit.difference(a, b)
    if found is None:
        return VariantPair(a, b, math.nan, None)
    difference, factor = found
    variance, own = fit.variance, differences(figures[a], figures[b])
    odd = not uneven.isdisjoint((a, b))
    few = min(len(figures[a]), len(figures[b])) < 2 or (odd and len(own) < 2)
    if few or not variance:
        return VariantPair(a, b, difference, None)
    if odd:
        variance = max(variance, variance_of(own) / 2)
    t = abs(difference) / math.sqrt(variance * factor)
    p = range_p_value(t * math.sqrt(2), groups, fit.freedom)
    return VariantPair(a, b, difference, max(p, p_value(t, len(own) - 1)) if odd else p)
