"""Augmentation: pictures shifted, zoomed, mirrored and partly erased at random.

How a picture is moved follows from the seed, the step and its place in the batch: the same numbers come again
when a run goes on.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..plan import keyed, splitmix

MOVES, HOLES = 0x6D6F7665, 0x686F6C65  # tell these random numbers apart from others of the same step


class AugmentationSettings(Protocol):
    """The settings that say how far pictures are moved."""

    @property
    def random_shift(self) -> float: ...
    @property
    def random_zoom(self) -> float: ...
    @property
    def random_flip(self) -> bool: ...


class ErasingSettings(Protocol):
    """The setting that says how much is painted over."""

    @property
    def random_erase(self) -> float: ...


def moves(data: AugmentationSettings, seed: int, step: int, count: int) -> Tensor | None:
    """How each picture of a step is moved, [B, 2, 3] as of `affine_grid`; None if the recipe moves none.

    data.random_shift: as a share of the side, in every direction; data.random_zoom: in and out;
    data.random_flip: left for right, half of them.
    """
    if not (data.random_shift or data.random_zoom or data.random_flip):
        return None
    drawn_B4 = uniforms(count * 4, keyed(seed, step, MOVES)).reshape(count, 4)
    across, down, zoom = (2 * drawn_B4[:, :3] - 1).T
    scale = (1 + data.random_zoom) ** zoom
    found = np.zeros((count, 2, 3))
    found[:, 0, 0] = np.where((drawn_B4[:, 3] < 0.5) & data.random_flip, -scale, scale)
    found[:, 1, 1] = scale
    found[:, 0, 2], found[:, 1, 2] = 2 * data.random_shift * across, 2 * data.random_shift * down
    return torch.from_numpy(found.astype(np.float32))


def holes(data: ErasingSettings, seed: int, step: int, count: int) -> Tensor | None:
    """A square to be painted over in each picture of a step: (x, y) of its middle and half its side, [B, 3]
    in shares of a side (Zhong et al. 2020); None if the recipe paints none.
    data.random_erase: the largest side."""
    if not data.random_erase:
        return None
    found_B3 = uniforms(count * 3, keyed(seed, step, HOLES)).reshape(count, 3)
    found_B3[:, 2] *= data.random_erase / 2
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


def uniforms(count: int, key: int) -> np.ndarray:
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
