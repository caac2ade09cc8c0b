"""Rules: how numbers become a verdict. Every rule is fixed before its claim is run.

Exact      an identity: no difference above a tolerance
Direction  one arm above another by more than a margin: paired t-test over seeds
Near       an arm's mean within a distance of a number: two one-sided tests
Equal      two arms within a distance of each other: two one-sided tests on paired differences
Reaches    each seed succeeds or fails: Wilson interval of the share of seeds
Slope      the exponent of a power law: least squares on logarithms, bootstrap over residuals
"""

from __future__ import annotations

import math
import random
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..tasks.metrics import interval
from ..tasks.student import LEVEL, mean_interval, p_value
from .results import Results

EXACT, SUPPORTED, CONTRADICTED, INCONCLUSIVE, DEPENDS = VERDICTS = (
    "exact",
    "supported",
    "contradicted",
    "inconclusive",
    "depends",
)
DRAWS = 2000  # of a bootstrap
LARGEST = 4  # sizes that a slope is fitted to


@dataclass(frozen=True)
class Ruling:
    """What a rule says of a part."""

    verdict: str
    why: str  # the numbers that decided, in words
    p: float | None = None  # where the parts of a claim are judged together


class VerdictRule(ABC):
    """A rule. It names the arms that it needs."""

    @property
    @abstractmethod
    def arms(self) -> tuple[str, ...]:
        """The arms that the rule compares."""

    @abstractmethod
    def judge(self, results: Results, level: float = LEVEL) -> Ruling:
        """The verdict. level: the chance of a false verdict, smaller where several parts are judged."""

    @abstractmethod
    def says(self) -> str:
        """The rule in words."""


# Statistics.


def chance_beyond(figures: Sequence[float], margin: float) -> float:
    """The two-sided p-value of a mean that is said to be `margin`."""
    if max(figures) == min(figures):
        return 0.0 if figures[0] != margin else 1.0
    error = statistics.stdev(figures) / math.sqrt(len(figures))
    return p_value((statistics.fmean(figures) - margin) / error, len(figures) - 1)


