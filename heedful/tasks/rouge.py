"""ROUGE (Lin 2004): how much of a reference a summary has, by F1 of shared word sequences.

    ROUGE-N   n-grams in both, each counted as often as in the poorer of the two
    ROUGE-L   the longest sequence of words that is in both in this order, with gaps

Words are runs of letters and digits, without capitals and not stemmed: on English text these are the figures
of the package rouge-score without its stemmer. A summary is one sequence, whatever sentences it has. Of
several references, the one with the best ROUGE-1 counts, for all three figures (as SciTLDR does, Cachola et
al. 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..data.extract import words
from .metrics import grams

SIGNATURE = "F1|words:letters and digits|case:lower|stem:none|L:whole summary|references:best by ROUGE-1"
RESAMPLED = 1000  # times, for an interval


def f1(both: int, found: int, expected: int) -> float:
    """2 both / (found + expected), which is the harmonic mean of precision and recall."""
    return 2 * both / (found + expected) if both else 0.0


def rouge_n(found: Sequence[str], expected: Sequence[str], n: int) -> float:
    """F1 of n-grams, 0 to 1."""
    a, b = grams(list(found), n), grams(list(expected), n)
    return f1((a & b).total(), a.total(), b.total())


def rouge_l(found: Sequence[str], expected: Sequence[str]) -> float:
    """F1 of the longest common subsequence, 0 to 1."""
    return f1(common(found, expected), len(found), len(expected))


def common(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest common subsequence.

    A row of the usual table only ever grows by ones, so it is kept as the bits of one number, 0 where it
    grows, and a word of b is one addition (Hyyrö 2004).
    """
    places: dict[str, int] = {}
    for i, word in enumerate(a):
        places[word] = places.get(word, 0) | 1 << i
    row = whole = (1 << len(a)) - 1
    for word in b:
        met = row & places.get(word, 0)
        row = (row + met | row - met) & whole
    return len(a) - row.bit_count()


METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "rouge1": lambda a, b: rouge_n(a, b, 1),
    "rouge2": lambda a, b: rouge_n(a, b, 2),
    "rougeL": rouge_l,
}


def rouge(found: str, references: Sequence[str]) -> dict[str, float]:
    """{"rouge1", "rouge2", "rougeL"} of one summary, 0 to 100."""
    mine = words(found)
    scores = [{name: 100 * f(mine, words(one)) for name, f in METRICS.items()} for one in references]
    return max(scores, key=lambda score: score["rouge1"])


def rouges(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Each metric of every summary."""
    scores = [rouge(a, b) for a, b in zip(found, references, strict=True)]
    return {name: np.array([score[name] for score in scores]) for name in METRICS}


def mean_interval(scores: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of a mean, by resampling the examples (always the same way for the same scores)."""
    draw, count = np.random.default_rng(0), len(scores)
    means = [scores[draw.integers(count, size=count)].mean() for _ in range(RESAMPLED)]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
