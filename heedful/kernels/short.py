"""Attention among a few tokens, for training: one program a head holds all of its scores at once.

Kernels for long texts walk over the keys in blocks, keep a running softmax, and walk again, twice, for the gradients. A
sentence fits into one block: then each of q, k and v is read once forwards and once backwards, and nothing else is
kept. The same as `attend_plain` of heedful/parts/attention.py; a query that sees nobody gets 0, and gives 0 back.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from .operation import block, differentiable, operation

LONGEST = 128  # queries or keys that one program can hold
WIDEST = 128  # numbers of a head


@triton.jit
def _tile(start, row, column, STEP, ROWS, COLUMNS: tl.constexpr):
    """Rows of a matrix whose columns lie side by side; 0 outside of it."""
    here = (row[:, None] < ROWS) & (column[None, :] < COLUMNS)
    return tl.load(start + row[:, None] * STEP + column[None, :], mask=here, other=0.0)


@triton.jit
def _keep(start, x, row, column, STEP, ROWS, COLUMNS: tl.constexpr):
    here = (row[:, None] < ROWS) & (column[None, :] < COLUMNS)
    tl.store(start + row[:, None] * STEP + column[None, :], x.to(start.dtype.element_ty), mask=here)


@triton.jit
def _weights(q_TK, k_SK, t, s, allowed, AT, AS, scale, T, S, CAUSAL: tl.constexpr, TABLE: tl.constexpr):
    """softmax(q k^T scale) over the keys that are seen."""
    scores = tl.dot(q_TK, tl.trans(k_SK), input_precision="ieee") * (scale * 1.4426950408889634)  # for 2^x
    seen = (t[:, None] < T) & (s[None, :] < S)
    if CAUSAL:
        seen = seen & (s[None, :] - S <= t[:, None] - T)
    if TABLE:
        seen = seen & (tl.load(allowed + t[:, None] * AT + s[None, :] * AS, mask=seen, other=0) != 0)
    scores = tl.where(seen, scores, float("-inf"))
    top = tl.max(scores, 1)
    top = tl.where(top == float("-inf"), 0.0, top)
    raised = tl.exp2(scores - top[:, None])
    total = tl.sum(raised, 1)
    return raised / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def forward_kernel(
    q, k, v, allowed, out, scale, H, T, S, QB, QH, QT, KB, KH, KS, VB, VH, VS, AB, AH, AT, AS,
    K: tl.constexpr, L: tl.constexpr, CAUSAL: tl.constexpr, TABLE: tl.constexpr,
    BT: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr, BL: tl.constexpr,
):  # fmt: skip
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    t, s, c, e = tl.arange(0, BT), tl.arange(0, BS), tl.arange(0, BK), tl.arange(0, BL)
    q_TK = _tile(q + b * QB + h * QH, t, c, QT, T, K)
    k_SK = _tile(k + b * KB + h * KH, s, c, KS, S, K)
    v_SL = _tile(v + b * VB + h * VH, s, e, VS, S, L)
    w_TS = _weights(q_TK, k_SK, t, s, allowed + b * AB + h * AH, AT, AS, scale, T, S, CAUSAL, TABLE)
    mean_TL = tl.dot(w_TS.to(v_SL.dtype), v_SL, input_precision="ieee")
    _keep(out + b * (T * H * L) + h * L, mean_TL, t, e, H * L, T, L)


@triton.jit
def backward_kernel(
    q, k, v, allowed, slope, q_slope, k_slope, v_slope, scale, H, T, S, QB, QH, QT, KB, KH, KS, VB, VH, VS, AB, AH, AT, AS,
    GB, GH, GT, K: tl.constexpr, L: tl.constexpr, CAUSAL: tl.constexpr, TABLE: tl.constexpr,
    BT: tl.constexpr, BS: tl.constexpr, BK: tl.constexpr, BL: tl.constexpr,
):  # fmt: skip
    b, h = (tl.program_id(0) // H).to(tl.int64), (tl.program_id(0) % H).to(tl.int64)
    t, s, c, e = tl.arange(0, BT), tl.arange(0, BS), tl.arange(0, BK), tl.arange(0, BL)
    q_TK = _tile(q + b * QB + h * QH, t, c, QT, T, K)
    k_SK = _tile(k + b * KB + h * KH, s, c, KS, S, K)
    v_SL = _tile(v + b * VB + h * VH, s, e, VS, S, L)
    g_TL = _tile(slope + b * GB + h * GH, t, e, GT, T, L)
    w_TS = _weights(q_TK, k_SK, t, s, allowed + b * AB + h * AH, AT, AS, scale, T, S, CAUSAL, TABLE)
    v_slope_SL = tl.dot(tl.trans(w_TS.to(v_SL.dtype)), g_TL, input_precision="ieee")
    _keep(v_slope + b * (S * H * L) + h * L, v_slope_SL, s, e, H * L, S, L)
    w_slope_TS = tl.dot(g_TL, tl.trans(v_SL), input_precision="ieee")
    z_slope_TS = w_TS * (w_slope_TS - tl.sum(w_TS * w_slope_TS, 1)[:, None]) * scale  # of the scores
    z_slope_TS = z_slope_TS.to(q_TK.dtype)
    q_slope_TK = tl.dot(z_slope_TS, k_SK, input_precision="ieee")
    _keep(q_slope + b * (T * H * K) + h * K, q_slope_TK, t, c, H * K, T, K)
    k_slope_SK = tl.dot(tl.trans(z_slope_TS), q_TK, input_precision="ieee")
    _keep(k_slope + b * (S * H * K) + h * K, k_slope_SK, s, c, H * K, S, K)


def _blank(like: Tensor, K: int) -> Tensor:
    """[B, T, H, K] for [B, H, T, K], as the next layer reads it: the heads of a token side by side."""
    B, H, T, _ = like.shape
    return like.new_empty(B, T, H, K)


def _sizes(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool) -> tuple[dict, dict]:
    """What both kernels are told: numbers, and choices."""
    (_, H, T, K), (S, L) = q.shape, v.shape[2:]
    steps = (0, 0, 0, 0) if allowed is None else allowed.expand(len(q), H, T, S).stride()
    numbers = {"H": H, "T": T, "S": S, **dict(zip(("AB", "AH", "AT", "AS"), steps, strict=True))}
    for names, x in ((("QB", "QH", "QT"), q), (("KB", "KH", "KS"), k), (("VB", "VH", "VS"), v)):
        numbers |= dict(zip(names, x.stride()[:3], strict=True))
    choices = {"K": K, "L": L, "CAUSAL": causal, "TABLE": allowed is not None,
               "BT": block(T), "BS": block(S), "BK": block(K), "BL": block(L)}  # fmt: skip
    choices["num_warps"] = 4 if choices["BT"] * choices["BS"] <= 64 * 64 else 8
    return numbers, choices


def _lined(x: Tensor) -> Tensor:
    """With the numbers of a head side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool, scale: float) -> Tensor:
    """softmax(q k^T scale) v of [B, H, T or S, K]. allowed: booleans that broadcast to [B, H, T, S]; causal: the last
    query sees all keys, the one before it all but one, and so on."""
    q, k, v = _lined(q), _lined(k), _lined(v)
    out_BTHL = _blank(q, v.shape[-1])
    numbers, choices = _sizes(q, k, v, allowed, causal)
    forward_kernel[(q.shape[0] * q.shape[1],)](
        q, k, v, q if allowed is None else allowed, out_BTHL, scale, **numbers, **choices
    )
    return out_BTHL.transpose(1, 2)


