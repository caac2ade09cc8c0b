"""One softmax over several shares of the keys, each computed by itself, and again in the backward pass.

Queries keep their output and the logarithm of their softmax's denominator, as in FlashAttention (Dao et al.
2022). These are enough to give every share its own gradients:

    share     scores_i, outputs_i, norm_i = log sum exp(scores_i)      one softmax over its own keys
    together  norm = log sum_i exp(norm_i),   out = sum_i exp(norm_i - norm) outputs_i
    backward  weights = exp(scores - norm),   d scores = weights * (d weights - d out . out)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class SoftmaxShare(Protocol):
    """Some of the keys of every query. A softmax over several shares is computed share by share."""

    def mixed(self, q_BHNK: Tensor, k_BHNK: Tensor, v_BHNL: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs by these keys alone, and the logarithm of their softmax's denominator.

        That is -inf where there is no key.
        """

    def gradients(
        self,
        q_BHNK: Tensor,
        k_BHNK: Tensor,
        v_BHNL: Tensor,
        grad_BHNL: Tensor,
        out_BHNL: Tensor,
        norm_BHN1: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What these keys add to the gradients of queries, keys and values.

        Output and norm are those of the whole softmax.
        """


class OneSoftmax(torch.autograd.Function):
    """Attention of scaled queries to several shares; keeps its inputs, its output and a number for every
    query."""

    @staticmethod
    def forward(
        ctx: Any, q_BHNK: Tensor, k_BHNK: Tensor, v_BHNL: Tensor, shares: Sequence[SoftmaxShare]
    ) -> Tensor:
        outs, norms = zip(*(share.mixed(q_BHNK, k_BHNK, v_BHNL) for share in shares), strict=True)
        norm_BHN1 = reduce(torch.logaddexp, norms)
        norm_BHN1 = norm_BHN1.nan_to_num(math.nan, math.inf, 0.0)  # -inf: of queries that see nobody
        out = sum((norm - norm_BHN1).exp() * out for norm, out in zip(norms, outs, strict=True))
        out_BHNL: Tensor = out.to(v_BHNL.dtype)
        ctx.shares = shares
        ctx.save_for_backward(q_BHNK, k_BHNK, v_BHNL, out_BHNL, norm_BHN1)
        return out_BHNL

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHNL: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out_BHNL, norm_BHN1 = ctx.saved_tensors
        found = [share.gradients(q, k, v, grad_BHNL, out_BHNL, norm_BHN1) for share in ctx.shares]
        return *(
            sum(some).to(x.dtype) for some, x in zip(zip(*found, strict=True), (q, k, v), strict=True)
        ), None
