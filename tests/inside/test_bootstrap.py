"""The paired bootstrap: its interval covers, its draws are pairs, and it says what it was given."""

import itertools

import numpy as np
import pytest

from heedful.errors import BadInput
from heedful.inside.bootstrap import bootstrap, drawn_means


def test_its_draws_have_the_mean_and_the_spread_of_every_possible_draw():
    differences = np.array([1.0, -0.5, 2.0, 0.25])
    every = np.array([np.mean(draw) for draw in itertools.product(differences, repeat=4)])
    means = drawn_means(differences, 40_000, np.random.default_rng(3))
    assert means.mean() == pytest.approx(every.mean(), abs=0.01)
    assert means.std() == pytest.approx(every.std(), abs=0.01)
    assert np.quantile(means, 0.975) == pytest.approx(np.quantile(every, 0.975), abs=0.07)


def test_the_interval_covers_the_true_difference_about_95_times_of_100():
    rng = np.random.default_rng(5)
    covered = 0
    for i in range(200):
        hard = rng.normal(50, 20, 60)  # what both share: without pairs it would hide a difference of 1
        found = bootstrap(hard + rng.normal(1, 2, 60), hard + rng.normal(0, 2, 60), draws=400, seed=i)
        covered += found.low <= 1 <= found.high
    assert 180 <= covered <= 199


def test_it_counts_wins_and_tells_a_difference_from_noise():
    a, b = [3.0, 4.0, 5.0, 1.0, 9.0], [1.0, 4.0, 3.5, 2.0, 4.0]
    found = bootstrap(a, b)
    assert (found.wins, found.ties, found.losses) == (3, 1, 1)
    assert found.difference == pytest.approx(1.5) and found.low < 1.5 < found.high
    assert bootstrap(a, b) == found != bootstrap(a, b, seed=1)
    turned = bootstrap(b, a)
    assert (turned.difference, turned.low, turned.high) == pytest.approx((-1.5, -found.high, -found.low))
    same = bootstrap(a, a)
    assert same.p == 1 and not same.distinguishable
    sure = bootstrap([x + 1 for x in b], b)
    assert sure.distinguishable and sure.p < 0.01
    assert "3 wins, 1 ties, 1 losses" in found.text() and found.as_json()["draws"] == 2000


@pytest.mark.parametrize("a, b", [([1.0], [2.0]), ([1.0, 2.0], [1.0]), ([1.0, float("nan")], [1.0, 2.0])])
def test_scores_that_are_no_pairs_are_refused(a, b):
    with pytest.raises(BadInput):
        bootstrap(a, b)
