"""Tags and trees of sentences, by a run that was trained to find them. A sentence is a line of words between spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor

from ..data.conllu import MOST_WORDS, Sentence
from ..data.trees import Parsed
from ..errors import BadInput
from ..tasks import parse, words
from .results import Tagged
from .scoring import finite, in_batches
from .wording import refuse_long

if TYPE_CHECKING:
    from .model import Model

T = TypeVar("T")


def fault_in_words(text: str) -> str | None:
    """Why a sentence cannot be read, if it cannot."""
    count = len(text.split())
    if not count:
        return "has no word"
    return f"has {count:,} words, and at most {MOST_WORDS:,} are read: cut it" if count > MOST_WORDS else None


def tagged(model: Model, texts: list[str], batch: int) -> list[Tagged]:
    """Sentences with the tag of each word."""
    labels = list(words.read_labels(Path(model.folder), model.config).tags)
    network: Any = model.model

    def do(made: words.WordBatch) -> Sequence[list[tuple[str, float]]]:
        words_BWD, _ = words.words_of(network, made)
        shares_BWL = finite(words.tag_scores(network, words_BWD).float(), model).softmax(-1)
        return [
            best(shares_WL[:count], labels) for shares_WL, count in zip(shares_BWL, made.words_B, strict=True)
        ]

    found = each_sentence(model, texts, batch, do)
    return [
        Tagged(text.split(), [tag for tag, _ in some], [share for _, share in some])
        for text, some in zip(texts, found, strict=True)
    ]


def best(shares_WL: Tensor, labels: list[str]) -> list[tuple[str, float]]:
    """The likeliest tag of each word, and how likely it is."""
    top = shares_WL.max(-1)
    return [(labels[i], p) for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)]


def parsed(model: Model, texts: list[str], batch: int) -> list[Parsed]:
    """Sentences with the best tree of each."""
    labels = words.read_labels(Path(model.folder), model.config)
    tags, relations = list(labels.tags), list(labels.relations)
    network: Any = model.model

    def do(made: words.WordBatch) -> Sequence[parse.Found]:
        words_BWD, root_B1D = words.words_of(network, made)
        return parse.trees_of(network, made, finite(words_BWD, model), root_B1D)

    found = each_sentence(model, texts, batch, do)
    return [
        Parsed(
            text, text.split(), one.heads, [tags[i] for i in one.tags], [relations[i] for i in one.relations]
        )
        for text, one in zip(texts, found, strict=True)
    ]


def each_sentence(
    model: Model, texts: list[str], batch: int, do: Callable[[words.WordBatch], Sequence[T]]
) -> list[T]:
    """What a function of a batch gives for each text; those of like length are done together."""
    refuse_long(texts)
    for place, text in enumerate(texts, 1):
        if why := fault_in_words(text):
            raise BadInput(f"text {place} {why}")
    vocab = words.vocab_in(Path(model.folder))
    sentences = [Sentence(tuple(text.split())) for text in texts]
    rows = words.rows_of(vocab, words.Labels({}, {}), sentences)
    pieces = [list(row.pieces) for row in rows]

    def some_of(some: list[int]) -> Sequence[T]:
        return do(words.collate(vocab, [rows[i] for i in some]).to(model.device))

    return in_batches(pieces, batch, some_of)
