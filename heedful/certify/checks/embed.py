"""Embed: texts in, vectors out, pooled as the folder's sentence-transformers files say."""

from __future__ import annotations

import torch

from ...errors import BadInput
from ...interop.hf.sentences import Sentences
from ..certificate import Check
from ..sides import Sides
from .classify import fitting

NAME = "embed"
ALLOWED = 1e-4  # of the largest number


def check(sides: Sides) -> Check | None:
    """Compare vectors; None if the model has no such files, or the library is not asked."""
    ask = getattr(sides.used, "embed", None)
    if ask is None or sides.is_rounded or not isinstance(sides.ours.loaded.sentences, Sentences):
        return None
    sides.tell("comparing embeddings of texts")
    try:
        ours_ND = sides.model.embed(texts := fitting(sides))
    except BadInput:
        return None  # a vocabulary that has none of these words
    if not texts or (theirs_ND := ask(texts)) is None:
        return None
    worst = 1.0
    if ours_ND.shape == theirs_ND.shape:
        worst = float((ours_ND - theirs_ND).abs().max() / ours_ND.abs().max().clamp(min=torch.finfo().tiny))
    faults = (
        (f"embeddings of texts differ by {worst:.2g}, and {ALLOWED:g} is allowed",)
        if not worst <= ALLOWED
        else ()
    )
    return Check(NAME, f"{len(texts)} vectors differ by at most {worst:.2g} of their scale",
                 {"texts": len(texts)}, {"largest": worst}, faults)  # fmt: skip
