"""ROUGE: known values, the longest common subsequence by trying them all, several references, intervals."""

import random
from itertools import combinations

import numpy as np
import pytest

from heedful.data.extract import words
from heedful.tasks.rouge import common, mean_interval, rouge, rouge_n, rouges

# Target, summary and the figures of the package rouge-score 0.1.2 without its stemmer.
KNOWN = [
    (
        "The quick brown fox jumps over the lazy dog",
        "The quick brown dog jumps on the log.",
        (70.5882, 26.6667, 58.8235),
    ),
    (
        "FearNet is a memory efficient neural-network, inspired by memory formation in the mammalian brain.",
        "This paper presents a novel solution: a dual-memory system, inspired by the brain in 2017.",
        (45.1613, 6.8966, 38.7097),
    ),
    ("the the the cat", "the cat the", (85.7143, 40.0, 57.1429)),
]


@pytest.mark.parametrize("target, summary, scores", KNOWN)
def test_known_values(target, summary, scores):
    assert tuple(rouge(summary, [target]).values()) == pytest.approx(scores, abs=1e-4)
    assert rouge(target, [summary]) == pytest.approx(rouge(summary, [target]))  # F1 has no sides


def longest(a, b):
    """By trying every part of a, the longest first."""
    for size in range(len(a), 0, -1):
        for places in combinations(range(len(a)), size):
            rest = iter(b)
            if all(any(a[i] == word for word in rest) for i in places):
                return size
    return 0


def test_the_longest_common_subsequence_is_the_longest_of_all():
    draw = random.Random(5)
    for _ in range(300):
        a, b = (draw.choices("xyz", k=draw.randrange(8)) for _ in range(2))
        assert common(a, b) == longest(a, b) == common(b, a)


def test_n_grams_count_as_often_as_the_poorer_side_has_them():
    assert rouge_n(list("abab"), list("abc"), 2) == pytest.approx(2 * 1 / (3 + 2))
    assert rouge_n(list("aaa"), list("ab"), 1) == pytest.approx(2 * 1 / (3 + 2))
    assert rouge_n(["a"], ["a"], 2) == 0  # there is no bigram


def test_the_same_is_100_and_nothing_shared_or_said_is_0():
    assert set(rouge("One, two; THREE.", ["one two three"]).values()) == {100.0}
    for found, target in (("one two", "three four"), ("", "three four"), ("one", "..."), ("", "")):
        assert set(rouge(found, [target]).values()) == {0.0}


def test_words_are_letters_and_digits_of_any_script_without_capitals():
    assert words("It's Émile's 3rd state-of-the-art run_time: 2.5!") == [
        "it",
        "s",
        "émile",
        "s",
        "3rd",
        "state",
        "of",
        "the",
        "art",
        "run",
        "time",
        "2",
        "5",
    ]


def test_of_several_references_the_best_by_rouge_1_counts_for_all():
    by_words, in_order = "dog the bites man", "the man sleeps all day now"
    found = "the man bites dog"
    best = rouge(found, [in_order, by_words])
    assert best == rouge(found, [by_words]) and best["rouge1"] == 100
    assert best["rouge2"] == 0 < rouge(found, [in_order])["rouge2"]  # which the other would have had


def test_every_summary_has_its_scores():
    scores = rouges(["a b", "c"], [["a b"], ["d", "c d"]])
    assert {name: each.tolist() for name, each in scores.items()} == {
        "rouge1": [100.0, pytest.approx(200 / 3)],
        "rouge2": [100.0, 0.0],
        "rougeL": [100.0, pytest.approx(200 / 3)],
    }


def test_an_interval_holds_the_mean_as_often_as_it_says_and_is_always_the_same():
    draw = np.random.default_rng(1)
    held = 0
    for _ in range(100):
        scores = draw.exponential(10.0, size=60)
        low, high = mean_interval(scores)
        assert low < scores.mean() < high and (low, high) == mean_interval(scores)
        held += low <= 10 <= high
    assert 85 <= held <= 100
    few, many = (np.subtract(*mean_interval(draw.normal(size=n))) for n in (40, 1000))
    assert abs(many) < 0.4 * abs(few)
    assert mean_interval(np.array([7.0])) == (7.0, 7.0)
