"""Pairs to learn preferences from: what was said, and two responses of which people prefer the first.

    {"prompt": "...", "chosen": "...", "rejected": "..."}
    {"chosen": [{"role": "user", ...}, {"role": "assistant", ...}], "rejected": [...]}

In the second form both lists are the same up to their last message, which is the assistant's. A prompt may be
a list of messages too, and stands before both. A table is tab-separated under a header: prompt, chosen,
rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .conversations import ASSISTANT, USER, Messages, checked_messages
from .questions import fault_in_text, read_objects
from .report import Fault, Report
from .tables import is_json, read_table


@dataclass(frozen=True)
class PreferencePair:
    """What was said, the response that was preferred, and the other one.

    Attributes:
        before: The messages before the response, as (role, text).
        chosen: The response that was preferred.
        rejected: The other response.

    Example:
        >>> PreferencePair((("user", "Hello!"),), "Good day.", "No.").chosen
        'Good day.'
    """

    before: Messages
    chosen: str
    rejected: str


def read_pairs(
    path: str | Path,
    columns: tuple[str, str, str] = ("prompt", "chosen", "rejected"),
    report: Report | None = None,
) -> Iterator[PreferencePair]:
    """Read pairs of responses to learn preferences from: JSON lines or a table.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        columns: Names of the columns of the prompt, the chosen and the rejected response.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        `PreferencePair` of each good line.

    Example:
        >>> _ = Path("pairs.jsonl").write_text('{"prompt": "Hello!", "chosen": "Hi.", "rejected": "No."}')
        >>> pair = next(read_pairs("pairs.jsonl"))
        >>> pair.chosen, pair.rejected
        ('Hi.', 'No.')
    """
    report = report or Report()
    if is_json(path):
        names = columns[1:]
        yield from read_objects(path, lambda found: pair_in(found, columns), names, report)
        return
    equal = 0
    for number, row in enumerate(read_table(path, list(columns), report=report), 2):
        pair = of_texts(*row)
        if isinstance(pair, Fault):
            report.bad(path, number + report.counts.total() - equal, pair)
            equal += 1
        else:
            yield pair


def pair_in(found: dict[str, Any], columns: tuple[str, str, str]) -> PreferencePair | Fault:
    """The pair of an object, in either form."""
    prompt, chosen, rejected = (found.get(name) for name in columns)
    if isinstance(chosen, list) or isinstance(rejected, list):
        return of_messages(prompt, chosen, rejected, columns)
    for name, value in zip(columns, (prompt, chosen, rejected), strict=True):
        if value is None:
            return Fault("without a column", f'there is no "{name}"')
        if fault := fault_in_text(value, name):
            return fault
    return of_texts(str(prompt), str(chosen), str(rejected))


def of_texts(prompt: str, chosen: str, rejected: str) -> PreferencePair | Fault:
    return compared(((USER, prompt),), chosen, rejected)


def of_messages(
    prompt: Any, chosen: Any, rejected: Any, columns: tuple[str, str, str]
) -> PreferencePair | Fault:
    """Two conversations that differ in their last message. A text as prompt is what they begin with."""
    before = checked_messages(prompt, columns[0]) if isinstance(prompt, list) else ()
    sides = checked_messages(chosen, columns[1]), checked_messages(rejected, columns[2])
    for found in (before, *sides):
        if isinstance(found, Fault):
            return found
    (*said, last), (*other, end) = ((*before, *side) for side in sides)
    if not said and not other and isinstance(prompt, str):
        said = other = [(USER, prompt)]
    if said != other or not said or {last[0], end[0]} != {ASSISTANT}:
        why = f"{columns[1]} and {columns[2]} must be the same up to a last message of the {ASSISTANT}"
        return Fault("of two conversations", why)
    return compared(tuple(said), last[1], end[1])


def compared(before: Messages, chosen: str, rejected: str) -> PreferencePair | Fault:
    """The pair, if there is something to prefer."""
    if chosen.strip() == rejected.strip():
        return Fault("with equal responses", "the chosen and the rejected response are the same")
    return PreferencePair(before, chosen, rejected)
