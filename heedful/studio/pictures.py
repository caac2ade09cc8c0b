"""What a model of images is given in place of a text: "shapes:7", or "picture:ID" of a file that was sent.

Where a request has a text, the text of an image model is one of these names. Files are kept in the studio's
memory, a few at a time, and travel to the worker with each request that names one.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

from ..errors import BadInput

if TYPE_CHECKING:
    import numpy as np

    from ..use.model import Model

KEPT = 16 << 20  # bytes of files
NAME = re.compile(r"(shapes|picture):([0-9a-f]{1,16})")
DRAWN = 1000  # built-in pictures that have a name
EXAMPLE = "shapes:1"


class PictureFiles:
    """Files that were sent, those not used for longest forgotten first."""

    def __init__(self, most: int = KEPT) -> None:
        self.most, self.found = most, OrderedDict[str, bytes]()

    def add(self, data: bytes) -> str:
        """Keep a file; its id."""
        id = hashlib.sha256(data).hexdigest()[:16]
        self.found[id] = data
        self.found.move_to_end(id)
        while len(self.found) > 1 and sum(map(len, self.found.values())) > self.most:
            self.found.popitem(last=False)
        return id

    def of(self, text: str) -> bytes:
        """The bytes of the file that a text names; none for any other text."""
        kind, id = named(text)
        if kind == "picture" and id in self.found:
            self.found.move_to_end(id)
            return self.found[id]
        return b""


def named(text: str) -> tuple[str, str]:
    """The two parts of a picture's name; empty for any other text."""
    found = NAME.fullmatch(text)
    return (found[1], found[2]) if found else ("", "")


# In the worker.


def reads_images(model: Model) -> bool:
    """Whether a model is given pictures."""
    from ..interop.loaded import Captioner, ImageEncoder

    return model.kind in (Captioner, ImageEncoder)


def input_of_model(model: Model, text: str, blob: bytes) -> str | np.ndarray:
    """What a model reads: the text, or the pixels of the picture that it names."""
    if not reads_images(model):
        return text
    from ..corpora.shapes import split
    from ..data.images.files import image_in
    from ..interop.loaded import ImageEncoder

    kind, id = named(text)
    if kind == "shapes" and id.isdecimal() and 1 <= int(id) <= DRAWN:
        things = 1 if model.kind is ImageEncoder else 0
        side = min(1024, max(16, model.config.image_size))
        return model.fit_picture(split("test", side, things)[int(id) - 1].pixels_HWC, text)
    if kind == "picture" and blob:
        return model.fit_picture(image_in(io.BytesIO(blob), model.preprocessing.on_white), "the picture")
    if kind == "picture":
        raise BadInput("this picture is no longer in the studio's memory: choose the file again")
    raise BadInput(
        f"a {model.architecture} reads pictures: choose a file, or give shapes:1 to shapes:{DRAWN}"
    )
