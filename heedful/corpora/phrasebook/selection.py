"""What goes with what: nouns, adjectives and verbs by the kinds of things they are about."""

from __future__ import annotations

from functools import cache

from . import function_words
from . import lexicon as lex
from .lexicon import FUTURE, PAST, PRESENT, Adjective, Kinds, Noun, Verb


@cache
def nouns_of(kinds: Kinds) -> tuple[Noun, ...]:
    return tuple(noun for noun in lex.NOUNS if noun.kinds & kinds)


@cache
def adjectives_of(kinds: Kinds) -> tuple[Adjective, ...]:
    return tuple(a for a in lex.ADJECTIVES if a.kinds & kinds)


@cache
def verbs_for(verbs: tuple[Verb, ...], subject: Kinds | None, object: Kinds | None) -> tuple[Verb, ...]:
    """Those that can be done by one and to the other."""
    found = verbs if subject is None else tuple(v for v in verbs if v.subjects & subject)
    return found if object is None else tuple(v for v in found if v.objects & object)


def weighted(**weights: int) -> tuple[str, ...]:
    return tuple(name for name, weight in weights.items() for _ in range(weight))


# Which determiners a noun phrase may take, by its role: singular, plural, and for what is not counted.
DETERMINER_WEIGHTS = {
    "any": (
        weighted(the=12, a=7, this=2, my=1, his=1, her=1, our=1, their=1, every=1),
        weighted(
            the=10, some=6, this=2, my=1, his=1, her=1, our=1, their=1, number=5, many=2, several=1, all=1
        ),
        weighted(the=4, some=5, this=1, my=1, his=1, her=1),
    ),
    "subject": (
        weighted(the=12, a=6, this=2, my=1, his=1, her=1, our=1, their=1, every=1),
        weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1, number=4, many=2, several=1, all=1),
        weighted(the=5, this=1, my=1, his=1, her=1),
    ),
    "known": (
        weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1),
        weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1, number=1),
        weighted(the=5, this=1, my=1, his=1, her=1),
    ),
    "firm": (weighted(the=6, this=1, my=1, his=1, her=1, our=1, their=1),) * 3,
    "spot": (
        weighted(the=12, a=5, this=2, my=1, his=1, her=1, our=1, their=1),
        weighted(the=10, this=2, my=1, his=1, her=1, our=1, their=1),
        (),
    ),
    "denied": (
        weighted(the=6, a=5, this=1, my=1, his=1, her=1, our=1, their=1),
        weighted(the=6, some=5, this=1, my=1, his=1, her=1, our=1, their=1),
        weighted(the=2, some=5, this=1, his=1, her=1),
    ),
    "kin": (weighted(the=2, my=3, his=3, her=3, our=2, their=2),) * 2,
    "spouse": (weighted(my=2, his=1, her=1),),
    "new": (weighted(a=1), weighted(some=2, number=4, many=1, several=1), weighted(some=1)),
    "none": (weighted(a=1), weighted(some=1), weighted(some=1)),
}
COUNTED = tuple(function_words.NUMBERS)
ADVERBS_OF_FREQUENCY = tuple(function_words.OFTEN)
OWNERS = ("my", "his", "her", "our", "their")
QUANTIFIERS = ("every", "all", "many", "several")  # `chaque roi ne dort pas` would be two thoughts
AT_ONCE = ("when", "while", "if")
TENSES = (PRESENT,) * 4 + (PAST,) * 3 + (FUTURE,) * 2
NO_PLURAL = frozenset({"mass", "single"})
PEOPLE = frozenset({"person"})
LIVING = frozenset({"person", "animal"})
LAID = frozenset({"thing", "food", "dish", "clothing"})
DESCRIBED = frozenset().union(*(noun.kinds for noun in lex.NOUNS)) - NO_PLURAL
PASSIVE = tuple(v for v in lex.TRANSITIVE if not (v.link or v.particle or v.stative))
SIMPLY_DONE = tuple(v for v in lex.TRANSITIVE if not (v.link or v.stative))
FIRST_DONE = tuple(v for v in lex.TRANSITIVE if v.base in lex.FIRST)
THEN_DONE = tuple(v for v in lex.TRANSITIVE if v.base in lex.THEN)
SOMEWHERE = tuple(v for v in lex.INTRANSITIVE if v.base not in lex.ELSEWHERE)
SOMEHOW = tuple(v for v in lex.INTRANSITIVE if v.base in lex.BY_SOME_MEANS)
ASKED_ABOUT = tuple(v for v in lex.TRANSITIVE if v.link != "dans")
