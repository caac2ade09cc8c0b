"""Find the word that each word hangs on, with a model that was trained to: dependency trees, as CoNLL-U.

Reads one sentence a line, its words (and marks) separated by spaces. Prints each as a block of lines, one a
word, with a blank line after it; its comment sent_id is the number of the line. A line that says nothing
has no block.

Examples: heedful parse runs/parse "The cat sleeps ."; heedful parse runs/parse < words.txt > trees.conllu
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """Answer each line by its tree."""
    answer_lines(given, SentenceParser(given))


class SentenceParser(LineCommand["tuple[int, Parsed]"]):
    """Blocks of CoNLL-U, which bring their own blank line; a line that says nothing has none."""

    what, end = "parse", ""

    def __init__(self, given: ParseOptions) -> None:
        self.given = given

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.sentences import encode

        return encode(model, texts)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[tuple[int, Parsed]]:
        from ..use.parse import parsed

        return list(zip(numbers, parsed(model, rows, self.given.batch), strict=True))

    def plain(self, result: tuple[int, Parsed]) -> str:
        from ..data.conllu import written

        number, found = result
        return written(found.sentence, (f"sent_id = {number + 1}", f"text = {found}"))

    def known(self, result: tuple[int, Parsed] | None) -> dict[str, Any]:
        if result is None:
            return {"words": [], "heads": [], "relations": [], "tags": []}
        _, found = result
        heads = [head + 1 for head in found.heads]  # as CoNLL-U counts
        return {"words": found.words, "heads": heads, "relations": found.relations, "tags": found.tags}
