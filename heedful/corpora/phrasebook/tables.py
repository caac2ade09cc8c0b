"""The phrasebook's words lie in data files: tables of tab-separated columns, named in the first row."""

from __future__ import annotations

import csv
from importlib import resources


def table(name: str) -> list[dict[str, str]]:
    """The rows of words/NAME.tsv, by column."""
    text = (resources.files(__package__) / "words" / f"{name}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
