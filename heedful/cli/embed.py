"""Turn texts into vectors with the last layer of a model.

Prints one vector per line, its components separated by spaces.

Examples: heedful embed runs/mlm "a good film"; heedful embed ./minilm --normalize < in.txt > vectors.txt
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..use.texts import Tokenized
from .shared.lines import LineCommand, answer_lines
from .shared.options import LineOptions, arg

if TYPE_CHECKING:
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(LineOptions):
    """The options of `heedful embed`."""

    pooling: Annotated[Literal["mean", "class"] | None, arg("mean|class", "as the folder says, or mean")] = (
        None
    )
    """mean: the mean of all tokens. class: one token, [CLS] of an encoder or the last of a decoder that
    classifies. A sentence-transformers folder has its own default."""

    normalize: bool = False
    """Normalize every vector to length 1, so that the dot product of two is their cosine. This is the
    default in some sentence-transformers folders."""


def embed(given: EmbedOptions) -> None:
    """Print the vector of each line."""
    answer_lines(given, TextEmbedder(given))


class TextEmbedder(LineCommand[list[float]]):
    what = "embed"

    def __init__(self, given: EmbedOptions) -> None:
        self.given = given

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.embed import encode

        return encode(model, texts)

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[list[float]]:
        from ..use.embed import embedded

        how = self.given
        return embedded(model, rows, how.pooling, how.normalize or None, how.rows).tolist()

    def plain(self, result: list[float]) -> str:
        return " ".join(f"{value:.9g}" for value in result)  # as many digits as fp32 has

    def known(self, result: list[float] | None) -> dict[str, Any]:
        return {"embedding": result or []}
