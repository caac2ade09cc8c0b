"""norm(x + dropout(y + bias)) in one kernel, and its gradients in another: the residual of a post-norm model.

The sum is kept, and each row's mean and deviation. Which numbers were dropped is not: a hash of their place
and a seed says it again. Bias, gain and shift get their gradients from as many partial sums as there are
programs: of the matrix product that y comes from, the bias is left to this kernel, which reads its gradient
anyway.

A pre-norm layer has its sum elsewhere: `NormAndResidual` is the norm alone, whose gradient the same kernel
adds to that of the sum.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .columns import column_sums
from .dropout import kept, odds
from .operation import block, differentiable, operation

PROGRAMS = 792  # for the backward pass: six for each of about as many multiprocessors as a GPU has
FORWARDS, BACKWARDS = 1024, 2048  # numbers of a block: the quickest of those tried, as is PROGRAMS


@triton.jit
def forward_kernel(
    x, y, bias, gain, shift, seed, out, total, means, scales, N, eps,
    BIAS: tl.constexpr, D: tl.constexpr, P: tl.constexpr, LIMIT: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    n, d = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BD)
    here, place = (n[:, None] < N) & (d[None, :] < D), n[:, None] * D + d[None, :]
    z = tl.load(y + place, mask=here, other=0.0).to(tl.float32)
    if BIAS:
        z += tl.load(bias + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
    if P > 0:
        z = tl.where(kept(tl.load(seed), place, LIMIT), z * (1.0 / (1.0 - P)), 0.0)
    z = z.to(y.dtype.element_ty).to(tl.float32) + tl.load(x + place, mask=here, other=0.0).to(tl.float32)
    z = z.to(total.dtype.element_ty)
    tl.store(total + place, z, mask=here)
    z = z.to(tl.float32)
    mean = tl.sum(z, 1) / D
    z = tl.where(here, z - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(z * z, 1) / D + eps)
    tl.store(means + n, mean, mask=n < N)
    tl.store(scales + n, scale, mask=n < N)
    g = tl.load(gain + d, mask=d < D, other=0.0).to(tl.float32)
    b = tl.load(shift + d, mask=d < D, other=0.0).to(tl.float32)
    z = z * scale[:, None] * g[None, :] + b[None, :]
    tl.store(out + place, z.to(out.dtype.element_ty), mask=here)


@triton.jit
def backward_kernel(
    slope, beside, total, means, scales, gain, seed, x_slope, y_slope, sums, N, PARTS,
    BESIDE: tl.constexpr, D: tl.constexpr, P: tl.constexpr, LIMIT: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, BD)
    g = tl.load(gain + d, mask=d < D, other=0.0).to(tl.float32)
    gains, shifts = tl.zeros((BD,), tl.float32), tl.zeros((BD,), tl.float32)
    biases = tl.zeros((BD,), tl.float32)
    for part in range(tl.program_id(0), PARTS, tl.num_programs(0)):
        n = part * BN + tl.arange(0, BN)
        here, place = (n[:, None] < N) & (d[None, :] < D), n[:, None] * D + d[None, :]
        mean, scale = tl.load(means + n, mask=n < N, other=0.0), tl.load(scales + n, mask=n < N, other=0.0)
        u = tl.load(slope + place, mask=here, other=0.0).to(tl.float32)
        z = tl.load(total + place, mask=here, other=0.0).to(tl.float32)
        z = tl.where(here, (z - mean[:, None]) * scale[:, None], 0.0)
        gains += tl.sum(u * z, 0)
        shifts += tl.sum(u, 0)
        u = u * g[None, :]
        u = (u - tl.sum(u, 1)[:, None] / D - z * (tl.sum(u * z, 1) / D)[:, None]) * scale[:, None]
        if BESIDE:
            u += tl.load(beside + place, mask=here, other=0.0).to(tl.float32)
        tl.store(x_slope + place, u.to(x_slope.dtype.element_ty), mask=here)
        if P > 0:
            u = tl.where(kept(tl.load(seed), place, LIMIT), u * (1.0 / (1.0 - P)), 0.0)
            tl.store(y_slope + place, u.to(y_slope.dtype.element_ty), mask=here)
        biases += tl.sum(tl.where(here, u, 0.0), 0)
    mine = sums + tl.program_id(0) * (3 * D) + d
    tl.store(mine, gains, mask=d < D)
    tl.store(mine + D, shifts, mask=d < D)
    tl.store(mine + 2 * D, biases, mask=d < D)


def _choices(D: int, dropout: float, numbers: int) -> dict:
    """Blocks of about so many numbers, in whole rows."""
    wide = block(D)
    rows = max(1, numbers // wide)
    return {
        "D": D, **odds(dropout),
        "BN": rows, "BD": wide, "num_warps": min(16, max(2, rows * wide // 1024)),
    }  # fmt: skip


def _join(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    gain: Tensor,
    shift: Tensor,
    seed: Tensor,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """layer_norm(x + dropout(y + bias)), and what the backward pass needs. seed: one whole number."""
    x, y = x.contiguous(), y.contiguous()
    D = x.shape[-1]
    N = x.numel() // D
    out, total = torch.empty_like(x), torch.empty_like(x)
    means, scales = x.new_empty(N, dtype=torch.float32), x.new_empty(N, dtype=torch.float32)
    choices = _choices(D, dropout, FORWARDS)
    forward_kernel[(triton.cdiv(N, choices["BN"]),)](
        x, y, gain if bias is None else bias, gain, shift, seed, out, total, means, scales, N, eps,
        BIAS=bias is not None, **choices,
    )  # fmt: skip
    return out, total, means, scales


def _join_backward(
    slope: Tensor,
    beside: Tensor | None,
    total: Tensor,
    means: Tensor,
    scales: Tensor,
    gain: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, of y (empty without dropout: the same as x's), and of gain, shift and bias.

    beside: the gradient that the sum has from elsewhere.
    """
    slope, total, D = slope.contiguous(), total.contiguous(), total.shape[-1]
    beside = slope if beside is None else beside.contiguous()
    N = total.numel() // D
    x_slope = torch.empty_like(total)
    y_slope = torch.empty_like(total) if dropout else total.new_empty(0)
    choices = _choices(D, dropout, BACKWARDS)
    parts = triton.cdiv(N, choices["BN"])
    programs = min(PROGRAMS, parts)
    sums = total.new_empty(programs, 3, D, dtype=torch.float32)
    backward_kernel[(programs,)](
        slope, beside, total, means, scales, gain, seed, x_slope, y_slope, sums, N, parts,
        BESIDE=beside is not slope, **choices,
    )  # fmt: skip
    return x_slope, y_slope, column_sums(sums.view(programs, 3 * D)).view(3, D)


