"""Relative clauses: `the girl who sleeps`, `the book that the boy needs`, `the garden where she works`."""

from __future__ import annotations

from .lexicon import PAST, PRESENT
from .selection import ASKED_ABOUT, LIVING, PEOPLE, SOMEWHERE, verbs_for
from .sentence import Manner, Mot, Nominal, Phrase, Unsayable, Word, mots_for
from .states import States


class RelativeClauses(States):
    """Writes relative clauses."""

    def describe(self, nominal: Nominal) -> None:
        """Adds a relative clause."""
        tenses, self.tenses = self.tenses, (PRESENT, PRESENT, PAST)
        roll = self.random()
        if nominal.kinds & {"inside", "goal"} and roll < 0.3:
            self.where(nominal)
        elif nominal.kinds & LIVING and roll < 0.6:
            self.relative_subject(nominal)
        else:
            self.relative_object(nominal)
        self.tenses = tenses

    def relative_subject(self, nominal: Nominal) -> None:
        """`The girl who sleeps`."""
        who = Word("who" if nominal.human else "that", "PRON")
        qui = Mot("qui", (who,))
        gap = Nominal([who], [qui], who, nominal.feminine, nominal.plural, nominal.kinds, nominal.nouns)
        frame = self.pick((self.acting, self.doing, self.doing, self.being))
        self.relate(nominal, frame(gap, plain=True).statement())

    def relative_object(self, nominal: Nominal) -> None:
        """`The book that the boy needs`: `que`, or `dont`, or `à qui`, as the French verb has it."""
        verb = self.pick(verbs_for(ASKED_ABOUT, LIVING, nominal.kinds))
        # `The key that the boy has chosen`: a bare `has` would be taken for a helper.
        if verb.base == "have" or (verb.link in ("à", "avec") and not nominal.human):
            raise Unsayable
        subject = self.someone(verb.subjects, plain=True)
        self.note(verb.name, nominal)
        manner = Manner(self.tense(subject, verb))
        clause = self.predicate(subject, verb, manner, agreed=None if verb.link else nominal)
        self.strand(clause, verb)
        that = Word("that", "PRON", clause.governor)
        en, fr, root = clause.statement()
        relative = {"": "que", "de": "dont"}.get(verb.link, verb.link + " qui")
        self.relate(nominal, Phrase([that, *en], [*mots_for(relative, [that]), *fr], root))

    def where(self, nominal: Nominal) -> None:
        """`The garden where she works`."""
        subject, verb = self.someone(PEOPLE, plain=True), self.pick(verbs_for(SOMEWHERE, PEOPLE, None))
        clause = self.predicate(subject, verb, Manner(self.tense(subject, verb)))
        self.strand(clause, verb)
        en, fr, root = clause.statement()
        where = Word("where", "ADV", root)
        self.relate(nominal, Phrase([where, *en], [Mot("où", (where,)), *fr], root))

    def relate(self, nominal: Nominal, clause: Phrase) -> None:
        clause.head.head = nominal.head
        nominal.en += clause.en
        nominal.fr += clause.fr
        nominal.described = True
