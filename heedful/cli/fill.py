"""Fill in the blanks of texts, with a masked language model.

Every [MASK] in a line is a blank. Prints the line with the most likely word in each blank. --json adds
further candidates with their probabilities.

Examples: heedful fill runs/mlm "the [MASK] sat on the mat";
heedful fill ./bert-base --top 3 --json < in.txt
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..use.as_json import as_json
from ..use.results import Filled
from ..use.texts import Tokenized, check_top
from .shared.lines import LineCommand, answer_lines
from .shared.options import LineOptions
from .shared.terminal import flat

if TYPE_CHECKING:
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class FillOptions(LineOptions):
    """The options of `heedful fill`."""

    top: int = 5
    """With --json: the number of candidates for each blank, best first."""


def fill(given: FillOptions) -> None:
    """Print each line with its blanks filled in."""
    check_top(given.top)
    answer_lines(given, BlankFiller(given))


class BlankFiller(LineCommand[Filled]):
    what = "fill"

    def __init__(self, given: FillOptions) -> None:
        self.given = given

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.fill import encode

        return encode(model, texts)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Filled]:
        from ..use.fill import filled

        return filled(model, rows, self.given.top, self.given.rows)

    def plain(self, result: Filled) -> str:
        return flat(result)

    def known(self, result: Filled | None) -> dict[str, Any]:
        return as_json(Filled("") if result is None else result)
