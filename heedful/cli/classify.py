"""Classify texts or images.

Prints the most likely label of each line. --json has the probability of every label. A model whose labels do
not exclude each other prints every label with its probability. A model with one output, such as a reranker or
a regression, prints a number. If the model was trained on pairs, separate the two texts of a line by a tab.
For a run of reward, these are an instruction and a response.
For an image model, give file names as arguments, or one per line on stdin.

Examples: heedful classify runs/classify "a good film"; heedful classify runs/classify --json < reviews.txt;
paste reviews.txt <(heedful classify runs/classify < reviews.txt);
heedful classify ./reranker < pairs.tsv; heedful classify runs/image-classify cat.png dog.jpg
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..decode.options import check_batch
from ..errors import BadInput
from ..files import one_line, present, read_json
from ..use.as_json import as_json
from ..use.results import SingleScore
from ..use.texts import Tokenized
from .shared.image_files import batches_of_names
from .shared.lines import LineCommand, answer_lines
from .shared.options import LineOptions
from .shared.terminal import flat

if TYPE_CHECKING:
    from ..use.classify import Judgment
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(LineOptions):
    """The options of `heedful classify`."""


def classify(given: ClassifyOptions) -> None:
    """Print the label of each line, or of each image file."""
    if reads_pictures(given.run):
        return classify_pictures(given)
    answer_lines(given, TextLabeler(given))


class TextLabeler(LineCommand["Judgment"]):
    what = "classify"

    def __init__(self, given: ClassifyOptions) -> None:
        self.given = given

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.classify import encode

        pairs = [text.partition("\t") for text in texts]
        return encode(model, [a for a, _, _ in pairs], [b if tab else None for _, tab, b in pairs])

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Judgment]:
        from ..use.classify import labeled

        return labeled(model, rows, self.given.rows)

    def plain(self, result: Judgment) -> str:
        return plain(result)

    def known(self, result: Judgment | None) -> dict[str, Any]:
        return {"label": None, "probabilities": {}} if result is None else as_json(result)


def plain(result: Judgment) -> str:
    """A label, every label with its number, or one number."""
    return f"{result:.6f}" if isinstance(result, SingleScore) else flat(str(result))


# Pictures


def reads_pictures(folder: str) -> bool:
    """Whether the model of a folder reads images; loading it will report what is wrong with the folder."""
    path = Path(folder) / "config.json"
    try:
        found = read_json(path) if present(path) else {}
    except (OSError, ValueError):
        return False
    return found.get("heedful") == "vit" or found.get("model_type") in ("vit", "deit")


def classify_pictures(given: ClassifyOptions) -> None:
    """Print the label of each image file."""
    from ..use.load import load

    check_batch(given.batch)
    model = load(given.run, given.device)
    model.check_can("classify")
    for names in batches_of_names(given):
        labels = answered(model.classify, names, given)
        for name, label in zip(names, labels, strict=True):
            print(line_of(name, label, given.json), flush=True)


def answered(classify: object, names: list[str], given: ClassifyOptions) -> list[Judgment | BadInput]:
    """An answer for each file; for one that cannot be read, why, unless that is to stop everything."""
    assert callable(classify)
    try:
        return list(classify(names, batch=given.rows))
    except BadInput:
        if given.text or given.bad_lines == "refuse":
            raise
    found: list[Judgment | BadInput] = []
    for name in names:
        try:
            found.append(classify(name))
        except BadInput as error:
            print(one_line(f"{error}; answered by an empty line"), file=sys.stderr, flush=True)
            found.append(error)
    return found


def line_of(name: str, answer: Judgment | BadInput, whole: bool) -> str:
    """An answer as a line of text or of JSON."""
    if not whole:
        return "" if isinstance(answer, BadInput) else one_line(plain(answer))
    found = {"error": one_line(str(answer))} if isinstance(answer, BadInput) else as_json(answer)
    return json.dumps({"file": name} | found, ensure_ascii=False)
