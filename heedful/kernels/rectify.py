"""max(x W^T + b, 0), the first half of a feed-forward layer, for training: no pass over memory of its own.

Forwards the matrix product itself adds the bias and cuts off what is negative. Backwards one kernel lets the gradient
through where something came out, and adds it up for the bias on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .columns import column_sums
from .operation import block, differentiable, operation

ROWS, COLUMNS = 64, 128  # of a block: the quickest of those tried, as is PROGRAMS
PROGRAMS = 528  # four for each of about as many multiprocessors as a GPU has


@triton.jit
def gate_kernel(slope, out, gated, sums, N, F, BN: tl.constexpr, BF: tl.constexpr):
    f = tl.program_id(1) * BF + tl.arange(0, BF)
    total = tl.zeros((BF,), tl.float32)
    for first in range(tl.program_id(0) * BN, N, tl.num_programs(0) * BN):
        n = first + tl.arange(0, BN)
        here, place = (n[:, None] < N) & (f[None, :] < F), n[:, None].to(tl.int64) * F + f[None, :]
        h = tl.load(out + place, mask=here, other=0.0)
        g = tl.load(slope + place, mask=here, other=0.0)
        g = tl.where(h > 0, g, 0.0)
        tl.store(gated + place, g, mask=here)
        total += tl.sum(g.to(tl.float32), 0)
    tl.store(sums + tl.program_id(0) * F + f, total, mask=f < F)


def _rectify(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    return torch._addmm_activation(bias_F, x_ND, weight_FD.t())


def _gate(slope_NF: Tensor, out_NF: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient before the ReLU, and its sum over all rows."""
    slope_NF, (N, F) = slope_NF.contiguous(), out_NF.shape
    wide = min(COLUMNS, block(F))
    across = triton.cdiv(F, wide)
    down = max(1, min(triton.cdiv(N, ROWS), PROGRAMS // across))
    gated_NF, sums = torch.empty_like(out_NF), out_NF.new_empty(down, F, dtype=torch.float32)
    gate_kernel[(down, across)](slope_NF, out_NF, gated_NF, sums, N, F, BN=ROWS, BF=wide)
    return gated_NF, column_sums(sums)


def _shape(x_ND: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    return x_ND.new_empty(len(x_ND), len(weight_FD))


def _shapes(slope_NF: Tensor, out_NF: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(out_NF), out_NF.new_empty(out_NF.shape[1], dtype=torch.float32)


rectify = operation("rectify", "(Tensor x, Tensor weight, Tensor bias) -> Tensor", _rectify, _shape)
gate = operation("gate", "(Tensor slope, Tensor out) -> (Tensor, Tensor)", _gate, _shapes)


def _remember(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2], output)
    ctx.kind = inputs[2].dtype


def _back(ctx: Any, slope_NF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x_ND, weight_FD, out_NF = ctx.saved_tensors
    gated_NF, bias_slope_F = gate(slope_NF, out_NF)
    return gated_NF @ weight_FD, gated_NF.t() @ x_ND, bias_slope_F.to(ctx.kind)


differentiable("rectify", _back, _remember)


def rectified(x: Tensor, weight_FD: Tensor, bias_F: Tensor) -> Tensor:
    """relu(x W^T + b), in the precision of x."""
    out_NF = rectify(x.flatten(0, -2), weight_FD.to(x.dtype), bias_F.to(x.dtype))
    return out_NF.unflatten(0, x.shape[:-1])
