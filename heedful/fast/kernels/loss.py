"""Scores and their cross-entropy in one: the scores are read once more to be turned into their own gradient.

The scores of a batch are the largest tensor of a small model. Here they exist once, in the precision of the
matrix product; the kernel sums them up in fp32 and then writes softmax - target over them, which is all that
the backward pass needs: two matrix products.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from .product import in_full

BLOCKS = ((8192, 16), (2048, 4))  # words at a time, and warps: the quickest of those tried, long and short
MULTIPLE = 64  # of words: matrix products are much slower for an odd vocabulary


@triton.jit
def _scores(here, bias, v, V, STRIDE, BIAS: tl.constexpr):
    """Scores of some words, in fp32.

    What is loaded ends at the stride, a multiple that whole lines can be read by.
    """
    z = tl.load(here + v, mask=v < STRIDE, other=float("-inf")).to(tl.float32)
    if BIAS:
        z += tl.load(bias + v, mask=v < V, other=0.0).to(tl.float32)
    return z


@triton.jit
def loss_kernel(
    scores, bias, answers, totals, plains, V, STRIDE, BIAS: tl.constexpr, SMOOTHING: tl.constexpr,
    BV: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    here = scores + row.to(tl.int64) * STRIDE
    answer = tl.load(answers + row)
    counts = answer >= 0
    right = tl.load(here + answer, mask=counts, other=0.0).to(tl.float32)  # before it is written over
    if BIAS:
        right += tl.load(bias + answer, mask=counts, other=0.0).to(tl.float32)
    top, total, mean = float("-inf"), 0.0, 0.0
    for v0 in range(0, V, BV):
        v = v0 + tl.arange(0, BV)
        z = tl.where(v < V, _scores(here, bias, v, V, STRIDE, BIAS), float("-inf"))
        higher = tl.maximum(top, tl.max(z, 0))
        level = tl.where(
            higher == float("-inf"), 0.0, higher
        )  # as long as nothing is possible, nothing adds up
        total = total * tl.exp(top - level) + tl.sum(tl.exp(z - level), 0)
        if SMOOTHING > 0:
            mean += tl.sum(tl.where(v < V, z, 0.0), 0) / V
        top = higher
    partition = top + tl.log(total)
    plain = partition - right
    smoothed = plain
    if SMOOTHING > 0:
        smoothed = (1 - SMOOTHING) * plain + SMOOTHING * (partition - mean)
    tl.store(totals + row, tl.where(counts, smoothed, 0.0))
    tl.store(plains + row, tl.where(counts, plain, 0.0))
    kind = scores.dtype.element_ty
    for v0 in range(0, STRIDE, BV):
        v = v0 + tl.arange(0, BV)
        slope = tl.exp(_scores(here, bias, v, V, STRIDE, BIAS) - partition) - SMOOTHING / V
        tl.store(here + v, tl.where(counts & (v < V), slope, 0.0).to(kind), mask=v < STRIDE)
    tl.debug_barrier()  # then the answer's, over what others wrote there
    slope = tl.exp(right - partition) - (1 - SMOOTHING) - SMOOTHING / V
    tl.store(here + answer, slope.to(kind), mask=counts)


def block_for(words: int) -> tuple[int, int]:
    """Long blocks, where few of the last one's places are empty; else short ones.

    And how many warps work on them.
    """
    (long, warps), short = BLOCKS
    if -words % long < words // 20:
        return long, warps
    return min(short[0], triton.next_power_of_2(words)), short[1]


class LinearCrossEntropy(torch.autograd.Function):
    """(smoothed, plain) cross-entropy of x W^T + b, summed over the rows that have an answer."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        answers_N: Tensor,
        smoothing: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        N, V = len(x_ND), len(weight_VD)
        x_ND, padded_PD = x_ND.to(dtype), weight_VD.to(dtype)
        if V % MULTIPLE:
            padded_PD = F.pad(padded_PD, (0, 0, 0, -V % MULTIPLE))
        scores_NP = x_ND @ padded_PD.t()
        totals_N, plains_N = torch.empty(2, N, device=x_ND.device)
        width, warps = block_for(V)
        loss_kernel[(N,)](
            scores_NP, scores_NP if bias_V is None else bias_V, answers_N, totals_N, plains_N, V,
            scores_NP.shape[1],
            BIAS=bias_V is not None, SMOOTHING=smoothing, BV=width, num_warps=warps,
        )  # fmt: skip
        ctx.save_for_backward(scores_NP, x_ND, padded_PD)
        ctx.words, ctx.kind = V, weight_VD.dtype
        plain = plains_N.sum()
        ctx.mark_non_differentiable(plain)
        return totals_N.sum(), plain

    @staticmethod
    def backward(ctx: Any, share: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        slopes_NP, x_ND, padded_PD = ctx.saved_tensors
        x_grad_ND = slopes_NP @ padded_PD * share.to(x_ND.dtype)
        weight_grad_VD = in_full(slopes_NP, x_ND)[: ctx.words].to(ctx.kind).mul_(share)
        biased = ctx.needs_input_grad[2]
        bias_grad_V = slopes_NP.sum(0, dtype=torch.float32)[: ctx.words] * share if biased else None
        return x_grad_ND, weight_grad_VD, bias_grad_V, None, None, None
