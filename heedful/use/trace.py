"""Trace: one input through a model, with everything that its attentions and blocks did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..interop.loaded import Captioner, ImageEncoder
from ..interop.run_folder import refuse_stage

if TYPE_CHECKING:
    from ..inside.edit_spellings import Edit
    from ..inside.edits import HeadMeans
    from ..inside.trace import Trace
    from .model import Model


def trace(
    model: Model,
    text: str | np.ndarray,
    target: str | None = None,
    *,
    edits: Sequence[Edit | str] = (),
    traces: Mapping[str, Trace] | None = None,
    means: HeadMeans | None = None,
    most: int = 1024,
) -> Trace:
    """Trace one input through a model: weights, queries, keys, values, residual streams and logits.

    Layers and heads are counted from 1.

    Args:
        text: A text; for a model of images the name of a file, or its pixels [H, W, C].
        target: What an encoder-decoder writes here, instead of its own translation.
        edits: Changes of the model that hold during the trace, such as "zero:cross.3.2" (see `edit`).
        traces: The traces that patches name.
        means: Means of the heads, for "mean" edits (see `head_means`).
        most: Tokens; longer texts are refused.

    Returns:
        A `Trace`, which a notebook shows as a picture.

    Raises:
        BadInput: The model has no attention, or an edit does not fit it.

    Example:
        >>> model = heedful.load("runs/demo")
        >>> seen = model.trace("My aunts are curious.")
        >>> seen.weights("cross", 1, 2).shape, seen.stream("decoder", 1).shape
        (torch.Size([6, 5]), torch.Size([6, 32]))
        >>> model.trace("My aunts are curious.", edits=["drop:decoder.1.cross"]).edits
        ['drop:decoder.1.cross']
    """
    from ..inside.trace import trace

    refuse_stage(Path(model.folder), model.architecture, "trace")
    how: dict[str, Any] = {"edits": edits, "traces": traces, "means": means, "most": most}
    if model.kind not in (Captioner, ImageEncoder):
        return trace(model.loaded, text, target, **how)
    pixels_HWC = model.read_picture(text) if isinstance(text, str) else model.fit_picture(text, "the image")
    return trace(model.loaded, pixels_HWC, target, **how, preprocessing=model.preprocessing)
