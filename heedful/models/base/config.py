"""Configs: each architecture has a frozen dataclass of ints, floats and names, checked when made."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Any

LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Config:
    """The base of every config. An impossible number is refused with its name."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            check(f.name, str(f.type), value)
            rate = f.name.endswith("dropout") and str(f.type).startswith("float")
            if rate and value is not None and value >= 1:
                raise ValueError(f"{f.name} is a probability below 1, not {value!r}")


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
