"""A sentence in the making: English and French words side by side, phrases and clauses of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import function_words
from .lexicon import Kinds, Noun, Verb


class Word:
    """An English word, its part of speech (NOUN, VERB...) and its head; the root has none."""

    __slots__ = ("head", "index", "tag", "text")

    def __init__(self, text: str, tag: str, head: Word | None = None) -> None:
        self.text = text
        self.tag = tag
        self.head = head
        self.index = -1


class Mot:
    """A French word and the English words it renders."""

    __slots__ = ("article", "of", "text")

    def __init__(self, text: str, of: tuple[Word, ...], article: bool = False) -> None:
        self.text = text
        self.of = of
        self.article = article  # contracts with `de` and `à`, as the pronoun `le` does not


class Phrase(NamedTuple):
    en: list[Word]
    fr: list[Mot]
    head: Word


@dataclass(slots=True)
class Nominal:
    """A noun phrase or a pronoun, with what other words agree with."""

    en: list[Word]
    fr: list[Mot]
    head: Word
    feminine: bool
    plural: bool
    kinds: Kinds
    nouns: tuple[Noun, ...] = ()
    first: bool = False  # I, we
    second_at: int = 0  # where the second half of `the cat and the dog` starts in French
    described: bool = False  # ends in a relative clause

    @property
    def person(self) -> int:
        return 2 * self.plural + (not self.first)

    @property
    def human(self) -> bool:
        return "person" in self.kinds

    def after(self, preposition: str, of: tuple[Word, ...]) -> list[Mot]:
        """The French side behind a preposition; `à`, `de` and `dans` are said again before a second half."""
        *start, last = preposition.split()
        first, second = self.fr[: self.second_at], self.fr[self.second_at :]
        again = [Mot(last, of)] if first and last in ("à", "de", "dans") else []
        return [*(Mot(text, of) for text in start), Mot(last, of), *first, *again, *second]


class Manner(NamedTuple):
    """How a verb is said."""

    tense: str
    over: Verb | None = None  # `wants to`, `can`: takes the verb as an infinitive
    denial: str = ""
    often: str = ""
    asked: bool = False


@dataclass(slots=True)
class Clause:
    """A clause before it is settled whether it states, asks or describes."""

    subject: Nominal
    front: list[Word]  # what a question puts before the subject
    rest: list[Word]  # the other English verbs
    verbs: list[Mot]
    root: Word
    governor: Word  # complements and adjuncts depend on it
    manner: Manner
    after: list[Word] = field(default_factory=list)
    apres: list[Mot] = field(default_factory=list)
    object: Nominal | None = None
    there_is: Nominal | None = None  # what the English verb agrees with after `there`

    @property
    def number(self) -> str:
        """Singular or plural, as the subject is."""
        return "plural" if (self.there_is or self.subject).plural else "singular"

    def add(self, en: list[Word], fr: list[Mot], head: Word) -> None:
        head.head = self.governor
        self.after += en
        self.apres += fr

    def complete(self, en: list[Word], fr: list[Mot]) -> None:
        """Adds what heads the clause itself: the adjective or noun after `be`."""
        self.after += en
        self.apres += fr

    def render(self, words: list[Word]) -> None:
        """Lets the French verb stand for words that have no French word of their own."""
        for mot in self.verbs:
            if self.governor in mot.of:
                mot.of += tuple(words)

    def statement(self) -> Phrase:
        self.subject.head.head = self.root
        en = [*self.subject.en, *self.front, *self.rest, *self.after]
        return Phrase(en, [*self.subject.fr, *self.verbs, *self.apres], self.root)

    def question(self, asking: Sequence[Word] = (), mots: Sequence[Mot] = ()) -> Phrase:
        """`Does the girl...`, `est-ce que la fille...`, behind the question words if there are any."""
        self.subject.head.head = self.root
        for word in asking:
            word.head = word.head or self.governor
        front = tuple(self.front)
        en = [*asking, *self.front, *self.subject.en, *self.rest, *self.after]
        est_ce_que = [Mot("est-ce", front), Mot("que", front)]
        return Phrase(en, [*mots, *est_ce_que, *self.subject.fr, *self.verbs, *self.apres], self.root)


class Unsayable(Exception):
    """What was begun cannot be said, or not in one way only; the writer starts again."""


# Phrases of given words


def words_on(text: str, tags: str, head: Word | None = None) -> list[Word]:
    """English words, each with its tag, on one head."""
    return [Word(word, tag, head) for word, tag in zip(text.split(), tags.split(), strict=True)]


def mots_for(text: str, of: Sequence[Word]) -> list[Mot]:
    """French words for these English ones; none for none."""
    return [Mot(mot, tuple(of)) for mot in text.split()] if of else []


def set_phrase(english: str, tags: str, french: str) -> Phrase:
    """A fixed phrase, each French word followed by the places of the English words it renders."""
    en = words_on(english, tags)
    for word in en[:-1]:
        word.head = en[-1]
    fr = []
    for text in french.split():
        mot = text.rstrip("0123456789")
        fr.append(Mot(mot, tuple(en[int(place)] for place in text[len(mot) :])))
    return Phrase(en, fr, en[-1])


def join(first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    french, tag = function_words.CONJUNCTIONS[conjunction]
    word = Word(conjunction, tag, second.head)
    second.head.head = first.head
    comma = [Word(",", "PUNCT", second.head)] if conjunction == "but" else []
    joint = [*mots_for(",", comma), *mots_for(french, [word])]
    return Phrase([*first.en, *comma, word, *second.en], [*first.fr, *joint, *second.fr], first.head)


def turned(first: Phrase, conjunction: str, second: Phrase) -> Phrase:
    """The subordinate clause first: `when it rains, the girl sleeps`."""
    french, tag = function_words.CONJUNCTIONS[conjunction]
    word, comma = Word(conjunction, tag, first.head), Word(",", "PUNCT", second.head)
    first.head.head = second.head
    start = [*mots_for(french, [word]), *first.fr, *mots_for(",", [comma])]
    return Phrase([word, *first.en, comma, *second.en], [*start, *second.fr], second.head)
