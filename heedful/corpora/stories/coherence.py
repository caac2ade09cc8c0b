"""Coherence: whether one part of a story can be followed by another, decided by the grammar alone."""

from __future__ import annotations

from collections.abc import Sequence

from . import StorySentence
from .plots import Plot, Row


def can_follow(before: Sequence[StorySentence], after: Sequence[StorySentence]) -> bool:
    """Whether some story has these sentences, the first of `after` right behind the last of `before`.

    Sentences that did follow each other always can. Others seldom can: the steps of a plot have an order, and
    one cast must fit all that is said.
    """
    plot = before[-1].plot
    return (
        plot is after[0].plot
        and is_next(plot, before[-1].step, after[0].step)
        and has_cast(plot, [*before, *after])
    )


def is_next(plot: Plot, step: int, later: int) -> bool:
    """Whether nothing but what a plot can do without lies between two steps."""
    return step < later and all(between.optional for between in plot.steps[step + 1 : later])


def has_cast(plot: Plot, sentences: Sequence[StorySentence]) -> bool:
    """Whether each role can be given something that fits every sentence."""
    said: dict[str, dict[str, set[str]]] = {}
    for sentence in sentences:
        for field, value in sentence.says:
            said.setdefault(field.role, {}).setdefault(field.column, set()).add(value)
    left = {role: [row for row in plot.roles[role] if fits(row, said[role])] for role in said}
    if not all(left.values()):
        return False
    genders = [
        {row["gender"] for row in left.get(role, ({"gender": "f"}, {"gender": "m"}))} for role in PEOPLE
    ]
    return any(hero != friend for hero in genders[0] for friend in genders[1])


PEOPLE = ("hero", "friend")


def fits(row: Row, said: dict[str, set[str]]) -> bool:
    return all(values == {row[column]} for column, values in said.items())
