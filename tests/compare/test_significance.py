"""Noise is called noise: intervals, and which differences are more than noise."""

import math
import random

import pytest
from helpers.runs import (
    texts,  # noqa: F401 (fixtures)
)

from heedful.compare import significance as noise


def test_students_quantiles_are_those_of_the_table():
    for freedom, expected in {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 30: 2.042, 1000: 1.962}.items():
        assert noise.quantile(freedom) == pytest.approx(expected, abs=6e-4)
        assert noise.p_value(expected, freedom) == pytest.approx(0.05, abs=2e-4)
        assert noise.p_value(-expected, freedom) == noise.p_value(expected, freedom)
    assert noise.p_value(0, 3) == 1 and noise.p_value(1e9, 3) < 1e-12
    assert noise.p_value(1.0, 1) == pytest.approx(0.5)  # Cauchy's quartile


def test_the_interval_of_a_mean_is_students():
    low, high = noise.interval([1.0, 2.0, 3.0])
    assert (low + high) / 2 == pytest.approx(2) and (high - low) / 2 == pytest.approx(
        4.303 / math.sqrt(3), abs=1e-3
    )
    assert noise.interval([1.0]) is None and noise.interval([]) is None


def test_holm_lets_the_smallest_count_as_often_as_there_are():
    chances = {("a", "b"): 0.01, ("a", "c"): 0.04, ("b", "c"): 0.03}
    assert noise.holm(chances) == pytest.approx({("a", "b"): 0.03, ("b", "c"): 0.06, ("a", "c"): 0.06})
    assert noise.holm({("a", "b"): 0.7, ("a", "c"): 0.8}) == {("a", "b"): 1.0, ("a", "c"): 1.0}


def test_a_difference_is_judged_seed_by_seed():
    """Both swing from seed to seed, but one is always better by the same amount, about."""
    a = {0: 10.0, 1: 50.0, 2: 90.0, 3: 30.0}
    b = {seed: value - 5 + 0.1 * seed for seed, value in a.items()}
    (pair,) = noise.pairs({"a": a, "b": b})
    assert pair.distinguishable and pair.difference == pytest.approx(4.85)
    swapped = {0: b[3], 1: b[0], 2: b[1], 3: b[2]}
    assert not noise.pairs({"a": a, "b": swapped})[0].distinguishable


def test_one_seed_and_no_visible_noise_tell_nothing():
    (pair,) = noise.pairs({"a": {0: 1.0}, "b": {0: 9.0}})
    assert pair.p is None and not pair.distinguishable
    (pair,) = noise.pairs({"a": {0: 1.0, 1: 1.0, 2: 1.0}, "b": {0: 2.0, 1: 2.0, 2: 2.0}})
    assert pair.p is None and not pair.distinguishable
    (pair,) = noise.pairs({"a": {0: 1.0, 1: 2.0}, "b": {2: 1.0, 3: 2.0}})  # no seed in common
    assert pair.p is None


def test_a_spread_that_is_small_by_luck_is_not_believed():
    """Two seeds that differ by nearly the same amount would give a tiny p; the other pairs show how noisy
    it is."""
    lucky = {"a": {0: 1.0, 1: 1.1}, "b": {0: 2.0, 1: 2.1001}}
    assert noise.pairs(lucky)[0].distinguishable
    noisy = lucky | {"c": {0: 0.0, 1: 3.0}}
    assert not any(pair.distinguishable for pair in noise.pairs(noisy))


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_variants_that_are_alike_are_seldom_told_apart_and_others_often_are(seeds):
    rng, wrong, right, rounds = random.Random(seeds), 0, 0, 300
    for _ in range(rounds):
        common = [rng.gauss(0, 3) for _ in range(seeds)]
        figures = {name: {s: common[s] + rng.gauss(0, 1) for s in range(seeds)} for name in "abcd"}
        wrong += any(pair.distinguishable for pair in noise.pairs(figures))
        better = figures | {"d": {s: value + 40 for s, value in figures["d"].items()}}
        right += any(pair.distinguishable for pair in noise.pairs(better))
    assert wrong / rounds <= 0.05
    assert right / rounds > (0.05 if seeds == 2 else 0.9)
