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
    """Measure every attention head over several texts: its importance with an interval, and what it does.

    Args:
        texts: Strings; for an encoder-decoder also (source, target). None: the held-out data of a run, or
            built-in English sentences.
        by: "zero" or "mean", what replaces the output of a head.
        count: Texts at most.
        points: Points of the curve that removes the least important heads.

    Returns:
        A `HeadTable`: a picture in a notebook, `.text()` in a terminal, `.ranked` with the most important
        head first.

    Raises:
        BadInput: The model has no attention, or there are fewer than two texts.

    Example:
        >>> pairs = [("My aunts are curious.", "Mes tantes sont curieuses."), ("He runs.", "Il court.")]
        >>> table = heedful.load("runs/demo").heads(pairs, points=2)
        >>> len(table.heads), str(table.heads[0].name)
        (36, 'cross.1.1')
    """
    from ..inside.corpus import samples_of
    from ..inside.heads import heads

    folder = Path(model.folder) if model.own else None
    samples = samples_of(model.loaded, folder, model.recipe, texts=texts, count=count)
    return heads(model.loaded, samples, by, points)
