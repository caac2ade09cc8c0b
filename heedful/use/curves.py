"""Curves: the losses, scores and learning rate of the run that a model comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..inside.training_curves import TrainingCurves, curves_of

if TYPE_CHECKING:
    from .model import Model


def curves(model: Model) -> TrainingCurves:
    """Read the training curves of the run that a model comes from.

    Returns:
        `TrainingCurves`: a picture in a notebook, `.text()` in a terminal; `.figures` has the points of every
        figure, such as "loss" and "valid_loss".

    Raises:
        BadInput: The model is no run of heedful.

    Example:
        >>> curves = heedful.load("runs/choose").curves()
        >>> sorted(curves.figures)[:2], curves.steps
        (['loss', 'norm'], 150)
    """
    if not model.own:
        raise BadInput(f"{model.folder} is no run of heedful: only runs have training curves")
    return curves_of(Path(model.folder))
