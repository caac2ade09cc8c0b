"""Tag: the part of speech of each word, or the entities of each text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor

from ..models.base.shells import Encoder
from . import entities, sentences
from .batches import finite
from .results import Entities, Tagged
from .texts import Tokenized, each

if TYPE_CHECKING:
    from ..tasks.words import WordBatch
    from .model import Model


def can(model: Model) -> bool:
    """Whether it has a head for tags."""
    return model.kind is Encoder and "tag" in model.output_heads


@overload
def tag(  # type: ignore[overload-overlap]
    model: Model, texts: str, *, batch: int = 32
) -> Tagged | Entities: ...
@overload
def tag(model: Model, texts: Iterable[str], *, batch: int = 32) -> list[Tagged | Entities]: ...
def tag(
    model: Model, texts: str | Iterable[str], *, batch: int = 32
) -> Tagged | Entities | list[Tagged | Entities]:
    """Tag the words of texts, or find their entities.

    Args:
        texts: A string, or several. A run of heedful's own reads words that are separated by spaces.
        batch: Texts computed at once.

    Returns:
        One result for a string, a list for several: a `Tagged`, or `Entities` from an imported model whose
        labels begin and continue entities (B-PER, I-PER).

    Raises:
        BadInput: The model has no tags.

    Example:
        >>> heedful.load("runs/parse").tag("the cat sleeps")
        'the/DET cat/NOUN sleeps/VERB'
    """
    model.check_can("tag")
    return each(texts, lambda some: tagged(model, encode(model, some), batch))


def encode(model: Model, texts: list[str]) -> list[Tokenized]:
    """Texts as the model reads them."""
    return sentences.encode(model, texts) if model.own else entities.encode(model, texts)


def tagged(model: Model, rows: list[Tokenized], batch: int) -> list[Tagged | Entities]:
    """Texts with the tags of their words, or with their entities."""
    if not model.own:
        return entities.entities_or_tags(model, rows, batch)
    return [*tagged_by_run(model, rows, batch)]


def tagged_by_run(model: Model, rows: list[Tokenized], batch: int) -> list[Tagged]:
    """Sentences with the tag of each word, by a run of heedful's own."""
    from ..tasks import words

    labels = list(words.read_labels(Path(model.folder), model.config).tags)
    network: Any = model.model

    def do(made: WordBatch) -> Sequence[list[tuple[str, float]]]:
        words_BWD, _ = words.words_of(network, made)
        shares_BWL = finite(words.tag_scores(network, words_BWD).float(), model.folder).softmax(-1)
        return [
            best(shares_WL[:count], labels) for shares_WL, count in zip(shares_BWL, made.words_B, strict=True)
        ]

    found = sentences.each_sentence(model, rows, batch, do)
    return [
        Tagged(one.text.split(), [name for name, _ in some], [share for _, share in some])
        for one, some in zip(rows, found, strict=True)
    ]


def best(shares_WL: Tensor, labels: list[str]) -> list[tuple[str, float]]:
    """The most likely tag of each word, and how likely it is."""
    top = shares_WL.max(-1)
    return [(labels[i], p) for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)]
