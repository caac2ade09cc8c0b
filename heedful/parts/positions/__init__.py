"""Positions: where order enters the model. Each kind of scheme has a file, and names them in `SCHEMES`."""

from importlib import import_module
from pkgutil import iter_modules

from .base import NoPosition, Position

POSITIONS: dict[str, type[Position]] = {"none": NoPosition}
for _file in iter_modules(__path__):
    POSITIONS |= getattr(import_module(f"{__name__}.{_file.name}"), "SCHEMES", {})

# Two schemes together: one at the input, one in attention.
COMBINED: dict[str, tuple[str, str]] = {
    "sinusoidal+rotary": ("sinusoidal", "rotary"),
    "structural": ("structural-absolute", "structural-relative"),
}
