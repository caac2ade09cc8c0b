"""Noise is called noise: intervals, and which differences are more than noise."""

import math
from functools import cache

import numpy as np
import pytest

from heedful.compare import significance as noise
from heedful.compare.studentized_range import range_p_value
from heedful.tasks.student import p_value, quantile, variance_ratio_p_value

LETTERS = "abcdefghij"


def test_students_quantiles_are_those_of_the_table():
    for freedom, expected in {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 30: 2.042, 1000: 1.962}.items():
        assert quantile(freedom) == pytest.approx(expected, abs=6e-4)
        assert p_value(expected, freedom) == pytest.approx(0.05, abs=2e-4)
        assert p_value(-expected, freedom) == p_value(expected, freedom)
    assert p_value(0, 3) == 1 and p_value(1e9, 3) < 1e-12
    assert p_value(1.0, 1) == pytest.approx(0.5)  # Cauchy's quartile


def test_the_interval_of_a_mean_is_students():
    low, high = noise.interval([1.0, 2.0, 3.0])
    assert (low + high) / 2 == pytest.approx(2) and (high - low) / 2 == pytest.approx(
        4.303 / math.sqrt(3), abs=1e-3
    )
    assert noise.interval([1.0]) is None and noise.interval([]) is None


# The studentized range


@pytest.mark.parametrize("groups", [2, 3, 10, 50])
@pytest.mark.parametrize("freedom", [1, 2, 6, 18, 100, 1000])
def test_the_studentized_range_is_that_of_scipy(groups, freedom):
    stats = pytest.importorskip("scipy.stats")
    for q in (0.01, 0.5, 2.0, 3.5, 5.0, 8.0, 15.0, 40.0):
        expected = float(stats.studentized_range.sf(q, groups, freedom))
        assert range_p_value(q, groups, freedom) == pytest.approx(expected, abs=1e-8)


def test_the_studentized_range_is_that_of_the_tables_and_of_student():
    table = {(3, 4): 5.040, (10, 18): 5.071, (10, 2): 13.99, (4, 6): 4.896, (20, 40): 5.36}
    for (groups, freedom), q in table.items():
        assert range_p_value(q, groups, freedom) == pytest.approx(0.05, abs=3e-4)
    for freedom, t in ((1, 0.3), (2, 4.303), (18, 30.0)):
        expected = p_value(t, freedom)
        assert range_p_value(t * math.sqrt(2), 2, freedom) == pytest.approx(expected, rel=1e-6)
    assert range_p_value(0, 5, 3) == 1


def test_fishers_ratio_is_that_of_the_table():
    for (freedom, other), ratio in {(2, 16): 3.634, (1, 8): 5.318, (5, 5): 5.050}.items():
        assert variance_ratio_p_value(ratio, freedom, other) == pytest.approx(0.05, abs=1e-4)


# Pairs


def test_two_variants_are_compared_by_the_paired_t_test():
    """Both swing from seed to seed, but one is always better by the same amount, about."""
    a = {0: 10.0, 1: 50.0, 2: 90.0, 3: 30.0}
    b = {seed: value - 5 + 0.1 * seed for seed, value in a.items()}
    (pair,) = noise.pairs({"a": a, "b": b})
    assert pair.distinguishable and pair.difference == pytest.approx(4.85)
    differences = [a[seed] - b[seed] for seed in a]
    t = np.mean(differences) / (np.std(differences, ddof=1) / 2)
    assert pair.p == pytest.approx(p_value(t, 3), rel=1e-6)
    swapped = {0: b[3], 1: b[0], 2: b[1], 3: b[2]}
    assert not noise.pairs({"a": a, "b": swapped})[0].distinguishable


def test_the_variance_is_what_variants_and_seeds_leave():
    figures = simulated(np.random.default_rng(4), 1, 4, 5)[0]
    fit = noise.AdditiveFit(named(figures))
    rest = figures - figures.mean(0) - figures.mean(1, keepdims=True) + figures.mean()
    assert fit.freedom == 3 * 4 and fit.variance == pytest.approx((rest**2).sum() / 12)
    assert fit.difference("a", "c") == pytest.approx((figures[0].mean() - figures[2].mean(), 2 / 5))
    assert fit.means == pytest.approx(dict(zip(LETTERS, figures.mean(1), strict=False)))


def test_one_seed_and_no_visible_noise_tell_nothing():
    (pair,) = noise.pairs({"a": {0: 1.0}, "b": {0: 9.0}})
    assert pair.p is None and not pair.distinguishable
    (pair,) = noise.pairs({"a": {0: 0.1, 1: 0.1, 2: 0.1}, "b": {0: 0.7, 1: 0.7, 2: 0.7}})
    assert pair.p is None and not pair.distinguishable
    (pair,) = noise.pairs({"a": {0: 1.0, 1: 2.0}, "b": {2: 1.0, 3: 2.0}})  # no seed in common
    assert pair.p is None and math.isnan(pair.difference)
    assert noise.pairs({}) == []


