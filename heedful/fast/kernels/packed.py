"""Packed weights: the matrices of a decoding step in 8 bits, w = number * scale, one scale for each row of W.

A step of few rows takes as long as reading its weights, so fewer bytes take less time. A kernel loads numbers
of 8 bits, multiplies them in the type of x, and scales the sum:

    y_n = sum_k x_k w_nk = scale_n * sum_k x_k number_nk

int8 has steps of equal size, 127 on either side of zero. fp8 (e4m3) has four significant bits: its steps are
smaller near zero and larger far from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

KINDS = {"int8": (torch.int8, 127.0), "fp8": (torch.float8_e4m3fn, 448.0)}  # and the largest number


@dataclass(frozen=True)
class PackedWeight:
    """A weight in 8 bits."""

    numbers_NK: Tensor
    scales_N: Tensor  # fp32
    dtype: torch.dtype  # of the weight before

    @property
    def shape(self) -> torch.Size:
        return self.numbers_NK.shape

    def __len__(self) -> int:
        return len(self.numbers_NK)


Weight = Tensor | PackedWeight


def packed(weight_NK: Tensor, kind: str) -> PackedWeight:
    """A weight in 8 bits. The largest number of a row, whatever its sign, stays what it is.

    kind: "int8" or "fp8".
    """
    dtype, largest = KINDS[kind]
    scales_N = weight_NK.abs().amax(1).float() / largest
    scales_N = torch.where(scales_N == 0, 1.0, scales_N)
    numbers_NK = (weight_NK.float() / scales_N[:, None]).clamp_(-largest, largest)
    if kind == "int8":
        numbers_NK.round_()
    return PackedWeight(numbers_NK.to(dtype), scales_N, weight_NK.dtype)


def unpacked(weight: Weight) -> Tensor:
    """The weight that a product multiplies with, in fp32."""
    if isinstance(weight, Tensor):
        return weight.float()
    return weight.numbers_NK.float() * weight.scales_N[:, None]


def split(weight: Weight | None) -> tuple[Tensor | None, Tensor | None]:
    """What a kernel is given: the numbers, and their scales if they have any."""
    return (weight.numbers_NK, weight.scales_N) if isinstance(weight, PackedWeight) else (weight, None)
