"""Configs: each architecture has a frozen dataclass of ints, floats and names, checked when made."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Any

from .fields import LARGEST
from .settings import Derived, Setting, settings_of


@dataclass(frozen=True)
class Config:
    """The base of every config: a frozen dataclass of sizes and names, checked when made.

    A default may follow from other fields, such as the width of the feed-forward layer. An impossible value
    is refused with its name.

    Example:
        >>> from heedful.models.gpt2 import GPT2Config
        >>> GPT2Config(width=64, heads=4).ffn_width
        256
        >>> GPT2Config(layers=0)
        Traceback (most recent call last):
        ...
        heedful.errors.BadInput: layers must be a whole number from 1 to 2,147,483,647, not 0
    """

    def __post_init__(self) -> None:
        for f in fields(self):
            if isinstance(default := getattr(self, f.name), Derived):
                object.__setattr__(self, f.name, default.compute(self))
        for name, setting in settings_of(type(self)).items():
            setting.check(getattr(self, name))


def model_settings(kind: type[Config]) -> dict[str, Setting]:
    """{name: setting} of an architecture's Config that people may set: without what the data decide."""
    brought = getattr(kind, "brought", ())
    return {name: s for name, s in settings_of(kind).items() if not s.given and name not in brought}


def check(name: str, kind: str, value: Any) -> None:
    """Refuse a value that is not of its kind: int, float, bool or str, perhaps with None. Others pass."""
    if kind.endswith(" | None"):
        if value is None:
            return
        kind = kind.removesuffix(" | None")
    number = type(value) is int or (type(value) is float and kind == "float")
    if kind == "int" and not (number and 1 <= value <= LARGEST):
        raise ValueError(f"{name} must be a whole number from 1 to {LARGEST}, not {short(value)}")
    if kind == "float" and not (number and 0 <= value <= sys.float_info.max):
        raise ValueError(f"{name} must be a finite number of at least 0, not {short(value)}")
    if kind == "bool" and type(value) is not bool:
        raise ValueError(f"{name} must be true or false, not {short(value)}")
    if kind == "str" and type(value) is not str:
        raise ValueError(f"{name} must be a name, not {short(value)}")
