"""Clauses of a few words of the phrasebook: who does what to whom, in any tense, in English and in French.

The grammar of the phrasebook writes each of them, so its French and its other tenses are right to the letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..phrasebook import lexicon as lex
from ..phrasebook.agreement import attributive, determined, finished
from ..phrasebook.lexicon import FUTURE, PAST, PRESENT, Adjective, Noun, Verb
from ..phrasebook.pair import Pair
from ..phrasebook.sentence import Manner, Mot, Nominal, Word
from ..phrasebook.writer import SentenceWriter

TENSES = (PRESENT, PAST, FUTURE)
DETERMINERS = {False: ("the", "a"), True: ("the", "some")}  # by whether there are several


def chosen(names: str, words: dict[str, Noun] | dict[str, Adjective] | dict[str, Verb]) -> tuple:
    """The words of these names, in this order."""
    return tuple(words[name] for name in names.split())


NOUNS: tuple[Noun, ...] = chosen(
    "king queen boy girl prince princess witch monk cat dog horse bird rabbit cow mouse goat "
    "apple cake lemon pear ring key box gift",
    {noun.singular: noun for noun in lex.NOUNS},
)
ADJECTIVES: tuple[Adjective, ...] = chosen(
    "small big old young beautiful happy sad strong expensive delicious",
    {adjective.word: adjective for adjective in lex.ADJECTIVES},
)
VERBS: tuple[Verb, ...] = chosen(
    "see hear follow help love find take buy sell eat lose hide catch feed",
    {verb.name: verb for verb in lex.TRANSITIVE},
)


@dataclass(frozen=True)
class NamedThing:
    """Somebody or something: a determiner, perhaps an adjective, and a noun."""

    noun: Noun
    plural: bool
    determiner: str
    adjective: Adjective | None

    def nominal(self) -> Nominal:
        """The noun phrase in both languages, made anew: a sentence in the making changes its words."""
        noun, head = self.noun, Word(self.noun.form(self.plural), "NOUN")
        en, fr = [head], [Mot(noun.forme(self.plural), (head,))]
        if self.adjective is not None:
            word = Word(self.adjective.word, self.adjective.tag, head)
            mot = Mot(attributive(self.adjective, noun, self.plural), (word,))
            en, fr = [word, *en], [mot, *fr] if self.adjective.before else [*fr, mot]
        of, mots = determined(self.determiner, noun, self.plural, False, fr, head)
        return Nominal([*of, *en], [*mots, *fr], head, noun.feminine, self.plural, noun.kinds, (noun,))

    @property
    def about(self) -> str:
        """Its words."""
        described = [] if self.adjective is None else [self.adjective.word]
        return " ".join([self.determiner, *described, self.noun.form(self.plural)])

    @property
    def combinations(self) -> Iterator[tuple[str, str]]:
        if self.adjective is not None:
            yield self.adjective.word, self.noun.singular


@dataclass(frozen=True)
class ShortClause:
    """Who does what to whom."""

    subject: NamedThing
    verb: Verb
    object: NamedThing

    def said(self, tense: str) -> Pair:
        """The clause as a sentence in English, with its French."""
        writer = SentenceWriter(0)  # it draws nothing here
        clause = writer.predicate(self.subject.nominal(), self.verb, Manner(tense))
        writer.place_object(clause, self.verb, self.object.nominal())
        return finished(clause.statement(), ".", clause)

    @property
    def about(self) -> str:
        """What it says, whenever it is."""
        return f"{self.subject.about} {self.verb.name} {self.object.about}"

    @property
    def combinations(self) -> tuple[tuple[str, str], ...]:
        """Adjectives with their nouns, and the verb with its object."""
        named = (*self.subject.combinations, *self.object.combinations)
        return (*named, (self.verb.name, self.object.noun.singular))
