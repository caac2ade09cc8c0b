"""Turns: work done a piece at a time, so that other work can go on in between.

A generator stops after each piece, and its return value is the result. Closing it drops the work.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")
Turns = Generator[None, None, Result]


def finish(turns: Turns[Result]) -> Result:
    """Do all the work at once."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return end.value
