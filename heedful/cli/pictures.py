"""Commands that are given image files: each word is the name of one, or each line of stdin."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..files import one_line, present, read_json
from ..use import load
from ..use.results import Label
from ..use.writing import check_number

if TYPE_CHECKING:
    from .options import Lines


def reads_pictures(folder: str) -> bool:
    """Whether the model of a folder reads pictures; what is wrong with a folder, loading it will say."""
    path = Path(folder) / "config.json"
    try:
        found = read_json(path) if present(path) else {}
    except (OSError, ValueError):
        return False
    return "vit" in (found.get("heedful"), found.get("model_type"))


def classify(given: Lines) -> None:
    """Answer each file by its label."""
    check_number("batch", given.batch)
    model = load(given.run, given.device)
    model.check_can("classify")
    for names in chunks(given):
        labels = answered(model.classify, names, given)
        for name, label in zip(names, labels, strict=True):
            print(line_of(name, label, given.json), flush=True)


def chunks(given: Lines) -> Iterator[list[str]]:
    """Names of files, a batch at a time."""
    names = list(given.text)
    if not names:
        lines = sys.stdin if sys.stdin is not None else ()
        for line in lines:
            names.append(line.rstrip("\r\n"))
            if len(names) == given.batch:
                yield names
                names = []
    for start in range(0, len(names), given.batch):
        yield names[start : start + given.batch]


def answered(classify: object, names: list[str], given: Lines) -> list[Label | str]:
    """A label for each file; of one that cannot be read, why, unless that is to stop everything."""
    assert callable(classify)
    try:
        return list(classify(names, batch=given.batch))
    except BadInput:
        if given.text or given.bad_lines == "refuse":
            raise
    found: list[Label | str] = []
    for name in names:
        try:
            found.append(classify(name))
        except BadInput as error:
            print(one_line(f"{error}; answered by an empty line"), file=sys.stderr, flush=True)
            found.append(str(error))
    return found


def line_of(name: str, label: Label | str, as_json: bool) -> str:
    """An answer as a line of text or of JSON."""
    if isinstance(label, Label):
        told = {"file": name, "label": label, "probabilities": label.probabilities}
        return json.dumps(told, ensure_ascii=False) if as_json else one_line(label)
    return json.dumps({"file": name, "error": one_line(label)}, ensure_ascii=False) if as_json else ""
