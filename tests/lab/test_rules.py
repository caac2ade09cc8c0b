"""Rules against known cases: tables of intervals, power laws, and parts that are judged together."""

import math

import pytest

from heedful.lab.claim import Claim, ClaimPart, combined, holm_levels, judge
from heedful.lab.results import Results, at
from heedful.lab.rules import Direction, Equal, Exact, Near, Reaches, Slope, log_slope
from heedful.tasks.metrics import interval
from heedful.tasks.student import mean_interval


def results(**arms):
    """{arm: values by seed} of one measure, "x"."""
    return Results({arm: {i: {"x": v} for i, v in enumerate(values)} for arm, values in arms.items()})


@pytest.mark.parametrize(
    "successes, trials, low, high",
    [
        (3, 3, 0.4385, 1.0),
        (0, 3, 0.0, 0.5615),
        (4, 4, 0.510, 1.0),
        (8, 10, 0.490, 0.943),
        (81, 263, 0.255, 0.366),
    ],
)
def test_wilson_is_what_tables_have(successes, trials, low, high):
    assert interval(successes / trials, trials) == pytest.approx((low, high), abs=5e-4)


def test_the_interval_of_a_mean_is_students():
    low, high = mean_interval([1.0, 2.0, 3.0])
    half = 4.302653 / math.sqrt(3)
    assert (low, high) == pytest.approx((2 - half, 2 + half), abs=1e-5)
    assert mean_interval([7.0, 7.0]) == (7.0, 7.0)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_law_is_found(power):
    exact = [(n, 3 * n**power) for n in (64, 128, 256, 512)]
    assert log_slope(exact) == pytest.approx((power, power, power), abs=1e-9)
    wavy = [(n, y * (1.1 if i % 2 else 0.9)) for i, (n, y) in enumerate(exact)]
    slope, low, high = log_slope(wavy)
    assert low < slope < high and low < power < high


def test_an_identity_is_exact_or_contradicted():
    rule = Exact(("a",), {"x": 1e-6})
    assert rule.judge(results(a=[1e-7, 0.0])).verdict == "exact"
    assert rule.judge(results(a=[1e-7, 1e-5])).verdict == "contradicted"
    assert rule.judge(results(a=[math.nan])).verdict == "contradicted"


@pytest.mark.parametrize(
    "a, b, verdict",
    [
        ([1.0, 1.1, 1.2], [0.0, 0.1, 0.2], "supported"),
        ([0.0, 0.1, 0.2], [1.0, 1.1, 1.2], "contradicted"),
        ([0.0, 1.0, 0.5], [0.5, 0.2, 0.4], "inconclusive"),
        ([1.0], [0.0], "inconclusive"),
    ],
)
def test_a_direction_needs_a_difference_beyond_its_noise(a, b, verdict):
    assert Direction("a", "b", "x", 0.5).judge(results(a=a, b=b)).verdict == verdict


def test_a_difference_within_the_margin_is_equality_only_if_the_interval_is():
    close, far = [1.0, 1.01, 0.99], [2.0, 2.01, 1.99]
    assert Equal("a", "b", "x", 0.1).judge(results(a=close, b=[1.0, 1.0, 1.0])).verdict == "supported"
    assert Equal("a", "b", "x", 0.1).judge(results(a=far, b=close)).verdict == "contradicted"
    assert Equal("a", "b", "x", 0.1).judge(results(a=[0.5, 1.0, 1.5], b=close)).verdict == "inconclusive"
    assert Near("a", "x", 1.0, 0.1).judge(results(a=close)).verdict == "supported"


def test_two_one_sided_tests_use_the_90_per_cent_interval():
    found, half = [0.0, 0.1, 0.2], 2.919986 * 0.1 / math.sqrt(3)
    assert Near("a", "x", 0.1, half + 1e-4).judge(results(a=found)).verdict == "supported"
    assert Near("a", "x", 0.1, half - 1e-4).judge(results(a=found)).verdict == "inconclusive"


@pytest.mark.parametrize(
    "learned, failed, verdict",
    [
        ([1.0] * 4, [0.5] * 4, "supported"),
        ([1.0] * 3, [0.5] * 4, "inconclusive"),  # three of three are not yet most
        ([0.5] * 4, [0.5] * 4, "contradicted"),
        ([1.0] * 4, [1.0] * 4, "contradicted"),
    ],
)
def test_seeds_that_learn_are_counted_and_not_averaged(learned, failed, verdict):
    rule = Reaches("x", 0.95, ("learned",), ("failed",))
    assert rule.judge(results(learned=learned, failed=failed)).verdict == verdict


@pytest.mark.parametrize("about, verdict", [(1.5, "supported"), (2.0, "contradicted")])
def test_a_slope_is_that_of_the_largest_sizes(about, verdict):
    numbers = {at("x", n): (5.0 if n < 100 else n**1.5) for n in (2, 4, 128, 256, 512, 1024)}
    assert Slope("a", "x", about).judge(Results({"a": {0: numbers}})).verdict == verdict


# Parts together.


def claim(*parts):
    return Claim("", "", "", parts, lambda found: "", "", lambda found: None, "", {})


def part(rule, **more):
    return ClaimPart("p", "", dict.fromkeys(rule.arms, lambda seed, size: {}), rule, **more)


def test_a_control_that_fails_makes_a_claim_inconclusive():
    found = results(a=[1.0, 1.1, 1.2], b=[0.0, 0.1, 0.2], bad=[5.0, 5.0, 5.0])
    good = part(Direction("a", "b", "x"))
    assert judge(claim(good), found).verdict == "supported"
    control = part(Exact(("bad",), {"x": 1e-6}), control=True)
    assert judge(claim(good, control), found).verdict == "inconclusive"


@pytest.mark.parametrize(
    "verdicts, expected",
    [
        (["exact", "exact"], "exact"),
        (["exact", "supported"], "supported"),
        (["supported", "contradicted"], "depends"),
        (["contradicted", "contradicted"], "contradicted"),
        (["exact", "inconclusive"], "inconclusive"),
        (["contradicted", "inconclusive"], "inconclusive"),
    ],
)
def test_parts_that_disagree_make_a_claim_depend(verdicts, expected):
    assert combined([(False, verdict) for verdict in verdicts]) == expected


def test_holm_lets_no_part_pass_after_one_that_fails():
    assert holm_levels([0.01, None, 0.04, 0.02]) == pytest.approx([0.05 / 3, 0.05, 0.05, 0.05 / 2])
    assert holm_levels([0.03, 0.04]) == pytest.approx([0.025, 0.0])


def test_many_parts_need_smaller_chances_than_one():
    found = results(a=[1.0, 1.3, 0.8, 1.4, 0.6], b=[0.3, 0.9, 0.7, 0.5, 0.4])
    rule = Direction("a", "b", "x")
    alone = judge(claim(part(rule)), found)
    assert alone.verdict == "supported" and 0.0125 < alone.rulings[0].p < 0.05
    assert judge(claim(*[part(rule)] * 4), found).verdict == "inconclusive"