def log_slope(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """(slope, lower end, upper end) of log y over log x, with a 95 % interval by bootstrap over residuals."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    slope, start = statistics.linear_regression(xs, ys)
    fitted = [start + slope * x for x in xs]
    residuals = [y - f for y, f in zip(ys, fitted, strict=True)]
    rng = random.Random(0)
    again = ([f + rng.choice(residuals) for f in fitted] for _ in range(DRAWS))
    drawn = sorted(statistics.linear_regression(xs, some).slope for some in again)
    return slope, drawn[round(0.025 * DRAWS)], drawn[round(0.975 * DRAWS) - 1]


def needs_seeds(count: int) -> Ruling | None:
    """With one seed there is no interval."""
    return None if count > 1 else Ruling(INCONCLUSIVE, f"{count} seed: two or more give an interval")


def ends(low: float, high: float) -> str:
    return f"95 % interval {low:.3g} to {high:.3g}"


# The rules.


@dataclass(frozen=True)
class Exact(VerdictRule):
    """An identity held: each measure of each arm is at most its tolerance, for every seed."""

    of: tuple[str, ...]
    tolerances: Mapping[str, float]  # {measure: tolerance}

    @property
    def arms(self) -> tuple[str, ...]:
        return self.of

    def judge(self, results: Results, level: float = LEVEL) -> Ruling:
        worst = {
            name: max(v for arm in self.of for v in results.values(arm, name)) for name in self.tolerances
        }
        told = ", ".join(
            f"{name} at most {value:.2g} (tolerance {self.tolerances[name]:g})"
            for name, value in worst.items()
        )
        held = all(value <= self.tolerances[name] for name, value in worst.items())  # not a number: no
        return Ruling(EXACT if held else CONTRADICTED, told)

    def says(self) -> str:
        told = " and ".join(f"{name} is at most {value:g}" for name, value in self.tolerances.items())
        return f"For every seed, {told}."


@dataclass(frozen=True)
class Direction(VerdictRule):
    """One arm's measure is above another's by more than a margin, in pairs of one seed."""

    above: str
    below: str
    measure: str
    margin: float = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        return self.above, self.below

    def differences(self, results: Results) -> list[float]:
        high, low = (results.by_seed(arm, self.measure) for arm in self.arms)
        return [high[seed] - low[seed] for seed in sorted(high.keys() & low.keys())]

    def judge(self, results: Results, level: float = LEVEL) -> Ruling:
        found = self.differences(results)
        few = needs_seeds(len(found))
        if few is not None:
            return few
        p, mean = chance_beyond(found, self.margin), statistics.fmean(found)
        low, high = mean_interval(found)
        told = (
            f"mean difference {mean:.3g} over {len(found)} seeds, {ends(low, high)}, margin {self.margin:g}"
        )
        if p >= level:
            return Ruling(INCONCLUSIVE, told, p)
        return Ruling(SUPPORTED if mean > self.margin else CONTRADICTED, told, p)

    def says(self) -> str:
        beyond = f" by more than {self.margin:g}" if self.margin else ""
        return (
            f"{self.measure}: {self.above} is above {self.below}{beyond}. "
            "Paired t-test over seeds at 5 %, corrected for the parts of the claim (Holm)."
        )


@dataclass(frozen=True)
class Near(VerdictRule):
    """The mean of an arm lies within a distance of a number."""

    arm: str
    measure: str
    about: float
    within: float

    @property
    def arms(self) -> tuple[str, ...]:
        return (self.arm,)

    def judge(self, results: Results, level: float = LEVEL) -> Ruling:
        return near(
            [value - self.about for value in results.values(self.arm, self.measure)], self.within, self.about
        )

    def says(self) -> str:
        close = f"the mean of {self.arm} is within {self.within:g} of {self.about:g}"
        return f"{self.measure}: {close} (two one-sided tests at 5 %)."


@dataclass(frozen=True)
class Equal(VerdictRule):
    """Two arms differ by less than a margin, in pairs of one seed."""

    one: str
    other: str
    measure: str
    margin: float

    @property
    def arms(self) -> tuple[str, ...]:
        return self.one, self.other

    def judge(self, results: Results, level: float = LEVEL) -> Ruling:
        return near(Direction(self.one, self.other, self.measure).differences(results), self.margin)

    def says(self) -> str:
        close = f"{self.one} and {self.other} differ by less than {self.margin:g}"
        return f"{self.measure}: {close} (two one-sided tests at 5 %)."


def near(found: Sequence[float], within: float, about: float = 0.0) -> Ruling:
    """Two one-sided tests (Schuirmann 1987): the 90 % interval lies within the margin, on both sides."""
    few = needs_seeds(len(found))
    if few is not None:
        return few
    low, high = mean_interval(found, 2 * LEVEL)
    told = f"90 % interval {low + about:.3g} to {high + about:.3g} over {len(found)} seeds"
    if -within <= low and high <= within:
        return Ruling(SUPPORTED, told)
    outside = high < -within or low > within
    return Ruling(CONTRADICTED if outside else INCONCLUSIVE, told)


@dataclass(frozen=True)
class Reaches(VerdictRule):
    """Most seeds of some arms reach a number, and most seeds of others do not."""

    measure: str
    least: float
    reach: tuple[str, ...] = ()
    miss: tuple[str, ...] = ()
    share: float = 0.5

    @property
    def arms(self) -> tuple[str, ...]:
        return (*self.reach, *self.miss)

    def judge(self, results: Results, level: float = LEVEL) -> Ruling:
        verdicts, told = set(), []
        for arm in self.arms:
            values = results.values(arm, self.measure)
            done = sum(value >= self.least for value in values)
            low, high = interval(done / len(values), len(values))
            side = SUPPORTED if low > self.share else CONTRADICTED if high < self.share else INCONCLUSIVE
            flipped = {SUPPORTED: CONTRADICTED, CONTRADICTED: SUPPORTED, INCONCLUSIVE: INCONCLUSIVE}
            verdicts.add(side if arm in self.reach else flipped[side])
            told.append(f"{arm} {done} of {len(values)} ({low:.2f} to {high:.2f})")
        worst = next(one for one in (CONTRADICTED, INCONCLUSIVE, SUPPORTED) if one in verdicts)
        return Ruling(worst, "; ".join(told))

    def says(self) -> str:
        some = [f"most seeds of {'; '.join(self.reach)} reach {self.least:g}"] if self.reach else []
        some += [f"most seeds of {'; '.join(self.miss)} do not reach {self.least:g}"] if self.miss else []
        compared = f"The Wilson interval of the share is compared with {self.share:g}."
        return f"{self.measure}: {' and '.join(some)}. {compared}"


@dataclass(frozen=True)
class Slope(VerdictRule):
    """A measure grows like a power of x: the exponent is within a distance of a number."""

    arm: str
    measure: str
    about: float
    within: float = 0.15

    @property
    def arms(self) -> tuple[str, ...]:
        return (self.arm,)

    def fit(self, results: Results) -> tuple[float, float, float]:
        series = list(results.series(self.arm, self.measure).items())[-LARGEST:]
        return log_slope([(x, y) for x, values in series for y in values])

    def judge(self, results: Results, level: float = LEVEL) -> Ruling:
        slope, low, high = self.fit(results)
        told = f"exponent {slope:.3f}, {ends(low, high)}"
        least, most = self.about - self.within, self.about + self.within
        if least <= low and high <= most:
            return Ruling(SUPPORTED, told)
        return Ruling(CONTRADICTED if high < least or low > most else INCONCLUSIVE, told)

    def says(self) -> str:
        return (
            f"{self.measure} of {self.arm} grows with the power {self.about:g}, within {self.within:g}. "
            f"Fit over the largest {LARGEST} sizes, 95 % interval by bootstrap."
        )
