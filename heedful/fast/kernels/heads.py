"""From one matrix product to the heads of queries, keys and values, for training; and back.

Forwards these are views. Backwards their gradients come one by one, however a kernel of attention left them:
they are put side by side in one pass, ready for the next product, and added up for its bias on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .columns import column_sums
from .operation import block, operation

ROWS = 128  # of a block
PROGRAMS = 1056  # eight for each of about as many multiprocessors as a GPU has


@triton.jit
def join_kernel(
    slope, out, sums, N, T, SB, SH, ST, SK, FIRST, WIDE, K: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Copy one head of some rows from [B, H, T, K] to its columns of [N, WIDE], and sum each column."""
    h, k, total = tl.program_id(1), tl.arange(0, BK), tl.zeros((BK,), tl.float32)
    column = FIRST + h * K + k
    for first in range(tl.program_id(0) * BN, N, tl.num_programs(0) * BN):
        n = first + tl.arange(0, BN)
        here, place = (n[:, None] < N) & (k[None, :] < K), (n // T).to(tl.int64) * SB + h * SH + (n % T) * ST
        g = tl.load(slope + place[:, None] + k[None, :] * SK, mask=here, other=0.0)
        tl.store(out + n[:, None].to(tl.int64) * WIDE + column[None, :], g, mask=here)
        total += tl.sum(g.to(tl.float32), 0)
    tl.store(sums + tl.program_id(0) * WIDE + column, total, mask=k < K)


def _join(slopes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """[B, T, sum of H K] of several [B, H, T, K], and what each column adds up to."""
    B, _, T, _ = slopes[0].shape
    wide = sum(x.shape[1] * x.shape[3] for x in slopes)
    down = max(1, min(triton.cdiv(B * T, ROWS), PROGRAMS // max(x.shape[1] for x in slopes)))
    out_BTX = slopes[0].new_empty(B, T, wide)
    sums, first = slopes[0].new_empty(down, wide, dtype=torch.float32), 0
    for x in slopes:
        _, H, _, K = x.shape
        join_kernel[(down, H)](
            x, out_BTX, sums, B * T, T, *x.stride(), first, wide, K=K, BN=ROWS, BK=block(K)
        )
        first += H * K
    return out_BTX, column_sums(sums)


def _shapes(slopes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    B, _, T, _ = slopes[0].shape
    wide = sum(x.shape[1] * x.shape[3] for x in slopes)
    return slopes[0].new_empty(B, T, wide), slopes[0].new_empty(wide, dtype=torch.float32)


join_slopes = operation("join_slopes", "(Tensor[] slopes) -> (Tensor, Tensor)", _join, _shapes)


class Heads(torch.autograd.Function):
    """q [B, H, T, K], k [B, G, T, K] and v [B, G, T, L] of [B, T, HK + GK + GL], side by side.

    bias: of the product that they come from, which has added it; here it gets its gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, joined_BTX: Tensor, bias_X: Tensor | None, heads: tuple[int, ...], widths: tuple[int, ...]
    ) -> tuple[Tensor, ...]:
        ctx.kind = None if bias_X is None else bias_X.dtype
        parts = joined_BTX.split([H * K for H, K in zip(heads, widths, strict=True)], dim=-1)
        return tuple(x.unflatten(-1, (H, -1)).transpose(1, 2) for x, H in zip(parts, heads, strict=True))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        joined_BTX, sums_X = join_slopes(list(slopes))
        return joined_BTX, None if ctx.kind is None else sums_X.to(ctx.kind), None, None
