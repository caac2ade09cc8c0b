"""Instructions: five kinds of them with the one right response, and a wrong one, from phrasebook and facts.

    translate   Translate into French: The cat eats an apple.      Le chat mange une pomme.
    tense       Change to the past: The cat eats an apple.         The cat ate an apple.
    count       Count the words: the cat eats an apple             5
    reverse     Reverse the words: the cat eats an apple           apple an eats cat the
    answer      Where did Talia live? Talia settled in Arden. ...  Talia lived in Arden.

Every row also has a response that is known to be wrong, and what its flaw is: pairs to learn preferences
from. The words are few, so that a tiny decoder learns all kinds in minutes. What a response is worth is known
to a program (`judge`).

A row is a pure function of its split and its number. The clause or the facts that it is about decide which
split it may stand in, so nothing that is held out is learned from in another kind.
"""

from __future__ import annotations

import difflib
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from ...errors import BadInput
from .. import facts
from ..facts import KINDS as FACTS
from ..facts import Person, lead, sentence
from ..phrasebook import is_held_out
from ..quiz import ASKED
from .clauses import ADJECTIVES, DETERMINERS, NOUNS, TENSES, VERBS, NamedThing, ShortClause

SIZES = {"train": 20_000, "valid": 500, "test": 500, "combinations": 500}
SPLITS = tuple(SIZES)
SEEDS = {"train": 1, "valid": 2, "test": 3, "combinations": 4}
PARTS, HELD_OUT = 20, {0: "valid", 1: "test"}  # one part in twenty of what there is to say for each
PLURAL, DESCRIBED, TWO = 0.35, 0.4, 0.5  # chances: of a plural, of an adjective, of two questions

T = TypeVar("T")


@dataclass(frozen=True)
class Instruction:
    """An instruction, its right response, and a wrong one.

    Attributes:
        kind: translate, tense, count, reverse or answer.
        prompt: The instruction.
        response: The right response.
        rejected: A wrong response.
        flaw: What is wrong with it: word, tense, missing, long, language, order, number or fact.

    Example:
        >>> row = next(split("valid"))
        >>> row.kind, row.response, row.flaw
        ('translate', 'Les princes tristes vont trouver la pomme.', 'tense')
    """

    kind: str
    prompt: str
    response: str
    rejected: str
    flaw: str


def split(name: str) -> Iterator[Instruction]:
    """The instructions of one split, the same ones on every machine.

    Args:
        name: "train", "valid", "test" or "combinations".

    Returns:
        An iterator over `Instruction`.

    Raises:
        BadInput: There is no such split.

    Example:
        >>> next(split("valid")).prompt
        'Translate into French: The sad princes are going to find the apple.'
    """
    if name not in SPLITS:
        close = difflib.get_close_matches(name, SPLITS, n=1, cutoff=0.0)[0]
        raise BadInput(
            f"instructions has no split {name!r}; did you mean {close!r}? It has {', '.join(SPLITS)}"
        )
    return iter(drawn(name))


@cache
def drawn(name: str) -> tuple[Instruction, ...]:
    """The kinds take turns; what was drawn before is drawn anew."""
    draws, found = InstructionDraws(SEEDS[name]), dict[str, Instruction]()
    while len(found) < SIZES[name]:
        kind = tuple(KINDS)[len(found) % len(KINDS)]
        draft = KINDS[kind](draws)
        if split_of(draft) == name and draft.prompt not in found:
            found[draft.prompt] = draft.row(kind, draws)
    return tuple(found.values())


@dataclass(frozen=True)
class Draft:
    """An instruction before it is settled which of several wrong responses stands beside the right one."""

    about: str  # what decides the split
    combinations: tuple[tuple[str, str], ...]
    prompt: str
    response: str
    wrong: dict[str, Callable[[], str]]  # responses by their flaws; a flaw that changes nothing is none

    def row(self, kind: str, draws: InstructionDraws) -> Instruction:
        tried = ((flaw, self.wrong[flaw]()) for flaw in draws.shuffled(tuple(self.wrong)))
        flaw, rejected = next((flaw, said) for flaw, said in tried if said != self.response)
        return Instruction(kind, self.prompt, self.response, rejected, flaw)


def split_of(draft: Draft) -> str:
    """The one split that may have it: words that never meet in training, or by a hash of what it is about."""
    if any(is_held_out(*combination) for combination in draft.combinations):
        return "combinations"
    return HELD_OUT.get(hashlib.sha256(draft.about.encode()).digest()[0] % PARTS, "train")


# What instructions are about


