"""Norms and activations as the kernels of a decoding step take them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dependent_launch import begin, early

NONE, LAYER, RMS = 0, 1, 2  # norms
ACTIVATIONS = {"": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "gelu_sigmoid": 4, "silu": 5, "relu_squared": 6}


@dataclass(frozen=True)
class Norm:
    """A norm as a kernel takes it."""

    kind: int = NONE
    gain: Tensor | None = None
    shift: Tensor | None = None
    eps: float = 0.0


NO_NORM = Norm()


@triton.jit
def _activate(z, KIND: tl.constexpr):
    if KIND == 1:
        z = tl.maximum(z, 0.0)
    elif KIND == 2:
        z = 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    elif KIND == 3:
        z = z * tl.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))  # (1 + tanh u) / 2 = sigmoid 2u
    elif KIND == 4:
        z = z * tl.sigmoid(1.702 * z)
    elif KIND == 5:
        z = z * tl.sigmoid(z)
    elif KIND == 6:
        z = tl.maximum(z, 0.0)
        z = z * z
    return z


@triton.jit
def _row_stats(x, at, here, K, EPS: tl.constexpr, KIND: tl.constexpr):
    """Mean and 1 / deviation of one row that is loaded whole."""
    v = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    mean = 0.0
    if KIND == 1:
        mean = tl.sum(v, 0) / K
    centered = tl.where(here, v - mean, 0.0)
    return mean, 1.0 / tl.sqrt(tl.sum(centered * centered, 0) / K + EPS)


@triton.jit
def norm_kernel(
    x, gain, shift, y, K, KIND: tl.constexpr, EPS: tl.constexpr, BK: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    begin(EARLY)
    row = tl.program_id(0)
    k = tl.arange(0, BK)
    here = k < K
    v = tl.load(x + row * K + k, mask=here, other=0.0).to(tl.float32)
    mean, scale = _row_stats(x, row * K + k, here, K, EPS, KIND)
    v = (v - mean) * scale * tl.load(gain + k, mask=here, other=0.0).to(tl.float32)
    if KIND == 1:
        v += tl.load(shift + k, mask=here, other=0.0).to(tl.float32)
    tl.store(y + row * K + k, v.to(y.dtype.element_ty), mask=here)


def normalize(x_MK: Tensor, norm: Norm) -> Tensor:
    """norm(x)."""
    if norm.kind == NONE:
        return x_MK
    M, K = x_MK.shape
    y_MK, width = torch.empty_like(x_MK), triton.next_power_of_2(K)
    shift = x_MK if norm.shift is None else norm.shift
    norm_kernel[(M,)](
        x_MK, norm.gain, shift, y_MK, K, KIND=norm.kind, EPS=norm.eps, BK=width, num_warps=4,
        **early(x_MK.device),
    )  # fmt: skip
    return y_MK
