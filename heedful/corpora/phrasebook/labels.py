"""Labels of the phrasebook's sentences for classification; the grammar that wrote a sentence knows them.

number       singular or plural: the subject of the main clause
tense        present, past or future: the verb of the main clause
mood         statement or question; the text has no punctuation, which would give it away
translation  yes or no: whether a French sentence is the translation of an English one
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ...errors import BadInput
from . import SEEDS, drawn, split
from .pair import Pair, words

LABELS = ("number", "tense", "mood", "translation")
PAIRED = ("translation",)  # labels of two texts
CANDIDATES = 50  # sentences among which a wrong translation is sought


class LabeledText(NamedTuple):
    """A text, a second one if the label is about two, and the label."""

    first: str
    second: str
    label: str


def labeled(name: str, label: str) -> Iterator[LabeledText]:
    """The sentences of a split with one of their labels, in the split's order."""
    if label not in LABELS:
        close = difflib.get_close_matches(label, LABELS, n=1, cutoff=0.0)[0]
        raise BadInput(
            f"phrasebook has no label {label!r}; did you mean {close!r}? It has {', '.join(LABELS)}"
        )
    pairs = split(name)
    if label == "translation":
        yield from translations(name)
    elif label == "mood":
        yield from (LabeledText(unmarked(pair.source), "", pair.mood) for pair in pairs)
    else:
        yield from (LabeledText(pair.source, "", getattr(pair, label)) for pair in pairs)


def unmarked(sentence: str) -> str:
    """A sentence without its full stop, question mark and commas."""
    return re.sub(r"[.,?]", "", sentence)


def translations(name: str) -> Iterator[LabeledText]:
    """Every English sentence, half of them beside their French, the others beside a similar sentence's.

    Only `random()` is promised to be the same in every Python.
    """
    pairs, draw = drawn(name), random.Random(100 + SEEDS[name]).random
    for place, pair in enumerate(pairs):
        others = [int(draw() * (len(pairs) - 1)) for _ in range(CANDIDATES)]
        if draw() < 0.5:
            yield LabeledText(pair.source, pair.target, "yes")
        else:
            other = max((pairs[i + (i >= place)] for i in others), key=lambda other: shared(pair, other))
            yield LabeledText(pair.source, other.target, "no")


def shared(pair: Pair, other: Pair) -> float:
    """The share of English words that two sentences have in common (Jaccard)."""
    mine, theirs = vocabulary(pair.source), vocabulary(other.source)
    return len(mine & theirs) / len(mine | theirs)


@cache
def vocabulary(sentence: str) -> frozenset[str]:
    return frozenset(words(sentence.lower()))
