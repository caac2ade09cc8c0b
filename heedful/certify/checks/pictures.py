"""Pictures: an image file in, labels with their probabilities out, preprocessing included."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from ...errors import BadInput, NotInstalled
from ...interop.loaded import ImageEncoder
from ...interop.packages import needed
from ..certificate import Check
from ..inputs import SEED
from ..sides import Sides
from .classify import compared, values_of

NAME = "pictures"
SIZES = ((61, 83), (97, 64))  # of the files, neither of them square


def check(sides: Sides) -> Check | None:
    """Compare what both say of image files; None if the model has no labels, or the library is not asked."""
    ask = getattr(sides.used, "see", None)
    if ask is None or sides.is_rounded or sides.ours.loaded.kind is not ImageEncoder:
        return None
    model = sides.model
    if "classify" not in model.can:
        return None
    sides.tell("comparing pictures")
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = drawn(Path(folder))
            ours = [values_of(found) for found in model.classify(files)]
        except (BadInput, NotInstalled):
            return None  # pictures of another kind, or no way to write files
        theirs = ask(files)
    return None if theirs is None else compared(NAME, ours, theirs, {"files": list(SIZES)})


def drawn(folder: Path) -> list[str]:
    """Image files of random colors, a little smooth."""
    image = needed("PIL.Image", "vision")
    dice, files = np.random.default_rng(SEED), []
    for height, width in SIZES:
        coarse = dice.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        path = folder / f"{height}x{width}.png"
        image.fromarray(coarse.repeat(8, 0).repeat(8, 1)[:height, :width]).save(path)
        files.append(str(path))
    return files
