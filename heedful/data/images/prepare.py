"""Pictures made ready: one size, one number of channels, and the numbers that a model reads."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ...errors import BadInput
from .files import read_image

GRAY = (0.299, 0.587, 0.114)  # how bright red, green and blue look


class ImageSettings(Protocol):
    """The settings that say how a picture is made ready."""

    @property
    def image_size(self) -> int: ...
    @property
    def resize(self) -> str: ...
    @property
    def color(self) -> bool: ...


class PixelSettings(Protocol):
    """The settings that say what numbers pixels become."""

    @property
    def mean(self) -> float: ...
    @property
    def std(self) -> float: ...


# One size, one number of channels


def ready(pixels_HWC: np.ndarray, data: ImageSettings) -> np.ndarray:
    """Any picture as the recipe wants it: [image, image, 3], or 1 without color, 0 to 255."""
    return in_channels(resized(pixels_HWC, data.image_size, data.resize), data.color)


def ready_file(path: str | Path, data: ImageSettings) -> np.ndarray:
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
    """A square of so many pixels a side.

    resize: crop what is too long, pad it with its edge's color, or stretch it.
    """
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
    """[new, old]: the weight of each old pixel in a new one: a triangle, wider where pixels become fewer."""
    scale = old / new
    reach = max(scale, 1.0)
    middles = (np.arange(new) + 0.5) * scale
    away = np.abs(np.arange(old)[None, :] + 0.5 - middles[:, None]) / reach
    found = np.maximum(1 - away, 0)
    return found / found.sum(1, keepdims=True)


# As numbers


def normal(pixels_BHWC: Tensor, data: PixelSettings) -> Tensor:
    """Pixels 0 to 255 as a model reads them, [B, C, H, W]: from 0 to 1, less the mean, over the deviation."""
    x_BCHW = pixels_BHWC.permute(0, 3, 1, 2).float() / 255
    return (x_BCHW - data.mean) / data.std


def shown(x_BCHW: Tensor, data: PixelSettings) -> np.ndarray:
    """The way back: pixels [B, H, W, C], 0 to 255."""
    values = (x_BCHW.detach().float().cpu() * data.std + data.mean).clamp(0, 1)
    return (values * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
