"""Answer questions by a span of a text (extractive question answering).

Each line is a question, followed by a tab and the text; or --context names a file with the text. Prints the
best span of the text. --json adds its position in characters and its probability. A long text is read in
overlapping windows.

Examples: heedful answer runs/span --context article.txt "Who wrote it?";
heedful answer runs/span < questions.tsv
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ..data import questions
from ..data.documents import read_texts
from ..data.report import Fault
from ..errors import BadInput
from ..files import one_line
from ..use.as_json import as_json
from ..use.results import AnswerSpan
from ..use.texts import Tokenized
from .shared.lines import Line, LineCommand, answer_lines
from .shared.options import LineOptions, arg
from .shared.terminal import flat

if TYPE_CHECKING:
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(LineOptions):
    """The options of `heedful answer`."""

    context: Annotated[str | None, arg("FILE", "none")] = None
    """A file with the text in which all answers are searched."""


def answer(given: AnswerOptions) -> None:
    """Print the answer to the question on each line."""
    answer_lines(given, QuestionAnswerer(given))


class QuestionAnswerer(LineCommand[AnswerSpan]):
    """Questions, each with its text after a tab, or all about one text in a file."""

    what, most = "answer", questions.MOST

    def __init__(self, given: AnswerOptions) -> None:
        self.given = given
        self.context = None if given.context is None else one_text(given.context)

    def read(self, line: str) -> Line:
        question, _, context = line.partition("\t")
        if line.strip() and self.context is None and not (question.strip() and context.strip()):
            return Fault(
                "without a text",
                "the question has no text after a tab: add it, or give --context",
            )
        return line

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        from ..use.answer import encode

        if self.context is not None:
            return encode(model, texts, self.context)
        pairs = [text.partition("\t") for text in texts]
        return encode(model, [q for q, _, _ in pairs], [c for _, _, c in pairs])

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[AnswerSpan]:
        from ..use.answer import answered

        return answered(model, rows, self.given.rows)

    def plain(self, result: AnswerSpan) -> str:
        return flat(result)

    def known(self, result: AnswerSpan | None) -> dict[str, Any]:
        return {"answer": None} if result is None else as_json(result)


def one_text(path: str) -> str:
    """A text in a file, which is short enough to be read at once."""
    text = "".join(read_texts(path))
    if len(text) > questions.MOST:
        raise BadInput(
            one_line(f"{path} has {len(text):,} characters; at most {questions.MOST:,} are read: cut it")
        )
    if not text.strip():
        raise BadInput(one_line(f"there is no text in {path}"))
    return text
