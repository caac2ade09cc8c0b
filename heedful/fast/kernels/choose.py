"""The most likely word of each row and its log-probability, in one pass over the scores.

First every program takes a stretch of a row's vocabulary, then one a row puts the stretches together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dependent_launch import begin, early

STRETCH = 4096  # words


@triton.jit
def _lost(z):
    return z != z  # noqa: PLR0124 (what is no number)


@triton.jit
def stretch_kernel(scores, tops, places, totals, V, C, STRIDE, BV: tl.constexpr, EARLY: tl.constexpr):
    begin(EARLY)
    row, c = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = c * BV + tl.arange(0, BV)
    z = tl.load(scores + row * STRIDE + v, mask=v < V, other=float("-inf")).to(tl.float32)
    top = tl.max(z, 0)
    place = tl.min(tl.where((z == top) | _lost(z), v, V), 0)  # of equals the first
    total = tl.sum(tl.exp(z - tl.where(top == float("-inf"), 0.0, top)), 0)
    at = row * C + c
    tl.store(tops + at, tl.where(tl.max(_lost(z).to(tl.int32), 0) > 0, float("nan"), top))
    tl.store(places + at, place)
    tl.store(totals + at, total)


@triton.jit
def row_kernel(
    tops, places, totals, tokens, lengths, counts, all_tokens, all_log_p, all_best, C, V, R, LAST,
    BC: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    row = tl.program_id(0)
    c = tl.arange(0, BC)
    z = tl.load(tops + row * C + c, mask=c < C, other=float("-inf"))
    place = tl.load(places + row * C + c, mask=c < C, other=V)
    total = tl.load(totals + row * C + c, mask=c < C, other=0.0)
    lost, top = tl.max(_lost(z).to(tl.int32), 0) > 0, tl.max(z, 0)
    token = tl.min(tl.where((z == top) | _lost(z), place, V), 0)
    token = tl.minimum(token, V - 1).to(tl.int64)
    total = tl.sum(total * tl.exp(z - tl.where(top == float("-inf"), 0.0, top)), 0)
    count = tl.load(counts + row)
    tl.store(all_tokens + count * R + row, token)
    tl.store(all_log_p + count * R + row, tl.where(lost, float("nan"), -tl.log(total)))
    tl.store(all_best + count * R + row, tl.where(lost, float("nan"), top))
    tl.store(counts + row, count + 1)
    tl.store(tokens + row, token)
    tl.store(lengths + row, tl.minimum(tl.load(lengths + row) + 1, LAST))


@dataclass(frozen=True)
class ChosenTokens:
    """What was chosen so far: [N, R] each, of which counts[r] of row r are filled in."""

    tokens_NR: Tensor
    log_p_NR: Tensor
    best_NR: Tensor  # the score of the token; NaN if any score of the row was
    counts_R: Tensor

    @classmethod
    def room(cls, count: int, rows: int, device: torch.device) -> ChosenTokens:
        tokens_NR = torch.zeros(count, rows, dtype=torch.long, device=device)
        log_p_NR, best_NR = torch.zeros(2, count, rows, device=device)
        return cls(tokens_NR, log_p_NR, best_NR, torch.zeros(rows, dtype=torch.long, device=device))


def take_likeliest(
    scores_RV: Tensor, tokens_R: Tensor, lengths_R: Tensor, last: int, chosen: ChosenTokens
) -> None:
    """Each row's most likely token: stored, made the token to go on from, and counted (up to `last`)."""
    R, V = scores_RV.shape
    C = triton.cdiv(V, STRETCH)
    tops, totals = scores_RV.new_empty(R, C), scores_RV.new_empty(R, C)
    places = torch.empty(R, C, dtype=torch.int32, device=scores_RV.device)
    stretch_kernel[(R, C)](
        scores_RV,
        tops,
        places,
        totals,
        V,
        C,
        scores_RV.stride(0),
        BV=STRETCH,
        num_warps=8,
        **early(scores_RV.device),
    )
    row_kernel[(R,)](
        tops, places, totals, tokens_R, lengths_R, chosen.counts_R, chosen.tokens_NR, chosen.log_p_NR,
        chosen.best_NR,
        C, V, R, last, BC=triton.next_power_of_2(C), num_warps=1, **early(scores_RV.device),
    )  # fmt: skip
