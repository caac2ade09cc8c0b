"""activation(x W^T + b), the up-projection of a feed-forward layer, in few passes over memory, for training.

A ReLU is done by the matrix product itself, which also adds the bias; a GELU takes one pass, and what it was
given is kept. Backwards one kernel lets the gradient through, and adds it up for the bias on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .columns import column_sums
from .operation import block, operation
from .product import slopes_of

RELU, GELU, GELU_TANH = 0, 1, 2
ROWS, COLUMNS = 64, 64  # of a block: the quickest of those tried, as is PROGRAMS
PROGRAMS = 1056  # eight for each of about as many multiprocessors as a GPU has
NUMBERS = 2048  # that a program turns into their GELU


@triton.jit
def _share(z, KIND: tl.constexpr):
    """The factor s of gelu(z) = z s: the normal distribution function at z, or its usual approximation."""
    if KIND == 1:
        s = 0.5 * (1.0 + tl.erf(z * 0.7071067811865476))
    else:
        s = tl.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))  # (1 + tanh u) / 2 = sigmoid 2u
    return s


@triton.jit
def gelu_kernel(given, out, SIZE, KIND: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    z = tl.load(given + i, mask=i < SIZE, other=0.0).to(tl.float32)
    tl.store(out + i, (z * _share(z, KIND)).to(out.dtype.element_ty), mask=i < SIZE)


@triton.jit
def backward_kernel(
    slope, known, z_slope, sums, N, F, KIND: tl.constexpr, BN: tl.constexpr, BF: tl.constexpr
):
    """known: what came out of a ReLU, what went into a GELU."""
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    total = tl.zeros((BF,), tl.float32)
    for first in range(tl.program_id(0) * BN, N, tl.num_programs(0) * BN):
        n = first + tl.arange(0, BN)
        here, place = (n[:, None] < N) & (f[None, :] < F), n[:, None].to(tl.int64) * F + f[None, :]
        h = tl.load(known + place, mask=here, other=0.0)
        g = tl.load(slope + place, mask=here, other=0.0)
        if KIND == 0:
            g = tl.where(h > 0, g, 0.0)
        else:
            z = h.to(tl.float32)
            s = _share(z, KIND)
            if KIND == 1:
                steep = 0.3989422804014327 * tl.exp(-0.5 * z * z)
            else:
                steep = s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * z * z)
            g = (g.to(tl.float32) * (s + z * steep)).to(slope.dtype.element_ty)
        tl.store(z_slope + place, g, mask=here)
        total += tl.sum(g.to(tl.float32), 0)
    tl.store(sums + tl.program_id(0) * F + f, total, mask=f < F)


def _up_project(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor, kind: int) -> tuple[Tensor, Tensor]:
    """What comes out, and of a GELU what went into it."""
    if kind == RELU:
        return torch._addmm_activation(bias_F, x_ND, weight_FD.t()), x_ND.new_empty(0)
    given_NF = torch.addmm(bias_F, x_ND, weight_FD.t())
    out_NF = torch.empty_like(given_NF)
    programs = (triton.cdiv(out_NF.numel(), NUMBERS),)
    gelu_kernel[programs](given_NF, out_NF, out_NF.numel(), KIND=kind, B=NUMBERS)
    return out_NF, given_NF


def _backward(slope_NF: Tensor, known_NF: Tensor, kind: int) -> tuple[Tensor, Tensor]:
    """The gradient before the activation, and its sum over all rows."""
    slope_NF, (N, F) = slope_NF.contiguous(), known_NF.shape
    wide = min(COLUMNS, block(F))
    across = triton.cdiv(F, wide)
    down = max(1, min(triton.cdiv(N, ROWS), PROGRAMS // across))
    z_slope_NF, sums = torch.empty_like(known_NF), known_NF.new_empty(down, F, dtype=torch.float32)
    backward_kernel[(down, across)](slope_NF, known_NF, z_slope_NF, sums, N, F, KIND=kind, BN=ROWS, BF=wide)
    return z_slope_NF, column_sums(sums)


def _shape(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor, kind: int) -> tuple[Tensor, Tensor]:
    N, F = len(x_ND), len(weight_FD)
    return x_ND.new_empty(N, F), x_ND.new_empty(0) if kind == RELU else x_ND.new_empty(N, F)


def _shapes(slope_NF: Tensor, known_NF: Tensor, kind: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(known_NF), known_NF.new_empty(known_NF.shape[1], dtype=torch.float32)


up_project = operation(
    "up_project", "(Tensor x, Tensor weight, Tensor bias, int kind) -> (Tensor, Tensor)", _up_project, _shape
)
activation_backward = operation(
    "activation_backward", "(Tensor slope, Tensor known, int kind) -> (Tensor, Tensor)", _backward, _shapes
)


class UpProjection(torch.autograd.Function):
    """(activation(x W^T + b), x), in the precision of x.

    residual: whether that x goes on, and has a gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_FD: Tensor, bias_F: Tensor, kind: int, residual: bool
    ) -> tuple[Tensor, Tensor]:
        half_FD = weight_FD.to(x.dtype)
        out_NF, given_NF = up_project(x.flatten(0, -2), half_FD, bias_F.to(x.dtype), kind)
        ctx.save_for_backward(x, half_FD, out_NF if kind == RELU else given_NF)
        ctx.act, ctx.kind, ctx.residual = kind, bias_F.dtype, residual
        return out_NF.unflatten(0, x.shape[:-1]), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor, x_slope: Tensor) -> tuple[Tensor | None, ...]:
        x, half_FD, known_NF = ctx.saved_tensors
        z_slope_NF, bias_slope_F = activation_backward(slope.flatten(0, -2), known_NF, ctx.act)
        slopes = slopes_of(z_slope_NF, x, half_FD, x_slope if ctx.residual else None)
        return *slopes, bias_slope_F.to(ctx.kind), None, None
