"""Tag each word with its part of speech.

Reads one sentence per line, with words and punctuation separated by spaces, and prints word/TAG pairs on the
same line. --json has words, tags and their probabilities. A parser can tag too if its treebank had tags.

Examples: heedful tag runs/tag "The cat sleeps ."; heedful tag runs/tag --json < words.txt
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..use.results import Tagged
from ..use.texts import Tokenized
from .shared.lines import LineCommand, answer_lines
from .shared.options import LineOptions
from .shared.terminal import flat

if TYPE_CHECKING:
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class TagOptions(LineOptions):
    """The options of `heedful tag`."""


def tag(given: TagOptions) -> None:
    """Print the words of each line with their tags."""
    answer_lines(given, WordTagger(given))


class WordTagger(LineCommand[Tagged]):
    what = "tag"

    def __init__(self, given: TagOptions) -> None:
        self.given = given

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.sentences import encode

        return encode(model, texts)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Tagged]:
        from ..use.tag import tagged

        return tagged(model, rows, self.given.batch)

    def plain(self, result: Tagged) -> str:
        return flat(result)

    def known(self, result: Tagged | None) -> dict[str, Any]:
        if result is None:
            return {"words": [], "tags": [], "probabilities": []}
        return {"words": result.words, "tags": result.tags, "probabilities": result.probabilities}
