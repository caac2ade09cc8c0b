"""Clauses about what somebody does. Each takes a subject or finds one."""

from __future__ import annotations

from abc import abstractmethod

from . import function_words
from . import lexicon as lex
from .lexicon import PAST, PRESENT
from .predicates import Predicates
from .selection import PASSIVE, PEOPLE, TENSES, verbs_for
from .sentence import Clause, Manner, Mot, Nominal, Phrase, Unsayable, Word, mots_for


class Actions(Predicates):
    """Writes clauses of doing, giving, moving and saying."""

    def doing(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl sees the dog`."""
        verb = self.pick(verbs_for(lex.TRANSITIVE, subject and subject.kinds, None))
        subject = subject or self.someone(verb.subjects, plain)
        manner = self.manner(subject, verb, asked, plain)
        if "person" in verb.objects and verb.clitic and self.chance(0.25):
            clause = self.doing_to_pronoun(subject, verb, manner)
        else:
            clause = self.predicate(subject, verb, manner)
            self.place_object(clause, verb, self.object(verb, manner, plain))
        self.adjoin(clause, verb, plain)
        return clause

    def acting(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl sleeps`, `the girl is hungry`."""
        verbs = lex.STATES if self.chance(0.2) else lex.INTRANSITIVE
        verb = self.pick(verbs_for(verbs, subject and subject.kinds, None))
        subject = subject or self.someone(verb.subjects, plain)
        clause = self.predicate(subject, verb, self.manner(subject, verb, asked, plain))
        self.strand(clause, verb)
        self.adjoin(clause, verb, plain)
        return clause

    def giving(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girl gives him the book`, `the girl gives the book to the boy`."""
        subject, verb = self.person(subject), self.pick(lex.GIVING)
        manner = self.manner(subject, verb, asked, plain)
        object = self.object(verb, manner, plain=True)
        if self.chance(0.5):
            word = Word(self.pick(self.others(subject)), "PRON")
            clause = self.predicate(
                subject, verb, manner, [Mot(function_words.OBJECTS[word.text][1], (word,))]
            )
            clause.add([word, *object.en], object.fr, object.head)
            word.head = clause.governor
        else:
            clause = self.predicate(subject, verb, manner)
            clause.add(object.en, object.fr, object.head)
            clause.add(*self.behind("to", "à", self.nominal(PEOPLE, "known", plain)))
        clause.object = object
        return clause

    def done(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The cake was eaten by the dog`."""
        verb = self.pick(verbs_for(PASSIVE, None, subject and subject.kinds))
        subject = subject or self.nominal(verb.objects, "subject")
        if PAST not in self.tenses or subject.first:
            raise Unsayable
        self.note(verb.name, subject)
        participle = Word(verb.participle, "VERB")
        manner = Manner(PAST, denial="not" if self.chance(0.15) and not asked else "", asked=asked)
        clause = self.predicate(subject, lex.BEING_DONE, manner, state=participle)
        clause.complete(
            [participle],
            mots_for(verb.french.participle[2 * subject.plural + subject.feminine], [participle]),
        )
        clause.add(*self.behind("by", "par", self.nominal(verb.subjects, "known", plain=True)))
        return clause

    def moving(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`She goes to the market`, `he lives in Paris`, `we come from Italy`."""
        verb, en, fr = self.pick(lex.MOVING)
        subject = self.person(subject)
        clause = self.predicate(subject, verb, self.manner(subject, verb, asked, plain))
        if self.chance(0.4):
            clause.add(*self.country(en))
        else:
            clause.add(*self.located(en, fr, verb.objects))
        if not plain and self.chance(0.2):
            self.add_time(clause)
        return clause

    def saying(self, subject: Nominal | None = None, asked: bool = False, plain: bool = False) -> Clause:
        """`The girls think that they are right`."""
        if PRESENT not in self.tenses:
            raise Unsayable
        subject, verb = self.person(subject), self.pick(lex.SAYING)
        clause = self.predicate(subject, verb, Manner(PRESENT, asked=asked))
        that = Word("that", "SCONJ")
        clause.add([that], [Mot("que", (that,))], that)
        tenses, self.tenses = self.tenses, TENSES
        inner = self.clause(
            self.taken_up(subject) if self.is_clear(subject) and self.chance(0.4) else None, plain
        )
        self.tenses = tenses
        clause.add(*inner)
        that.head = inner.head
        return clause

    @abstractmethod
    def clause(self, subject: Nominal | None = None, plain: bool = False) -> Phrase:
        """A statement of any kind."""

    def person(self, subject: Nominal | None) -> Nominal:
        """The subject, which must be a person, or one newly found."""
        subject = subject or self.someone(PEOPLE)
        if not subject.human:
            raise Unsayable
        return subject

    def weather(self) -> Phrase:
        it, does = Word("it", "PRON"), Word(self.pick(tuple(function_words.WEATHER)), "VERB")
        it.head = does
        return Phrase([it, does], [Mot("il", (it,)), Mot(function_words.WEATHER[does.text], (does,))], does)
