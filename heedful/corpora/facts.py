"""Facts: long articles about invented people, from several sources, and the lead that gathers what they say.

Each source tells a part: a paragraph about the person, with a fact or two in words of its own, and a
paragraph about somebody else, with facts of the same kinds. The lead says every fact once, in one order and
in one wording, so what is right is known to the letter. The more sources, the longer the article, while the
lead stays as it is.
"""

from __future__ import annotations

import difflib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from ..data.articles import SENTENCE, Article
from ..errors import BadInput

SIZES = {"train": 8000, "valid": 300, "test": 500, "long": 200}
SEEDS = {"train": 1, "valid": 2, "test": 3, "long": 4}
SPLITS = tuple(SIZES)
LONGER = 4  # times as many sources in the split `long`
TOLD = 4  # facts of a person: the trade, and so many less one of the other kinds


def listed(words: str) -> list[str]:
    return words.split()


def joined(starts: str, ends: str) -> list[str]:
    """Names put together of syllables."""
    return [start + end for start, end in product(starts.split(), ends.split())]


WOMENS = joined("Ma Li So Re Ta Ve No Pa", "rina lva ndra lia neth")
MENS = joined("Be Co Da Fe Ha Ju Ro Ti", "rick llan mon ssel dor")
SURNAMES = joined(
    "Bar Cal Den Fal Gor Hol Kes Lam Mor Nor Pel Ras Sol Tav Ul Wen",
    "aby combe dow ett field gate holt low rick worth",
)
YEARS = range(1801, 1900)
TRADES = listed(
    "baker brewer builder carpenter clockmaker composer cook dancer doctor farmer fisher gardener glazier "
    "hatter hunter jeweller judge lawyer mason merchant miller miner nurse painter pilot poet potter printer "
    "sailor sculptor shepherd singer smith surgeon tailor tanner teacher trumpeter weaver writer"
)
TOWNS = listed(
    "Arden Bellac Brimsey Caldor Corvin Dunmere Elsted Fenwick Garrow Halden Harlow Iverton Jarrow Kelso "
    "Larkhill Lorne Marwick Melrose Nairn Norwell Oakham Orford Pendle Quarley Ravensby Redmire Selby "
    "Skelton Tarrant Thornby Ulverston Velden Wexcombe Wickford Yarmley Zellin"
)
COLORS = listed(
    "amber black blue broken crimson crystal empty frozen golden green grey hidden iron ivory lost paper red "
    "silent silver white"
)
THINGS = listed(
    "bell bridge candle clock crown door feather fountain garden gate harp island key lamp lantern mirror "
    "mountain orchard river ship staircase tower tree wheel window"
)
PRIZES = listed(
    "Aldine Bronze Cardinal Dolphin Eagle Founders Guild Harvest Imperial Jubilee Laurel Lion Meridian Orion "
    "Regent Royal"
)
FILLER = (
    "The harvest was poor that year.",
    "Letters from those days are rare.",
    "A fire destroyed most of the records.",
    "The roads were bad in winter.",
    "Nobody remembers the reason.",
    "The newspapers wrote little about it.",
    "Prices rose twice before the war.",
    "The archive is closed on Mondays.",
)


@dataclass(frozen=True)
class FactKind:
    """A kind of fact: how the lead says it, and how sources do. {who}: the person, or a pronoun."""

    lead: str
    sources: tuple[str, ...]


# In the order of the lead. Of every wording, the first letter is made a capital.
KINDS = {
    "trade": FactKind(
        "{who} was a {value}.",
        (
            "{who} earned a living as a {value}.",
            "{who} worked for years as a {value}.",
            "{who} was trained as a {value}.",
        ),
    ),
    "year": FactKind(
        "{who} was born in {value}.",
        (
            "{who} came into the world in {value}.",
            "{who} was baptised in {value}.",
            "the parish books enter {whom} in {value}.",
        ),
    ),
    "town": FactKind(
        "{who} lived in {value}.",
        (
            "{who} settled in {value}.",
            "{who} kept a house in {value}.",
            "neighbours saw {whom} daily in {value}.",
        ),
    ),
    "master": FactKind(
        "{who} studied under {value}.",
        (
            "{who} learned everything from {value}.",
            "{who} was a pupil of {value}.",
            "{value} took {whom} as a pupil.",
        ),
    ),
    "work": FactKind(
        "{who} is known for the {value}.",
        (
            "the {value} made {whom} famous.",
            "{who} spent ten years on the {value}.",
            "{who} finished the {value} in old age.",
        ),
    ),
    "prize": FactKind(
        "{who} won the {value} Medal.",
        (
            "{who} was given the {value} Medal.",
            "the {value} Medal went to {whom}.",
            "{who} accepted the {value} Medal.",
        ),
    ),
}


@dataclass(frozen=True)
class Person:
    """Somebody with a name, and pronouns to go on with."""

    name: str
    he: str
    him: str


