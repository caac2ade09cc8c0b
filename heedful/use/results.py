"""Results: strings and numbers that know more about themselves. An `Answer` has its score, a `Label` its
probability, `Filled` what else would fit; so the plain use stays plain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple, Self


class Alternative(NamedTuple):
    """A token that a model might have written."""

    token: str  # as the vocabulary spells it
    log_probability: float  # before any filter or temperature


class Answer(str):
    """A text that a model wrote. It is a string; what else is known of it are its attributes."""

    score: float  # what it was chosen by: log-probability, and with a beam that over the length penalty
    tokens: list[str]  # as the vocabulary spells them, the end of sentence included
    log_probabilities: list[float]  # of each token, before any filter or temperature
    ended: bool  # False: cut off at the greatest length
    n_best: list[Answer]  # this one and the next best: `n_best` of them
    top: list[list[Alternative]]  # with `top`: at each token, the likeliest ones, best first
    alignment: list[tuple[int, int]] | None  # with `align`: (source word, target word), counted from 0

    def __new__(
        cls,
        text: str,
        score: float = 0.0,
        tokens: Sequence[str] = (),
        log_probabilities: Sequence[float] = (),
        ended: bool = True,
        top: Sequence[list[Alternative]] = (),
    ) -> Self:
        self = super().__new__(cls, text)
        self.score, self.ended = score, ended
        self.tokens, self.log_probabilities = list(tokens), list(log_probabilities)
        self.n_best, self.top = [self], list(top)
        self.alignment = None
        return self

    @property
    def log_probability(self) -> float:
        """Of the whole text."""
        return sum(self.log_probabilities)


class Guess(NamedTuple):
    """A word for a blank."""

    word: str
    probability: float


class Filled(str):
    """A text with its blanks filled in by the likeliest words."""

    blanks: list[list[Guess]]  # for each blank, the likeliest words, best first

    def __new__(cls, text: str, blanks: Sequence[list[Guess]] = ()) -> Self:
        self = super().__new__(cls, text)
        self.blanks = list(blanks)
        return self


class Label(str):
    """What a text was found to be."""

    probabilities: dict[str, float]  # of every label, likeliest first

    def __new__(cls, text: str, probabilities: dict[str, float] | None = None) -> Self:
        self = super().__new__(cls, text)
        self.probabilities = dict(probabilities or {text: 1.0})
        return self

    @property
    def probability(self) -> float:
        return self.probabilities[str(self)]


class SingleScore(float):
    """The one number that a model gives a text or a pair of texts: a cross-encoder's, a reward model's.

    It is between 0 and 1, unless the folder says that the model's output is to be taken as it is.
    """

    label: str  # what it is a score of, as the folder names it

    def __new__(cls, value: float, label: str = "") -> Self:
        self = super().__new__(cls, value)
        self.label = label
        return self


class ScoredLabels(dict[str, float]):
    """A number for every label, highest first: its own probability, or the output of a regression."""

    probabilities: bool  # False: outputs of a regression

    def __init__(self, scores: dict[str, float], probabilities: bool = True) -> None:
        super().__init__(sorted(scores.items(), key=lambda pair: -pair[1]))
        self.probabilities = probabilities

    @property
    def labels(self) -> list[str]:
        """The labels whose probability is at least one half."""
        return [label for label, score in self.items() if self.probabilities and score >= 0.5]

    def __str__(self) -> str:
        return ", ".join(f"{label} {score:.4f}" for label, score in self.items())


class Tagged(str):
    """A sentence with the part of speech of each word: "The/DET cat/NOUN"."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]  # of the tags

    def __new__(cls, words: Sequence[str], tags: Sequence[str], probabilities: Sequence[float]) -> Self:
        self = super().__new__(cls, " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=True)))
        self.words, self.tags, self.probabilities = list(words), list(tags), list(probabilities)
        return self


class Entity(NamedTuple):
    """A name in a text, and what it is the name of."""

    text: str
    label: str
    probability: float  # the mean of its tokens'
    start: int  # its first character in the text
    end: int  # the one after its last


class Entities(list[Entity]):
    """The entities of a text, in their order."""

    def __str__(self) -> str:
        return "\t".join(f"{one.text}/{one.label}" for one in self)


class AnswerSpan(str):
    """The answer to a question, as a text has it."""

    start: int  # its first character in the text
    end: int  # the one after its last
    score: float  # S . h_start + E . h_end
    probability: float  # of its start times that of its end, in the window of the text that holds it

    def __new__(cls, text: str, start: int, end: int, score: float, probability: float) -> Self:
        self = super().__new__(cls, text)
        self.start, self.end, self.score, self.probability = start, end, score, probability
        return self


class Chosen(str):
    """The choice that goes best with a text."""

    number: int  # which it is, from 0
    probabilities: list[float]  # of every choice, in their order

    def __new__(cls, text: str, number: int, probabilities: Sequence[float]) -> Self:
        self = super().__new__(cls, text)
        self.number, self.probabilities = number, list(probabilities)
        return self


@dataclass(frozen=True)
class Scored:
    """How likely a model finds a text, token by token."""

    tokens: list[str]
    log_probabilities: list[float]
    given: list[str]  # what stands before the first of them, and is not itself scored

    @property
    def total(self) -> float:
        """log P of all tokens together."""
        return sum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood of a token."""
        return exp(min(700.0, -self.total / len(self.tokens)))
