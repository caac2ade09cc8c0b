"""Noun phrases: names, determiners and adjectives with their nouns, genitives, and pronouns."""

from __future__ import annotations

from abc import ABC, abstractmethod

from . import function_words
from . import lexicon as lex
from .agreement import attributive, determined
from .draws import Draws
from .lexicon import Adjective, Kinds, Noun
from .selection import COUNTED, DETERMINER_WEIGHTS, NO_PLURAL, OWNERS, PEOPLE, adjectives_of, nouns_of
from .sentence import Mot, Nominal, Unsayable, Word, mots_for


class NounPhrases(Draws, ABC):
    """Writes noun phrases and pronouns."""

    def nominal(self, kinds: Kinds, role: str = "any", plain: bool = False) -> Nominal:
        """A noun phrase about something of these kinds."""
        roll = self.random()
        if roll < 0.1 and "person" in kinds:
            return self.name()
        noun = self.pick(nouns_of(kinds))
        if plain:
            return self.simple(noun, role)
        if roll < 0.16 and role in ("any", "subject", "known"):
            return self.coordination(kinds, role)
        if roll < 0.22 and not noun.kinds & {"mass", "anyone"}:
            return self.genitive(noun)
        phrase = self.simple(noun, role)
        if role != "denied" and phrase.en[0].text not in OWNERS and self.chance(0.6 if self.wordy else 0.12):
            self.describe(phrase)
        return phrase

    @abstractmethod
    def describe(self, nominal: Nominal) -> None:
        """Add a relative clause."""

    def name(self) -> Nominal:
        feminine = self.chance(0.5)
        text = self.pick(lex.WOMEN if feminine else lex.MEN)
        word = Word(text, "PROPN")
        if any(mentioned.head.text == text for mentioned in self.mentioned):
            raise Unsayable
        return self.mention(Nominal([word], [Mot(text, (word,))], word, feminine, False, PEOPLE))

    def coordination(self, kinds: Kinds, role: str) -> Nominal:
        """`The man and his dog`."""
        first, second = self.nominal(kinds, role, plain=True), self.nominal(kinds, role, plain=True)
        if first.head.text == second.head.text:
            raise Unsayable
        conjunction = Word("and", "CCONJ", second.head)
        second.head.head = first.head
        en = [*first.en, conjunction, *second.en]
        fr = [*first.fr, Mot("et", (conjunction,)), *second.fr]
        feminine = first.feminine and second.feminine
        shared, nouns = first.kinds & second.kinds, first.nouns + second.nouns
        at = len(first.fr) + 1
        return self.mention(Nominal(en, fr, first.head, feminine, True, shared, nouns, second_at=at))

    def simple(
        self, noun: Noun, role: str = "any", determiner: str = "", plural: bool | None = None
    ) -> Nominal:
        """Determiner, adjectives and noun."""
        if plural is None:
            plural = not noun.kinds & NO_PLURAL and self.chance(0.35)
        head = Word(noun.form(plural), "NOUN")
        en, before, after = self.adjectives(noun, plural, head)
        fr = [*before, Mot(noun.forme(plural), (head,)), *after]
        determiner = determiner or self.determiner(noun, role, plural)
        of, mots = determined(determiner, noun, plural, role in ("denied", "none"), fr, head)
        return self.mention(
            Nominal([*of, *en, head], mots + fr, head, noun.feminine, plural, noun.kinds, (noun,))
        )

    def determiner(self, noun: Noun, role: str, plural: bool) -> str:
        if "kin" in noun.kinds and role not in ("new", "none"):
            role = "spouse" if "spouse" in noun.kinds else "kin"
        choice = self.pick(DETERMINER_WEIGHTS[role][2 if "mass" in noun.kinds else plural])
        if choice in OWNERS and "anyone" in noun.kinds:  # `ma fille` would be my daughter
            return "the"
        return self.pick(COUNTED) if choice == "number" else choice

    def adjectives(self, noun: Noun, plural: bool, head: Word) -> tuple[list[Word], list[Mot], list[Mot]]:
        """Up to two adjectives: in English order, then those before the French noun and those after it."""
        roll, options = self.random(), adjectives_of(noun.kinds)
        if roll > 0.4 or not options:
            return [], [], []
        chosen = [self.pick(options)]
        if roll < 0.12:
            second = self.pick(options)
            if second.before != chosen[0].before and second.rank != chosen[0].rank:
                chosen = sorted((chosen[0], second), key=lambda a: a.rank)
        en: list[Word] = []
        sides: tuple[list[Mot], list[Mot]] = ([], [])
        for adjective in chosen:
            self.combinations.append((adjective.word, noun.singular))
            word = Word(adjective.word, adjective.tag, head)
            very = self.very(adjective, word) if len(chosen) == 1 else []
            en += [*very, word]
            forme = attributive(adjective, noun, plural)
            sides[not adjective.before].extend([*mots_for("très", very), *mots_for(forme, [word])])
        return en, *sides

    def very(self, adjective: Adjective, word: Word) -> list[Word]:
        return [Word("very", "ADV", word)] if adjective.comparative and self.chance(0.12) else []

    def genitive(self, noun: Noun) -> Nominal:
        """`The king's horse`, `le cheval du roi`."""
        person = self.pick(nouns_of(PEOPLE))
        owner = self.name() if self.chance(0.3) else self.simple(person, "known", plural=False)
        owned = self.simple(noun, determiner="the")
        mark = Word("'s", "PART", owner.head)
        owner.head.head = owned.head
        owned.fr[0].of = (mark,)
        owned.en = [*owner.en, mark, *owned.en[1:]]
        owned.fr += [Mot("de", (mark,)), *owner.fr]
        return owned

    # Pronouns

    def someone(self, kinds: Kinds, plain: bool = False) -> Nominal:
        """A subject: a pronoun that needs no explaining, or a noun phrase."""
        if "person" in kinds and self.chance(0.3):
            text = self.pick(tuple(function_words.SUBJECTS))
            mot, person = function_words.SUBJECTS[text]
            word = Word(text, "PRON")
            first = person in (0, 2)
            return Nominal([word], [Mot(mot, (word,))], word, text == "she", person == 2, PEOPLE, first=first)
        return self.nominal(kinds, "subject", plain)

    def is_clear(self, nominal: Nominal) -> bool:
        """Whether `it`, `they` or `them` has one gender, whichever of the things mentioned it takes up."""
        if nominal.first or not nominal.kinds:
            return False
        if nominal.human and not nominal.plural:
            return True
        rivals = [m for m in self.mentioned if m.plural == nominal.plural and (m.plural or not m.human)]
        return len({m.feminine for m in rivals}) == 1

    def taken_up(self, nominal: Nominal) -> Nominal:
        """The subject pronoun for something mentioned."""
        singular = ("she" if nominal.feminine else "he") if nominal.human else "it"
        word = Word("they" if nominal.plural else singular, "PRON")
        mot = Mot(("elle" if nominal.feminine else "il") + "s" * nominal.plural, (word,))
        return Nominal([word], [mot], word, nominal.feminine, nominal.plural, nominal.kinds)

    def taken_up_as_object(self, nominal: Nominal) -> tuple[Word, Mot]:
        """The object pronoun for something mentioned."""
        singular = ("her" if nominal.feminine else "him") if nominal.human else "it"
        word = Word("them" if nominal.plural else singular, "PRON")
        return word, Mot("les" if nominal.plural else "la" if nominal.feminine else "le", (word,))
