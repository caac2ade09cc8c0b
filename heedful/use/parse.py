"""Parse: the syntax tree of each sentence, by a run that learned it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ..data.trees import Parsed
from ..models.base.shells import Encoder
from .batches import finite
from .sentences import each_sentence, encode
from .texts import Tokenized, each

if TYPE_CHECKING:
    from ..tasks.parse import ParseResult as FoundTree
    from ..tasks.words import WordBatch
    from .model import Model


def can(model: Model) -> bool:
    """Whether it is an encoder with a head for the arcs of a tree."""
    return model.kind is Encoder and "arcs" in model.output_heads


@overload
def parse(model: Model, texts: str, *, batch: int = 32) -> Parsed: ...  # type: ignore[overload-overlap]
@overload
def parse(model: Model, texts: Iterable[str], *, batch: int = 32) -> list[Parsed]: ...
def parse(model: Model, texts: str | Iterable[str], *, batch: int = 32) -> Parsed | list[Parsed]:
    """Parse texts: the head of each word (-1 is the root) and its relation.

    Args:
        texts: A string, or several; words are separated by spaces.
        batch: Texts computed at once.

    Returns:
        A `Parsed` for a string, a list for several.

    Raises:
        BadInput: The model learned no trees.

    Example:
        >>> tree = heedful.load("runs/parse").parse("the cat sleeps")
        >>> tree, tree.heads, tree.relations
        ('the cat sleeps', (1, 2, -1), ('det', 'nsubj', 'root'))
    """
    model.check_can("parse")
    return each(texts, lambda some: parsed(model, encode(model, some), batch))


def parsed(model: Model, sentences: list[Tokenized], batch: int) -> list[Parsed]:
    """Sentences with the best tree of each."""
    from ..tasks import words
    from ..tasks.parse import trees_of

    labels = words.read_labels(Path(model.folder), model.config)
    tags, relations = list(labels.tags), list(labels.relations)
    network: Any = model.model

    def do(made: WordBatch) -> Sequence[FoundTree]:
        words_BWD, root_B1D = words.words_of(network, made)
        return trees_of(network, made, finite(words_BWD, model.folder), root_B1D)

    found = each_sentence(model, sentences, batch, do)
    return [
        Parsed(
            one.text,
            one.text.split(),
            tree.heads,
            [tags[i] for i in tree.tags],
            [relations[i] for i in tree.relations],
        )
        for one, tree in zip(sentences, found, strict=True)
    ]
