"""The phrasebook: English sentences with their French, from one grammar that writes both at once.

A sentence grows as two lists side by side: English words that know their part of speech and their head, and
French words that know which English words they render. Elision and contraction come last, when the neighbors
are known.

One English sentence has one French sentence. What French must say and English hides (the gender of `they`,
which `you`) is settled by another word of the sentence, or the sentence is not written.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache

from ...errors import BadInput
from . import lexicon as lex
from .lexicon import Kinds
from .pair import Pair, words
from .selection import NO_PLURAL, adjectives_of, nouns_of
from .writer import SentenceWriter

SPLITS = ("train", "valid", "test", "combinations", "long")
SIZES = {"train": 20_000, "valid": 500, "test": 500, "combinations": 500, "long": 200}
SEEDS = {"train": 1, "valid": 2, "test": 3, "combinations": 4, "long": 5}
RARE = 5  # a word that train says less often than this is not asked for elsewhere


def split(name: str) -> list[Pair]:
    """The sentence pairs of one split, the same ones on every machine.

    Args:
        name: "train", "valid", "test", "combinations" (adjectives and verbs with nouns that train never
            combines) or "long" (sentences of 20 words and more).

    Returns:
        A list of `Pair`. Sentences of one split are in no other.

    Raises:
        BadInput: There is no such split.

    Example:
        >>> found = split("valid")
        >>> len(found), found[0].source
        (500, 'When does a heroine rest?')
    """
    if name not in SPLITS:
        close = difflib.get_close_matches(name, SPLITS, n=1, cutoff=0.0)[0]
        raise BadInput(
            f"phrasebook has no split {name!r}; did you mean {close!r}? It has {', '.join(SPLITS)}"
        )
    return list(drawn(name))


def pairs(seed: int) -> Iterator[Pair]:
    """An endless stream of sentences, repetitions included, from everything that the grammar can say.

    Args:
        seed: Seed of the sentences.

    Yields:
        `Pair`.

    Example:
        >>> next(pairs(seed=1)).target
        "L'homme n'a pas besoin de mon père très intelligent."
    """
    writer = SentenceWriter(seed)
    while True:
        yield writer.write()


def count() -> int:
    """How many sentences there are at the very least: those of a subject, a verb and its object alone."""
    ways = 3 * 2  # tenses, said or denied
    verbs = [verb for verb in lex.TRANSITIVE if not verb.link]
    return ways * sum(plain_phrases(verb.subjects) * plain_phrases(verb.objects) for verb in verbs)


def plain_phrases(kinds: Kinds) -> int:
    """How many phrases are a determiner (each noun has two or more), one adjective or none, and a noun."""
    nouns = nouns_of(kinds)
    return sum(2 * (1 + len(adjectives_of(n.kinds))) * (1 if n.kinds & NO_PLURAL else 2) for n in nouns)


# The splits


@cache
def drawn(name: str) -> tuple[Pair, ...]:
    """Draws sentences until there are enough, leaving out those of the splits before it."""
    earlier = [pair for other in SPLITS[: SPLITS.index(name)] for pair in drawn(other)]
    sources, targets = {pair.source for pair in earlier}, {pair.target for pair in earlier}
    writer = SentenceWriter(SEEDS[name], wordy=name == "long")
    found: list[Pair] = []
    while len(found) < SIZES[name]:
        pair = writer.write()
        if pair.source in sources or pair.target in targets or not belongs(name, pair, writer):
            continue
        sources.add(pair.source)
        targets.add(pair.target)
        found.append(pair)
    return tuple(found)


def belongs(name: str, pair: Pair, writer: SentenceWriter) -> bool:
    """Whether the sentence just written has this split's length and combinations, and words train knows."""
    is_new = any(is_held_out(*combination) for combination in writer.combinations)
    is_newish = any(is_held_out(*combination) for combination in writer.looser)
    if not is_new if name == "combinations" else is_new or is_newish:
        return False
    most = 1 + max(pair.alignment[-1])  # the full stops are aligned, so this is the longer side
    least = min(len(pair.source.split()), len(pair.target.split()))  # clitics and punctuation not counted
    if (least < 20 or most > 40) if name == "long" else most > 17:
        return False
    return name == "train" or all(familiar(side).issuperset(words(getattr(pair, side))) for side in SIDES)


SIDES = ("source", "target")


@cache
def familiar(side: str) -> frozenset[str]:
    """The words of one language that train says often enough."""
    times = Counter(word for pair in drawn("train") for word in words(getattr(pair, side)))
    return frozenset(word for word in times if times[word] >= RARE)


@cache
def is_held_out(first: str, second: str) -> bool:
    """Whether an adjective with its noun, or a verb with its object, is kept for `combinations`."""
    return hashlib.sha256(f"{first} {second}".encode()).digest()[0] < 16
