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
    """What every layer would predict at every position if it were the last (logit lens), and what each
    sublayer adds.

    text: a text; for a captioner the name of an image file. target: what an encoder-decoder writes here,
    instead of its own translation. top: how many tokens to keep at each place. Returns a `Lens`, which a
    notebook shows as a picture.

    >>> seen = load("runs/toy").lens("the cat sleeps")
    >>> seen.predicted, int(seen.rank_LT[1, 1])
    (['le', 'chat', 'dort', '[EOS]'], 1)
    """
    from ..inside.lens import lens

    refuse_stage(Path(model.folder), model.architecture, "lens")
    if model.kind is not Captioner:
        return lens(model.loaded, text, target, top=top)
    return lens(model.loaded, model.read_picture(text), target, top=top, preprocessing=model.preprocessing)


def rollout(model: Model, text: str, target: str | None = None, *, which: str | None = None) -> Rollout:
    """How much of each token has reached each position through all layers (attention rollout).

    target: what an encoder-decoder writes here, instead of its own translation. which: "cross", "self" or
    "encoder". Returns a `Rollout`, which a notebook shows as a picture.

    >>> seen = load("runs/toy").rollout("the cat sleeps")
    >>> seen.which, seen.down, seen.across
    ('cross', ['le', 'chat', 'dort', '[EOS]'], ['the', 'cat', 'sleeps'])
    """
    from ..inside.rollout import rollout_of

    refuse_stage(Path(model.folder), model.architecture, "rollout")
    if model.kind in (ImageEncoder, Captioner):
        raise BadInput(f"{model.folder} reads images: look_at shows the attention over an image")
    return rollout_of(model.loaded, text, target, which=which)
