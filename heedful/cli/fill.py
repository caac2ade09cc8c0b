"""Fill in the blanks of texts, with a masked language model.

Every [MASK] in a line is a blank. Prints the line with the likeliest word in each; --json has the next best
and their probabilities.

Examples: heedful fill runs/mlm "the [MASK] sat on the mat";
heedful fill ./bert-base --top 3 --json < in.txt
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..use import Model
from ..use.results import Filled
from ..use.writing import check_number
from .shared.lines import LineCommand, answer_lines, flat
from .shared.options import LineOptions


@dataclass(frozen=True, kw_only=True)
class FillOptions(LineOptions):
    """The options of `heedful fill`."""

    top: int = 5
    """With --json: words for each blank, best first."""


def fill(given: FillOptions) -> None:
    """Answer each line by itself with its blanks filled in."""
    check_number("top", given.top)
    answer_lines(given, BlankFiller(given))


class BlankFiller(LineCommand[Filled]):
    what = "fill"

    def __init__(self, given: FillOptions) -> None:
        self.given = given

    def do(self, model: Model, texts: list[str], numbers: list[int]) -> list[Filled]:
        return model.fill(texts, top=self.given.top, batch=self.given.batch)

    def plain(self, result: Filled) -> str:
        return flat(result)

    def known(self, result: Filled | None) -> dict[str, Any]:
        blanks = [] if result is None else result.blanks
        return {"text": result or "", "blanks": [[guess._asdict() for guess in some] for some in blanks]}
