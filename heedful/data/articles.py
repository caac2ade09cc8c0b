"""Articles and their summaries: JSON lines, an object for each article.

    {"title": "...", "article": ["a paragraph", "another"], "summary": "..."}

An article is a text or a list of paragraphs (or sentences); a summary is a text or a list of several, each of
which would do. SciTLDR's `source` and `target`, and `document` and `highlights`, are read as they are. A
title is no must.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ..errors import BadInput
from ..files import one_line, short
from ..models import nearest
from .lines import judged_lines
from .report import Fault, Report, if_empty
from .tables import fault_in_cell, is_json

MOST = 1_000_000  # characters of a line: what a vocabulary reads at once

# Names that are known, the first that is there being taken.
ARTICLES = ("article", "source", "document", "text")
SUMMARIES = ("summary", "target", "highlights")

SENTENCE = re.compile(r"(?<=[.!?])\s+")


class Article(str):
    """A text to summarize. It is a string that knows its title and its paragraphs.

    Args:
        text: The text, or its paragraphs.
        title: Its title, if it has one.

    Attributes:
        heading: The title.
        paragraphs: The paragraphs; of a single text its lines, and of a single line its sentences.

    Example:
        >>> Article("The cat sat. The dog ate.", title="Animals").paragraphs
        ('The cat sat.', 'The dog ate.')
    """

    heading: str  # its title; str.title is something else
    paragraphs: tuple[str, ...]

    def __new__(cls, text: str | Sequence[str], title: str = "") -> Self:
        self = super().__new__(cls, text if isinstance(text, str) else "\n".join(text))
        self.heading = title
        self.paragraphs = paragraphs_of(text) if isinstance(text, str) else tuple(filter(str.strip, text))
        return self


def paragraphs_of(text: str) -> tuple[str, ...]:
    """The lines of a text, or the sentences of a single one."""
    lines = [line for line in text.split("\n") if line.strip()]
    return tuple(lines if len(lines) > 1 else SENTENCE.split(text.strip()))


def article_of(text: str) -> Article:
    """A text as an article, if it is none already."""
    return text if isinstance(text, Article) else Article(text)


Example = tuple[Article, tuple[str, ...]]  # with its summaries, each of which would do


def read_articles(
    path: str | Path,
    article: str = "",
    summary: str = "",
    title: str = "",
    report: Report | None = None,
) -> Iterator[Example]:
    """Read articles with their summaries: JSON lines.

    Args:
        path: The file, plain or gzip, or the name of a Hugging Face data set ("hf:NAME").
        article: Name of the column with articles. "": article, source, document or text, whichever is there.
        summary: Name of the column with summaries. "": summary, target or highlights.
        title: Name of the column with titles. "": no titles are read.
        report: Where bad lines are counted, or refused. None: they are dropped.

    Yields:
        (`Article`, its summaries, each of which would do) of each good line.

    Example:
        >>> _ = Path("articles.jsonl").write_text('{"article": "It sat. It slept.", "summary": "A cat."}')
        >>> list(read_articles("articles.jsonl"))
        [('It sat. It slept.', ('A cat.',))]
    """
    report = report or Report()
    if not is_json(path):
        raise BadInput(
            one_line(f'{path} has no JSON objects, one a line: {{"article": ..., "summary": ...}}')
        )
    read: Callable[[dict[str, Any]], Example | Fault] | None = None
    for number, line in enumerate(judged_lines(path, MOST), 1):
        found = line if isinstance(line, Fault) else object_of(line)
        if isinstance(found, dict):
            read = read or reader(path, found, article, summary, title)
        example = found if isinstance(found, Fault) else read(found)  # type: ignore[misc]
        if isinstance(example, Fault):
            report.bad(path, number, example)
        else:
            yield example


def reader(
    path: str | Path, first: dict[str, Any], article: str, summary: str, title: str
) -> Callable[[dict[str, Any]], Example | Fault]:
    """What reads an object, by the names that were given, or that the first one has."""
    columns = [column_in(path, first, *names) for names in ((article, ARTICLES), (summary, SUMMARIES))]

    def read(found: dict[str, Any]) -> Example | Fault:
        for column in columns:
            if column not in found:
                return Fault("without a column", f'there is no "{column}"{nearest(column, found)}')
        text = article_in(found, columns[0], title)
        if isinstance(text, Fault):
            return text
        written = texts_in(found[columns[1]], columns[1])
        return written if isinstance(written, Fault) else (text, tuple(one.strip() for one in written))

    return read


def column_in(path: str | Path, first: Mapping[str, Any], named: str, known: Sequence[str]) -> str:
    """The name of a column, which the first object must have."""
    there = [name for name in ([named] if named else known) if name in first]
    if not there:
        wanted = f'"{named}"{nearest(named, first)}' if named else " or ".join(f'"{name}"' for name in known)
        raise BadInput(one_line(f"{path}: in its first object there is no {wanted}"))
    return there[0]


def object_of(line: str) -> dict[str, Any] | Fault:
    """A line that is a JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else Fault("not JSON", "not a JSON object {...}")


def article_in(found: Mapping[str, Any], column: str, title: str = "title") -> Article | Fault:
    """The article of an object, with its title if it has one."""
    text = texts_in(found[column], column)
    if isinstance(text, Fault):
        return text
    called = found.get(title) if title else None
    if called is not None and not isinstance(called, str):
        return Fault("of a wrong type", f'"{title}" is {short(called)}, where a text is expected')
    if called and called.strip() and (fault := fault_in_cell(called, f'"{title}"')):
        return fault
    return Article(found[column], " ".join((called or "").split()))


def texts_in(value: Any, column: str) -> list[str] | Fault:
    """A text, or those of a list that say something."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return Fault(
            "of a wrong type", f'"{column}" is {short(value)}, where a text or a list of texts is expected'
        )
    said = [text for text in texts if text.strip()]
    if not said:
        return if_empty("", f'"{column}"')  # type: ignore[return-value]
    faults = (fault_in_cell(text, f'"{column}"') for text in said)
    return next(filter(None, faults), None) or said


def typed_article(line: str, title: str = "title") -> Article | Fault:
    """An article as it is typed on a line: a JSON object without a summary, or the text itself."""
    if not line.lstrip().startswith("{"):
        return Article(line)
    found = object_of(line)
    if isinstance(found, Fault):
        return found
    there = [name for name in ARTICLES if name in found]
    if not there:
        known = " or ".join(f'"{name}"' for name in ARTICLES)
        return Fault("without a column", f"there is no {known}")
    return article_in(found, there[0], title)
