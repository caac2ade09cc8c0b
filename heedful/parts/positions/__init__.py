"""Positions: where order enters the model. Each kind of scheme has a file of its own."""

from .absolute import SCHEMES as ABSOLUTE
from .base import NoPosition, Position
from .relative import SCHEMES as RELATIVE
from .rotary import SCHEMES as ROTARY
from .syntax import SCHEMES as SYNTAX

POSITIONS: dict[str, type[Position]] = {"none": NoPosition, **ABSOLUTE, **RELATIVE, **ROTARY, **SYNTAX}
