"""Texts on their way in: one or many, alone or two by two, and those that a model cannot use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..data.letters import SpelledVocab
from ..errors import BadInput
from ..models.base.shells import shells_of
from .wording import Tokenized, refuse_endless, tokenize

T = TypeVar("T")


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


def judged(rows: Sequence[Tokenized], network: Any, least: int = 1) -> list[Tokenized]:
    """Rows with their faults: fewer tokens than `least`, or more than the model has positions for."""
    table = table_of(network)
    return [row if row.fault else replace(row, fault=fault_of(len(row.ids), table, least)) for row in rows]


def fault_of(tokens: int, table: int | None, least: int) -> str | None:
    """Why a text of so many tokens cannot be used, if it cannot."""
    if tokens < least:
        return "is empty" if not tokens else "has one token, and nothing to judge it by"
    if table is not None and tokens > table:
        return f"has {tokens:,} tokens, and the model reads at most {table:,}: cut it"
    return None


def usable(rows: list[Tokenized]) -> list[Tokenized]:
    """The same rows; the first that the model cannot use is refused."""
    for place, row in enumerate(rows, 1):
        if row.fault:
            raise BadInput(f"text {place} {row.fault}")
    return rows


def table_of(network: Any) -> int | None:
    """The longest row that a network's table of positions has room for; None: there is no end."""
    return next(iter(shells_of(network).values())).inputs.position.longest


def tokenize_by(vocab: Any, texts: list[str], spans: bool = False) -> list[Tokenized]:
    """The tokens of texts by the vocabulary of a run; one that spells words out knows every word."""
    if isinstance(vocab, SpelledVocab):
        return [Tokenized(text, ids) for text, ids in zip(texts, vocab.encode_batch(texts), strict=True)]
    return tokenize(vocab.tokenizer, texts, spans=spans, refuse=refuse_endless)