def test_a_spread_that_is_small_by_luck_is_not_believed():
    """Two seeds that differ by nearly the same amount would give a tiny p; the other pairs show how noisy
    it is."""
    lucky = {"a": {0: 1.0, 1: 1.1}, "b": {0: 2.0, 1: 2.1001}}
    assert noise.pairs(lucky)[0].distinguishable
    noisy = lucky | {"c": {0: 0.0, 1: 3.0}}
    assert not any(pair.distinguishable for pair in noise.pairs(noisy))


def test_a_missing_seed_is_no_advantage():
    """The third seed is bad for all; the variant that lacks it is compared as if it had it."""
    figures = {
        "a": {0: 10.0, 1: 11.0, 2: 1.0},
        "b": {0: 10.1, 1: 11.2, 2: 1.1},
        "c": {0: 9.9, 1: 10.8},
        "d": {0: 30.0},
    }
    found = {(pair.first, pair.second): pair for pair in noise.pairs(figures)}
    assert found["a", "c"].difference == pytest.approx(0.15, abs=0.03)
    assert not found["a", "c"].distinguishable
    assert noise.variant_means(figures)["c"] == pytest.approx(7.2, abs=0.1)
    assert found["a", "d"].p is None  # a single figure has no spread to be seen
    better = figures | {"c": {0: 19.9, 1: 20.8}}
    assert {(p.first, p.second): p for p in noise.pairs(better)}["a", "c"].distinguishable


def test_variants_without_common_seeds_are_linked_by_others():
    figures = {"a": {0: 1.0, 1: 2.1}, "b": {0: 5.0, 1: 6.0, 2: 7.1, 3: 8.0}, "c": {2: 3.0, 3: 4.2}}
    found = {(pair.first, pair.second): pair for pair in noise.pairs(figures)}
    assert found["a", "c"].difference == pytest.approx(-3.95 + 3.95, abs=0.1)
    apart = figures | {"b": {0: 5.0, 1: 6.0}}
    assert all(p.p is None for p in noise.pairs(apart) if "c" in (p.first, p.second))


def test_a_variant_that_varies_far_more_is_judged_by_its_own_spread():
    figures = simulated(np.random.default_rng(5), 1, 10, 3)[0]
    assert noise.uneven_variants(named(figures)) == set()
    figures[3] = [40.0, -30.0, 80.0]
    assert noise.uneven_variants(named(figures)) == {"d"}
    pair = next(pair for pair in noise.pairs(named(figures)) if (pair.first, pair.second) == ("a", "d"))
    own = figures[0] - figures[3]
    t = own.mean() / (own.std(ddof=1) / math.sqrt(3))
    assert pair.p >= p_value(t, 2) - 1e-12
    assert noise.uneven_variants(named(figures[2:4])) == set()


# How often it is right: the false alarms and the power that docs/explain/comparing.md states


def simulated(rng, rounds, variants, seeds, shared=3.0):
    """Figures of variants that are all alike; what a seed does to all of them is larger than the noise."""
    common = rng.normal(0, shared, (rounds, 1, seeds))
    return common + rng.normal(0, 1, (rounds, variants, seeds))


def named(figures):
    return {name: dict(enumerate(row)) for name, row in zip(LETTERS, figures.tolist(), strict=False)}


@cache
def critical(groups, freedom):
    """The studentized range at 5 %."""
    low, high = 0.0, 100.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if range_p_value(middle, groups, freedom) > 0.05 else (low, middle)
    return low


@pytest.fixture
def fast(monkeypatch):
    """Only whether p is below 5 %, which is fast enough for thousands of comparisons."""
    monkeypatch.setattr(noise, "range_p_value", lambda q, *law: 0.0 if q > critical(*law) else 1.0)


def alarms(figures):
    return np.mean([any(pair.distinguishable for pair in noise.pairs(named(one))) for one in figures])


def found(figures):
    """How often the first variant is distinguished from the second."""
    return np.mean([noise.pairs(named(one))[0].distinguishable for one in figures])


def test_ten_variants_that_are_alike_are_seldom_told_apart(fast):
    assert alarms(simulated(np.random.default_rng(0), 2000, 10, 3)) <= 0.05


@pytest.mark.parametrize("variants, seeds", [(3, 2), (4, 3), (4, 5)])
def test_few_variants_that_are_alike_are_seldom_told_apart(variants, seeds, fast):
    assert alarms(simulated(np.random.default_rng(seeds), 1000, variants, seeds)) <= 0.06  # 5 % and chance


def test_a_true_difference_is_found(fast):
    """Ten variants, three seeds, one variant that differs by so many standard deviations of the noise."""
    figures = simulated(np.random.default_rng(2), 600, 10, 3)
    shift = np.eye(10)[0][:, None]
    assert found(figures + 3 * shift) > 0.5
    assert found(figures + 5 * shift) > 0.9
    assert found(figures + 10 * shift) == 1


@pytest.mark.parametrize("times, most", [(3, 0.13), (5, 0.13), (30, 0.09), (100, 0.08)])
def test_a_variant_with_more_noise_raises_few_alarms(times, most, fast):
    """Three seeds cannot always show that a variant is noisy; without the guard it would be up to 25 %."""
    figures = simulated(np.random.default_rng(3), 400, 10, 3, shared=0)
    figures[:, 0] *= times
    assert alarms(figures) <= most
