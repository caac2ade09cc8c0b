"""Pictures made ready: one size, one number of channels, once on disk and mapped into memory; then moved a little by lot.

What is done to a picture follows from the recipe's `data.` settings alone, and how one is moved in training from the
seed, the step and its place in the batch: the same numbers come again when a run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...corpora import shapes
from ...errors import BadInput
from ...files import one_line
from ...models import nearest
from ...tasks.recipe.settings import DataSettings
from ..plan import keyed, permuted_array, splitmix
from ..report import Report
from ..store import BYTES, Store, write_store
from .files import read_image
from .folders import Item, is_idx, items_of, read_all

GRAY = (0.299, 0.587, 0.114)  # how bright red, green and blue look
HELD_OUT, MOST_HELD_OUT = 10, 2000  # without held-out images: one in so many, and no more than these
MOVES, HOLES = 0x6D6F7665, 0x686F6C65  # tell these random numbers apart from others of the same step
FIELDS = {
    "pixels": "rows of pixels, colors side by side",
    "label": "the name of the class, UTF-8",
    "caption": "the caption, UTF-8",
}


class Row(NamedTuple):
    """A picture that is ready, and what is known of it."""

    pixels_HWC: np.ndarray
    label: str
    caption: str


# One size, one number of channels


def ready(pixels_HWC: np.ndarray, data: DataSettings) -> np.ndarray:
    """Any picture as the recipe wants it: [image, image, 3], or 1 without color, 0 to 255."""
    return in_channels(resized(pixels_HWC, data.image, data.fit), data.color)


def ready_file(path: str | Path, data: DataSettings) -> np.ndarray:
    """The same of an image file."""
    return ready(read_image(path), data)


def in_channels(pixels_HWC: np.ndarray, color: bool) -> np.ndarray:
    """Gray in all three colors, or colors as gray."""
    have, want = pixels_HWC.shape[-1], 3 if color else 1
    if have == want:
        return pixels_HWC
    if have == 1:
        return np.repeat(pixels_HWC, 3, axis=-1)
    if have != 3:
        raise BadInput(f"a picture has 1 or 3 channels, not {have}")
    return np.rint(pixels_HWC @ np.array(GRAY)).astype(np.uint8)[..., None]


def resized(pixels_HWC: np.ndarray, side: int, fit: str = "crop") -> np.ndarray:
    """A square of so many pixels a side. fit: crop what is too long, pad it with its edge's color, or stretch it."""
    height, width = pixels_HWC.shape[:2]
    if fit == "crop":
        least = min(height, width)
        top, left = (height - least) // 2, (width - least) // 2
        pixels_HWC = pixels_HWC[top : top + least, left : left + least]
    elif fit == "pad":
        most = max(height, width)
        rows, columns = most - height, most - width
        room = ((rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2), (0, 0))
        pixels_HWC = np.pad(pixels_HWC, room, mode="edge")
    if pixels_HWC.shape[:2] == (side, side):
        return pixels_HWC
    down, across = (weights(old, side) for old in pixels_HWC.shape[:2])
    found = np.einsum("yh,hwc->ywc", down, pixels_HWC.astype(np.float64))
    found = np.einsum("xw,ywc->yxc", across, found)
    return np.clip(np.rint(found), 0, 255).astype(np.uint8)


@lru_cache(maxsize=64)
def weights(old: int, new: int) -> np.ndarray:
    """[new, old]: how much each old pixel counts in each new one: a triangle, widened where pixels become fewer."""
    scale = old / new
    reach = max(scale, 1.0)
    middles = (np.arange(new) + 0.5) * scale
    away = np.abs(np.arange(old)[None, :] + 0.5 - middles[:, None]) / reach
    found = np.maximum(1 - away, 0)
    return found / found.sum(1, keepdims=True)


# As numbers


def normal(pixels_BHWC: Tensor, data: DataSettings) -> Tensor:
    """Pixels 0 to 255 as what a model reads, [B, C, H, W]: less data.mean, over data.deviation, of values from 0 to 1."""
    x_BCHW = pixels_BHWC.permute(0, 3, 1, 2).float() / 255
    return (x_BCHW - data.mean) / data.deviation


