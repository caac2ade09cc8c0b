"""The phrasebook's tables of words."""

from __future__ import annotations

from ..tables import read_table


def table(name: str) -> list[dict[str, str]]:
    """The rows of words/NAME.tsv, by column."""
    return read_table(__package__, name)