def _shapes(
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    gain: Tensor,
    shift: Tensor,
    seed: Tensor,
    eps: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = x.new_empty(x.numel() // x.shape[-1], dtype=torch.float32)
    like = torch.empty_like(x, memory_format=torch.contiguous_format)
    return like, torch.empty_like(like), rows, torch.empty_like(rows)


def _slopes(
    slope: Tensor,
    beside: Tensor | None,
    total: Tensor,
    means: Tensor,
    scales: Tensor,
    gain: Tensor,
    seed: Tensor,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.empty_like(total, memory_format=torch.contiguous_format)
    y_slope = torch.empty_like(like) if dropout else total.new_empty(0)
    return like, y_slope, total.new_empty(3, total.shape[-1], dtype=torch.float32)


add_and_norm = operation(
    "add_and_norm",
    "(Tensor x, Tensor y, Tensor? bias, Tensor gain, Tensor shift, Tensor seed, float eps, float dropout)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    _join,
    _shapes,
)
add_and_norm_backward = operation(
    "add_and_norm_backward",
    "(Tensor slope, Tensor? beside, Tensor total, Tensor means, Tensor scales, Tensor gain, Tensor seed, "
    "float dropout)"
    " -> (Tensor, Tensor, Tensor)",
    _join_backward,
    _slopes,
)


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    _, y, bias, gain, shift, seed, _, ctx.dropout = inputs
    _, total, means, scales = output
    ctx.save_for_backward(total, means, scales, gain, seed)
    ctx.kinds = y.dtype, shift.dtype, None if bias is None else bias.dtype
    ctx.mark_non_differentiable(total, means, scales)


def _back(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    total, means, scales, gain, seed = ctx.saved_tensors
    x_slope, y_slope, sums = add_and_norm_backward(slope, None, total, means, scales, gain, seed, ctx.dropout)
    y_slope = (y_slope if ctx.dropout else x_slope).to(ctx.kinds[0])
    bias_slope = None if ctx.kinds[2] is None else sums[2].to(ctx.kinds[2])
    return x_slope, y_slope, bias_slope, sums[0].to(gain.dtype), sums[1].to(ctx.kinds[1]), None, None, None


differentiable("add_and_norm", _back, _remember)


def fused_add_and_norm(
    x: Tensor, y: Tensor, bias: Tensor | None, gain: Tensor, shift: Tensor, eps: float, dropout: float
) -> Tensor:
    """layer_norm(x + dropout(y + bias)), with fresh randomness."""
    seed = torch.randint(1 << 62, (1,), device=x.device)
    return add_and_norm(x, y, bias, gain, shift, seed, eps, dropout)[0]


class NormAndResidual(torch.autograd.Function):
    """(layer_norm(x), x): what a pre-norm layer begins with.

    Forwards torch.compile joins it with the sum before it; backwards one kernel adds up both gradients of x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        z = x.float()
        mean = z.mean(-1, keepdim=True)
        z = z - mean
        scale = (z.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, mean.flatten(), scale.flatten(), gain)
        ctx.kind = shift.dtype
        return (z * scale * gain + shift).to(x.dtype), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, slope: Tensor, beside: Tensor) -> tuple[Tensor | None, ...]:
        x, means, scales, gain = ctx.saved_tensors
        nothing = means.new_empty(0)  # no dropout, no seed
        x_slope, _, sums = add_and_norm_backward(slope, beside, x, means, scales, gain, nothing, 0.0)
        return x_slope, sums[0].to(gain.dtype), sums[1].to(ctx.kind), None
