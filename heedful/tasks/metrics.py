"""Metrics: BLEU as sacreBLEU computes it, and alignment error rate."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"  # sacreBLEU's, for what `bleu` computes

# The tokenisation of mteval-v13a: split off punctuation, but not inside numbers.
RULES = (
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
ENTITIES = (
    ("<skipped>", ""),
    ("-\n", ""),
    ("\n", " "),
    ("&quot;", '"'),
    ("&amp;", "&"),
    ("&lt;", "<"),
    ("&gt;", ">"),
)


def tokens_13a(text: str) -> list[str]:
    for old, new in ENTITIES:
        text = text.replace(old, new)
    text = f" {text} "
    for rule, new in RULES:
        text = rule.sub(new, text)
    return text.split()


def bleu(found: Sequence[str], expected: Sequence[str], lower: bool = False) -> float:
    """Corpus BLEU, 0 to 100: clipped 1- to 4-gram precision and a brevity penalty (Papineni et al. 2002)."""
    right, total, ours, theirs = [0] * 4, [0] * 4, 0, 0
    for a, b in zip(found, expected, strict=True):
        a_words, b_words = (tokens_13a(text.lower() if lower else text) for text in (a.rstrip(), b.rstrip()))
        ours, theirs = ours + len(a_words), theirs + len(b_words)
        for n in range(4):
            a_grams, b_grams = grams(a_words, n + 1), grams(b_words, n + 1)
            right[n] += sum((a_grams & b_grams).values())
            total[n] += sum(a_grams.values())
    if not right[0]:
        return 0.0
    logs, halving = 0.0, 1.0
    for r, t in zip(right, total, strict=True):
        if not t:
            return 0.0
        halving = (
            halving if r else 2 * halving
        )  # an order with no match counts as half of one, then a quarter, ...
        logs += math.log(r / t if r else 1 / (halving * t)) / 4
    return 100 * min(1.0, math.exp(1 - theirs / ours)) * math.exp(logs)


def grams(words: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def exact_match(found: Sequence[str], expected: Sequence[str]) -> float:
    """Share of sentences that are right to the letter, 0 to 1."""
    return sum(a == b for a, b in zip(found, expected, strict=True)) / max(1, len(expected))


def alignment_error_rate(found: set[tuple[int, int]], gold: set[tuple[int, int]]) -> float:
    """1 - 2 |found and gold| / (|found| + |gold|), for gold links that are all sure (Och and Ney 2003)."""
    return 1 - 2 * len(found & gold) / (len(found) + len(gold)) if found or gold else 0.0


def interval(share: float, count: int) -> tuple[float, float]:
    """95 % interval of a share measured on `count` examples (Wilson)."""
    if not count:
        return 0.0, 1.0
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)
