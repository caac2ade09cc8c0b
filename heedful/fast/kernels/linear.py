"""A linear layer for few rows, with what is around it: y = activation(norm(x) W^T + b) + norm(residual).

For a handful of rows the time goes into reading W once and into starting kernels. So the sum after the
product never sees memory, and with a single row the norm before it is computed again by every program that
needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from .dependent_launch import LINE, early, fetch, invite, wait
from .folded import Folded, row_linear
from .norms import ACTIVATIONS, NO_NORM, NONE, Norm, _activate, _row_stats, normalize
from .packed import Weight, split

WIDEST = 8192  # a row that one program can hold
FEW = 64  # rows up to which a kernel that starts early beats the vendor's library (by 8 % of a step)
TURNED_FROM = 2304  # columns of a product from which W x^T is the faster way
NARROW_FROM = 768, 1536  # columns and inner size of one that several programs share, from which it is
TILES = 100  # programs that a GPU of about as many multiprocessors should have to do


@triton.jit
def vector_kernel(
    x, w, w2, s, s2, b, b2, gain, shift, r, r_gain, r_shift, y, N, K,
    NORM: tl.constexpr, EPS: tl.constexpr, ACT: tl.constexpr, GATED: tl.constexpr, PACKED: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, R_NORM: tl.constexpr, R_EPS: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, BR: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One row: each program reads BN rows of W whole."""
    invite(EARLY)
    row = tl.program_id(1)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    at_NK, here_NK = n[:, None] * K + k[None, :], (n[:, None] < N) & (k[None, :] < K)
    w_NK = tl.load(w + at_NK, mask=here_NK, other=0.0)
    if GATED:
        w2_NK = tl.load(w2 + at_NK, mask=here_NK, other=0.0)
    wait(EARLY)
    v = tl.load(x + row * K + k, mask=k < K, other=0.0).to(tl.float32)
    if NORM:
        mean, scale = _row_stats(x, row * K + k, k < K, K, EPS, NORM)
        v = (v - mean) * scale * tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32)
        if NORM == 1:
            v += tl.load(shift + k, mask=k < K, other=0.0).to(tl.float32)
        v = tl.where(k < K, v, 0.0)
    z = tl.sum(w_NK.to(tl.float32) * v[None, :], 1)
    if PACKED:
        z *= tl.load(s + n, mask=n < N, other=0.0)
    if BIAS:
        z += tl.load(b + n, mask=n < N, other=0.0).to(tl.float32)
    z = _activate(z, ACT)
    if GATED:
        u = tl.sum(w2_NK.to(tl.float32) * v[None, :], 1)
        if PACKED:
            u *= tl.load(s2 + n, mask=n < N, other=0.0)
        if BIAS:
            u += tl.load(b2 + n, mask=n < N, other=0.0).to(tl.float32)
        z = z * u
    if RESIDUAL:
        kept = tl.load(r + row * N + n, mask=n < N, other=0.0).to(tl.float32)
        if R_NORM:
            whole = tl.arange(0, BR)
            mean, scale = _row_stats(r, row * N + whole, whole < N, N, R_EPS, R_NORM)
            kept = (kept - mean) * scale * tl.load(r_gain + n, mask=n < N, other=0.0).to(tl.float32)
            if R_NORM == 1:
                kept += tl.load(r_shift + n, mask=n < N, other=0.0).to(tl.float32)
        z += kept
    tl.store(y + row * N + n, z.to(y.dtype.element_ty), mask=n < N)


@triton.jit
def _multiplied(v_MK, w_NK, z, TURNED: tl.constexpr):
    """z + v w^T, or its transpose."""
    w_NK = w_NK.to(v_MK.dtype)
    if TURNED:
        z = tl.dot(w_NK, tl.trans(v_MK), z, input_precision="ieee")
    else:
        z = tl.dot(v_MK, tl.trans(w_NK), z, input_precision="ieee")
    return z


