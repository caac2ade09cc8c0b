"""Draws: the random choices of a sentence, and what it has said so far."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from .selection import TENSES
from .sentence import Clause, Nominal, Unsayable

T = TypeVar("T")


class Draws:
    """The random choices of a sentence. Only `random()` is promised to be the same in every Python."""

    def __init__(self, seed: int, wordy: bool = False) -> None:
        self.random = random.Random(seed).random
        self.wordy = wordy
        self.start()

    def start(self) -> None:
        self.combinations: list[tuple[str, str]] = []  # adjectives before nouns, verbs before objects
        self.looser: list[tuple[str, str]] = []  # the same in other constructions
        self.mentioned: list[Nominal] = []
        self.clauses: list[Clause] = []
        self.tenses: Sequence[str] = TENSES
        self.adjuncts = True

    def pick(self, options: Sequence[T]) -> T:
        if not options:
            raise Unsayable
        return options[int(self.random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def mention(self, nominal: Nominal) -> Nominal:
        self.mentioned.append(nominal)
        return nominal

    def note(self, word: str, nominal: Nominal) -> None:
        self.looser += [(word, noun.singular) for noun in nominal.nouns]
