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
    """Show what attends to what in one text.

    Args:
        text: One string.
        target: What an encoder-decoder writes here, instead of its own translation.
        which: "cross", "self" or "encoder" attention. None: "cross" of an encoder-decoder.
        layer: A layer, counted from 1. None: chosen with the head.
        head: A head, counted from 1, or "mean" or "best".
        by: The attention "weight", or another measure of what comes from where: "norm", "zeroing" or
            "gradient".
        row: Read a word of the target where it is the "prediction", or where it is the "input".

    Returns:
        A `Look`: a picture in a notebook, `.text()` in a terminal, `.svg()` for a file.

    Raises:
        BadInput: The model has no attention over texts, or not this layer or head.

    Example:
        >>> seen = heedful.load("runs/demo").look("My aunts are curious.", head="best")
        >>> seen.down, seen.across  # doctest: +NORMALIZE_WHITESPACE
        (['Mes', 'tantes', 'sont', 'curieuses', '.', '[EOS]'],
         ['My', 'aunts', 'are', 'curious', '.'])
        >>> heedful.load("runs/demo").look("My aunts are curious.", by="norm", layer=1, head="mean").by
        'norm'
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
    """Show where a model of images looks in a picture.

    Args:
        file: The name of an image file.
        target: For a captioner, the caption whose words look, instead of its own.
        layer: A layer, counted from 1. None: every layer.
        head: A head, counted from 1, or "mean" or "best". None: the mean of each layer's heads.

    Returns:
        An `ImageLook`, a `CaptionLook`, or the `CodesLook` of a stage of text-to-image: a picture in a
        notebook, `.svg()` for a file.

    Raises:
        BadInput: The model reads no pictures, or the file is none.

    Example:
        >>> seen = heedful.load("runs/caption").look_at("pictures/red-blue-0.png")
        >>> seen.svg()[:4]
        '<svg'
    """
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
