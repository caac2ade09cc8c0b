"""dropout(scale * table[token] + encoding) in one kernel, for training; and the gradient of the table in two.

Tokens are sorted, so that those of a word stand side by side, and cut into parts of equal size. Within a
part, a matrix of zeros and ones adds up the gradients of each word; a word that goes on over several parts
gets its sums together afterwards. So no two programs ever write to one place, and the order of every sum is
always the same:

    sorted    3 3 5 5 | 5 5 5 5 | 5 8 9 9      words, in parts of 4
    within    3:2 5:2 | 5:4     | 5:1 8:1 9:2  the first sum of 5 into the table, the others aside
    after     5: 2 + (4 + 1)
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dropout import kept, odds
from .operation import block

NUMBERS = 2048  # of a block forwards
PART, COLUMNS, WARPS = 64, 128, 4  # sorted tokens that are added up at once, and numbers of their vectors
ASIDE = 16  # sums of one word that are brought together at once
TWO_BYTES = 1 << 15  # words that two bytes can count: sorted in half the time


@triton.jit
def forward_kernel(
    table, tokens, encodings, seed, out, N, V, T, STEP, scale,
    D: tl.constexpr, P: tl.constexpr, LIMIT: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    n, d = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BD)
    here, place = (n[:, None] < N) & (d[None, :] < D), n[:, None] * D + d[None, :]
    word = tl.load(tokens + n, mask=n < N, other=0).to(tl.int64)
    known = ((word >= 0) & (word < V))[
        :, None
    ]  # a word that is not there is no number, and nothing else is read
    z = tl.load(table + word[:, None] * D + d[None, :], mask=here & known, other=float("nan"))
    z = z.to(tl.float32) * scale
    where = (n // T) * STEP + (n % T) * D
    z += tl.load(encodings + where[:, None] + d[None, :], mask=here, other=0.0).to(tl.float32)
    if P > 0:
        z = tl.where(kept(tl.load(seed), place, LIMIT), z * (1.0 / (1.0 - P)), 0.0)
    tl.store(out + place, z.to(out.dtype.element_ty), mask=here)


@triton.jit
def within_kernel(
    slope, words, order, seed, table, aside, N, V, scale,
    D: tl.constexpr, P: tl.constexpr, LIMIT: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The sum of each word's gradients within a part; of a word that began in a part before, aside."""
    part, i, d = tl.program_id(0), tl.arange(0, BN), tl.program_id(1) * BD + tl.arange(0, BD)
    n = part * BN + i
    word = tl.load(words + n, mask=n < N, other=-1)
    begins = word != tl.load(words + n - 1, mask=(n > 0) & (n < N), other=-1)
    row = tl.load(order + n, mask=n < N, other=0).to(tl.int32)
    here, place = (n[:, None] < N) & (d[None, :] < D), row[:, None] * D + d[None, :]
    g = tl.load(slope + place, mask=here, other=0.0)
    if P > 0:
        g = tl.where(kept(tl.load(seed), place, LIMIT), g, 0.0)
    alike = word[:, None] == tl.load(words + n, mask=n < N, other=-1)[None, :]
    sums = tl.dot(alike.to(g.dtype), g, input_precision="ieee") * (scale / (1.0 - P))
    word = word.to(tl.int64)
    known = begins & (word >= 0) & (word < V)
    tl.store(table + word[:, None] * D + d[None, :], sums, mask=here & known[:, None])
    goes_on = ((i == 0) & (begins == 0))[:, None]
    tl.store(aside + part * D + i[:, None] * 0 + d[None, :], sums, mask=here & goes_on)


@triton.jit
def after_kernel(
    words, aside, table, N, V, PARTS, D: tl.constexpr, BN: tl.constexpr, BJ: tl.constexpr, BD: tl.constexpr
):
    """Add to a word's gradient the sums that the next parts put aside for it."""
    part, d = tl.program_id(0), tl.program_id(1) * BD + tl.arange(0, BD)
    word = tl.load(words + tl.minimum((part + 1) * BN, N) - 1)
    earlier = tl.load(words + part * BN - 1, mask=part > 0, other=-1)
    after = tl.load(words + (part + 1) * BN, mask=part + 1 < PARTS, other=-1)
    if (earlier != word) & (after == word) & (word >= 0) & (word < V):
        total, first, found = tl.zeros((BD,), tl.float32), part + 1, BJ
        while found == BJ:
            j = first + tl.arange(0, BJ)
            same = (j < PARTS) & (tl.load(words + j * BN, mask=j < PARTS, other=-1) == word)
            mine = same[:, None] & (d[None, :] < D)
            total += tl.sum(tl.load(aside + j[:, None] * D + d[None, :], mask=mine, other=0.0), 0)
            first += BJ
            found = tl.sum(same.to(tl.int32), 0)
        here = table + word.to(tl.int64) * D + d
        tl.store(here, tl.load(here, mask=d < D, other=0.0) + total, mask=d < D)


