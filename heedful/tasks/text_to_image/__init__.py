"""Text-to-image: pictures from captions, in stages that are runs of their own (Ramesh et al. 2021).

codes    a discrete VAE: a picture becomes a grid of codes, and back
decoder  writes the codes of a picture after the words of its caption
ranker   how well a picture fits a caption, to choose among several
judge    tells what a picture of the corpus shapes shows; it has no part in drawing

The stages of one model lie side by side in a folder, each an ordinary run.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from ..evaluation import EvaluationRequest, Measured
from ..recipe.settings import Recipe
from ..task import Job


def stage_of(recipe: Recipe) -> Any:
    """The file of a recipe's stage."""
    return import_module(f"{__package__}.{recipe.train.stage}")


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """What the stage makes of the recipe."""
    return stage_of(recipe).make_job(recipe, folder, say)


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """What the stage's model scores on all held-out pictures."""
    return stage_of(asked.recipe).measure(model, asked)
