"""Resampling: a picture of another size, by Pillow or, where it is not installed, by the same arithmetic.

Each new pixel is a weighted mean of old ones: first along rows, then along columns, rounded to 8 bits after
each. Weights are whole numbers over 2^22, as in Pillow (libImaging/Resample.c), so sums are exact. Pillow 13
takes columns first where that is less work, which may change a pixel by one level.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

import numpy as np

BITS = 22

Kernel = Callable[[np.ndarray], np.ndarray]


def box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def bilinear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def hamming(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.sin(x * np.pi) / (x * np.pi) * (0.54 + 0.46 * np.cos(x * np.pi))
    return np.where(x == 0, 1.0, np.where(x >= 1, 0.0, found))


def bicubic(x: np.ndarray) -> np.ndarray:
    """Keys' cubic with a = -1/2."""
    x = np.abs(x)
    near = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def lanczos(x: np.ndarray) -> np.ndarray:
    inside = (x >= -3) & (x < 3)
    return np.where(inside, np.sinc(x) * np.sinc(x / 3), 0.0)


KERNELS: dict[str, tuple[Kernel, float]] = {  # with how far they reach, in pixels
    "box": (box, 0.5),
    "bilinear": (bilinear, 1.0),
    "hamming": (hamming, 1.0),
    "bicubic": (bicubic, 2.0),
    "lanczos": (lanczos, 3.0),
}
FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # in the order of Pillow's numbers


def resample(pixels_HWC: np.ndarray, height: int, width: int, name: str = "bilinear") -> np.ndarray:
    """A picture of 8-bit pixels at another size. name: of FILTERS."""
    if pixels_HWC.shape[:2] == (height, width):
        return pixels_HWC
    try:
        image_module = import_module("PIL.Image")
    except ImportError:
        return without_pillow(pixels_HWC, height, width, name)
    gray = pixels_HWC.shape[-1] == 1
    image = image_module.fromarray(np.ascontiguousarray(pixels_HWC[..., 0] if gray else pixels_HWC))
    found = np.array(image.resize((width, height), FILTERS.index(name)))
    return found[..., None] if gray else found


def without_pillow(pixels_HWC: np.ndarray, height: int, width: int, name: str) -> np.ndarray:
    """The same by numpy."""
    old_height, old_width = pixels_HWC.shape[:2]
    if name == "nearest":
        return pixels_HWC[nearest(old_height, height)][:, nearest(old_width, width)]
    if width != old_width:
        pixels_HWC = along_rows(pixels_HWC, width, name)
    if height != old_height:
        pixels_HWC = along_rows(pixels_HWC.swapaxes(0, 1), height, name).swapaxes(0, 1)
    return np.ascontiguousarray(pixels_HWC)


def nearest(old: int, new: int) -> np.ndarray:
    """The number of the old pixel for each new one."""
    steps = np.full(new, old / new)
    steps[0] *= 0.5
    return np.minimum(np.cumsum(steps).astype(np.int64), old - 1)


def along_rows(pixels_HWC: np.ndarray, new: int, name: str) -> np.ndarray:
    height, old, channels = pixels_HWC.shape
    found = np.empty((height, new, channels), np.uint8)
    for x, (start, weights_N) in enumerate(windows(old, new, name)):
        part_HNC = pixels_HWC[:, start : start + len(weights_N)].astype(np.float64)
        sums_HC = np.einsum("hnc,n->hc", part_HNC, weights_N)
        found[:, x] = np.clip(np.floor(sums_HC / (1 << BITS) + 0.5), 0, 255)
    return found


@lru_cache(maxsize=256)
def windows(old: int, new: int, name: str) -> list[tuple[int, np.ndarray]]:
    """(number of the first old pixel, weights times 2^22) for each new pixel; wider if pixels get fewer."""
    kernel, reach = KERNELS[name]
    scale = old / new
    wide = max(scale, 1.0)
    found = []
    for x in range(new):
        center = (x + 0.5) * scale
        start = max(int(center - reach * wide + 0.5), 0)
        stop = min(int(center + reach * wide + 0.5), old)
        weights_N = kernel((np.arange(start, stop) - center + 0.5) * (1 / wide))
        weights_N = weights_N / in_order(weights_N)
        found.append((start, np.trunc(weights_N * (1 << BITS) + np.copysign(0.5, weights_N))))
    return found


def in_order(numbers: np.ndarray) -> float:
    """The sum of numbers, added one after the other."""
    return float(np.cumsum(numbers)[-1])
