"""Choose the best of several continuations of a text, with a model that was trained to.

Give a context and its choices as separate words of the command line. Or give JSON lines on stdin, each with
"context" and "choices", a list of texts. Prints the choice with the highest probability. --json adds its
number, counted from 0, and the probabilities of all choices.

Examples: heedful choose runs/choose "The cat sleeps." "It is a cat." "It is a dog.";
heedful choose runs/choose < questions.jsonl; heedful choose runs/choose --json < questions.jsonl
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from ..data.questions import FEWEST, MANY, MOST
from ..data.report import Fault
from ..use.as_json import as_json
from ..use.results import Chosen
from ..use.texts import Tokenized
from .shared.lines import Line, LineCommand, answer_lines
from .shared.options import LineOptions, Positional, arg
from .shared.terminal import flat

if TYPE_CHECKING:
    from ..use.model import Model


@dataclass(frozen=True, kw_only=True)
class ChooseOptions(LineOptions):
    """The options of `heedful choose`."""

    text: Annotated[tuple[str, ...], Positional, arg("[CONTEXT CHOICE ...]", "the lines of stdin")] = ()
    """A context and two or more choices, each in quotes."""


def choose(given: ChooseOptions) -> None:
    """Answer each line by its best choice."""
    answer_lines(given, Chooser(given))


class ChoiceLine(str):
    """A line with the context and the choices that it holds."""

    context: str
    choices: list[str]

    def __new__(cls, line: str, context: str, choices: list[str]) -> Self:
        self = super().__new__(cls, line)
        self.context, self.choices = context, choices
        return self


class Chooser(LineCommand[Chosen]):
    """Lines that are JSON objects with a context and choices."""

    what, most = "choose", MOST

    def __init__(self, given: ChooseOptions) -> None:
        self.given = given

    def line_of(self, words: tuple[str, ...]) -> str:
        return json.dumps({"context": words[0], "choices": words[1:]}, ensure_ascii=False)

    def read(self, line: str) -> Line:
        if not line.strip():
            return line
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return Fault("no object", 'the line is no JSON object with "context" and "choices"')
        context, choices = found.get("context"), found.get("choices")
        if not isinstance(context, str) or not context.strip():
            return Fault("without a context", 'the line has no text as its "context"')
        if not isinstance(choices, list) or not FEWEST <= len(choices) <= MANY:
            return Fault("without choices", f'"choices" must be a list of {FEWEST} to {MANY:,} texts')
        if not all(isinstance(one, str) and one.strip() for one in choices):
            return Fault("without choices", 'one of the "choices" is empty or no text')
        return ChoiceLine(line, context, choices)

    def encode(self, model: Model, texts: list[str]) -> list[Tokenized]:
        rows = []
        for text in texts:
            assert isinstance(text, ChoiceLine)
            parts = model.unknown_words([text.context, *text.choices])
            rows.append(Tokenized(text, [], [word for part in parts for word in part]))
        return rows

    def do(self, model: Model, rows: list[Tokenized], numbers: list[int]) -> list[Chosen]:
        from ..use.choose import chosen

        lines = [row.text for row in rows if isinstance(row.text, ChoiceLine)]
        contexts, choices = [line.context for line in lines], [line.choices for line in lines]
        return chosen(model, contexts, choices, self.given.rows)

    def plain(self, result: Chosen) -> str:
        return flat(result)

    def known(self, result: Chosen | None) -> dict[str, Any]:
        return {"choice": None} if result is None else as_json(result)
