"""Plots: who and what a story needs, and sentences for each of its steps, with fields to fill in.

words/ has a table for every role (thing, place, animal...), whose columns are the fields of a sentence:
`{time}, a little {animal} sat {at} the {place} and {cried}.` A field is known by its column, so no column has
the same name in two tables. A hero and a friend are in every story; `{he}` is the hero, `{friend_he}` the
friend.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from string import Formatter
from typing import NamedTuple

from ..tables import read_table

Row = dict[str, str]
Cast = dict[str, Row]  # by role
EVERYWHERE = ("hero", "friend", "time")  # roles of every plot


class StoryField(NamedTuple):
    """What stands in a sentence: the column of a role's row, as a pronoun if there is one."""

    role: str
    column: str
    pronoun: str = ""

    def written(self, cast: Cast) -> str:
        value = cast[self.role][self.column]
        return PRONOUNS[value][self.pronoun] if self.pronoun else value


@dataclass(frozen=True)
class Template:
    """A sentence in pieces: what stands there as it is, and the field after it."""

    pieces: tuple[tuple[str, StoryField | None], ...]

    @property
    def fields(self) -> tuple[StoryField, ...]:
        return tuple(field for _, field in self.pieces if field)


@dataclass(frozen=True)
class PlotStep:
    """What happens next, in several wordings."""

    optional: bool
    wordings: tuple[Template, ...]


@dataclass(frozen=True, eq=False)
class Plot:
    """A kind of story: the rows that each role may be given, and its steps."""

    name: str
    roles: dict[str, tuple[Row, ...]]
    steps: tuple[PlotStep, ...]

    @property
    def subject(self) -> tuple[tuple[str, str], ...]:
        """What the story is about: the hero's name, and every role of this plot by the column of its name."""
        return (("hero", "name"), *((role, role) for role in self.roles if role not in EVERYWHERE))


@cache
def rows(name: str) -> tuple[Row, ...]:
    return tuple(read_table(__package__, name))


def rows_for(role: str, kinds: str = "") -> tuple[Row, ...]:
    """What a role may be given: all rows of its table, or those of some kinds."""
    if role in ("hero", "friend"):
        return rows("person")
    wanted = set(kinds.split(",")) if kinds else set()
    return tuple(row for row in rows(role) if not wanted or wanted & set(row["kinds"].split()))


PRONOUNS = {row["gender"]: row for row in rows("pronoun")}


def field_of(name: str, roles: Iterable[str]) -> StoryField:
    """The field that a sentence names."""
    role = "friend" if name.startswith("friend") else "hero"
    if name in ("hero", "friend"):
        return StoryField(role, "name")
    if (pronoun := name.removeprefix("friend_")) in PRONOUNS["f"]:
        return StoryField(role, "gender", pronoun)
    (role,) = [role for role in roles if role not in ("hero", "friend") and name in rows(role)[0]]
    return StoryField(role, name)


def plot_of(row: Row) -> Plot:
    needs = [need.partition("=") for need in row["needs"].split()]
    roles = {role: rows_for(role) for role in EVERYWHERE}
    roles |= {role: rows_for(role, kinds) for role, _, kinds in needs}
    steps: dict[str, list[Row]] = {}
    for line in rows("sentence"):
        if line["plot"] == row["plot"]:
            steps.setdefault(line["step"], []).append(line)
    return Plot(row["plot"], roles, tuple(step_of(lines, roles) for lines in steps.values()))


def step_of(lines: list[Row], roles: Iterable[str]) -> PlotStep:
    wordings = (template_of(line["sentence"], roles) for line in lines)
    return PlotStep(bool(lines[0]["optional"]), tuple(wordings))


def template_of(sentence: str, roles: Iterable[str]) -> Template:
    parsed = Formatter().parse(sentence)
    return Template(tuple((text, field_of(name, roles) if name else None) for text, name, _, _ in parsed))


PLOTS = tuple(map(plot_of, rows("plot")))
