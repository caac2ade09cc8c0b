"""Scores and their cross-entropy in one: the scores are read once more to be turned into their own gradient.

The scores of a batch are the largest tensor of a small model. Here they exist once, in the precision of the matrix
product; the kernel sums them up in fp32 and then writes softmax - target over them, which is all that the backward
pass needs: two matrix products.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

MULTIPLE = 64  # of words: matrix products are much slower for an odd vocabulary


@triton.jit
def loss_kernel(
    scores, bias, answers, totals, plains, V, STRIDE, BIAS: tl.constexpr, SMOOTHING: tl.constexpr, BV: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    here = scores + row.to(tl.int64) * STRIDE
    answer = tl.load(answers + row)
    counts = answer >= 0
    top, total, mean = float("-inf"), 0.0, 0.0
    for v0 in range(0, V, BV):
        v = v0 + tl.arange(0, BV)
        z = tl.load(here + v, mask=v < V, other=float("-inf")).to(tl.float32)
        if BIAS:
            z += tl.load(bias + v, mask=v < V, other=0.0).to(tl.float32)
        higher = tl.maximum(top, tl.max(z, 0))
        level = tl.where(
            higher == float("-inf"), 0.0, higher
        )  # as long as nothing is possible, nothing adds up
        total = total * tl.exp(top - level) + tl.sum(tl.exp(z - level), 0)
        if SMOOTHING > 0:
            mean += tl.sum(tl.where(v < V, z, 0.0), 0) / V
        top = higher
    partition = top + tl.log(total)
    right = tl.load(here + answer, mask=counts, other=0.0).to(tl.float32)
    if BIAS:
        right += tl.load(bias + answer, mask=counts, other=0.0).to(tl.float32)
    plain = partition - right
    smoothed = plain
    if SMOOTHING > 0:
        smoothed = (1 - SMOOTHING) * plain + SMOOTHING * (partition - mean)
    tl.store(totals + row, tl.where(counts, smoothed, 0.0))
    tl.store(plains + row, tl.where(counts, plain, 0.0))
    for v0 in range(0, STRIDE, BV):
        v = v0 + tl.arange(0, BV)
        z = tl.load(here + v, mask=v < V, other=float("-inf")).to(tl.float32)
        if BIAS:
            z += tl.load(bias + v, mask=v < V, other=0.0).to(tl.float32)
        target = tl.where(v == answer, 1 - SMOOTHING, 0.0) + SMOOTHING / V
        slope = tl.where(counts & (v < V), tl.exp(z - partition) - target, 0.0)
        tl.store(here + v, slope.to(scores.dtype.element_ty), mask=v < STRIDE)


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
        loss_kernel[(N,)](
            scores_NP, scores_NP if bias_V is None else bias_V, answers_N, totals_N, plains_N, V, scores_NP.shape[1],
            BIAS=bias_V is not None, SMOOTHING=smoothing, BV=min(8192, triton.next_power_of_2(V)), num_warps=8,
        )  # fmt: skip
        ctx.save_for_backward(scores_NP, x_ND, padded_PD)
        ctx.words, ctx.kind, ctx.biased = V, weight_VD.dtype, bias_V is not None
        plain = plains_N.sum()
        ctx.mark_non_differentiable(plain)
        return totals_N.sum(), plain

    @staticmethod
    def backward(ctx: Any, share: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        slopes_NP, x_ND, padded_PD = ctx.saved_tensors
        x_grad_ND = slopes_NP @ padded_PD * share.to(x_ND.dtype)
        weight_grad_VD = (slopes_NP.t() @ x_ND)[: ctx.words].to(ctx.kind) * share
        bias_grad_V = slopes_NP.sum(0, dtype=torch.float32)[: ctx.words] * share if ctx.biased else None
        return x_grad_ND, weight_grad_VD, bias_grad_V, None, None, None
