"""Predicates: a verb with its tense, its object and its adjuncts."""

from __future__ import annotations

from collections.abc import Sequence

from . import function_words
from . import lexicon as lex
from .lexicon import FUTURE, PAST, PRESENT, Kinds, Verb
from .noun_phrases import NounPhrases
from .selection import ADVERBS_OF_FREQUENCY, LIVING, PEOPLE, QUANTIFIERS
from .sentence import Clause, Manner, Mot, Nominal, Phrase, Unsayable, Word, set_phrase, words_on
from .verbs import EnglishVerbs, french_verbs, particles_of


class Predicates(NounPhrases):
    """Writes verbs, their objects, and how, where, with whom and when."""

    def predicate(
        self,
        subject: Nominal,
        verb: Verb,
        manner: Manner,
        clitics: Sequence[Mot] = (),
        agreed: Nominal | None = None,
        state: Word | None = None,
    ) -> Clause:
        """The verbs of a clause; after `be`, `state` heads it; `agreed` is an object French said before."""
        near_future = lex.GOING if manner.tense == FUTURE else None
        verbs = [v for v in (near_future, manner.over, verb) if v is not None]
        spoken = EnglishVerbs(verbs, subject.person, manner, state)
        mots = french_verbs(verbs, spoken, subject, manner, list(clitics), agreed)
        clause = Clause(subject, spoken.front, spoken.rest, mots, spoken.root, spoken.governor, manner)
        self.clauses.append(clause)
        return clause

    def tense(self, subject: Nominal, verb: Verb) -> str:
        """A tense that does not ask who `I` and `we` are, as `je suis partie` does."""
        tense = self.pick(self.tenses)
        agrees = (verb.french.etre or verb.reflexive) and not verb.stative
        if tense == PAST and subject.first and agrees:
            raise Unsayable
        return tense

    def manner(
        self, subject: Nominal, verb: Verb, asked: bool = False, plain: bool = False, steady: bool = False
    ) -> Manner:
        """How to say a verb: when, whether, under which other verb, and unless it is steady, how often."""
        over = self.over(verb)
        tense = PRESENT if over in lex.MODALS else self.tense(subject, over or verb)
        steady = steady or (verb.stative and verb.base != "be")
        roll = self.random()
        if roll < 0.28 and not (asked or plain or subject.en[0].text in QUANTIFIERS):
            # In `the girl who sleeps often comes back`, two verbs could claim the adverb.
            denial = "not" if subject.described else self.denial(tense, steady, not (over or verb).stative)
            return Manner(tense, over, denial)
        steady = steady or subject.described or over in lex.MODALS
        often = roll > 0.9 and tense == PRESENT and not steady
        return Manner(tense, over, "", self.pick(ADVERBS_OF_FREQUENCY) if often else "", asked)

    def denial(self, tense: str, steady: bool, event: bool) -> str:
        options = ["not", "not", "not"]
        if tense == PRESENT:
            options.append("no longer")
        if not steady and (tense == PRESENT or (tense == PAST and event)):
            options.append("never")
        return self.pick(options)

    def over(self, verb: Verb) -> Verb | None:
        """Now and then, a verb that takes this one as an infinitive."""
        roll = self.random()
        if roll > 0.18 or verb.stative:
            return None
        if roll < 0.02 and verb.base in lex.SKILLS:
            return lex.LEARNING
        if roll < 0.08 and PRESENT in self.tenses:
            return lex.MODALS[verb.base in lex.SKILLS or self.chance(0.4)]
        return self.pick(lex.CONTROLS)

    # Objects

    def object(self, verb: Verb, manner: Manner, plain: bool) -> Nominal:
        """What the verb acts on; under a denial a direct object (`pas de`), or something known."""
        loves = verb.stative and "person" in verb.objects  # whom one loves or knows is somebody
        role = "firm" if manner.denial else "known" if verb.link == "de" or loves else "any"
        if manner.denial and not verb.link and manner.over is None:
            role = "denied"
        nominal = self.nominal(verb.objects, role, plain)
        if nominal.en[0].text == "her" and (nominal.plural or "mass" in nominal.kinds):
            nominal.en[0].text = "his"  # `sells her apples` could be to her
        self.note(verb.name, nominal)
        self.combinations += self.looser[-len(nominal.nouns) :][:1]
        return nominal

    def place_object(self, clause: Clause, verb: Verb, object: Nominal) -> None:
        """Puts the object after its verb, with the prepositions of both languages."""
        particles = particles_of(verb, object.head)
        of = tuple(particles) or (clause.governor,)
        fr = object.after(verb.link, of) if verb.link else object.fr
        clause.add([*particles, *object.en], fr, object.head)
        clause.object = object
        if not verb.link:
            clause.render(particles)

    def doing_to_pronoun(self, subject: Nominal, verb: Verb, manner: Manner) -> Clause:
        """`She sees him`, `elle le voit`."""
        direct = verb.clitic == "direct"
        # `Il m'a vue`: the compound past tells the gender that `me`, `us` and `them` hide.
        tells = direct and manner.tense == PAST and manner.over is None and not verb.stative
        word = Word(self.pick(("him", "her") if tells else self.others(subject)), "PRON")
        mot = Mot(function_words.OBJECTS[word.text][not direct], (word,))
        said = Nominal([word], [mot], word, word.text == "her", False, PEOPLE)
        clause = self.predicate(subject, verb, manner, [mot], said if direct else None)
        return self.with_pronoun(clause, verb, word)

    def others(self, subject: Nominal) -> Sequence[str]:
        """The object pronouns that are not the subject itself."""
        return ("him", "her", "them") if subject.first else tuple(function_words.OBJECTS)

    def with_pronoun(self, clause: Clause, verb: Verb, word: Word) -> Clause:
        """Puts the English pronoun after the verb; the French one is there already."""
        particles = particles_of(verb, word)
        clause.add([*particles, word], [], word)
        clause.render(particles)
        return clause

    def to_it(self, subject: Nominal, verb: Verb, tense: str, object: Nominal) -> Clause:
        word, mot = self.taken_up_as_object(object)
        return self.with_pronoun(self.predicate(subject, verb, Manner(tense), [mot], object), verb, word)

    def strand(self, clause: Clause, verb: Verb) -> None:
        """Leaves the particle without an object: `gets up`, `the man that she looks for`."""
        particles = particles_of(verb, clause.governor)
        clause.after += particles
        clause.render(particles)

    # Adjuncts

    def adjoin(self, clause: Clause, verb: Verb, plain: bool) -> None:
        """Adds how, where, with whom and when; often nothing."""
        if not self.adjuncts or (plain and self.chance(0.8)):
            return
        if not verb.stative:
            if verb.base in lex.SKILLS and not clause.object and self.chance(0.3):
                word = Word(self.pick(tuple(function_words.MANNERS)), "ADV")
                clause.add([word], [Mot(function_words.MANNERS[word.text], (word,))], word)
            if self.chance(0.6 if self.wordy else 0.32):
                clause.add(*self.circumstance(verb, clause.subject))
        if (verb.state or not verb.stative) and self.chance(0.4 if self.wordy else 0.22):
            self.add_time(clause)

    def circumstance(self, verb: Verb, subject: Nominal) -> Phrase:
        """Where, with whom or for whom."""
        roll = self.random()
        if roll < 0.4 and verb.base in lex.FOR_OTHERS:
            return self.company("for", "pour", subject)
        if roll < 0.7 and verb.base not in lex.ELSEWHERE:
            return self.country("in") if roll < 0.1 else self.place(LIVING)
        if verb.link == "avec":
            raise Unsayable
        return self.company(*self.pick((("with", "avec"), ("with", "avec"), ("without", "sans"))), subject)

    def add_time(self, clause: Clause) -> None:
        if clause.manner.often or clause.manner.denial in ("never", "no longer") or not self.adjuncts:
            return
        clause.add(*set_phrase(*self.pick(function_words.TIMES[clause.manner.tense])))

    def place(self, kinds: Kinds) -> Phrase:
        """`Under the table`: a place for people and animals, or one for things."""
        return self.located(*self.pick(function_words.PLACES if kinds is LIVING else function_words.SPOTS))

    def located(self, en: str, fr: str, places: Kinds, tags: str = "ADP") -> Phrase:
        """`In a garden`; but `at` a place, as French says `à`, only where the place is known."""
        place = self.nominal(places, "firm" if fr == "à" else "spot", plain=True)
        return self.behind(en, fr, place, tags)

    def country(self, en: str) -> Phrase:
        name = Word(self.pick(tuple(function_words.COUNTRIES)), "PROPN")
        preposition = Word(en, "ADP", name)
        fr, nom = function_words.COUNTRIES[name.text][en == "from"].split()
        return Phrase([preposition, name], [Mot(fr, (preposition,)), Mot(nom, (name,))], name)

    def company(self, en: str, fr: str, subject: Nominal) -> Phrase:
        """`With me`, `with the queen`."""
        if self.chance(0.7):
            return self.behind(en, fr, self.nominal(PEOPLE, "known", plain=True))
        word = Word(self.pick(("him", "her") if subject.first else ("me", "him", "her", "us")), "PRON")
        preposition = Word(en, "ADP", word)
        return Phrase(
            [preposition, word],
            [Mot(fr, (preposition,)), Mot(function_words.OBJECTS[word.text][2], (word,))],
            word,
        )

    def behind(self, en: str, fr: str, nominal: Nominal, tags: str = "ADP") -> Phrase:
        """A noun phrase behind a preposition, which may have several words."""
        of = words_on(en, tags, nominal.head)
        return Phrase([*of, *nominal.en], nominal.after(fr, tuple(of)), nominal.head)
