"""Galleries: pictures that are ready, once on disk and mapped into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..store import BYTES, Store, write_store
from .prepare import ImageSettings

FIELDS = {
    "pixels": "rows of pixels, colors side by side",
    "label": "the name of the class, UTF-8",
    "caption": "the caption, UTF-8",
}


class GalleryRow(NamedTuple):
    """A picture that is ready, and what is known of it."""

    pixels_HWC: np.ndarray
    label: str
    caption: str


class Gallery:
    """Pictures that are ready, mapped into memory."""

    def __init__(self, store: Store) -> None:
        self.store = store
        shape = [store.about.get(name) for name in ("image", "image", "channels")]
        self.pixels_NHWC = store.stream("pixels").reshape(len(store), *shape)

    @classmethod
    def open(cls, folder: Path) -> Gallery:
        """Pictures that `write_gallery` wrote, every byte of them checked."""
        return cls(Store.open(folder))

    def __len__(self) -> int:
        return len(self.store)

    @property
    def hash(self) -> str:
        return self.store.hash

    def label(self, i: int) -> str:
        return self.store.row("label", i).tobytes().decode()

    def caption(self, i: int) -> str:
        return self.store.row("caption", i).tobytes().decode()

    def row(self, i: int) -> GalleryRow:
        return GalleryRow(self.pixels_NHWC[i], self.label(i), self.caption(i))

    def pixels(self, ids: Sequence[int] | np.ndarray) -> Tensor:
        """Some pictures, copied into memory, [B, H, W, C]."""
        return torch.from_numpy(self.pixels_NHWC[np.asarray(ids)])


def write_gallery(folder: Path, rows: Iterable[GalleryRow], data: ImageSettings) -> Gallery:
    """Pictures to a folder that is not there yet."""
    about = {"image": data.image_size, "channels": 3 if data.color else 1, "fit": data.resize}

    def fields() -> Iterator[dict[str, np.ndarray]]:
        for row in rows:
            yield {
                "pixels": np.ascontiguousarray(row.pixels_HWC).reshape(-1),
                "label": np.frombuffer(row.label.encode(), np.uint8),
                "caption": np.frombuffer(row.caption.encode(), np.uint8),
            }

    return Gallery(write_store(folder, FIELDS, fields(), BYTES, about))
