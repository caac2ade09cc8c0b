"""Sentences of words between spaces, as runs that tag and parse read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..data.conllu import MOST_WORDS, Sentence
from .batches import in_batches
from .texts import Tokenized, usable
from .wording import refuse_long, tokenize_by

if TYPE_CHECKING:
    from ..tasks.words import WordBatch
    from .model import Model

T = TypeVar("T")


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Sentences, each word cut into pieces by itself; `segments` has the number of the word of each piece."""
    from ..tasks.words import cut_pieces

    refuse_long(texts)
    sentences = [text.split() for text in texts]
    forms = sorted({form for words in sentences for form in words})
    space = (
        "" if model.vocab.kind == "char" else " "
    )  # words inside a text are learned with the space before them
    rows = tokenize_by(model.vocab, [f"{space}{form}" for form in forms])
    pieces = {
        form: replace(row, ids=cut_pieces(model.vocab, row.ids))
        for form, row in zip(forms, rows, strict=True)
    }
    return [
        sentence_of(text, [pieces[form] for form in words])
        for text, words in zip(texts, sentences, strict=True)
    ]


def sentence_of(text: str, words: list[Tokenized]) -> Tokenized:
    """A sentence of its words."""
    return Tokenized(
        text,
        [piece for word in words for piece in word.ids],
        [unknown for word in words for unknown in word.unknown],
        segments=[n for n, word in enumerate(words) for _ in word.ids],
        fault=fault_in_words(len(words)),
    )


def fault_in_words(count: int) -> str | None:
    """Why a sentence of so many words cannot be read, if it cannot."""
    if not count:
        return "has no word"
    return f"has {count:,} words, and at most {MOST_WORDS:,} are read: cut it" if count > MOST_WORDS else None


def each_sentence(
    model: Model, sentences: list[Tokenized], batch: int, do: Callable[[WordBatch], Sequence[T]]
) -> list[T]:
    """What a function of a batch gives for each sentence; those of like length are done together."""
    from ..tasks.words import Labels, collate, row_of

    rows = []
    for one in usable(sentences):
        forms = tuple(one.text.split())
        pieces: list[list[int]] = [[] for _ in forms]
        for word, piece in zip(one.segments, one.ids, strict=True):
            pieces[word].append(piece)
        rows.append(row_of(Labels({}, {}), Sentence(forms), pieces))

    def some_of(some: list[int]) -> Sequence[T]:
        return do(collate(model.vocab, [rows[i] for i in some]).to(model.device))

    return in_batches([one.ids for one in sentences], batch, some_of)
