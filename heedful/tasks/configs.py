"""From a recipe to an architecture's config: the recipe's settings, and what the data say."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..models import config_class
from .recipe import DROPOUTS
from .recipe.settings import Recipe


def config_of(recipe: Recipe, **known: Any) -> Any:
    """The Config of a recipe's architecture: its sizes, what the settings of the data say (`config_fields`),
    and what is known of the data, such as the vocabulary's size. Fields that it lacks are left out."""
    kind = config_class(recipe.model.architecture)
    names = {field.name for field in fields(kind)}
    values = {**recipe.model.sizes, **recipe.data.config_fields(), **known}
    return kind(**{name: value for name, value in values.items() if name in names})


def started_config(recipe: Recipe, config: Any) -> Any:
    """The Config of a model to start from, with the recipe's dropout where it sets one."""
    names = {field.name for field in fields(config)}
    chosen = {name: recipe.model.sizes[name] for name in DROPOUTS if name in recipe.model.sizes}
    return replace(config, **{name: value for name, value in chosen.items() if name in names})


def head_dropout(recipe: Recipe, usual: float = 0.1) -> float:
    """Dropout before the head that a decoder gets for labels, unless the recipe sets another; GPT-1's."""
    return float(recipe.model.sizes.get("dropout", usual))
