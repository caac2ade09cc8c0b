"""Score texts: their log-probability and perplexity under a model.

A language model scores each text. A translator scores a target, given its source. On stdin, write the
source, a tab and the target on each line. On the command line, give the target by --target. Prints the
log-probability (natural logarithm, summed over tokens), a tab and the perplexity per token. --json has every
token.

Examples: heedful score runs/lm "The old king is going to eat.";
heedful score runs/demo "The cat was fast." --target "Le chat était rapide.";
heedful score runs/demo --json < pairs.tsv
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from ..errors import BadInput
from ..use.as_json import as_json
from ..use.results import Scored
from ..use.texts import LONGEST, Tokenized
from .shared.lines import LineCommand, answer_lines
from .shared.options import LineOptions, arg

if TYPE_CHECKING:
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(LineOptions):
    """The options of `heedful score`."""

    target: Annotated[str | None, arg("TEXT", "none")] = None
    """Translators: the target whose probability is computed, given the source TEXT."""


def score(given: ScoreOptions) -> None:
    """Answer each line by its log-probability and its perplexity."""
    if given.target is not None and not given.text:
        raise BadInput("--target needs a source TEXT: on stdin, write the source, a tab and the target")
    answer_lines(given, Scorer(given))


class PairLine(str):
    """A line with the source and the target that it holds."""

    target: str

    def __new__(cls, line: str, target: str) -> Self:
        self = super().__new__(cls, line)
        self.target = target
        return self


class Scorer(LineCommand[Scored]):
    """Lines of text, or of a source and a target."""

    what, most = "score", 2 * LONGEST

    def __init__(self, given: ScoreOptions) -> None:
        self.given = given

    def line_of(self, words: tuple[str, ...]) -> str:
        text = " ".join(words)
        return text if self.given.target is None else f"{text}\t{self.given.target}"

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..models.base.shells import EncoderDecoder
        from ..use.score import encode

        if model.kind is not EncoderDecoder:
            if self.given.target is not None:
                raise BadInput(f"{model.folder} is a language model, which scores texts: leave out --target")
            return encode(model, texts)
        pairs = [text.partition("\t") for text in texts]
        rows = encode(model, [source for source, _, _ in pairs])
        return [
            replace(row, text=PairLine(text, target), fault=row.fault or fault_of(target))
            for row, text, (_, _, target) in zip(rows, texts, pairs, strict=True)
        ]

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Scored]:
        from ..use.score import scored_pairs, scored_texts

        targets = [row.text.target for row in rows if isinstance(row.text, PairLine)]
        if targets:
            return scored_pairs(model, rows, targets, self.given.rows)
        return scored_texts(model, rows, self.given.rows)

    def plain(self, result: Scored) -> str:
        return f"{result.total:.4f}\t{result.perplexity:.4f}"

    def known(self, result: Scored | None) -> dict[str, Any]:
        return {"log_probability": None} if result is None else as_json(result)


def fault_of(target: str) -> str | None:
    """Why a target cannot be scored, if it cannot."""
    return None if target.strip() else "has no target after a tab"