def split(name: str, sources: int = 4) -> Iterator[tuple[Article, str]]:
    """Articles about invented people, each with a short biography. They are the same on every machine.

    Args:
        name: "train", "valid", "test" or "long".
        sources: Sources of an article; "long" has four times as many.

    Yields:
        (`Article`, its summary). No person is in two splits.

    Raises:
        BadInput: There is no such split.

    Example:
        >>> article, lead = next(split("valid"))
        >>> article.heading, lead.partition(".")[0]
        ('Lilva Barfield', 'Lilva Barfield was a painter')
    """
    if name not in SPLITS:
        close = difflib.get_close_matches(name, SPLITS, n=1, cutoff=0.0)[0]
        raise BadInput(f"facts has no split {name!r}; did you mean {close!r}? It has {', '.join(SPLITS)}")
    draw = random.Random(SEEDS[name])
    for person in titles(name):
        yield story(draw, person, sources * (LONGER if name == "long" else 1))


@cache
def titles(name: str) -> tuple[Person, ...]:
    """Whom the articles of a split are about."""
    everyone = [person_of(first, family) for first in (*WOMENS, *MENS) for family in SURNAMES]
    mine = [person for person in everyone if split_of(person.name) == name]
    return tuple(random.Random(SEEDS[name]).sample(mine, SIZES[name]))


def split_of(title: str) -> str:
    """By a hash of the name, of which a sixteenth goes to each held-out split."""
    sixteenth = hashlib.sha256(title.encode()).digest()[0] % 16
    return {0: "valid", 1: "test", 2: "long"}.get(sixteenth, "train")


def person_of(first: str, family: str) -> Person:
    he, him = ("she", "her") if first in WOMENS else ("he", "him")
    return Person(f"{first} {family}", he, him)


# One article


def story(draw: random.Random, person: Person, sources: int) -> tuple[Article, str]:
    """An article from so many sources, and its lead."""
    kinds = ["trade", *draw.sample([kind for kind in KINDS if kind != "trade"], TOLD - 1)]
    facts = {kind: value_of(draw, kind) for kind in kinds}
    dealt = deal(draw, list(facts), sources)
    paragraphs = [p for kinds in dealt for p in source(draw, person, {kind: facts[kind] for kind in kinds})]
    return Article(paragraphs, person.name), lead(person, facts)


def value_of(draw: random.Random, kind: str) -> str:
    if kind == "work":
        return f"{draw.choice(COLORS)} {draw.choice(THINGS)}"
    choices = {"trade": TRADES, "year": YEARS, "town": TOWNS, "master": SURNAMES, "prize": PRIZES}
    return str(draw.choice(choices[kind]))


def deal(draw: random.Random, kinds: list[str], sources: int) -> list[list[str]]:
    """Which facts each source states: all facts are stated, and a source without one repeats one."""
    draw.shuffle(kinds)
    dealt = [kinds[place::sources] for place in range(sources)]
    dealt = [some or [draw.choice(kinds)] for some in dealt]
    draw.shuffle(dealt)
    return dealt


def source(draw: random.Random, person: Person, facts: dict[str, str]) -> list[str]:
    """Two paragraphs, in either order: about the person, and about somebody else or nothing in particular."""
    kinds = draw.sample(list(KINDS), 1 + draw.randrange(2))
    beside = paragraph(draw, somebody_else(draw, person), {kind: value_of(draw, kind) for kind in kinds})
    if draw.random() < 0.25:
        beside = f"{draw.choice(FILLER)} {beside}"
    found = [paragraph(draw, person, facts), beside]
    draw.shuffle(found)
    return found


def somebody_else(draw: random.Random, person: Person) -> Person:
    """Another person, perhaps of the same family."""
    family = person.name.split()[1]
    while True:
        other = person_of(
            draw.choice((*WOMENS, *MENS)), family if draw.random() < 0.2 else draw.choice(SURNAMES)
        )
        if other.name != person.name:
            return other


def paragraph(draw: random.Random, person: Person, facts: dict[str, str]) -> str:
    """Sentences of which the first names the person."""
    said = []
    for place, (kind, value) in enumerate(facts.items()):
        who, whom = (person.he, person.him) if place else (person.name, person.name)
        said.append(sentence(draw.choice(KINDS[kind].sources), who, whom, value))
    return " ".join(said)


def sentence(wording: str, who: str, whom: str, value: str) -> str:
    said = wording.format(who=who, whom=whom, value=value)
    return said[0].upper() + said[1:]


def lead(person: Person, facts: dict[str, str]) -> str:
    """Every fact in a sentence, of which the first names the person."""
    stated = [(kind, facts[kind]) for kind in KINDS if kind in facts]
    said = [
        sentence(KINDS[kind].lead, person.he if place else person.name, person.him, value)
        for place, (kind, value) in enumerate(stated)
    ]
    return " ".join(said)


def share_right(found: str, expected: str) -> float:
    """The share of a biography's facts that another text states, in the words of the biography.

    Args:
        found: The other text.
        expected: The biography.

    Returns:
        A share from 0 to 1.

    Example:
        >>> share_right("Lilva was born in 1842.", "Lilva was born in 1842. She was a baker.")
        0.5
    """
    facts = SENTENCE.split(expected)
    return sum(fact in SENTENCE.split(found) for fact in facts) / len(facts)