@triton.jit
def encodings_kernel(
    slope, seed, out, B, T, D: tl.constexpr, P: tl.constexpr, LIMIT: tl.constexpr, BT: tl.constexpr,
    BD: tl.constexpr
):  # fmt: skip
    """The gradient of an encoding that all rows share."""
    t, d = tl.program_id(0) * BT + tl.arange(0, BT), tl.program_id(1) * BD + tl.arange(0, BD)
    here, total = (t[:, None] < T) & (d[None, :] < D), tl.zeros((BT, BD), tl.float32)
    for b in range(B):
        place = (b * T + t)[:, None] * D + d[None, :]
        g = tl.load(slope + place, mask=here, other=0.0).to(tl.float32)
        if P > 0:
            g = tl.where(kept(tl.load(seed), place, LIMIT), g, 0.0)
        total += g
    tl.store(out + t[:, None] * D + d[None, :], total * (1.0 / (1.0 - P)), mask=here)


def table_slope(
    slope_BTD: Tensor, tokens_BT: Tensor, seed: Tensor, vocabulary: int, scale: float, dropout: float
) -> Tensor:
    """[V, D] in fp32."""
    N, D = tokens_BT.numel(), slope_BTD.shape[-1]
    counted = torch.int16 if vocabulary <= TWO_BYTES else torch.int32
    words_N, order_N = tokens_BT.flatten().to(counted).sort(stable=True)
    parts, wide = triton.cdiv(N, PART), min(COLUMNS, block(D))
    table_VD = torch.zeros(vocabulary, D, device=slope_BTD.device)
    aside = table_VD.new_empty(parts, D)
    programs, sizes = (parts, triton.cdiv(D, wide)), {"D": D, "BN": PART, "BD": wide}
    within_kernel[programs](
        slope_BTD, words_N, order_N, seed, table_VD, aside, N, vocabulary, scale,
        **sizes, **odds(dropout), num_warps=WARPS,
    )  # fmt: skip
    after_kernel[programs](words_N, aside, table_VD, N, vocabulary, parts, **sizes, BJ=ASIDE)
    return table_VD


def encodings_slope(slope_BTD: Tensor, seed: Tensor, shared: bool, dropout: float) -> Tensor:
    """[T, D], or if they are not shared by all rows [B, T, D]; in fp32."""
    B, T, D = slope_BTD.shape
    out = slope_BTD.new_empty((T, D) if shared else (B, T, D), dtype=torch.float32)
    B, T = (B, T) if shared else (1, B * T)
    tall, wide = 4, min(COLUMNS, block(D))
    encodings_kernel[(triton.cdiv(T, tall), triton.cdiv(D, wide))](
        slope_BTD, seed, out, B, T, D=D, **odds(dropout), BT=tall, BD=wide, num_warps=WARPS
    )
    return out


class EmbedAndDrop(torch.autograd.Function):
    """dropout(scale * table[token] + encoding), in the precision asked for. encodings: [T, D], or [B, T, D].

    No operation of torch's, as the kernels inside of a stack are: looking up is not compiled.
    """

    @staticmethod
    def forward(
        ctx: Any,
        table_VD: Tensor,
        tokens_BT: Tensor,
        encodings: Tensor,
        seed: Tensor,
        scale: float,
        dropout: float,
        kind: torch.dtype,
    ) -> Tensor:
        (B, T), (V, D) = tokens_BT.shape, table_VD.shape
        tokens_BT, encodings = tokens_BT.contiguous(), encodings.contiguous()
        out_BTD = torch.empty(B, T, D, dtype=kind, device=tokens_BT.device)
        shared, wide = encodings.ndim == 2, block(D)
        rows = max(1, NUMBERS // wide)
        forward_kernel[(triton.cdiv(B * T, rows),)](
            table_VD, tokens_BT, encodings, seed, out_BTD, B * T, V, T, 0 if shared else T * D, scale,
            D=D, **odds(dropout), BN=rows, BD=wide,
        )  # fmt: skip
        ctx.save_for_backward(tokens_BT, seed)
        ctx.words, ctx.scale, ctx.dropout, ctx.shared = V, scale, dropout, shared
        return out_BTD

    @staticmethod
    def backward(ctx: Any, slope_BTD: Tensor) -> tuple[Tensor | None, ...]:
        (tokens_BT, seed), slope_BTD, table, encodings = ctx.saved_tensors, slope_BTD.contiguous(), None, None
        if ctx.needs_input_grad[0]:
            table = table_slope(slope_BTD, tokens_BT, seed, ctx.words, ctx.scale, ctx.dropout)
        if ctx.needs_input_grad[2]:
            encodings = encodings_slope(slope_BTD, seed, ctx.shared, ctx.dropout)
        return table, None, encodings, None, None, None, None


def embedded(
    table_VD: Tensor, tokens_BT: Tensor, encodings: Tensor, scale: float, dropout: float, kind: torch.dtype
) -> Tensor:
    """The same, with fresh randomness; encodings may also be those of a single row, or of a single place."""
    seed = torch.randint(1 << 62, (1,), device=tokens_BT.device)
    if encodings.ndim == 3 and len(encodings) == 1:
        encodings = encodings[0]
    encodings = encodings.expand(*encodings.shape[:-2], tokens_BT.shape[1], -1)
    return EmbedAndDrop.apply(table_VD, tokens_BT, encodings, seed, scale, dropout, kind)
