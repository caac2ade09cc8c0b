"""Questions whose answers stand in a text, and statements to choose from: JSON lines, an object for each.

    {"question": "...", "context": "...", "answers": [{"text": "...", "start": 17}]}     as SQuAD has them
    {"context": "...", "choices": ["...", "..."], "answer": 0}                           counted from 0

`start` is the character of the context at which an answer begins. Of several answers each would do; the first
is learned. Questions may also stand in a table, tab-separated under a header: question, context, answer,
start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..errors import BadInput
from ..files import one_line, short
from ..models import nearest
from .articles import object_of
from .lines import judged_lines
from .report import Fault, Report
from .tables import cells, fault_in_cell, is_json

MOST = 1_000_000  # characters of a line: what a vocabulary reads at once
FEWEST, MANY = 2, 1000  # choices

T = TypeVar("T")


@dataclass(frozen=True)
class Question:
    """A question, the text that holds its answer, and where the answer is.

    Attributes:
        question: The question.
        context: The text with the answer.
        answers: (text, start) of each answer that would do; `start` is its first character in the context.

    Example:
        >>> Question("Who sleeps?", "The cat sleeps.", (("The cat", 0),)).texts
        ('The cat',)
    """

    question: str
    context: str
    answers: tuple[tuple[str, int], ...]  # each with the character at which it begins

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for text, _ in self.answers)


@dataclass(frozen=True)
class MultipleChoice:
    """A text, and ways to go on from it, one of which is right.

    Attributes:
        context: The text.
        choices: The ways to go on.
        answer: Number of the right one, counted from 0.

    Example:
        >>> one = MultipleChoice("The cat eats.", ("It is hungry.", "It is full."), answer=0)
        >>> one.choices[one.answer]
        'It is hungry.'
    """

    context: str
    choices: tuple[str, ...]
    answer: int


def read_questions(path: str | Path, report: Report | None = None) -> Iterator[Question]:
    """Read questions whose answers stand in a text: JSON lines or a table.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        `Question` of each good line.

    Example:
        >>> line = '{"question": "Who?", "context": "A cat.", "answers": [{"text": "cat", "start": 2}]}'
        >>> _ = Path("asked.jsonl").write_text(line)
        >>> next(read_questions("asked.jsonl")).answers
        (('cat', 2),)
    """
    report = report or Report()
    if is_json(path):
        yield from read_objects(path, question_in, ("question", "context", "answers"), report)
        return
    columns = ["question", "context", "answer", "start"]
    lines = enumerate(judged_lines(path, MOST), 1)
    read = cells(path, columns, lines)
    for number, line in lines:
        row = line if isinstance(line, Fault) else read(line)
        found = row if isinstance(row, Fault) else question_of_cells(row)
        if isinstance(found, Fault):
            report.bad(path, number, found)
        else:
            yield found


def read_choices(path: str | Path, report: Report | None = None) -> Iterator[MultipleChoice]:
    """Read statements to choose from: JSON lines.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        `MultipleChoice` of each good line.

    Example:
        >>> line = '{"context": "A cat eats.", "choices": ["It is hungry.", "It is full."], "answer": 0}'
        >>> _ = Path("choices.jsonl").write_text(line)
        >>> next(read_choices("choices.jsonl")).answer
        0
    """
    if not is_json(path):
        raise BadInput(
            one_line(
                f'{path} has no JSON objects, one a line: {{"context": ..., "choices": [...], "answer": 0}}'
            )
        )
    yield from read_objects(path, choice_in, ("context", "choices", "answer"), report or Report())


def read_objects(
    path: str | Path,
    read: Callable[[dict[str, Any]], T | Fault],
    names: tuple[str, ...],
    report: Report,
) -> Iterator[T]:
    """What the objects of a file say, one a line; the first one must have every name."""
    first = True
    for number, line in enumerate(judged_lines(path, MOST), 1):
        found = line if isinstance(line, Fault) else object_of(line)
        if isinstance(found, dict):
            missing = next((name for name in names if name not in found), None)
            if missing and first:
                raise BadInput(
                    one_line(f'{path}: in its first object there is no "{missing}"{nearest(missing, found)}')
                )
            first = False
            made: T | Fault = (
                read(found) if missing is None else Fault("without a column", f'there is no "{missing}"')
            )
        else:
            made = found
        if isinstance(made, Fault):
            report.bad(path, number, made)
        else:
            yield made


# One line


def question_in(found: dict[str, Any]) -> Question | Fault:
    question, context, answers = found["question"], found["context"], found["answers"]
    for name, value in (("question", question), ("context", context)):
        if fault := fault_in_text(value, name):
            return fault
    if not isinstance(answers, list) or not answers:
        return Fault(
            "without an answer", f'"answers" is {short(answers)}, where a list of answers is expected'
        )
    pairs = []
    for answer in answers:
        text, start = (answer.get("text"), answer.get("start")) if isinstance(answer, dict) else (None, None)
        if fault := fault_in_text(text, "text") or fault_in_answer(context, text, start):
            return fault
        pairs.append((str(text), int(start)))  # type: ignore[arg-type]
    return Question(question, context, tuple(pairs))


def question_of_cells(row: tuple[str, ...]) -> Question | Fault:
    question, context, answer, start = row
    place = int(start) if start.isascii() and start.isdigit() and len(start) < 10 else None
    fault = fault_in_answer(context, answer, place)
    return fault or Question(question, context, ((answer, int(start)),))


def fault_in_answer(context: str, text: Any, start: Any) -> Fault | None:
    """An answer must stand where it is said to."""
    if type(start) is not int or not 0 <= start < len(context):
        return Fault(
            "with a misplaced answer", f'"start" is {short(start)}, where a place in the context is expected'
        )
    if context[start : start + len(text)] == text:
        return None
    there = short(context[start : start + len(text)])
    return Fault(
        "with a misplaced answer", f"{there} stands at {start} of the context, and not {short(text)}"
    )


def choice_in(found: dict[str, Any]) -> MultipleChoice | Fault:
    context, choices, answer = found["context"], found["choices"], found["answer"]
    if fault := fault_in_text(context, "context"):
        return fault
    if not isinstance(choices, list) or not FEWEST <= len(choices) <= MANY:
        return Fault(
            "without choices", f'"choices" is {short(choices)}, where {FEWEST} to {MANY} texts are expected'
        )
    for choice in choices:
        if fault := fault_in_text(choice, "choices"):
            return fault
    if type(answer) is not int or not 0 <= answer < len(choices):
        return Fault(
            "with a wrong answer",
            f'"answer" is {short(answer)}, where a number from 0 to {len(choices) - 1} is expected',
        )
    return MultipleChoice(context, tuple(choices), answer)


def fault_in_text(value: Any, name: str) -> Fault | None:
    if not isinstance(value, str):
        return Fault("of a wrong type", f'"{name}" is {short(value)}, where a text is expected')
    return fault_in_cell(value, f'"{name}"')