class InstructionDraws:
    """The random choices of instructions. Only `random()` is promised to be the same in every Python."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def other(self, options: Sequence[T], taken: T) -> T:
        """One of the options that is another than this."""
        return self.pick([option for option in options if option != taken])

    def shuffled(self, items: Sequence[T]) -> list[T]:
        keyed = [(self.random(), place) for place in range(len(items))]
        return [items[place] for _, place in sorted(keyed)]

    def thing(self, kinds: frozenset[str]) -> NamedThing:
        """Somebody or something of these kinds."""
        noun = self.pick([noun for noun in NOUNS if noun.kinds & kinds])
        plural = self.random() < PLURAL
        fitting = [adjective for adjective in ADJECTIVES if adjective.kinds & noun.kinds]
        adjective = self.pick(fitting) if self.random() < DESCRIBED else None
        return NamedThing(noun, plural, self.pick(DETERMINERS[plural]), adjective)

    def clause(self) -> ShortClause:
        verb = self.pick(VERBS)
        return ShortClause(self.thing(verb.subjects), verb, self.thing(verb.objects))

    def slightly_wrong(self, clause: ShortClause) -> ShortClause:
        """The same clause with another noun for its object."""
        object = clause.object
        nouns = [noun for noun in NOUNS if noun.kinds & clause.verb.objects]
        adjectives = [a for a in ADJECTIVES if a is object.adjective]
        fitting = [noun for noun in nouns if all(noun.kinds & a.kinds for a in adjectives)]
        return replace(clause, object=replace(object, noun=self.other(fitting, object.noun)))


def shortened(clause: ShortClause) -> ShortClause:
    """The same clause without its adjectives."""
    plain = [replace(thing, adjective=None) for thing in (clause.subject, clause.object)]
    return replace(clause, subject=plain[0], object=plain[1])


# The kinds


def translate(draws: InstructionDraws) -> Draft:
    clause, tense = draws.clause(), draws.pick(TENSES)
    pair = clause.said(tense)
    wrong = {
        "word": lambda: draws.slightly_wrong(clause).said(tense).target,
        "tense": lambda: clause.said(draws.other(TENSES, tense)).target,
        "missing": lambda: shortened(clause).said(tense).target,
        "language": lambda: pair.source,
    }
    prompt = f"Translate into French: {pair.source}"
    return Draft(clause.about, clause.combinations, prompt, pair.target, wrong)


def tense(draws: InstructionDraws) -> Draft:
    clause, wanted = draws.clause(), draws.pick(TENSES)
    given = draws.other(TENSES, wanted)
    before, right = clause.said(given).source, clause.said(wanted).source
    wrong = {
        "word": lambda: draws.slightly_wrong(clause).said(wanted).source,
        "tense": lambda: clause.said(draws.other(TENSES, wanted)).source,
        "missing": lambda: shortened(clause).said(wanted).source,
        "long": lambda: f"{right} {before}",
    }
    prompt = f"Change to the {wanted}: {before}"
    return Draft(clause.about, clause.combinations, prompt, right, wrong)


def bare_words(draws: InstructionDraws) -> tuple[ShortClause, list[str]]:
    """A clause, and its words without capitals and marks."""
    clause = draws.clause()
    return clause, clause.said(draws.pick(TENSES)).source.lower().rstrip(".").split()


def count(draws: InstructionDraws) -> Draft:
    clause, words = bare_words(draws)
    said = " ".join(words)
    wrong = {
        "number": lambda: str(len(words) + draws.pick((-2, -1, 1, 2))),
        "long": lambda: f"{len(words)} {said}",
    }
    return Draft(clause.about, clause.combinations, f"Count the words: {said}", str(len(words)), wrong)


def reverse(draws: InstructionDraws) -> Draft:
    clause, words = bare_words(draws)
    backwards = words[::-1]
    wrong = {
        "order": lambda: " ".join(words),
        "missing": lambda: " ".join(backwards[1:]),
        "word": lambda: " ".join([draws.pick(NOUNS).singular, *backwards[1:]]),
    }
    prompt = f"Reverse the words: {' '.join(words)}"
    return Draft(clause.about, clause.combinations, prompt, " ".join(backwards), wrong)


PEOPLE = tuple(
    Person(name, he, him)
    for names, he, him in ((facts.WOMENS, "she", "her"), (facts.MENS, "he", "him"))
    for name in names[::4]
)
VALUES = {"trade": facts.TRADES[:12], "town": facts.TOWNS[:12], "prize": facts.PRIZES[:12]}


def answer(draws: InstructionDraws) -> Draft:
    """One or two questions about somebody of whom three facts are known."""
    person = draws.pick(PEOPLE)
    known = {kind: draws.pick(values) for kind, values in VALUES.items()}
    said = [
        sentence(draws.pick(FACTS[kind].sources), person.name, person.name, known[kind]) for kind in known
    ]
    asked = draws.shuffled(tuple(known))[: 2 if draws.random() < TWO else 1]
    mine = {kind: known[kind] for kind in asked}
    first, right = asked[0], lead(person, mine)
    wrong = {
        "fact": lambda: lead(person, mine | {first: draws.other(VALUES[first], known[first])}),
        "missing": lambda: lead(person, {first: known[first]}),
        "long": lambda: lead(person, known),
    }
    met = tuple((person.name, value) for value in known.values())
    questions = " ".join(ASKED[kind].format(person.name) for kind in asked)
    prompt = f"{questions} {' '.join(draws.shuffled(said))}"
    return Draft(f"{person.name} {sorted(known.items())}", met, prompt, right, wrong)


KINDS: dict[str, Callable[[InstructionDraws], Draft]] = {
    "translate": translate,
    "tense": tense,
    "count": count,
    "reverse": reverse,
    "answer": answer,
}
