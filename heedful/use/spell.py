"""Spell: how the tokenizer of a model cuts a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inside.spelling import Spelling
from ..inside.spelling import spell as spelled
from .wording import tokenize

if TYPE_CHECKING:
    from .model import Model


def spell(model: Model, text: str, *, target: bool = False) -> Spelling:
    """Show a text as the tokenizer cuts it: pieces, numbers, bytes and merges.

    Args:
        text: One string.
        target: Use the tokenizer of what the model writes, if that is another one.

    Returns:
        A `Spelling`, which a notebook shows as colored boxes.

    Example:
        >>> spelling = heedful.load("runs/demo").spell("The zebra eats.")
        >>> [piece.text for piece in spelling.pieces], spelling.pieces[1].unknown
        (['The', '[UNK]', 'eats', '.'], True)
    """
    return spelled(model.wording.writes if target else model.wording.reads, text)


def unknown_words(model: Model, texts: list[str]) -> list[list[str]]:
    """Find the words that a model does not know and reads all alike.

    Args:
        texts: The texts.

    Returns:
        The unknown words of each text; none for a model that reads letters or bytes.

    Example:
        >>> heedful.load("runs/demo").unknown_words(["The cat eats.", "The zebra eats."])
        [[], ['zebra']]
    """
    if getattr(model.config, "input", "") == "characters":
        return [[] for _ in texts]
    if "fill" in model.can:
        return [model.wording.blanked(text).unknown for text in texts]
    read = (
        model.wording.source
        if model.task == "summarize"
        else lambda some: tokenize(model.wording.reads, some)
    )
    return [row.unknown for row in read(texts)]
