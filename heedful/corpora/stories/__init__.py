"""Stories: short texts of about six sentences that hang together, from plots with words to choose.

A story has a hero and a friend of the other gender, so that every pronoun has one noun. What a sentence says
(who, what, where) holds to the last one: a hidden word can often be read from the sentences before and after
it, and one can tell whether a sentence follows another (`coherence`).

A story is a pure function of its split and its number. Its cast decides which split it may stand in, so no
cast of training is held out.
"""

from __future__ import annotations

import difflib
import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from ...errors import BadInput
from .plots import PLOTS, Cast, Plot, StoryField, Template

SIZES = {"train": 20_000, "valid": 500, "test": 500}
SPLITS = tuple(SIZES)
SEEDS = {"train": 1, "valid": 2, "test": 3}
PARTS, HELD_OUT = 20, {0: "valid", 1: "test"}  # one part in twenty of all casts for each held-out split
CHANCE = 0.6  # of a step that a plot can do without

T = TypeVar("T")


@dataclass(frozen=True)
class StorySentence:
    """A sentence of a story, and where it comes from.

    Attributes:
        text: The sentence.
        plot: The plot of its story.
        step: The step of the plot that it tells.
        says: The fields that were filled in, with their values.

    Example:
        >>> next(split("valid")).sentences[0].text
        'One evening, Henry played with a ball in the house of Clara.'
    """

    text: str
    plot: Plot
    step: int
    says: tuple[tuple[StoryField, str], ...]


@dataclass(frozen=True)
class ShortStory:
    """Sentences that follow each other.

    Attributes:
        about: What the story is about; it decides the split.
        sentences: The sentences.

    Example:
        >>> next(split("valid")).about
        'broken Henry lamp attic brown'
    """

    about: str
    sentences: tuple[StorySentence, ...]

    @property
    def text(self) -> str:
        """The story with one sentence per line."""
        return "".join(f"{sentence.text}\n" for sentence in self.sentences)


def split(name: str) -> Iterator[ShortStory]:
    """The stories of one split, the same ones on every machine.

    Args:
        name: "train", "valid" or "test".

    Returns:
        An iterator over `ShortStory`. No cast of training is in another split.

    Raises:
        BadInput: There is no such split.

    Example:
        >>> print(next(split("valid")).text.splitlines()[0])
        One evening, Henry played with a ball in the house of Clara.
    """
    if name not in SPLITS:
        close = difflib.get_close_matches(name, SPLITS, n=1, cutoff=0.0)[0]
        raise BadInput(f"stories has no split {name!r}; did you mean {close!r}? It has {', '.join(SPLITS)}")
    return iter(drawn(name))


@cache
def drawn(name: str) -> tuple[ShortStory, ...]:
    return tuple(story(name, number) for number in range(SIZES[name]))


def story(name: str, number: int) -> ShortStory:
    """One story of a split, by its number."""
    draws = StoryDraws(SEEDS[name] << 32 | number)
    while True:
        plot = draws.pick(PLOTS)
        cast = draws.cast(plot)
        about = " ".join((plot.name, *(cast[role][column] for role, column in plot.subject)))
        if split_of(about) == name:
            return ShortStory(about, tuple(draws.tell(plot, cast)))


class StoryDraws:
    """The random choices of a story. Only `random()` is promised to be the same in every Python."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def cast(self, plot: Plot) -> Cast:
        """Who and what the story is about; the friend's gender is the other one."""
        cast = {role: self.pick(rows) for role, rows in plot.roles.items()}
        while cast["friend"]["gender"] == cast["hero"]["gender"]:
            cast["friend"] = self.pick(plot.roles["friend"])
        return cast

    def tell(self, plot: Plot, cast: Cast) -> Iterator[StorySentence]:
        for number, step in enumerate(plot.steps):
            if step.optional and self.random() >= CHANCE:
                continue
            wording = self.pick(step.wordings)
            says = tuple((field, cast[field.role][field.column]) for field in wording.fields)
            yield StorySentence(written(wording, cast), plot, number, says)


def split_of(about: str) -> str:
    """The one split that may have a story about these, whenever it happens and whoever the friend is."""
    return HELD_OUT.get(hashlib.sha256(about.encode()).digest()[0] % PARTS, "train")


def written(wording: Template, cast: Cast) -> str:
    """The sentence as people write it."""
    text = "".join(piece + (field.written(cast) if field else "") for piece, field in wording.pieces)
    text = re.sub(r"\ba (?=[aeiou])", "an ", text)
    return text[0].upper() + text[1:]
