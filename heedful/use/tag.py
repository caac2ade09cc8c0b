"""Tag: the part of speech of each word, by a run that learned it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

from ..models.base.shells import Encoder
from .batches import finite
from .results import Tagged
from .sentences import each_sentence, encode
from .texts import Tokenized, each

if TYPE_CHECKING:
    from ..tasks.words import WordBatch
    from .model import Model


def can(model: Model) -> bool:
    """Whether it is a run with a head for tags."""
    return model.kind is Encoder and "tag" in model.heads and model.own


@overload
def tag(model: Model, texts: str, *, batch: int = 32) -> Tagged: ...  # type: ignore[overload-overlap]
@overload
def tag(model: Model, texts: Iterable[str], *, batch: int = 32) -> list[Tagged]: ...
def tag(model: Model, texts: str | Iterable[str], *, batch: int = 32) -> Tagged | list[Tagged]:
    """The part of speech of each word; words, and marks, are separated by spaces.

    texts: a string, or several. batch: texts at once. Returns a `Tagged` for a string, a list for several.

    >>> load("runs/toy-parse").tag("the cat sleeps")
    'the/DET cat/NOUN sleeps/VERB'
    """
    model.check_can("tag")
    return each(texts, lambda some: tagged(model, encode(model, some), batch))


def tagged(model: Model, sentences: list[Tokenized], batch: int) -> list[Tagged]:
    """Sentences with the tag of each word."""
    from ..tasks import words

    labels = list(words.read_labels(Path(model.folder), model.config).tags)
    network: Any = model.model

    def do(made: WordBatch) -> Sequence[list[tuple[str, float]]]:
        words_BWD, _ = words.words_of(network, made)
        shares_BWL = finite(words.tag_scores(network, words_BWD).float(), model.folder).softmax(-1)
        return [
            best(shares_WL[:count], labels) for shares_WL, count in zip(shares_BWL, made.words_B, strict=True)
        ]

    found = each_sentence(model, sentences, batch, do)
    return [
        Tagged(one.text.split(), [name for name, _ in some], [share for _, share in some])
        for one, some in zip(sentences, found, strict=True)
    ]


def best(shares_WL: Tensor, labels: list[str]) -> list[tuple[str, float]]:
    """The likeliest tag of each word, and how likely it is."""
    top = shares_WL.max(-1)
    return [(labels[i], p) for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)]