@triton.jit
def matrix_kernel(
    x, w, w2, s, s2, b, b2, r, y, M, N, K,
    ACT: tl.constexpr, GATED: tl.constexpr, PACKED: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr,
    PART: tl.constexpr, TURNED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Several rows: each program makes a tile of BM x BN, of PART columns of x if there are several parts.

    TURNED: the product is computed as W x^T, so that few rows of x fill a tile of the tensor cores.
    """
    invite(EARLY)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    first, last = 0, K
    if PART:
        first = tl.program_id(2) * PART
        last = tl.minimum(first + PART, K)
        y += tl.program_id(2) * M * N
    if EARLY:
        STEP: tl.constexpr = 2 * LINE if PACKED else LINE
        for k0 in range(first, last, BK):
            line = k0 + tl.arange(0, (BK + STEP - 1) // STEP) * STEP
            fetch(w + tl.minimum(n[:, None], N - 1) * K + tl.minimum(line[None, :], K - 1))
    if PACKED:
        scale = tl.load(s + n, mask=n < N, other=0.0)
        if GATED:
            scale2 = tl.load(s2 + n, mask=n < N, other=0.0)
    wait(EARLY)
    z = tl.zeros((BN, BM) if TURNED else (BM, BN), tl.float32)
    u = z
    for k0 in range(first, last, BK):
        k = k0 + tl.arange(0, BK)
        at_NK, here_NK = n[:, None] * K + k[None, :], (n[:, None] < N) & (k[None, :] < K)
        v_MK = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w_NK = tl.load(w + at_NK, mask=here_NK, other=0.0)
        z = _multiplied(v_MK, w_NK, z, TURNED)
        if GATED:
            w2_NK = tl.load(w2 + at_NK, mask=here_NK, other=0.0)
            u = _multiplied(v_MK, w2_NK, u, TURNED)
    if TURNED:
        z, u = tl.trans(z), tl.trans(u)
    if PACKED:
        z *= scale[None, :]
        if GATED:
            u *= scale2[None, :]
    here_MN = (m[:, None] < M) & (n[None, :] < N)
    at_MN = m[:, None].to(tl.int64) * N + n[None, :]
    if BIAS:
        z += tl.load(b + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    z = _activate(z, ACT)
    if GATED:
        if BIAS:
            u += tl.load(b2 + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        z = z * u
    if RESIDUAL:
        z += tl.load(r + at_MN, mask=here_MN, other=0.0).to(tl.float32)
    tl.store(y + at_MN, z.to(y.dtype.element_ty), mask=here_MN)


@triton.jit
def sum_kernel(
    parts, b, r, gain, shift, y, normed, M, N, P, BIAS: tl.constexpr, KIND: tl.constexpr, EPS: tl.constexpr,
    BN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One row of y = the sum of all parts + b + r, and of norm(y)."""
    invite(EARLY)
    row = tl.program_id(0)
    n = tl.arange(0, BN)
    here = n < N
    z = tl.zeros((BN,), tl.float32)
    if BIAS:
        z += tl.load(b + n, mask=here, other=0.0).to(tl.float32)
    wait(EARLY)
    z += tl.load(r + row * N + n, mask=here, other=0.0).to(tl.float32)
    for p in range(P):
        z += tl.load(parts + (p * M + row) * N + n, mask=here, other=0.0)
    kept = z.to(y.dtype.element_ty)
    tl.store(y + row * N + n, kept, mask=here)
    if KIND:
        z, mean = kept.to(tl.float32), 0.0
        if KIND == 1:
            mean = tl.sum(z, 0) / N
        centered = tl.where(here, z - mean, 0.0)
        z = centered / tl.sqrt(tl.sum(centered * centered, 0) / N + EPS)
        z *= tl.load(gain + n, mask=here, other=0.0).to(tl.float32)
        if KIND == 1:
            z += tl.load(shift + n, mask=here, other=0.0).to(tl.float32)
        tl.store(normed + row * N + n, z.to(y.dtype.element_ty), mask=here)


def linear(
    x_MK: Tensor,
    weight_NK: Weight,
    bias_N: Tensor | None = None,
    *,
    norm: Norm = NO_NORM,
    folded: tuple[Folded, ...] = (),
    activation: str = "",
    gated: tuple[Weight, Tensor | None] | None = None,
    residual_MN: Tensor | None = None,
    residual_norm: Norm = NO_NORM,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """activation(norm(x) W^T + b) [* (norm(x) V^T + c), if gated by (V, c)] + residual_norm(residual).

    folded: the norm once more, folded into the weights (`folded`), where it could be.
    """
    (M, K), N = x_MK.shape, weight_NK.shape[0]
    plain = norm.kind == NONE and x_MK.dtype != torch.float32
    if M == 1 and (folded or plain) and residual_norm.kind == NONE:
        return row_linear(
            x_MK, weight_NK, bias_N, folded=folded if norm.kind else (), act=ACTIVATIONS[activation],
            gated=gated, residual_1N=residual_MN, dtype=dtype,
        )  # fmt: skip
    if M > 1:  # a norm is then cheaper done once than by every program that reads it
        x_MK = normalize(x_MK, norm)
        residual_MN = None if residual_MN is None else normalize(residual_MN, residual_norm)
        bare = gated is None and residual_MN is None and dtype in (None, x_MK.dtype) and activation in LIBRARY
        few = M <= FEW and not few_for_library(M, N, K, activation)
        if isinstance(weight_NK, Tensor) and bare and not few:
            return LIBRARY[activation](x_MK, weight_NK, bias_N)
    y_MN = torch.empty(M, N, dtype=dtype or x_MK.dtype, device=x_MK.device)
    other, other_bias = gated or (None, None)
    (numbers, scales), (numbers2, scales2) = split(weight_NK), split(other)
    weights = [
        x_MK if t is None else t for t in (numbers, numbers2, scales, scales2, bias_N, other_bias)
    ]  # a kernel takes no None
    kept = x_MK if residual_MN is None else residual_MN
    choices: dict[str, Any] = {
        "ACT": ACTIVATIONS[activation], "GATED": gated is not None, "PACKED": scales is not None,
        "BIAS": bias_N is not None, "RESIDUAL": residual_MN is not None,
    }  # fmt: skip
    if M > 1:
        half = x_MK.dtype != torch.float32
        turned = half and (scales is not None or M <= FEW and N >= TURNED_FROM)
        if half and scales is not None:
            how = packed_tiles(M, N, gated is not None)
        else:
            BM, BN, BK = turned_tiles(M) if turned else tiles(M, N, x_MK.dtype)
            how = BM, BN, BK, 8 if BM * BN > 4096 else 4, 3 if gated else 4
        BM, BN, BK, warps, stages = how
        grid = (triton.cdiv(N, BN), triton.cdiv(M, BM))
        matrix_kernel[grid](
            x_MK, *weights, kept, y_MN, M, N, K, **choices, PART=0, TURNED=turned, BM=BM, BN=BN, BK=BK,
            num_warps=warps, num_stages=stages, **early(x_MK.device),
        )  # fmt: skip
        return y_MN
    norms = [x_MK if t is None else t for t in (norm.gain, norm.shift)]
    kept_norms = [x_MK if t is None else t for t in (residual_norm.gain, residual_norm.shift)]
    choices |= {"NORM": norm.kind, "EPS": norm.eps, "R_NORM": residual_norm.kind, "R_EPS": residual_norm.eps}
    BK = triton.next_power_of_2(K)
    BN = max(1, min(4096 // BK, 16))
    vector_kernel[(triton.cdiv(N, BN), M)](
        x_MK, *weights, *norms, kept, *kept_norms, y_MN, N, K, **choices, BN=BN, BK=BK,
        BR=triton.next_power_of_2(N), num_warps=4 if BK <= 2048 else 8, **early(x_MK.device),
    )  # fmt: skip
    return y_MN


def linear_sum(
    x_MK: Tensor, weight_NK: Weight, bias_N: Tensor | None, residual_MN: Tensor, norm: Norm
) -> tuple[Tensor, Tensor]:
    """y = x W^T + b + residual of several rows, and norm(y).

    A narrow y has too few tiles for a GPU: several programs then share one, each a part of the columns of x,
    and what adds their parts up is the kernel of the norm.
    """
    (M, K), N = x_MK.shape, weight_NK.shape[0]
    numbers, scales = split(weight_NK)
    half, is_packed, stages = x_MK.dtype != torch.float32, scales is not None, 4
    turned = half and (is_packed or M <= FEW and N >= NARROW_FROM[0] and K >= NARROW_FROM[1])
    if not turned:
        BM, BN, BK, P = shared_tiles(M, N, K, x_MK.dtype)
    elif is_packed:
        BM, BN, BK, P, stages = packed_shared_tiles(M, K)
    else:
        BM, BN, BK, P = *turned_tiles(M), 4
    if P == 1:
        y_MN = linear(x_MK, weight_NK, bias_N, residual_MN=residual_MN)
        return y_MN, normalize(y_MN, norm)
    part = triton.cdiv(triton.cdiv(K, P), BK) * BK
    P = triton.cdiv(K, part)
    parts_PMN = torch.empty(P, M, N, dtype=torch.float32, device=x_MK.device)
    matrix_kernel[(triton.cdiv(N, BN), triton.cdiv(M, BM), P)](
        x_MK, numbers, x_MK, x_MK if scales is None else scales, x_MK, x_MK, x_MK, x_MK, parts_PMN, M, N, K,
        ACT=0, GATED=False, PACKED=is_packed, BIAS=False, RESIDUAL=False, PART=part, TURNED=turned,
        BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=stages, **early(x_MK.device),
    )  # fmt: skip
    y_MN = torch.empty_like(residual_MN)
    normed_MN = y_MN if norm.kind == NONE else torch.empty_like(y_MN)
    given = [x_MK if t is None else t for t in (bias_N, residual_MN, norm.gain, norm.shift)]
    sum_kernel[(M,)](
        parts_PMN, *given, y_MN, normed_MN, M, N, P, BIAS=bias_N is not None, KIND=norm.kind, EPS=norm.eps,
        BN=triton.next_power_of_2(N), num_warps=4, **early(x_MK.device),
    )  # fmt: skip
    return y_MN, normed_MN


def with_relu(x_MK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    if bias_N is None:
        return F.relu(F.linear(x_MK, weight_NK))
    return torch._addmm_activation(bias_N, x_MK, weight_NK.t())


def with_gelu(x_MK: Tensor, weight_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    if bias_N is None or not x_MK.is_cuda:  # on a CPU this is another GELU
        return F.gelu(F.linear(x_MK, weight_NK, bias_N), approximate="tanh")
    return torch._addmm_activation(bias_N, x_MK, weight_NK.t(), use_gelu=True)


# What the vendor's library does best: its products have room for a bias and these activations.
LIBRARY: dict[str, Callable[..., Tensor]] = {"": F.linear, "relu": with_relu, "gelu_tanh": with_gelu}


def few_for_library(M: int, N: int, K: int, activation: str) -> bool:
    """Whether the library's product is faster for a few rows: of a large matrix (measured on an H200)."""
    return M <= 16 and not activation and N * K >= 6_000_000


def turned_tiles(M: int) -> tuple[int, int, int]:
    """Tiles of W x^T in half precision."""
    return max(16, triton.next_power_of_2(min(M, FEW))), 64, 128


def packed_tiles(M: int, N: int, gated: bool) -> tuple[int, int, int, int, int]:
    """Tiles, warps and stages of W x^T of a packed weight: the fastest of those tried on an H200."""
    BM = turned_tiles(M)[0]
    if BM == 16:
        return BM, 32, 128, 2, 5
    if gated:  # a program then holds tiles of two weights
        return BM, 64, 128, 4, 3
    return (BM, 64, 128, 4, 4) if N > WIDEST else (BM, 64, 256, 4, 3)


def packed_shared_tiles(M: int, K: int) -> tuple[int, int, int, int, int]:
    """Tiles of the same, how many programs share one, and stages."""
    BM = turned_tiles(M)[0]
    BN, parts, stages = (32, 8, 4) if BM == 16 else (64, 4, 3)
    return BM, BN, 256, max(1, min(parts, K // 256)), stages


def tiles(M: int, N: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """Tiles as large as leave every multiprocessor something to do.

    In half precision a tile of 64 rows takes less time than one of 4 to 32 (measured on an H200, whose widest
    products need 64), and what a row becomes does not depend on how many stand beside it.
    """
    BM = 64 if dtype != torch.float32 else min(64, max(16, triton.next_power_of_2(M)))
    BN = next((n for n in (128, 64, 32) if triton.cdiv(M, BM) * triton.cdiv(N, n) >= TILES), 16)
    return BM, BN, 32 if dtype == torch.float32 else 64 if BN == 128 else 128


def shared_tiles(M: int, N: int, K: int, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """The same, and how many programs share a tile: few tiles of long sums."""
    BM, BN, BK = tiles(M, N, dtype)
    return BM, BN, BK, parts_of(M, N, K, BM, BN, BK)


def parts_of(M: int, N: int, K: int, BM: int, BN: int, BK: int) -> int:
    """How many programs share a tile, so that there is something to do for all, and enough for each."""
    programs = triton.cdiv(M, BM) * triton.cdiv(N, BN)
    return max(1, min(2 * TILES // programs, K // (2 * BK)))
