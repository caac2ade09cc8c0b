"""The verbs of a clause: English helpers and particles, French tenses, pronouns and negation."""

from __future__ import annotations

from . import function_words
from . import lexicon as lex
from .lexicon import PAST, PRESENT, Verb
from .sentence import Manner, Mot, Nominal, Word, words_on
from .spelling import conjugation


class EnglishVerbs:
    """The verbs of an English clause: going, wanting, and the verb itself, each the head of the next."""

    def __init__(self, verbs: list[Verb], person: int, manner: Manner, state: Word | None) -> None:
        tense = PAST if manner.tense == PAST else PRESENT
        self.denial = (
            words_on(manner.denial, function_words.DENIALS[manner.denial][1]) if manner.denial else []
        )
        self.often = [Word(manner.often, "ADV")] if manner.often else []
        self.said = [Word(verb.base, "AUX" if verb.helper else "VERB") for verb in verbs]
        self.states = [state_of(verb) for verb in verbs[:-1]]
        self.states.append(state or state_of(verbs[-1]))
        self.to = [Word(verb.to, "PART") if verb.to else None for verb in verbs]
        self.do: Word | None = None
        self.front: list[Word] = []
        if verbs[0].helper:
            self.said[0].text = verbs[0].form(tense, person)
            self.front = [self.said[0]]
        elif manner.asked or manner.denial == "not":
            self.do = Word(lex.DO[tense][person], "AUX")
            self.front = [self.do]
        else:
            self.said[0].text = verbs[0].form(tense, person)
        self.rest = self._order(state)
        self._depend(verbs)
        if self.front and self.front[0].text == "can" and manner.denial == "not":
            self.rest.remove(self.denial[0])
            self.denial, self.front[0].text = [self.front[0]], "cannot"

    def _order(self, said_later: Word | None) -> list[Word]:
        """All but the first helper, in order; an adjective that has company is said later."""
        rest: list[Word | None] = [*self.denial, *self.often]
        for i, word in enumerate(self.said):
            rest += [word if word not in self.front else None, self.states[i], self.to[i]]
        return [word for word in rest if word is not None and word is not said_later]

    def _depend(self, verbs: list[Verb]) -> None:
        heads = [state or said for state, said in zip(self.states, self.said, strict=True)]
        for said, head in zip(self.said, heads, strict=True):
            said.head = head if said is not head else None
        for i in range(1, len(heads)):
            if verbs[i - 1].to:
                heads[i].head = heads[i - 1]
            else:  # a modal
                heads[i - 1].head = heads[i]
        for to, head in zip(self.to, heads[1:], strict=False):
            if to:
                to.head = head
        self.governor = heads[-1]
        self.root = next(head for head in heads if head.head is None)
        for word in [self.do, *self.denial, *self.often]:
            if word:
                word.head = self.root

    def rendered(self, i: int, verb: Verb, asked: bool) -> tuple[Word, ...]:
        """The English words that the i-th French verb stands for."""
        do = self.do if i == 0 and not asked else None
        state = self.states[i] if verb.state and not verb.tail else None
        helpers = (do, state, None if verb.link else self.to[i])
        return (self.said[i], *(word for word in helpers if word))


def state_of(verb: Verb) -> Word | None:
    """The word after `be` that says what one is: `hungry`, or before another verb `going`."""
    return Word(verb.state, "VERB" if verb.to else "ADJ") if verb.state else None


def particles_of(verb: Verb, head: Word) -> list[Word]:
    return [Word(text, verb.particle_tag, head) for text in verb.particle]


def french_verbs(
    verbs: list[Verb],
    spoken: EnglishVerbs,
    subject: Nominal,
    manner: Manner,
    clitics: list[Mot],
    agreed: Nominal | None,
) -> list[Mot]:
    """The verbs of the French clause, with pronouns, negation and adverb in their places."""
    denial = tuple(spoken.denial)
    fr = [Mot("ne", denial)] if manner.denial else []
    middle = [Mot(function_words.DENIALS[manner.denial][0], denial)] if manner.denial else []
    middle += [Mot(function_words.OFTEN[word.text], (word,)) for word in spoken.often]
    if verbs[-1].reflexive:
        clitics = [Mot(function_words.REFLEXIVES[subject.person], (spoken.said[-1],))]
    for i, verb in enumerate(verbs):
        of = spoken.rendered(i, verb, manner.asked)
        to = spoken.to[i - 1]
        if i and to and verbs[i - 1].link:
            fr.append(Mot(verbs[i - 1].link, (to,)))
        if i == len(verbs) - 1:
            fr += clitics
        if i:
            fr.append(Mot(verb.french.infinitive, of))
        else:
            fr += finite(verb, subject, manner.tense, of, middle, agreed if len(verbs) == 1 else None)
        if verb.tail:
            fr.append(Mot(verb.tail, (spoken.states[i] or spoken.said[i],)))
    return fr


def finite(
    verb: Verb, subject: Nominal, tense: str, of: tuple[Word, ...], middle: list[Mot], agreed: Nominal | None
) -> list[Mot]:
    """The verb that shows the tense: present, imparfait for states, compound past for events."""
    french = verb.french
    if tense != PAST:
        return [Mot(french.present[subject.person], of), *middle]
    if verb.stative:
        return [Mot(french.imparfait[subject.person], of), *middle]
    with_etre = french.etre or verb.reflexive
    auxiliary = conjugation("être" if with_etre else "avoir").present[subject.person]
    lead = subject if with_etre else agreed
    participle = french.participle[2 * lead.plural + lead.feminine] if lead else french.participle[0]
    return [Mot(auxiliary, of), *middle, Mot(participle, of)]
