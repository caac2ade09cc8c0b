"""The phrasebook's words: English beside French, with the forms agreement needs and what goes with what."""

from __future__ import annotations

from dataclasses import dataclass

from .spelling import Conjugation, agreeing, conjugation, plural_of, with_ed, with_s
from .tables import table

Kinds = frozenset[str]  # what a noun is good for, and what a verb or an adjective asks of it

PRESENT, PAST, FUTURE = "present", "past", "future"


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun in both languages; `feminine` is its French gender."""

    singular: str
    plural: str
    singulier: str
    pluriel: str
    feminine: bool
    kinds: Kinds

    def form(self, plural: bool) -> str:
        return self.plural if plural else self.singular

    def forme(self, plural: bool) -> str:
        return self.pluriel if plural else self.singulier


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective in both languages."""

    word: str
    comparative: str  # `bigger`, or `more`; "" where nothing is compared
    formes: tuple[str, str, str, str]  # masculine, feminine, then their plurals
    liaison: str  # masculine singular before a vowel: bel, nouvel, vieil
    before: bool  # stands before its noun in French
    rank: int  # English order: opinion 1, size 2, state 3, age 4, color 5, origin 6, material 7
    kinds: Kinds
    tag: str  # its part of speech in English

    @property
    def shows_gender(self) -> bool:
        return self.formes[0] != self.formes[1]


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in both languages, with what each puts around it."""

    base: str
    third: str
    past: str
    participle: str
    french: Conjugation
    subjects: Kinds
    objects: Kinds
    particle: tuple[str, ...] = ()  # look `for`, wake `up`
    particle_tag: str = "ADP"  # its part of speech
    state: str = ""  # be `hungry`
    tail: str = ""  # avoir `faim`
    link: str = ""  # the preposition French puts before the object
    to: str = ""  # the word English puts before a verb that follows
    helper: bool = False  # asks and denies without `do`
    stative: bool = False  # its past is an imparfait
    reflexive: bool = False
    clitic: str = ""  # "direct" or "indirect": how French says an object pronoun

    @property
    def name(self) -> str:
        return " ".join((self.state or self.base, *self.particle))

    def form(self, tense: str, person: int) -> str:
        if self.base == "be":
            return BE[tense][person]
        if self.helper:
            return self.base
        if tense == PAST:
            return self.past
        return self.third if person == 1 else self.base


BE = {PRESENT: ("am", "is", "are", "are"), PAST: ("was", "was", "were", "were")}
DO = {PRESENT: ("do", "does", "do", "do"), PAST: ("did", "did", "did", "did")}


def named(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Nouns: an irregular plural stands after a stroke.


def noun(row: dict[str, str]) -> Noun:
    singular, _, plural = row["english"].partition("/")
    singulier, _, pluriel = row["french"].partition("/")
    plurals = (plural or with_s(singular), pluriel or plural_of(singulier))
    return Noun(
        singular, plurals[0], singulier, plurals[1], row["gender"] == "f", frozenset(row["kinds"].split())
    )


NOUNS = tuple(map(noun, table("nouns")))
MAN, WOMAN = (next(noun for noun in NOUNS if noun.singular == word) for word in ("man", "woman"))
ANIMAL = Noun("animal", "animals", "animal", "animaux", False, frozenset({"animal"}))  # for `a loyal animal`

MEN = ("Paul", "Louis", "Antoine", "Oscar", "Victor")
WOMEN = ("Marie", "Anne", "Alice", "Julie", "Sophie")


# Adjectives: English with its comparative, French with its feminine.


def adjective(row: dict[str, str]) -> Adjective:
    word, _, comparative = row["english"].partition("/")
    masculine, feminine, liaison = (row["french"] + "//").split("/")[:3]
    # Colors named after a thing, and phrases with `en`, do not agree.
    fixed = masculine in ("marron", "en bois", "en laine", "en or", "en cuir")
    formes = (masculine, masculine, masculine, masculine) if fixed else agreeing(masculine, feminine)
    tag = "NOUN" if word == "leather" else "ADJ"  # a noun that stands where adjectives do
    before, kinds = row["place"] == "before", frozenset(row["kinds"].split())
    return Adjective(word, comparative, formes, liaison or masculine, before, int(row["rank"]), kinds, tag)


ADJECTIVES = tuple(map(adjective, table("adjectives")))
RANKS = {adjective.word: adjective.rank for adjective in ADJECTIVES}


# Verbs: English forms (and particle), French (and what it adds), the kinds of its subject and object.


def english_forms(forms: str) -> tuple[str, str, str, str]:
    """Base, third person, past and participle, from `see/saw/seen`, `buy/bought` or `help`."""
    base, *given = forms.split("/")
    past = given[0] if given else with_ed(base)
    return (base, "has" if base == "have" else with_s(base), past, given[-1] if given else past)


def french_parts(french: str) -> tuple[bool, str, str, str]:
    """Whether it is reflexive, the infinitive, what follows it, and the preposition before the object."""
    words = french.split()
    reflexive = words[0] == "se"
    infinitive, *rest = words[reflexive:]
    link = rest.pop() if rest and rest[-1] in ("à", "de", "dans", "avec") else ""
    return reflexive, infinitive, " ".join(rest), link


def verb(
    english: str,
    french: str,
    subjects: str = "",
    objects: str = "",
    stative: bool = False,
    to: str = "",
    particle_tag: str = "ADP",
) -> Verb:
    forms, *particle = english.split()
    base, third, past, participle = english_forms(forms)
    state = particle.pop(0) if base == "be" and particle else ""
    reflexive, infinitive, tail, link = french_parts(french)
    return Verb(
        base=base,
        third=third,
        past=past,
        participle=participle,
        french=conjugation(infinitive),
        subjects=frozenset(subjects.split()),
        objects=frozenset(objects.split()),
        particle=tuple(particle),
        particle_tag=particle_tag,
        state=state,
        tail=tail,
        link=link,
        to=to,
        helper=base in ("be", "can", "must"),
        stative=stative,
        reflexive=reflexive,
        # `Il lui parle`, but `il pense à elle`: the phrasebook leaves the second kind out.
        clitic="" if infinitive == "penser" else {"": "direct", "à": "indirect"}.get(link, ""),
    )


def verbs(group: str) -> tuple[Verb, ...]:
    """The verbs of one group in the table."""
    return tuple(
        verb(
            row["english"],
            row["french"],
            row["subjects"],
            row["objects"],
            stative=row["stative"] == "yes",
            to=row["to"],
            particle_tag=row["particle_tag"] or "ADP",
        )
        for row in table("verbs")
        if row["group"] == group
    )


TRANSITIVE, INTRANSITIVE, GIVING = verbs("transitive"), verbs("intransitive"), verbs("giving")
STATES, CONTROLS, SAYING = verbs("state"), verbs("control"), verbs("saying")
BEING = verb("be", "être", stative=True)
BEING_DONE = verb("be", "être")  # the passive: its past is compound
BEING_AS_HAVING = verb("be", "avoir", stative=True)  # `is ten years old`, `there is`
GOING = verb("be going", "aller", to="to")  # the near future
MOVING = (
    (verb("go/went", "aller", "person", "goal"), "to", "à"),
    (verb("live", "habiter", "person", "home", stative=True), "in", "dans"),
    (verb("come/came", "venir", "person", "home"), "from", "de"),
)
MODALS = (verb("can", "pouvoir"), verb("must", "devoir"))
LEARNING = verb("learn", "apprendre à", to="to")

# What English can do, French knows how to do: `can swim` would be `sait nager`, so `can` leaves these alone.
SKILLS = named("sing dance swim draw paint write drive translate run walk")
FOR_OTHERS = named("buy choose prepare write sing dance work carry draw build open repair")
# `Revenir en Italie` is to come back to Italy, not in Italy; `laughs at the school` is another verb.
ELSEWHERE = named("come leave go smile laugh")
BY_SOME_MEANS = named("travel arrive leave come work")
# What is done to a thing first, and what next: `buys the apple and eats it`.
FIRST = named("buy find take see choose receive steal prepare catch draw build write meet")
THEN = named(
    "eat drink sell wash clean repair hide keep lose paint break carry follow thank help invite feed "
    "protect translate forget watch listen"
)
