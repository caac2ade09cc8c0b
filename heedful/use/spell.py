"""Spell: how the tokenizer of a model cuts a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inside.spelling import Spelling
from ..inside.spelling import spell as spelled

if TYPE_CHECKING:
    from .model import Model


def spell(model: Model, text: str, *, target: bool = False) -> Spelling:
    """A text through the tokenizer: pieces, numbers, bytes and merges. A notebook shows colored boxes.

    text: one string. target: by the tokenizer of what the model writes, if that is another one. Returns a
    `Spelling`.

    >>> spelling = load("runs/toy").spell("the zebra sleeps")
    >>> [piece.text for piece in spelling.pieces], spelling.pieces[1].unknown
    (['the', '[UNK]', 'sleeps'], True)
    """
    return spelled(model.wording.writes if target else model.wording.reads, text)
