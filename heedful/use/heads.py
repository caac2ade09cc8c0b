"""Heads: what each attention head of a model does, and how much the model needs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..inside.heads import HeadTable
    from .model import Model


def heads(
    model: Model,
    texts: Iterable[str | tuple[str, str]] | None = None,
    *,
    by: str = "zero",
    count: int = 64,
    points: int = 9,
) -> HeadTable:
    """Every attention head: its importance with an interval, and what it does, over several texts.

    texts: strings; for an encoder-decoder also (source, target). Without them, the held-out data of a run, or
    built-in English sentences. by: "zero" or "mean", what replaces the output of a head. count: texts at
    most. points: of the curve that removes the least important heads. Returns a `HeadTable`: a picture in a
    notebook, `.text()` in a terminal, `.ranked` for all heads, the most important first.

    >>> pairs = [("the cat sleeps", "le chat dort"), ("the cat eats", "le chat mange")]
    >>> table = load("runs/toy").heads(pairs)
    >>> len(table.heads), str(table.heads[0].name)
    (6, 'cross.1.1')
    """
    from ..inside.corpus import samples_of
    from ..inside.heads import heads

    folder = Path(model.folder) if model.own else None
    samples = samples_of(model.loaded, folder, model.recipe, texts=texts, count=count)
    return heads(model.loaded, samples, by, points)
