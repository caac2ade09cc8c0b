"""Hugging Face data sets by name, through the package `datasets`, where it is installed.

    hf:NAME[:CONFIG][@SPLIT][#COLUMN]

    hf:wikitext:wikitext-2-raw-v1@train#text       a column of texts hf:wmt14:de-en@train#translation.de
    a column inside another hf:imdb@train[:90%]                            whole rows, for tables; splits may
    be cut as `datasets` cuts them hf:my/folder@validation                        data files of one's own, or
    what save_to_disk wrote

Rows are read a few at a time from the files that `datasets` keeps and maps. Nothing that a data set brings
along is ever executed: versions before 4 could, and are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BadInput
from ..files import one_line
from ..models import nearest
from .report import Fault, too_long, with_nul

SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk leaves
AT_ONCE = 100  # rows: one at a time takes many times as long
OLDEST = 4  # older versions run a data set's own code
TEXTUAL = re.compile(r"(large_)?string|u?int\d+|bool")


class Name(NamedTuple):
    """The parts of a name; "" where nothing was said."""

    name: str
    config: str
    split: str
    column: str


def parse(name: str) -> Name:
    match = re.fullmatch(r"hf:([^:@#]+)(?::([^@#]+))?(?:@([^#]+))?(?:#(.+))?", name)
    if match is None:
        raise BadInput(one_line(f"{name} names no data set: write hf:NAME[:CONFIG][@SPLIT][#COLUMN]"))
    return Name(*(part or "" for part in match.groups()))


def judged_rows(name: str, limit: int) -> Iterator[str | Fault]:
    """Every row or its fault: the text of the column in the name, or else a JSON object of all columns."""
    column, rows = parse(name).column, chosen(name)
    labels = {other: feature.names for other, feature in rows.features.items() if hasattr(feature, "names")}
    with telling(name):
        for some in rows.iter(batch_size=AT_ONCE):
            for values in zip(*some.values(), strict=True):
                row = {
                    other: label(value, labels.get(other)) for other, value in zip(some, values, strict=True)
                }
                yield judged(row[column] if column else json.dumps(row, ensure_ascii=False), limit)


def chosen(name: str) -> Any:
    """The data set with the columns that are texts or numbers: the one in the name, or all."""
    asked = parse(name)
    with telling(name):
        found = opened(*asked[:3]).flatten()  # a column inside another gets the name of both: translation.de
        columns = [
            column
            for column, feature in found.features.items()
            if TEXTUAL.fullmatch(str(getattr(feature, "dtype", "")))
        ]
        if asked.column and asked.column not in columns:
            raise BadInput(f'there is no column "{asked.column}" of texts{nearest(asked.column, columns)}')
        return found.select_columns([asked.column] if asked.column else columns)


def label(value: Any, names: list[str] | None) -> Any:
    """The name of a label, where labels are numbers with names; -1 means that there is none."""
    return names[value] if names and isinstance(value, int) and 0 <= value < len(names) else value


def judged(value: Any, limit: int) -> str | Fault:
    """A value as a text, or what is wrong with it."""
    if value is None:
        return Fault("empty", "the row is empty")
    text = value if isinstance(value, str) else json.dumps(value)
    if "\0" in text:
        return with_nul(text)
    return too_long(limit) if len(text) > limit else text


# The package


@lru_cache(maxsize=4)
def opened(name: str, config: str, split: str) -> Any:
    """One split, mapped into memory."""
    package = library()
    if any((Path(name) / file).is_file() for file in SAVED):
        if config:
            raise BadInput(f"what save_to_disk wrote has no configuration {config}: leave it out")
        found = package.load_from_disk(name)
    else:
        found = package.load_dataset(name, config or None, split=split or None)
    return one_split(found, split) if isinstance(found, dict) else found


def one_split(found: Any, split: str) -> Any:
    """The split asked for, or the only one: which of several is learned from must be said."""
    names = [str(name) for name in found]
    if not split and len(names) != 1:
        raise BadInput(f"there are the splits {', '.join(names)}: choose one by @SPLIT")
    if split and split not in names:
        raise BadInput(f'there is no split "{split}"{nearest(split, names)}')
    return found[split or names[0]]


def library() -> Any:
    """The package, if it is there and recent enough."""
    try:
        package = import_module("datasets")
        load = package.load_dataset
    except (ImportError, AttributeError):  # a folder named datasets can be imported, too
        load = None
    if load is None:
        raise BadInput("the package datasets is needed to read it, and not installed: pip install datasets")
    version = str(getattr(package, "__version__", ""))
    if int((re.match(r"\d+", version) or "0")[0]) < OLDEST:
        raise BadInput(
            f"datasets {version} may run code that comes with a data set, and is not used: "
            f"pip install 'datasets>={OLDEST}'"
        )
    return package


@contextmanager
def telling(name: str) -> Iterator[None]:
    """Whatever goes wrong inside becomes one line that names the data set."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (another package's, of any kind)
        raise BadInput(one_line(f"{name}: {str(error) or type(error).__name__}")) from None
