"""Preprocessing: how the picture of a file becomes the numbers that a model reads.

resize, crop in the middle, rescale (times 1/255), normalize (less a mean, over a deviation), in this order,
as the image processors of Hugging Face do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import BadInput
from .files import read_image
from .resample import resample

GRAY = np.array([19595, 38470, 7471])  # how bright red, green and blue look, of 65536 (Pillow's)


@dataclass(frozen=True)
class PictureSize:
    """What a picture is resized to: a size, or sides whose ratio stays. The names are Hugging Face's."""

    height: int = 0
    width: int = 0
    shortest_edge: int = 0
    longest_edge: int = 0  # beside shortest_edge: the most that the other side may have
    max_height: int = 0
    max_width: int = 0

    def of(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of what a picture of this height and width becomes."""
        if self.height:
            return self.height, self.width
        if self.max_height:
            ratio = min(self.max_height / height, self.max_width / width)
            return int(height * ratio), int(width * ratio)
        short, long = sorted((height, width))
        side: float = self.shortest_edge
        if self.longest_edge and long / short * side > self.longest_edge:
            side = self.longest_edge * short / long
            if round(side) == short:
                return height, width
        new_short, new_long = round(side), int(side * long / short)
        return (new_long, new_short) if width <= height else (new_short, new_long)


@dataclass(frozen=True)
class Preprocessing:
    """How pictures are made ready for one model."""

    channels: int = 3
    size: PictureSize | None = None  # None: pictures keep theirs
    filter: str = "bilinear"
    crop: tuple[int, int] | None = None
    rescale: float = 1 / 255
    mean: tuple[float, ...] = (0.5,)  # one for all channels, or one for each
    std: tuple[float, ...] = (0.5,)
    pad: bool = False  # make a picture square first, with the color of its edges
    on_white: bool = False  # lay what is transparent on white; otherwise transparency is ignored

    def read(self, path: str | Path) -> np.ndarray:
        """The picture of a file, ready but for its numbers: [H, W, C], 0 to 255."""
        return self.fit(read_image(path, self.on_white))

    def fit(self, pixels_HWC: np.ndarray) -> np.ndarray:
        """The same of a picture that was read."""
        pixels_HWC = in_channels(pixels_HWC, self.channels == 3)
        if self.pad:
            pixels_HWC = padded(pixels_HWC)
        if self.size is not None:
            pixels_HWC = resample(pixels_HWC, *self.size.of(*pixels_HWC.shape[:2]), self.filter)
        return pixels_HWC if self.crop is None else cropped(pixels_HWC, *self.crop)

    def numbers(self, pixels_BHWC: Tensor) -> Tensor:
        """Such pixels as a model reads them, [B, C, H, W]."""
        x_BHWC = (pixels_BHWC.double() * self.rescale).float()
        mean, std = (torch.tensor(some, device=x_BHWC.device) for some in (self.mean, self.std))
        return ((x_BHWC - mean) / std).permute(0, 3, 1, 2)


def in_channels(pixels_HWC: np.ndarray, color: bool) -> np.ndarray:
    """Gray in all three colors, or colors as gray."""
    have, want = pixels_HWC.shape[-1], 3 if color else 1
    if have == want:
        return pixels_HWC
    if have == 1:
        return np.repeat(pixels_HWC, 3, axis=-1)
    if have != 3:
        raise BadInput(f"a picture has 1 or 3 channels, not {have}")
    return ((pixels_HWC @ GRAY + 0x8000) >> 16).astype(np.uint8)[..., None]


def padded(pixels_HWC: np.ndarray) -> np.ndarray:
    """A square, with the color of the edges on both sides of what is too short."""
    most = max(pixels_HWC.shape[:2])
    rows, columns = (most - size for size in pixels_HWC.shape[:2])
    room = ((rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2), (0, 0))
    return np.pad(pixels_HWC, room, mode="edge")


def cropped(pixels_HWC: np.ndarray, height: int, width: int) -> np.ndarray:
    """The middle of a picture; black around it where it is too small."""
    old = pixels_HWC.shape[:2]
    short = [max(new - size, 0) for size, new in zip(old, (height, width), strict=True)]
    if any(short):
        room = [(-(-some // 2), some // 2) for some in short]
        pixels_HWC = np.pad(pixels_HWC, (*room, (0, 0)))
    top, left = (pixels_HWC.shape[0] - height) // 2, (pixels_HWC.shape[1] - width) // 2
    return pixels_HWC[top : top + height, left : left + width]
