"""Configs hold numbers: each architecture has a frozen dataclass of ints, floats and names, checked when made."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Config:
    """The base of every config. An impossible number is refused with its name."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value, kind = getattr(self, f.name), str(f.type)
            if kind == "int" and (type(value) is not int or value < 1):
                raise ValueError(f"{f.name} must be a whole number of at least 1, not {value!r}")
            if kind == "float" and (
                type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value
            ):
                raise ValueError(f"{f.name} must be a finite number of at least 0, not {value!r}")
            if kind == "float" and f.name.endswith("dropout") and value >= 1:
                raise ValueError(f"{f.name} is a probability below 1, not {value!r}")
            if kind == "bool" and type(value) is not bool:
                raise ValueError(f"{f.name} must be true or false, not {value!r}")
            if kind == "str" and type(value) is not str:
                raise ValueError(f"{f.name} must be a name, not {value!r}")