def shown(x_BCHW: Tensor, data: DataSettings) -> np.ndarray:
    """The way back: pixels [B, H, W, C], 0 to 255."""
    values = (x_BCHW.detach().float().cpu() * data.deviation + data.mean).clamp(0, 1)
    return (values * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


# Moved by lot


def moves(data: DataSettings, seed: int, step: int, count: int) -> Tensor | None:
    """How each picture of a step is moved, [B, 2, 3] as of `affine_grid`; None if the recipe moves none.

    data.shift: as a share of the side, in every direction; data.zoom: in and out; data.flip: left for right, half of them.
    """
    if not (data.shift or data.zoom or data.flip):
        return None
    lots_B4 = lots(count * 4, keyed(seed, step, MOVES)).reshape(count, 4)
    across, down, zoom = (2 * lots_B4[:, :3] - 1).T
    scale = (1 + data.zoom) ** zoom
    found = np.zeros((count, 2, 3))
    found[:, 0, 0] = np.where((lots_B4[:, 3] < 0.5) & data.flip, -scale, scale)
    found[:, 1, 1] = scale
    found[:, 0, 2], found[:, 1, 2] = 2 * data.shift * across, 2 * data.shift * down
    return torch.from_numpy(found.astype(np.float32))


def holes(data: DataSettings, seed: int, step: int, count: int) -> Tensor | None:
    """A square to be painted over in each picture of a step: (x, y) of its middle and half its side, [B, 3] in shares of a
    side (Zhong et al. 2020); None if the recipe paints none. data.erase: the largest side."""
    if not data.erase:
        return None
    found_B3 = lots(count * 3, keyed(seed, step, HOLES)).reshape(count, 3)
    found_B3[:, 2] *= data.erase / 2
    return torch.from_numpy(found_B3.astype(np.float32))


def erased(x_BCHW: Tensor, holes_B3: Tensor | None) -> Tensor:
    """Pictures with a square of each at 0, which is the mean of a normal picture."""
    if holes_B3 is None:
        return x_BCHW
    x_B1, y_B1, half_B1 = holes_B3.to(x_BCHW).split(1, 1)
    down_BH, across_BW = (
        ((torch.arange(size, device=x_BCHW.device) + 0.5) / size - middle_B1).abs() <= half_B1
        for size, middle_B1 in ((x_BCHW.shape[2], y_B1), (x_BCHW.shape[3], x_B1))
    )
    return x_BCHW.masked_fill((down_BH[:, :, None] & across_BW[:, None, :])[:, None], 0)


def lots(count: int, key: int) -> np.ndarray:
    """Random numbers from 0 to 1, the same for the same key wherever they are drawn."""
    numbers = splitmix(np.arange(count, dtype=np.uint64) ^ np.uint64(key))
    return (numbers >> np.uint64(11)).astype(np.float64) / 2**53


def moved(x_BCHW: Tensor, moves_B23: Tensor | None) -> Tensor:
    """Pictures moved; where they end, their edge goes on."""
    if moves_B23 is None:
        return x_BCHW
    B, _, H, W = x_BCHW.shape
    moves_B23 = moves_B23.to(x_BCHW)
    # Not by affine_grid: autocast would multiply places in bf16, which is off by a tenth of a pixel.
    down_BH, across_BW = (
        moves_B23[:, axis, axis, None] * places(size, x_BCHW) + moves_B23[:, axis, 2, None]
        for axis, size in ((1, H), (0, W))
    )
    grid = torch.stack([across_BW[:, None, :].expand(B, H, W), down_BH[:, :, None].expand(B, H, W)], -1)
    return F.grid_sample(x_BCHW, grid, padding_mode="border", align_corners=False)


def places(size: int, like: Tensor) -> Tensor:
    """The middles of pixels along a side that goes from -1 to 1."""
    return (2 * torch.arange(size, dtype=like.dtype, device=like.device) + 1) / size - 1


# On disk


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

    def row(self, i: int) -> Row:
        return Row(self.pixels_NHWC[i], self.label(i), self.caption(i))

    def pixels(self, ids: Sequence[int] | np.ndarray) -> Tensor:
        """Some pictures, copied into memory, [B, H, W, C]."""
        return torch.from_numpy(self.pixels_NHWC[np.asarray(ids)])


def write_gallery(folder: Path, rows: Iterable[Row], data: DataSettings) -> Gallery:
    """Pictures to a folder that is not there yet."""
    about = {"image": data.image, "channels": 3 if data.color else 1, "fit": data.fit}

    def fields() -> Iterator[dict[str, np.ndarray]]:
        for row in rows:
            yield {
                "pixels": np.ascontiguousarray(row.pixels_HWC).reshape(-1),
                "label": np.frombuffer(row.label.encode(), np.uint8),
                "caption": np.frombuffer(row.caption.encode(), np.uint8),
            }

    return Gallery(write_store(folder, FIELDS, fields(), BYTES, about))


# From a recipe


def galleries(data: DataSettings, folder: Path, captions: bool, report: Report) -> dict[str, Gallery]:
    """The pictures to learn from and those held out, {"train": ..., "valid": ...}: made once, in folder/NAME.

    captions: those that have one, or, without, those that have a class.
    """
    made = {name: folder / name for name in ("train", "valid")}
    if any(not path.is_dir() for path in made.values()):
        sources = sources_of(data, captions, report)
        for name, path in made.items():
            if not path.is_dir():
                write_gallery(path, sources[name](), data)
    return {name: Gallery.open(path) for name, path in made.items()}


Source = Callable[[], Iterator[Row]]


def sources_of(data: DataSettings, captions: bool, report: Report) -> dict[str, Source]:
    """Where the pictures to learn from and those held out come from."""
    if data.corpus:
        return {name: corpus_rows(data, name, captions) for name in ("train", "valid")}
    if not data.images:
        raise BadInput("there is nothing to learn from: give --images FOLDER, or --corpus shapes")
    if data.valid_images:
        return {
            "train": rows_in(items_of(data.images, captions, report), data, report),
            "valid": folder_rows(data, data.valid_images, captions, report),
        }
    train, valid = divided(items_of(data.images, captions, report))
    return {"train": rows_in(train, data, report), "valid": rows_in(valid, data, report)}


def split_rows(data: DataSettings, split: str, captions: bool, report: Report) -> Iterator[Row]:
    """The pictures of any split that there is: train and valid, and test of a corpus or of IDX files."""
    if data.corpus:
        return corpus_rows(data, split, captions)()
    if split == "test":
        if not is_idx(data.images):
            raise BadInput(
                one_line(f"{data.images} has no split test: give the images to judge by, --images")
            )
        return rows_in(items_of(data.images, captions, report, "test"), data, report)()
    return sources_of(data, captions, report)[split]()


def folder_rows(data: DataSettings, folder: str, captions: bool, report: Report) -> Source:
    """All pictures of a folder that is held out; of IDX files, those for testing."""
    part = "test" if not captions and Path(folder).is_dir() and is_idx(folder) else "train"
    return rows_in(items_of(folder, captions, report, part), data, report)


def corpus_rows(data: DataSettings, split: str, captions: bool) -> Source:
    """The pictures of a built-in corpus; where they are to be told apart, each has one thing."""
    if data.corpus != "shapes":
        raise BadInput(f'there is no corpus of pictures "{data.corpus}"{nearest(data.corpus, ["shapes"])}')
    pictures = shapes.split(split, max(data.image, shapes.SIDE), 0 if captions else 1)
    return lambda: (
        Row(ready(p.pixels_HWC, data), "" if captions else shapes.label_of(p.scene), p.caption)
        for p in pictures
    )


def rows_in(items: Sequence[Item], data: DataSettings, report: Report) -> Source:
    def rows() -> Iterator[Row]:
        found = 0
        for item, pixels_HWC in read_all(items, report):
            found += 1
            yield Row(ready(pixels_HWC, data), item.label, item.caption)
        if not found:
            raise BadInput(one_line(f"no image could be used ({report.sentence()})"))

    return rows


def divided(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Those to learn from and those held out, of every class a like share, which does not depend on any seed."""
    by_label: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        by_label.setdefault(item.label, []).append(i)
    every = max(HELD_OUT, -(-len(items) // MOST_HELD_OUT))
    held_out: set[int] = set()
    for number, places in enumerate(by_label.values()):
        order = permuted_array(np.arange(len(places)), len(places), keyed(number, len(places)))
        held_out.update(places[int(k)] for k in order[: max(1, len(places) // every)])
    apart = [[item for i, item in enumerate(items) if (i in held_out) == out] for out in (False, True)]
    if not apart[0]:
        raise BadInput(
            "there is one image: at least two are needed, one to learn from and one to be judged by"
        )
    return apart[0], apart[1]
