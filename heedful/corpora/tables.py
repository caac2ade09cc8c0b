"""Words of the built-in corpora lie in data files: tab-separated columns, named in the first row."""

from __future__ import annotations

import csv
from importlib import resources


def read_table(package: str, name: str) -> list[dict[str, str]]:
    """The rows of words/NAME.tsv in a package, by column."""
    text = (resources.files(package) / "words" / f"{name}.tsv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
