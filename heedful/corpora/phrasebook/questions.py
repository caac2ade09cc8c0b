"""Questions with a question word."""

from __future__ import annotations

from collections.abc import Callable

from . import lexicon as lex
from .lexicon import PAST, PRESENT, Verb
from .relative_clauses import RelativeClauses
from .selection import ASKED_ABOUT, LAID, LIVING, NO_PLURAL, PEOPLE, SIMPLY_DONE, SOMEHOW, SOMEWHERE, nouns_of
from .sentence import Clause, Manner, Mot, Nominal, Phrase, Unsayable, Word, mots_for


class Questions(RelativeClauses):
    """Writes questions with a question word."""

    frames: tuple[Callable[..., Clause], ...]  # every kind of clause

    def asked(self) -> Phrase:
        """A question with a question word."""
        ask: tuple[Callable[[], Phrase], ...] = (
            self.who,
            self.which_one,
            self.why,
            self.where_is,
            self.how_old,
        )
        more = (self.whom, self.which, self.when_or_where)
        return self.pick((*ask, *more, *more))()

    def who(self) -> Phrase:
        """`Who sees the dog?`"""
        word = Word("who", "PRON")
        subject = Nominal([word], [Mot("qui", (word,))], word, False, False, PEOPLE)
        return self.pick((self.doing, self.acting, self.giving))(subject).statement()

    def which_one(self) -> Phrase:
        """`Which boy sees the dog?`"""
        noun = self.pick(nouns_of(LIVING))
        if noun.kinds & NO_PLURAL:
            raise Unsayable
        subject = self.simple(noun, determiner="which")
        return self.pick((self.doing, self.acting, self.being))(subject).statement()

    def whom(self) -> Phrase:
        """`What does he look for?`, `who does she speak to?`"""
        verb = self.pick(ASKED_ABOUT)
        human = "person" in verb.objects and (verb.objects == PEOPLE or self.chance(0.5))
        word = Word("who" if human else "what", "PRON")
        mots = mots_for(f"{verb.link} {'qui' if human else 'quoi' if verb.link else 'que'}", [word])
        return self.asking(verb, None).question([word], mots)

    def which(self) -> Phrase:
        """`Which car did she buy?`, `how many apples does he eat?`"""
        verb = self.pick(ASKED_ABOUT)
        noun = self.pick(nouns_of(verb.objects))
        many = not verb.link and self.chance(0.5)
        if noun.kinds & NO_PLURAL:
            raise Unsayable
        object = self.simple(noun, "any", "how many" if many else "which", many or None)
        self.note(verb.name, object)
        clause = self.asking(verb, None if verb.link else object)
        mots = object.after(verb.link, (clause.governor,)) if verb.link else object.fr
        return clause.question(object.en, mots)

    def asking(self, verb: Verb, agreed: Nominal | None) -> Clause:
        """A question that has its object already."""
        subject = self.someone(verb.subjects, plain=True)
        clause = self.predicate(subject, verb, Manner(self.tense(subject, verb), asked=True), agreed=agreed)
        self.strand(clause, verb)
        return clause

    def why(self) -> Phrase:
        why = Word("why", "ADV")
        return self.pick(self.frames)(None, True, True).question([why], [Mot("pourquoi", (why,))])

    def when_or_where(self) -> Phrase:
        word = Word(self.pick(("when", "where", "how")), "ADV")
        self.adjuncts = False
        if word.text == "how" or self.chance(0.6):
            verbs = {"when": lex.INTRANSITIVE, "where": SOMEWHERE, "how": SOMEHOW}[word.text]
            clause = self.asking(self.pick(verbs), None)
        else:
            verb = self.pick(SIMPLY_DONE)
            subject = self.someone(verb.subjects, plain=True)
            clause = self.predicate(subject, verb, Manner(self.tense(subject, verb), asked=True))
            self.place_object(clause, verb, self.object(verb, clause.manner, plain=True))
        mot = {"when": "quand", "where": "où", "how": "comment"}[word.text]
        return clause.question([word], [Mot(mot, (word,))])

    def where_is(self) -> Phrase:
        """`Where is the key?`, `où est la clé ?`"""
        where = Word("where", "ADV")
        subject = self.nominal(LAID | LIVING, "known", plain=True)
        clause = self.predicate(
            subject, lex.BEING, Manner(self.pick((PRESENT, PAST)), asked=True), state=where
        )
        subject.head.head = where
        return Phrase(
            [where, *clause.front, *subject.en], [Mot("où", (where,)), *clause.verbs, *subject.fr], where
        )

    def how_old(self) -> Phrase:
        """`How old is the boy?`, `quel âge a le garçon ?`"""
        old = Word("old", "ADJ")
        how = Word("how", "ADV", old)
        subject = self.nominal(PEOPLE, "known", plain=True)
        tense = self.pick((PRESENT, PRESENT, PAST))
        clause = self.predicate(subject, lex.BEING_AS_HAVING, Manner(tense, asked=True), state=old)
        subject.head.head = old
        mots = [Mot("quel", (how,)), Mot("âge", (old,)), *clause.verbs, *subject.fr]
        return Phrase([how, old, *clause.front, *subject.en], mots, old)
