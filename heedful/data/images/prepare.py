"""Pictures made ready: one size, one number of channels, and the numbers that a model reads."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .preprocessing import PictureSize, Preprocessing


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


def preprocessing_of(data: ImageSettings) -> Preprocessing:
    """How a run makes pictures ready: a side is cropped, padded with its edge's color, or stretched."""
    side, channels = data.image_size, 3 if data.color else 1
    if data.resize == "crop":
        size, crop = PictureSize(shortest_edge=side), (side, side)
        return Preprocessing(channels, size, crop=crop, on_white=True)
    size = PictureSize(side, side)
    return Preprocessing(channels, size, pad=data.resize == "pad", on_white=True)


def ready(pixels_HWC: np.ndarray, data: ImageSettings) -> np.ndarray:
    """Any picture as the recipe wants it: [image, image, 3], or 1 without color, 0 to 255."""
    return preprocessing_of(data).fit(pixels_HWC)


def ready_file(path: str | Path, data: ImageSettings) -> np.ndarray:
    """The same of an image file."""
    return preprocessing_of(data).read(path)


# As numbers


def normal(pixels_BHWC: Tensor, data: PixelSettings) -> Tensor:
    """Pixels 0 to 255 as a model reads them, [B, C, H, W]: from 0 to 1, less the mean, over the deviation."""
    x_BCHW = pixels_BHWC.permute(0, 3, 1, 2).float() / 255
    return (x_BCHW - data.mean) / data.std


def shown(x_BCHW: Tensor, data: PixelSettings) -> np.ndarray:
    """The way back: pixels [B, H, W, C], 0 to 255."""
    values = (x_BCHW.detach().float().cpu() * data.std + data.mean).clamp(0, 1)
    return (values * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
