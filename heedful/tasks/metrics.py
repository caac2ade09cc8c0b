"""Metrics: BLEU as sacreBLEU computes it, F1 and its parts, exact match, alignment error rate, intervals."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np

from .. import __version__
from ..data.shards import Stream

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"  # sacreBLEU's, for what `bleu` computes

# The tokenization of mteval-v13a: split off punctuation, but not inside numbers.
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


def translation_scores(
    found: Sequence[str], expected: Sequence[str], lower: bool = False
) -> tuple[dict[str, float], dict[str, str]]:
    """Scores of translations, 0 to 100, and the signature of each: how it was computed, and by which package.

    The package sacrebleu computes them where it is installed, chrF as well; BLEU is otherwise `bleu`, the
    same number.
    """
    try:
        theirs = import_module("sacrebleu.metrics")
    except ImportError:
        case = SIGNATURE.replace("case:mixed", "case:lc") if lower else SIGNATURE
        return {"bleu": bleu(found, expected, lower)}, {"bleu": f"{case}|version:heedful-{__version__}"}
    scores, signatures = {}, {}
    for name, metric in {"bleu": theirs.BLEU(lowercase=lower), "chrf": theirs.CHRF(lowercase=lower)}.items():
        scores[name] = float(metric.corpus_score(list(found), [list(expected)]).score)
        signatures[name] = str(metric.get_signature())
    return scores, signatures


def exact_match(found: Sequence[str], expected: Sequence[str]) -> float:
    """Share of sentences that are right to the letter, 0 to 1."""
    return sum(a == b for a, b in zip(found, expected, strict=True)) / max(1, len(expected))


# SQuAD's (Rajpurkar et al. 2016), letter for letter as its evaluation script has them.

ARTICLES = re.compile(r"\b(a|an|the)\b")


def squad_words(text: str) -> list[str]:
    """The words that count: lower case, without punctuation and articles."""
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return ARTICLES.sub(" ", bare).split()


def squad_exact(found: str, expected: str) -> float:
    """1 if the words that count are the same, else 0."""
    return float(squad_words(found) == squad_words(expected))


def squad_f1(found: str, expected: str) -> float:
    """F1 of the words in common, articles and punctuation left out; two texts without words are alike."""
    mine, right = squad_words(found), squad_words(expected)
    both = sum((Counter(mine) & Counter(right)).values())
    if not mine or not right:
        return float(mine == right)
    return 2 * both / (len(mine) + len(right))


def accuracy(found: Sequence[int], right: Sequence[int]) -> float:
    """Share of labels that are right, 0 to 1."""
    return sum(a == b for a, b in zip(found, right, strict=True)) / max(1, len(right))


@dataclass(frozen=True)
class LabelScores:
    """How well one label was told from the others; what would be 0 / 0 is 0."""

    precision: float  # of the texts given this label, the share that has it
    recall: float  # of the texts that have it, the share that was given it
    f1: float  # 2 both / (given + have), which is the harmonic mean of the two
    count: int  # texts that have it


def scores_by_label(found: Sequence[int], right: Sequence[int], labels: int) -> list[LabelScores]:
    """The scores of the labels 0, 1, ..., of which some may occur nowhere."""
    both = Counter(a for a, b in zip(found, right, strict=True) if a == b)
    given, have = Counter(found), Counter(right)
    return [
        LabelScores(
            both[label] / max(1, given[label]),
            both[label] / max(1, have[label]),
            2 * both[label] / max(1, given[label] + have[label]),
            have[label],
        )
        for label in range(labels)
    ]


def macro_f1(found: Sequence[int], right: Sequence[int]) -> float:
    """The mean over labels, of those found or right anywhere, of F1 = 2 both / (found + right)."""
    occur = set(found) | set(right)
    scores = scores_by_label(found, right, max(occur, default=-1) + 1)
    return sum(scores[label].f1 for label in occur) / max(1, len(occur))


def confusion(found: Sequence[int], right: Sequence[int]) -> dict[int, dict[int, int]]:
    """{right label: {found label: count}}, without zero counts, since labels may be thousands."""
    table: dict[int, dict[int, int]] = {}
    for (b, a), count in sorted(Counter(zip(right, found, strict=True)).items()):
        table.setdefault(b, {})[a] = count
    return table


def label_details(found: Sequence[int], right: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """The scores of each label, and which label was taken for which, by their names."""
    each, table = scores_by_label(found, right, len(names)), confusion(found, right)
    return {
        "labels": {name: asdict(scores) for name, scores in zip(names, each, strict=True)},
        "confusion": {names[b]: {names[a]: n for a, n in row.items()} for b, row in table.items()},
    }


def loss_of_frequencies(counts: Sequence[int], right: Sequence[int]) -> float:
    """The loss of guessing every label by how often it occurs in training."""
    shares = np.array(counts) / sum(counts)
    return float(-np.log(shares[list(right)]).mean())


def accuracy_of_majority(counts: Sequence[int], right: Sequence[int]) -> float:
    """How often the most frequent label of training is right."""
    label = counts.index(max(counts))
    return sum(number == label for number in right) / len(right)


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


ENOUGH = 10_000_000  # tokens to count frequencies by
BY_FREQUENCY = "loss (token frequencies), nats per token"


def unigram_entropy(stream: Stream, held_out: Stream, vocab: int) -> float:
    """The loss of guessing every token by how often it occurred (one is added to every count)."""
    counts = np.ones(vocab)
    for block in blocks_of(stream):
        counts += np.bincount(block, minlength=vocab)
    costs = -np.log(counts / counts.sum())
    return sum(float(costs[block].sum()) for block in blocks_of(held_out)) / min(len(held_out), ENOUGH)


def share_of(stream: Stream, token: int) -> float:
    """How much of a stream is one token."""
    return sum(int((block == token).sum()) for block in blocks_of(stream, most=len(stream))) / len(stream)


def blocks_of(stream: Stream, size: int = 1 << 18, most: int = ENOUGH) -> Iterator[np.ndarray]:
    """The beginning of a stream, a few tokens at a time: numpy counts in numbers four times as large."""
    end = min(len(stream), most)
    return (stream[at : min(at + size, end)] for at in range(0, end, size))
