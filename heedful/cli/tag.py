"""Tag each word with its part of speech, or find the entities of each line.

Reads one sentence per line, with words and punctuation separated by spaces, and prints word/TAG pairs on the
same line. --json has words, tags and their probabilities. A parser can tag too if its treebank had tags. An
imported model for entities (labels such as B-PER and I-PER) reads any text and prints entity/LABEL pairs,
separated by tabs; --json has the place and the probability of each.

Examples: heedful tag runs/tag "The cat sleeps ."; heedful tag runs/tag --json < words.txt;
heedful tag ./bert-ner "Angela lives in Paris."
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..use.as_json import as_json
from ..use.results import Entities, Tagged
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


class WordTagger(LineCommand[Tagged | Entities]):
    what = "tag"

    def __init__(self, given: TagOptions) -> None:
        self.given = given

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.tag import encode

        return encode(model, texts)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Tagged | Entities]:
        from ..use.tag import tagged

        return tagged(model, rows, self.given.rows)

    def plain(self, result: Tagged | Entities) -> str:
        return flat(str(result))

    def known(self, result: Tagged | Entities | None) -> dict[str, Any]:
        return as_json(Tagged([], [], []) if result is None else result)
