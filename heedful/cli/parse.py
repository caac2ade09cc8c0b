"""Parse sentences into dependency trees, written as CoNLL-U.

Reads one sentence per line, with words and punctuation separated by spaces. Prints a block for each sentence:
one line per word, then a blank line. The comment sent_id is the number of the input line. Empty lines have
no block.

Examples: heedful parse runs/parse "The cat sleeps ."; heedful parse runs/parse < words.txt > trees.conllu
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..use.as_json import as_json
from ..use.texts import Tokenized
from .shared.lines import LineCommand, answer_lines
from .shared.options import LineOptions

if TYPE_CHECKING:
    from ..data.trees import Parsed
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class ParseOptions(LineOptions):
    """The options of `heedful parse`."""


def parse(given: ParseOptions) -> None:
    """Print the tree of each line."""
    answer_lines(given, SentenceParser(given))


class SentenceParser(LineCommand["tuple[int, Parsed]"]):
    """Blocks of CoNLL-U, which end with a blank line of their own; an empty line has no block."""

    what, end = "parse", ""

    def __init__(self, given: ParseOptions) -> None:
        self.given = given

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.sentences import encode

        return encode(model, texts)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[tuple[int, Parsed]]:
        from ..use.parse import parsed

        return list(zip(numbers, parsed(model, rows, self.given.rows), strict=True))

    def plain(self, result: tuple[int, Parsed]) -> str:
        from ..data.conllu import written

        number, found = result
        return written(found.sentence, (f"sent_id = {number + 1}", f"text = {found}"))

    def known(self, result: tuple[int, Parsed] | None) -> dict[str, Any]:
        if result is None:
            return {"words": [], "heads": [], "relations": [], "tags": []}
        return as_json(result[1])
