"""Settings: the fields of a dataclass, each with its type, its range and a line of help. No torch here.

    @dataclass(frozen=True)
    class Sizes:
        layers: Annotated[int, Range(1, 1000), "number of blocks"] = 4
        dropout: Annotated[float | None, Range(0, 1, "[)"), "dropout rate"] = None  # None: chosen later

`settings_of(Sizes)` lists them, and `convert` turns text or JSON into a value of the right kind.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Annotated, Any, Literal

from ...errors import BadInput
from .. import nearest


@dataclass(frozen=True)
class Range:
    """The numbers that a setting can be, with its ends as in mathematics: "[)" is without the last."""

    least: float
    most: float
    ends: Literal["[]", "[)", "(]"] = "[]"

    def __contains__(self, number: float) -> bool:
        above = number > self.least or (number == self.least and self.ends[0] == "[")
        below = number < self.most or (number == self.most and self.ends[1] == "]")
        return above and below

    def __str__(self) -> str:
        if self.ends == "[]":
            return f"from {self.least:,} to {self.most:,}"
        words = {"[": "of at least", "(": "above", "]": "at most", ")": "below"}
        return f"{words[self.ends[0]]} {self.least:,} and {words[self.ends[1]]} {self.most:,}"


@dataclass(frozen=True)
class Choices:
    """The names that a setting can be, where they are the keys of a table elsewhere."""

    names: Callable[[], Collection[str]]


@dataclass(frozen=True)
class Given:
    """Marks a field that the data decide and people do not set, such as the size of the vocabulary."""


GIVEN = Given()


@dataclass(frozen=True)
class Derived:
    """A default that follows from other fields; `text` says how, as in "4 x width"."""

    text: str
    compute: Callable[[Any], Any]

    def __str__(self) -> str:
        return self.text


def derived(text: str, compute: Callable[[Any], Any]) -> Any:
    """The default of a field that follows from others; Any, since the field itself is a number."""
    return Derived(text, compute)


def same_as(name: str) -> Any:
    """The default of a field that is as another one is."""
    return Derived(f"as {name}", lambda made: getattr(made, name))


MANY = 10**12  # what nobody reaches
Count = Annotated[int, Range(1, MANY)]
Share = Annotated[float, Range(0, 1)]
Part = Annotated[float, Range(0, 1, "[)")]  # a share that leaves something
AUTO = "auto"  # what people write for None: the value is chosen before the first step


@dataclass(frozen=True)
class Setting:
    """One field: what values it takes, and what it means."""

    name: str
    kind: type  # bool, int, float or str
    default: Any
    choices: tuple[str, ...] = ()  # of a Literal, or the keys of a table
    limits: Range | None = None
    optional: bool = False  # whether None is a value
    help: str = ""
    given: bool = False  # whether the data decide it

    def convert(self, key: str, value: Any) -> Any:
        """A value of this kind from text or JSON; `key` is what an error calls the setting."""
        if self.optional and (value is None or value == AUTO):
            return None
        if isinstance(self.default, Derived) and value == AUTO:
            return self.default
        if isinstance(value, Derived):
            return value
        if self.choices:
            if value not in self.choices:
                raise BadInput(f"{key} must be one of {', '.join(self.choices)}, not {short(value)}")
            return value
        try:
            found: Any = READERS[self.kind](value)
            if self.limits is not None and found not in self.limits:
                raise ValueError
            return found
        except (ValueError, KeyError, TypeError, OverflowError):
            wanted = f"{NAMES[self.kind]} {self.limits}" if self.limits is not None else NAMES[self.kind]
            raise BadInput(f"{key} must be {wanted}, not {short(value)}") from None

    def check(self, value: Any) -> None:
        """Refuse a value that is none of this setting's. Text that stands for a value is not one."""
        exact = (int, float) if self.kind is float else (self.kind,)
        absent = self.optional and value is None
        if not absent:
            self.convert(self.name, value if type(value) in exact else Wrong(value))


@dataclass(frozen=True)
class Wrong:
    """A value of the wrong type: no reader takes it, and an error shows what it was."""

    value: Any

    def __repr__(self) -> str:
        return short(self.value)

    def __str__(self) -> str:
        return short(self.value)


def read_truth(value: Any) -> bool:
    return {"true": True, "false": False}[str(value).lower()]


def read_whole(value: Any) -> int:
    number = int(value) if isinstance(value, str) else value
    if type(number) is not int:  # True is one, too
        raise TypeError
    return number


def read_number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def read_words(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a recipe is written in UTF-8, and not every file name can be
    return value


READERS = {bool: read_truth, int: read_whole, float: read_number, str: read_words}
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text in UTF-8"}


def settings_of(kind: type) -> dict[str, Setting]:
    """{name: setting} of every field of a dataclass that text can set: numbers, truths, words, choices."""
    return read_fields(kind)


@cache
def read_fields(kind: Any) -> dict[str, Setting]:
    assert is_dataclass(kind)
    hints = typing.get_type_hints(kind, include_extras=True)
    found = {}
    for field in fields(kind):
        setting = read_hint(field.name, hints[field.name])
        if setting is not None:
            default = field.default if field.default is not MISSING else None
            found[field.name.rstrip("_")] = replace(setting, default=default)  # `from_` is called `from`
    return found


def read_hint(name: str, hint: Any) -> Setting | None:
    """The setting that a field's type describes; None for a type that no text stands for."""
    inner, notes = hint, []
    while typing.get_origin(inner) is Annotated:  # an alias such as Part may be annotated again
        inner, *more = typing.get_args(inner)
        notes += more
    optional = False
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(inner) if member is not type(None)]
        if len(members) != 1:
            return None
        setting, optional = read_hint(name, members[0]), True
        if setting is None:
            return None
        inner, choices, limits = setting.kind, setting.choices, setting.limits
    else:
        choices, limits = (), None
    if typing.get_origin(inner) is Literal:
        inner, choices = str, typing.get_args(inner)
    choices = next((tuple(note.names()) for note in notes if isinstance(note, Choices)), choices)
    if inner not in READERS:
        return None
    limits = next((note for note in notes if isinstance(note, Range)), limits)
    told = next((note for note in notes if isinstance(note, str)), "")
    given = any(isinstance(note, Given) for note in notes)
    return Setting(name, inner, None, choices, limits, optional, told, given)


def unknown(key: str, known: Collection[str]) -> str:
    """A name that is none, and what was probably meant: a name of another part, or one spelled alike."""
    shown = f'"{key}"' if key.isprintable() and len(key) < 100 else short(key)
    part, _, name = key.rpartition(".")
    elsewhere = [other for other in known if other.rpartition(".")[2] == name]
    if len(elsewhere) == 1:
        return f'{shown}; did you mean "{elsewhere[0]}"?'
    beside = [other.removeprefix(f"{part}.") for other in known if part and other.startswith(f"{part}.")]
    if beside and not get_close_matches(name, beside):  # alike in nothing but their part
        return f"{shown}; {part} has {', '.join(beside)}"
    return f"{shown}{nearest(key, known)}"
