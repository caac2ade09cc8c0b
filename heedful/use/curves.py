"""Curves: the losses, scores and learning rate of the run that a model comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..inside.training_curves import TrainingCurves, curves_of

if TYPE_CHECKING:
    from .model import Model


def curves(model: Model) -> TrainingCurves:
    """The training curves of a run. A notebook shows a picture, `.text()` is for a terminal.

    Returns `TrainingCurves`: `.figures` has the points of every figure, such as "loss" and "valid_loss". A
    model from a Hugging Face folder has no curves and is refused.
    """
    if not model.own:
        raise BadInput(f"{model.folder} is no run of heedful: only runs have training curves")
    return curves_of(Path(model.folder))
