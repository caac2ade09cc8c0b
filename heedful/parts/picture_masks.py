"""Masks of pictures that are drawn cell by cell after a caption, as DALL-E does (Ramesh et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .masks import Mask, at_least_one, causal, window
from .sparse_masks import EveryNth


@dataclass(frozen=True)
class Opening(Mask):
    """Keys among the first `length` positions, which everybody may see: the caption before a picture."""

    length: int
    by_place = True

    def __post_init__(self) -> None:
        at_least_one(length=self.length)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k + 0 * q < self.length


@dataclass(frozen=True)
class Neighborhood(Mask):
    """Cells of a picture at most `reach` rows and `reach` columns apart: what a convolution sees.

    The picture stands in the sequence row by row, `columns` cells each, from position `start` on.
    """

    start: int
    columns: int
    reach: int
    by_place = True
    sees_self = True

    def __post_init__(self) -> None:
        at_least_one(columns=self.columns)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        q, k = q - self.start, k - self.start
        rows, columns = q // self.columns - k // self.columns, q % self.columns - k % self.columns
        return (rows.abs() <= self.reach) & (columns.abs() <= self.reach)


def picture_row(text: int, columns: int) -> Mask:
    """DALL-E (Ramesh et al. 2021): the caption of `text` positions, and a row's worth of cells before."""
    return causal() & (Opening(text) | window(columns + 1))


def picture_column(text: int, columns: int) -> Mask:
    """DALL-E: the caption, and the cells above in the same column."""
    return causal() & (Opening(text) | EveryNth(columns))


def picture_convolution(text: int, columns: int, kernel: int = 11) -> Mask:
    """DALL-E: the caption, and the earlier cells of a convolution of `kernel` x `kernel` centered here."""
    if kernel % 2 == 0:
        raise ValueError(f"a kernel of {kernel} cells has no center: it must be odd")
    return causal() & (Opening(text) | Neighborhood(text, columns, kernel // 2))
