"""Texts on their way in and the rows they become: one or many, alone or two by two. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import BadInput
from ..models.base.settings import Range, Setting

T = TypeVar("T")
LONGEST = 600_000  # characters of a text, from the shell as from Python: 128k tokens of a language model


@dataclass(frozen=True)
class Tokenized:
    """A text and its tokens. A text is tokenized once, and what needs its tokens is given this."""

    text: str  # as it was given: it may have its tree, or be an article with a title
    ids: list[int]
    unknown: list[str] = field(default_factory=list)  # words of the text that the vocabulary does not know
    spans: list[tuple[int, int]] = field(default_factory=list)  # where tokens stand, if it was kept
    segments: list[int] = field(default_factory=list)  # the number of the text, or word, of each token
    fault: str | None = None  # why the model cannot use it, if it cannot
    note: str | None = None  # what of it the model does not read, if it is read in part


def check_top(top: object) -> None:
    """Refuse a number of answers to keep that makes no sense."""
    Setting("top", int, 1, limits=Range(1, 10**6)).convert("`top`", top)


def listed_texts(texts: str | Iterable[str]) -> tuple[list[str], bool]:
    """Texts as a list, and whether it was only one."""
    if isinstance(texts, str):
        return [texts], True
    if not isinstance(texts, Iterable):
        raise BadInput(f"texts are a string or a list of strings, not {type(texts).__name__}")
    rows = list(texts)
    for place, row in enumerate(rows, 1):
        if not isinstance(row, str):
            raise BadInput(f"text {place} is {type(row).__name__}: texts are strings")
    return rows, False


def each(texts: str | Iterable[str], do: Callable[[list[str]], list[T]]) -> T | list[T]:
    """One result for one text, a list for a list."""
    rows, one = listed_texts(texts)
    found = do(rows)
    return found[0] if one else found


def both(
    texts: str | Iterable[str],
    others: str | Iterable[str],
    do: Callable[[list[str], list[str]], list[T]],
) -> T | list[T]:
    """The same of texts that belong together two by two."""
    (rows, one), (seconds, other) = listed_texts(texts), listed_texts(others)
    if one != other or len(rows) != len(seconds):
        raise BadInput(
            f"texts go together two by two, and there are {len(rows)} and {len(seconds)}: "
            f"give two strings, or two lists of one length"
        )
    found = do(rows, seconds)
    return found[0] if one else found


def listed(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def fault_of(tokens: int, table: int | None, least: int) -> str | None:
    """Why a text of so many tokens cannot be used, if it cannot."""
    if tokens < least:
        return "is empty" if not tokens else "has one token, and nothing to judge it by"
    if table is not None and tokens > table:
        return f"has {tokens:,} tokens, and the model reads at most {table:,}: cut it"
    return None


def usable(rows: Sequence[Tokenized]) -> Sequence[Tokenized]:
    """The same rows; the first that the model cannot use is refused."""
    for place, row in enumerate(rows, 1):
        if row.fault:
            raise BadInput(f"text {place} {row.fault}")
    return rows
