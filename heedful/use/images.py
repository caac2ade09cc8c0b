"""How image files are made ready for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import BadInput

if TYPE_CHECKING:
    from ..tasks.recipe.settings import DataSettings
    from .model import Model


def data_for(model: Model) -> DataSettings:
    """How pictures are made ready for a model."""
    from ..tasks.image_classify import data_of

    found = data_of(model.recipe, model.config)
    if found.image != model.config.image:
        raise BadInput(
            f"{model.folder} reads {model.config.image} pixels a side, and its recipe says "
            f"{found.image}: put back its own"
        )
    return found
