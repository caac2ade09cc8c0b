"""A quiz about the people of `facts`: questions whose answers stand in a text, and statements of which one is
true.

Each text has paragraphs about the person who is asked for and about somebody else, in words of the same
kinds, so what is right is known to the letter, and guessing by kind is wrong as often as right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..data.questions import MultipleChoice, Question
from . import facts
from .facts import KINDS, SEEDS, Person, sentence, somebody_else, titles, value_of

T = TypeVar("T")

ASKED = {
    "trade": "What did {} work as?",
    "year": "In which year was {} born?",
    "town": "Where did {} live?",
    "master": "Who taught {}?",
    "work": "What is {} known for?",
    "prize": "Which medal did {} win?",
}
CHOICES = 4
TOLD = 3  # facts of each person
SPLITS = facts.SPLITS
LONGER = 4  # times as many people in the split `long`


def questions(split: str) -> Iterator[Question]:
    """Questions about the people of `facts`, whose answers stand in a text.

    Args:
        split: "train", "valid", "test" or "long".

    Yields:
        `Question`. They are the same on every machine, and no person is in two splits.

    Example:
        >>> one = next(questions("valid"))
        >>> one.question, one.texts
        ('Which medal did Lilva Barfield win?', ('Bronze',))
    """
    for draw, person, stories in stories_of(split, 5):
        kind = draw.choice(list(stories[0].values))
        text, start = "", -1
        for story in shuffled(draw, stories):
            for which, one in story.said.items():
                text += " " if text else ""
                if story is stories[0] and which == kind:
                    start = len(text) + one.index(story.values[kind])
                text += one
        yield Question(ASKED[kind].format(person.name), text, ((stories[0].values[kind], start),))


def choices(split: str) -> Iterator[MultipleChoice]:
    """Statements about the people of `facts`, of which one is true. A wrong one is true of somebody else.

    Args:
        split: "train", "valid", "test" or "long".

    Yields:
        `MultipleChoice`.

    Example:
        >>> one = next(choices("valid"))
        >>> len(one.choices), one.answer
        (4, 3)
    """
    for draw, person, stories in stories_of(split, 7):
        kind = draw.choice(list(stories[0].values))
        values = [story.values[kind] for story in stories[:2]]
        while len(values) < CHOICES:
            other = value_of(draw, kind)
            values += [other] if other not in values else []
        draw.shuffle(values)
        text = " ".join(one for story in shuffled(draw, stories) for one in story.said.values())
        said = tuple(sentence(KINDS[kind].lead, person.name, person.name, value) for value in values)
        yield MultipleChoice(text, said, values.index(stories[0].values[kind]))


@dataclass(frozen=True)
class Story:
    """What is stated about somebody: facts by their kinds, and a sentence for each."""

    values: dict[str, str]
    said: dict[str, str]


def stories_of(split: str, purpose: int) -> Iterator[tuple[random.Random, Person, list[Story]]]:
    """(random numbers, a person, stories of which the first is the person's), for everybody of a split."""
    draw = random.Random(SEEDS[split] + 100 * purpose)
    for person in titles(split):
        people = [person, *(somebody_else(draw, person) for _ in range(LONGER if split == "long" else 1))]
        names = {name for who in people for name in who.name.split()}
        kinds = draw.sample(list(KINDS), TOLD)
        stories: list[Story] = []
        for who in people:
            taken = names | {value for story in stories for value in story.values.values()}
            values = {kind: another(draw, kind, taken) for kind in kinds}
            wordings = {kind: draw.choice(KINDS[kind].sources) for kind in shuffled(draw, kinds)}
            said = {kind: sentence(w, who.name, who.name, values[kind]) for kind, w in wordings.items()}
            stories.append(Story(values, said))
        yield draw, person, stories


def another(draw: random.Random, kind: str, taken: set[str]) -> str:
    """A fact that nobody else has, and that is no part of anybody's name."""
    while (value := value_of(draw, kind)) in taken:
        pass
    return value


def shuffled(draw: random.Random, items: Sequence[T]) -> list[T]:
    return draw.sample(items, len(items))
