"""Lens and rollout: what every layer would predict, and what reached each position through all layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput
from ..interop.loaded import Captioner, ImageEncoder
from ..interop.run_folder import refuse_stage

if TYPE_CHECKING:
    from ..inside.lens import Lens
    from ..inside.rollout import Rollout
    from .model import Model


def lens(model: Model, text: str, target: str | None = None, *, top: int = 5) -> Lens:
    """Read what every layer would predict if it were the last (logit lens), and what each sublayer adds.

    Args:
        text: A text; for a captioner the name of an image file.
        target: What an encoder-decoder writes here, instead of its own translation.
        top: Tokens to keep at each place.

    Returns:
        A `Lens`, which a notebook shows as a picture.

    Raises:
        BadInput: The model predicts no tokens.

    Example:
        >>> seen = heedful.load("runs/demo").lens("My aunts are curious.")
        >>> seen.predicted[:3], int(seen.rank_LT[-1, 1])
        (['Mes', 'tantes', 'sont'], 1)
    """
    from ..inside.lens import lens

    refuse_stage(Path(model.folder), model.architecture, "lens")
    if model.kind is not Captioner:
        return lens(model.loaded, text, target, top=top)
    return lens(model.loaded, model.read_picture(text), target, top=top, preprocessing=model.preprocessing)


def rollout(model: Model, text: str, target: str | None = None, *, which: str | None = None) -> Rollout:
    """Follow how much of each token has reached each position through all layers (attention rollout).

    Args:
        text: A text.
        target: What an encoder-decoder writes here, instead of its own translation.
        which: "cross", "self" or "encoder".

    Returns:
        A `Rollout`, which a notebook shows as a picture.

    Raises:
        BadInput: The model has no attention over texts.

    Example:
        >>> seen = heedful.load("runs/demo").rollout("My aunts are curious.")
        >>> seen.which, seen.across
        ('cross', ['My', 'aunts', 'are', 'curious', '.'])
    """
    from ..inside.rollout import rollout_of

    refuse_stage(Path(model.folder), model.architecture, "rollout")
    if model.kind in (ImageEncoder, Captioner):
        raise BadInput(f"{model.folder} reads images: look_at shows the attention over an image")
    return rollout_of(model.loaded, text, target, which=which)
