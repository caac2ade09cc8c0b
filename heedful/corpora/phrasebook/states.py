"""Clauses about what somebody or something is. Each takes a subject or finds one."""

from __future__ import annotations

from collections.abc import Sequence

from . import function_words
from . import lexicon as lex
from .actions import Actions
from .agreement import predicative
from .lexicon import FUTURE, Adjective
from .selection import DESCRIBED, LAID, LIVING, PEOPLE, adjectives_of, nouns_of
from .sentence import Clause, Manner, Mot, Nominal, Unsayable, Word, mots_for


class States(Actions):
    """Writes clauses of being: so, more so, one of a kind, somewhere, so old."""

    def being(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl is tired`."""
        subject = subject or (
            self.someone(PEOPLE) if self.chance(0.3) else self.nominal(DESCRIBED, "subject")
        )
        options = adjectives_of(subject.kinds)
        if subject.first:
            options = tuple(a for a in options if not a.shows_gender)
        adjective = self.pick(options)
        if any(lex.RANKS.get(word.text) == adjective.rank for word in subject.en):  # `the old house is new`
            raise Unsayable
        state = Word(adjective.word, adjective.tag)
        manner = self.manner(subject, lex.BEING, asked, plain, steady=adjective.rank != 3)
        clause = self.predicate(subject, lex.BEING, manner, state=state)
        self.note(adjective.word, subject)
        if adjective.comparative and not (subject.first or plain) and self.chance(0.45):
            self.compare(clause, adjective, state)
        else:
            very = self.very(adjective, state)
            clause.complete(
                [*very, state], [*mots_for("très", very), *mots_for(predicative(adjective, subject), [state])]
            )
            self.add_adjective(clause, adjective, state, options)
        return clause

    def add_adjective(
        self, clause: Clause, first: Adjective, state: Word, options: Sequence[Adjective]
    ) -> None:
        """Sometimes, `and` with a second adjective of the same order."""
        second = self.pick(options)
        if second is first or second.rank != first.rank or clause.manner.denial or self.chance(0.7):
            return
        word = Word(second.word, second.tag, state)
        conjunction = Word("and", "CCONJ", word)
        mots = mots_for(predicative(second, clause.subject), [word])
        clause.complete([conjunction, word], [Mot("et", (conjunction,)), *mots])
        self.note(second.word, clause.subject)

    def compare(self, clause: Clause, adjective: Adjective, state: Word) -> None:
        """`Bigger than the dog`, `as big as the dog`, `less famous than the queen`."""
        subject = clause.subject
        other = self.nominal(subject.kinds & DESCRIBED, "known", plain=True)
        other.head.head = state
        than = Word("than", "ADP", other.head)
        more = adjective.comparative == "more"
        grades = [Word(self.pick(("more", "less")), "ADV", state)] if more else []
        if self.chance(0.3):
            grades, than.text = [Word("as", "ADV", state)], "as"
        elif not grades:
            state.text = adjective.comparative
        clause.complete([*grades, state, than, *other.en], [])
        if state.text == "better":
            clause.apres += mots_for(function_words.BETTER[2 * subject.plural + subject.feminine], [state])
        else:
            plus = function_words.GRADES[grades[0].text if grades else "more"]
            clause.apres += [
                *mots_for(plus, grades or [state]),
                *mots_for(predicative(adjective, subject), [state]),
            ]
        clause.apres += [Mot("que", (than,)), *other.fr]

    def being_one(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The king is a kind man`."""
        subject = subject or self.simple(self.pick(nouns_of(LIVING)), "known", plural=False)
        noun = lex.ANIMAL if not subject.human else lex.WOMAN if subject.feminine else lex.MAN
        kind = self.simple(noun, determiner="a", plural=False)
        is_news = len(kind.en) > 2 and noun not in subject.nouns
        is_named = subject.head.text in [noun.singular for noun in subject.nouns]  # else French says `c'est`
        if not (is_news and is_named):
            raise Unsayable
        denial = "" if asked or self.chance(0.8) else "not"
        manner = Manner(self.tense(subject, lex.BEING), None, denial, asked=asked)
        clause = self.predicate(subject, lex.BEING, manner, state=kind.head)
        clause.complete(kind.en, kind.fr)
        return clause

    def being_there(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The key is on the table`."""
        laid = subject.kinds.isdisjoint(LIVING) if subject else self.chance(0.5)
        subject = subject or self.nominal(LAID if laid else LIVING, "subject", plain)
        place = self.place(LAID if laid else LIVING)
        manner = self.manner(subject, lex.BEING, asked, plain)
        clause = self.predicate(subject, lex.BEING, manner, state=place.head)
        clause.complete(place.en, place.fr)
        return clause

    def existing(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`There is a cat in the garden`, `il y a un chat dans le jardin`."""
        kinds = self.pick((LAID, LIVING))
        tense = self.pick(self.tenses)
        if subject or tense == FUTURE:
            raise Unsayable
        denial = "not" if not asked and self.chance(0.25) else ""
        thing = self.simple(self.pick(nouns_of(kinds)), "none" if denial else "new")
        if "kin" in thing.kinds:
            raise Unsayable
        there = Word("there", "PRON")
        il = Nominal([there], [Mot("il", (there,))], there, False, False, frozenset())
        clause = self.predicate(
            il, lex.BEING_AS_HAVING, Manner(tense, None, denial, "", asked), [Mot("y", (there,))]
        )
        clause.governor.text, clause.governor.tag = lex.BE[tense][thing.person], "VERB"
        clause.there_is = thing
        clause.add(thing.en, thing.fr, thing.head)
        clause.add(*self.place(kinds))
        return clause

    def being_old(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The boy is ten years old`, `le garçon a dix ans`."""
        subject = self.person(subject)
        old = Word("old", "ADJ")
        years = Word("years", "NOUN", old)
        number = Word(self.pick(tuple(function_words.AGES)), "NUM", years)
        manner = Manner(self.tense(subject, lex.BEING_AS_HAVING), asked=asked)
        clause = self.predicate(subject, lex.BEING_AS_HAVING, manner, state=old)
        clause.complete(
            [number, years, old], [Mot(function_words.AGES[number.text], (number,)), Mot("ans", (years, old))]
        )
        return clause
