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

from ..tasks.student import LEVEL, p_value, quantile, variance_ratio_p_value
from .studentized_range import range_p_value

TEST = (
    "Tukey's test of all pairs together, two-sided, at 5 %; seeds are paired; "
    "a variant that varies far more than the others must also pass a paired t-test"
)
UNEVEN = 0.02  # the level at which a variant is found to vary more than the others
Figures = Mapping[int, float]  # {seed: figure}


def interval(figures: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds; None for a single seed, which shows no spread."""
    if len(figures) < 2:
        return None
    mean = statistics.fmean(figures)
    half = quantile(len(figures) - 1) * statistics.stdev(figures) / math.sqrt(len(figures))
    return mean - half, mean + half


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
    """Variants whose variance is too large for chance, from the largest down, each beside all smaller ones.

    The variance of a difference is the sum of two variances: those of all pairs give each variant's (Grubbs
    1948), whatever the seeds do to all. Where pairs are too few to tell, all variants count as uneven.
    """
    names = list(figures)
    if len(names) < 3:  # two have one difference, whose variance is the pooled one
        return set()
    seen = {
        (i, j): variance_of(d)
        for i, j in combinations(range(len(names)), 2)
        if len(d := differences(figures[names[i]], figures[names[j]])) > 1
    }
    sums = np.zeros((len(seen), len(names)))
    for row, pair in enumerate(seen):
        sums[row, list(pair)] = 1
    variances, _, rank, _ = np.linalg.lstsq(sums, np.array(list(seen.values())), rcond=None)
    if rank < len(names):
        return set(names)
    order = np.argsort(-variances)
    found: set[str] = set()
    for place, i in enumerate(order[:-2]):
        smaller = order[place + 1 :]
        rest = max(0.0, float(variances[smaller].mean()))
        freedom = sum(len(figures[names[j]]) - 1 for j in smaller) * (1 - 1 / len(smaller))
        if variances[i] <= 0 or (
            rest
            and variance_ratio_p_value(variances[i] / rest, len(figures[names[i]]) - 1, freedom) >= UNEVEN
        ):
            break
        found.add(names[i])
    return found


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
