"""Attention among a few tokens, for training: one program a head holds all of its scores at once.

Kernels for long texts walk over the keys in blocks, keep a running softmax, and walk again, twice, for the
gradients. A sentence fits into one block: then each of q, k and v is read once forwards and once backwards,
and nothing else is kept. The same as `attend_plain` of heedful/parts/attention.py; a query that sees nobody
gets 0, and gives 0 back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
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
    q, k, v, allowed, slope, q_slope, k_slope, v_slope, scale, H, T, S, QB, QH, QT, KB, KH, KS, VB, VH, VS,
    AB, AH, AT, AS,
    GB, GH, GT, DQB, DQH, DQT, DKB, DKH, DKS, DVB, DVH, DVS, K: tl.constexpr, L: tl.constexpr,
    CAUSAL: tl.constexpr, TABLE: tl.constexpr,
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
    _keep(v_slope + b * DVB + h * DVH, v_slope_SL, s, e, DVS, S, L)
    w_slope_TS = tl.dot(g_TL, tl.trans(v_SL), input_precision="ieee")
    z_slope_TS = w_TS * (w_slope_TS - tl.sum(w_TS * w_slope_TS, 1)[:, None]) * scale  # of the scores
    z_slope_TS = z_slope_TS.to(q_TK.dtype)
    q_slope_TK = tl.dot(z_slope_TS, k_SK, input_precision="ieee")
    _keep(q_slope + b * DQB + h * DQH, q_slope_TK, t, c, DQT, T, K)
    k_slope_SK = tl.dot(tl.trans(z_slope_TS), q_TK, input_precision="ieee")
    _keep(k_slope + b * DKB + h * DKH, k_slope_SK, s, c, DKS, S, K)


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


def _forward(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool, scale: float) -> Tensor:
    """[B, T, H, L] of q, k and v [B, H, T or S, K or L], however they lie."""
    out_BTHL = _blank(q, v.shape[-1])
    numbers, choices = _sizes(q, k, v, allowed, causal)
    forward_kernel[(q.shape[0] * q.shape[1],)](
        q, k, v, q if allowed is None else allowed, out_BTHL, scale, **numbers, **choices
    )
    return out_BTHL


def _backward(
    slope: Tensor,
    given: Sequence[Tensor],
    allowed: Tensor | None,
    causal: bool,
    scale: float,
    slopes: Sequence[Tensor],
) -> None:
    """Write the gradients of q, k and v, each [B, H, T or S, K or L], where they are to lie."""
    q, k, v = given
    numbers, choices = _sizes(q, k, v, allowed, causal)
    for names, x in zip(
        ("GB GH GT", "DQB DQH DQT", "DKB DKH DKS", "DVB DVH DVS"), (slope, *slopes), strict=True
    ):
        numbers |= dict(zip(names.split(), x.stride()[:3], strict=True))
    backward_kernel[(q.shape[0] * q.shape[1],)](
        q, k, v, q if allowed is None else allowed, slope, *slopes, scale, **numbers, **choices
    )


# Queries, keys and values apart, as they are after a rotation.


def _attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool, scale: float) -> Tensor:
    """softmax(q k^T scale) v of [B, H, T or S, K].

    allowed: booleans that broadcast to [B, H, T, S]; causal: the last query sees all keys, the one before it
    all but one, and so on.
    """
    return _forward(_lined(q), _lined(k), _lined(v), allowed, causal, scale).transpose(1, 2)


def _attend_backward(
    slope: Tensor, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    given = [_lined(x) for x in (q, k, v)]
    q_slope, k_slope, v_slope = (_blank(x, x.shape[-1]).transpose(1, 2) for x in given)
    _backward(_lined(slope), given, allowed, causal, scale, (q_slope, k_slope, v_slope))
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


# Side by side, as one matrix product gives them: queries, keys and values of the same text; or queries of one
# text, keys and values of another. Their gradients come out side by side too, ready for the next product.


def _apart(one_BTX: Tensor, other_BSY: Tensor | None, heads: int) -> list[Tensor]:
    """q, k and v [B, H, T or S, K], as views."""
    joined = [(one_BTX, 3)] if other_BSY is None else [(one_BTX, 1), (other_BSY, 2)]
    return [
        part.transpose(1, 2) for x, parts in joined for part in x.unflatten(-1, (parts, heads, -1)).unbind(2)
    ]


def _attend_joined(
    one: Tensor, other: Tensor | None, heads: int, allowed: Tensor | None, causal: bool, scale: float
) -> Tensor:
    one, other = one.contiguous(), None if other is None else other.contiguous()
    q, k, v = _apart(one, other, heads)
    return _forward(q, k, v, allowed, causal, scale).flatten(2)


def _attend_joined_backward(
    slope: Tensor,
    one: Tensor,
    other: Tensor | None,
    heads: int,
    allowed: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    one, other = one.contiguous(), None if other is None else other.contiguous()
    slopes = torch.empty_like(one), None if other is None else torch.empty_like(other)
    slope = slope.contiguous().unflatten(-1, (heads, -1)).transpose(1, 2)
    _backward(slope, _apart(one, other, heads), allowed, causal, scale, _apart(*slopes, heads))
    return slopes[0], one.new_empty(0) if slopes[1] is None else slopes[1]


def _joined_shape(
    one: Tensor, other: Tensor | None, heads: int, allowed: Tensor | None, causal: bool, scale: float
) -> Tensor:
    B, T, X = one.shape
    return one.new_empty(B, T, X // 3 if other is None else X)


def _joined_shapes(
    slope: Tensor,
    one: Tensor,
    other: Tensor | None,
    heads: int,
    allowed: Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor]:
    line = torch.contiguous_format
    first = torch.empty_like(one, memory_format=line)
    return first, one.new_empty(0) if other is None else torch.empty_like(other, memory_format=line)


JOINED = "Tensor one, Tensor? other, int heads, Tensor? allowed, bool causal, float scale)"
attend_joined = operation("attend_joined", f"({JOINED} -> Tensor", _attend_joined, _joined_shape)
attend_joined_backward = operation(
    "attend_joined_backward",
    f"(Tensor slope, {JOINED} -> (Tensor, Tensor)",
    _attend_joined_backward,
    _joined_shapes,
)  # fmt: skip


def _remember_joined(ctx: Any, inputs: tuple, output: Tensor) -> None:
    one, other, ctx.heads, allowed, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(one, other, allowed)


def _back_joined(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
    one, other, allowed = ctx.saved_tensors
    first, second = attend_joined_backward(slope, one, other, ctx.heads, allowed, ctx.causal, ctx.scale)
    return first, None if other is None else second, None, None, None, None


differentiable("attend_joined", _back_joined, _remember_joined)
