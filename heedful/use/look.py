"""Look: what attends to what, in one text or in one image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..interop.loaded import IN_WORDS, Captioner, ImageEncoder
from ..interop.run_folder import refuse_stage
from ..parts.watch import Watchable
from . import embed

if TYPE_CHECKING:
    from ..inside.look.attention import Look
    from ..inside.look.captions import CaptionLook
    from ..inside.look.codes import CodesLook
    from ..inside.look.images import ImageLook
    from .model import Model


def can(model: Model) -> bool:
    """Whether there is attention in it, over texts without trees or over images."""
    attends = any(isinstance(module, Watchable) for module in model.model.modules())
    return model.kind in (Captioner, ImageEncoder) or (attends and embed.can(model))


def look(
    model: Model,
    text: str,
    *,
    target: str | None = None,
    which: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
    by: str = "weight",
    row: str = "prediction",
) -> Look:
    """What attends to what in one text: a picture in a notebook, `.text()` in a terminal, `.svg()` for a
    file.

    text: one string. target: what an encoder-decoder writes here, instead of its own translation. which:
    "cross", "self" or "encoder". layer and head are counted from 1; head may be "mean" or "best". by: the
    attention "weight", or another measure of what comes from where: "norm", "zeroing" or "gradient"
    (inside/attribute.py). row: a word of the target is read where it is predicted, or where it is the
    "input". Returns a `Look`.

    >>> seen = load("runs/toy").look("the cat sleeps", head="best")
    >>> seen.down, seen.across
    (['le', 'chat', 'dort', '[EOS]'], ['the', 'cat', 'sleeps'])
    """
    from ..inside.attribute import attribute
    from ..inside.look.heads import practice

    model.check_can("look")
    if model.kind in (ImageEncoder, Captioner):
        raise BadInput(f"{model.folder} reads pictures: look_at takes the name of a file")
    gold = practice(Path(model.folder)) if model.own else []
    how: dict[str, Any] = {"target": target, "which": which, "layer": layer, "head": head, "gold": gold}
    return attribute(model.loaded, text, by=by, row=row, **how)


def look_at(
    model: Model,
    file: str,
    *,
    target: str | None = None,
    layer: int | None = None,
    head: int | str | None = None,
) -> ImageLook | CaptionLook | CodesLook:
    """Where a model of images looks in the image of a file: `.svg()` for a file, a picture in a notebook.

    file: the name of an image file. target: of a captioner, the caption whose words look, instead of its own.
    layer and head are counted from 1; head may be "mean" or "best". Without either: the mean of each layer's
    heads. Of the codes of text-to-image: the image's codes, and what they become."""
    from ..data.images.prepare import ready_file
    from ..inside.look.captions import look_at_caption
    from ..inside.look.codes import look_at_codes
    from ..inside.look.images import look_at_image

    if model.architecture == "dvae" and target is layer is head is None:
        assert model.recipe is not None
        return look_at_codes(model.loaded, ready_file(file, model.recipe.data), file)
    refuse_stage(Path(model.folder), model.architecture, "look")
    if model.kind not in (ImageEncoder, Captioner):
        raise BadInput(
            f"{model.folder} is {IN_WORDS[model.kind]}, which reads no pictures: look takes a text"
        )
    how = model.preprocessing
    if model.kind is Captioner:
        pixels_HWC = model.read_picture(file)
        return look_at_caption(model.loaded, pixels_HWC, how, file, target=target, layer=layer, head=head)
    if target is not None:
        raise BadInput(
            f"{model.folder} is {IN_WORDS[model.kind]}, which writes no caption: leave out `target`"
        )
    return look_at_image(model.loaded, model.read_picture(file), how, file, layer=layer, head=head)