def _attend_backward(
    slope: Tensor, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    slope, q, k, v = _lined(slope), _lined(q), _lined(k), _lined(v)
    slopes = [_blank(x, x.shape[-1]) for x in (q, k, v)]
    numbers, choices = _sizes(q, k, v, allowed, causal)
    numbers |= dict(zip(("GB", "GH", "GT"), slope.stride()[:3], strict=True))
    backward_kernel[(q.shape[0] * q.shape[1],)](
        q, k, v, q if allowed is None else allowed, slope, *slopes, scale, **numbers, **choices
    )
    q_slope, k_slope, v_slope = (x.transpose(1, 2) for x in slopes)
    return q_slope, k_slope, v_slope


def _shape(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool, scale: float) -> Tensor:
    return _blank(q, v.shape[-1]).transpose(1, 2)


def _shapes(
    slope: Tensor, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    q_slope, k_slope, v_slope = (_blank(x, x.shape[-1]).transpose(1, 2) for x in (q, k, v))
    return q_slope, k_slope, v_slope


GIVEN = "Tensor q, Tensor k, Tensor v, Tensor? allowed, bool causal, float scale)"
attend_short = operation("attend_short", f"({GIVEN} -> Tensor", _attend, _shape)
attend_short_backward = operation(
    "attend_short_backward", f"(Tensor slope, {GIVEN} -> (Tensor, Tensor, Tensor)", _attend_backward, _shapes
)


def _remember(ctx: Any, inputs: tuple, output: Tensor) -> None:
    q, k, v, allowed, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, allowed)


def _back(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, allowed = ctx.saved_tensors
    return *attend_short_backward(slope, q, k, v, allowed, ctx.causal, ctx.scale), None, None, None


differentiable("attend_short", _back, _remember)
