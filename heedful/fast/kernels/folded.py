"""A linear layer for one row in half precision: y = activation(norm(x) W^T + b) + residual.

A kernel of a decoding step may start before the one before it has ended. All that does not depend on x is
then done while it waits: it holds its rows of W, and what the norm adds to the sum is folded into two vectors
that are made once (g: gain, s: shift, m: mean of x, d: its deviation):

    W (g (x - m) / d + s) + b  =  (W (g x) - m (W g)) / d  +  (W s + b)

So one pass over x gives the sum, the mean and the deviation together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dependent_launch import early, invite, wait
from .norms import LAYER, NO_NORM, NONE, Norm, _activate
from .packed import PackedWeight, Weight, split, unpacked

WIDE = 2048  # numbers of a row from which eight warps share it
NARROW = 1024  # numbers up to which a program of a packed weight has fewer rows


@dataclass(frozen=True)
class Folded:
    """What a norm adds to a linear layer after it, in fp32."""

    norm: Norm
    gains_N: Tensor  # W g
    bias_N: Tensor  # W s + b


def fold(weight_NK: Weight, bias_N: Tensor | None, norm: Norm) -> Folded | None:
    """None without a norm, and in fp32, where mean and deviation take two passes."""
    if norm.kind == NONE or weight_NK.dtype == torch.float32:
        return None
    assert norm.gain is not None
    W = unpacked(weight_NK)
    added_N = torch.zeros(len(W), device=W.device) if bias_N is None else bias_N.float()
    if norm.shift is not None:
        added_N = added_N + W @ norm.shift.float()
    return Folded(norm, W @ norm.gain.float(), added_N)


@triton.jit
def _add(a0, a1, a2, b0, b1, b2):
    return a0 + b0, a1 + b1, a2 + b2


@triton.jit
def _normed(z, total, squares, gains, K, EPS: tl.constexpr, KIND: tl.constexpr):
    """The sum of the norm's product, less what it adds."""
    if KIND == 1:
        mean = total / K
        z = (z - mean * gains) / tl.sqrt(squares / K - mean * mean + EPS)
    else:
        z = z / tl.sqrt(squares / K + EPS)
    return z


@triton.jit
def folded_kernel(
    x, w, w2, s, s2, b, b2, gains, gains2, gain, r, y, N, K,
    NORM: tl.constexpr, EPS: tl.constexpr, ACT: tl.constexpr, GATED: tl.constexpr, PACKED: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Each program reads BN rows of W whole."""
    invite(EARLY)
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    at_NK, here_NK = n[:, None] * K + k[None, :], (n[:, None] < N) & (k[None, :] < K)
    w_NK = tl.load(w + at_NK, mask=here_NK, other=0.0)
    if GATED:
        w2_NK = tl.load(w2 + at_NK, mask=here_NK, other=0.0)
    if PACKED:
        scale = tl.load(s + n, mask=n < N, other=0.0)
        if GATED:
            scale2 = tl.load(s2 + n, mask=n < N, other=0.0)
    if BIAS:
        bias = tl.load(b + n, mask=n < N, other=0.0).to(tl.float32)
        if GATED:
            bias2 = tl.load(b2 + n, mask=n < N, other=0.0).to(tl.float32)
    if NORM:
        g = tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32)
        taken = tl.load(gains + n, mask=n < N, other=0.0)
        if GATED:
            taken2 = tl.load(gains2 + n, mask=n < N, other=0.0)
    wait(EARLY)
    v = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
    if NORM:
        v_NK = tl.broadcast_to(v[None, :], (BN, BK))
        turned = (v * g)[None, :]
        z, total, squares = tl.reduce((w_NK.to(tl.float32) * turned, v_NK, v_NK * v_NK), 1, _add)
        if GATED:
            u = tl.sum(w2_NK.to(tl.float32) * turned, 1)
    else:
        z = tl.sum(w_NK.to(tl.float32) * v[None, :], 1)
        if GATED:
            u = tl.sum(w2_NK.to(tl.float32) * v[None, :], 1)
    if PACKED:
        z *= scale
        if GATED:
            u *= scale2
    if NORM:
        z = _normed(z, total, squares, taken, K, EPS, NORM)
        if GATED:
            u = _normed(u, total, squares, taken2, K, EPS, NORM)
    if BIAS:
        z += bias
        if GATED:
            u += bias2
    z = _activate(z, ACT)
    if GATED:
        z = z * u
    if RESIDUAL:
        z += tl.load(r + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(y + n, z.to(y.dtype.element_ty), mask=n < N)


def row_linear(
    x_1K: Tensor,
    weight_NK: Weight,
    bias_N: Tensor | None,
    *,
    folded: tuple[Folded, ...] = (),
    act: int = 0,
    gated: tuple[Weight, Tensor | None] | None = None,
    residual_1N: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(norm(x) W^T + b) [* (norm(x) V^T + c), if gated by (V, c)] + residual, of one row.

    folded: the norm and what it adds to each of the matrices; without it there is no norm.
    """
    (_, K), N = x_1K.shape, weight_NK.shape[0]
    y_1N = torch.empty(1, N, dtype=dtype or x_1K.dtype, device=x_1K.device)
    norm = folded[0].norm if folded else NO_NORM
    other, bias2 = gated or (None, None)
    (numbers, scales), (numbers2, scales2) = split(weight_NK), split(other)
    if folded:
        bias_N, bias2 = folded[0].bias_N, folded[-1].bias_N
    tensors = (
        numbers, numbers2, scales, scales2, bias_N, bias2, folded[0].gains_N if folded else None,
        folded[-1].gains_N if folded else None, norm.gain, residual_1N,
    )  # fmt: skip
    given = [x_1K if t is None else t for t in tensors]  # a kernel takes no None
    is_packed = isinstance(weight_NK, PackedWeight)
    rows, warps = shape(K, bool(folded), gated is not None, is_packed)
    folded_kernel[(triton.cdiv(N, rows),)](
        x_1K, *given, y_1N, N, K, NORM=norm.kind, EPS=norm.eps, ACT=act, GATED=gated is not None,
        PACKED=is_packed, BIAS=bias_N is not None, RESIDUAL=residual_1N is not None, BN=rows,
        BK=triton.next_power_of_2(K), num_warps=warps, **early(x_1K.device),
    )  # fmt: skip
    return y_1N


def shape(K: int, normed: bool, gated: bool, is_packed: bool) -> tuple[int, int]:
    """Rows of a program and its warps: the fastest of those tried on an H200, widths 768 to 1,600."""
    if is_packed:
        if K > WIDE:
            return 2, 8
        return (8, 4) if normed and not gated and K > NARROW else (4, 4)
    if K > WIDE:
        return 2, 8
    if gated:
        return 2, 2
    return (2, 1) if normed else (4, 4)


assert LAYER == 1, "the kernel counts on it"
