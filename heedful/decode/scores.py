"""Scores of the next token, on their way to a choice: filtered, made log-probabilities, the best found.

On a CPU the scores of many rows do not fit its caches, so a few rows at a time go through all of it. To find
k of V tokens, look first at the largest score of each stretch of the vocabulary: the k best tokens stand in
the k best stretches. Other devices, and few scores, take torch's own functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadInput, NotFinite

if TYPE_CHECKING:
    from .filters import Context, Filter

NEVER = float("-inf")
NEAR = 1 << 19  # scores that stay in the processor's caches while they are looked at
MANY = 1 << 17  # scores from which on stretches are quicker
STRETCH = 128  # tokens
BLOCK = 512  # numbers that a GPU adds up in one go


def precise(scores: Tensor) -> Tensor:
    """In fp32 at least."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def apply(filters: Sequence[Filter], scores_BV: Tensor, context: Context | None) -> Tensor:
    """All filters, in order, on precise scores. Filters need the context."""
    scores_BV = precise(scores_BV)
    if filters and context is None:
        raise ValueError("filters read the context: keep it")
    for one in filters:
        scores_BV = one(scores_BV, context)  # type: ignore[arg-type]
    return scores_BV


def apply_to_log_probabilities(
    filters: Sequence[Filter], scores_BV: Tensor, context: Context | None
) -> tuple[Tensor, Tensor]:
    """The log-probabilities, and the same as the filters change them.

    Filters act on log-probabilities here, as in Hugging Face's beam search, and these are not normalized
    anew: that a word is forbidden does not make a hypothesis without it likelier.
    """
    log_p_BV = precise(scores_BV).log_softmax(-1)
    return log_p_BV, apply(filters, log_p_BV, context)


def check_choice(best: Sequence[float], rows: Sequence[int]) -> None:
    """Each row's best score must exist: -inf means that all is forbidden, NaN that the model is broken."""
    for score, row in zip(best, rows, strict=True):
        if math.isnan(score):
            raise NotFinite(
                f"the model's scores for row {row} are not numbers: its weights or inputs are broken"
            )
        if score == NEVER:
            raise BadInput(f"every token is forbidden as the next one of row {row}: loosen the filters")


# The best of many.


def top_tokens(
    scores_RV: Tensor, k: int, filters: Sequence[Filter] = (), context: Context | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The k best tokens of each row, best first, as the filters leave them; three tensors of [R, k].

    They are the log-probabilities, the same as the filters changed them, and the tokens.
    """
    found, start = [], 0
    for some_RV in in_parts(scores_RV):
        rows = torch.arange(start, start := start + len(some_RV), device=scores_RV.device)
        mine = None if context is None else context.select(rows)
        log_p_RV, changed_RV = apply_to_log_probabilities(filters, some_RV, mine)
        tokens_RK = top_indices(changed_RV, k)
        found.append((log_p_RV.gather(1, tokens_RK), changed_RV.gather(1, tokens_RK), tokens_RK))
    log_p_RK, changed_RK, tokens_RK = (torch.cat(parts) for parts in zip(*found, strict=True))
    return log_p_RK, changed_RK, tokens_RK


def log_probability(scores_RV: Tensor, tokens_R: Tensor) -> Tensor:
    """log softmax of the scores at one token a row."""
    parts, tokens_R1 = in_parts(scores_RV), tokens_R[:, None]
    if len(parts) == 1:
        return scores_RV.log_softmax(-1).gather(1, tokens_R1)[:, 0]
    tokens = tokens_R1.split(len(parts[0]))
    return torch.cat([z.log_softmax(-1).gather(1, at) for z, at in zip(parts, tokens, strict=True)])[:, 0]


def argmax(scores_RV: Tensor) -> Tensor:
    """Each row's most likely token, the first of equals."""
    if not stretches_pay(scores_RV, 1):
        return scores_RV.argmax(-1)
    stretches_RNL, rest_RX = in_stretches(scores_RV)
    at_R = stretches_RNL.amax(-1).argmax(-1)
    stretch_RL = stretches_RNL[torch.arange(len(at_R)), at_R]
    tokens_R = torch.cat([stretch_RL, rest_RX], 1).argmax(-1)
    before_rest = stretches_RNL.shape[1] * STRETCH - STRETCH
    return tokens_R + torch.where(tokens_R < STRETCH, at_R * STRETCH, before_rest)


def top_indices(scores_RV: Tensor, k: int) -> Tensor:
    """The indices of the k largest scores of each row, largest first."""
    if not stretches_pay(scores_RV, k):
        return scores_RV.topk(k).indices
    R, V = scores_RV.shape
    stretches_RNL, rest_RX = in_stretches(scores_RV)
    at_RK1 = stretches_RNL.amax(-1).topk(k, sorted=False).indices[..., None]
    tokens_RY = (at_RK1 * STRETCH + torch.arange(STRETCH)).flatten(1)
    if rest_RX.shape[1]:
        tokens_RY = torch.cat([tokens_RY, torch.arange(V - rest_RX.shape[1], V).expand(R, -1)], 1)
    return tokens_RY.gather(1, scores_RV.gather(1, tokens_RY).topk(k).indices)


def in_stretches(scores_RV: Tensor) -> tuple[Tensor, Tensor]:
    """A row's scores as [R, N, STRETCH], and the last few that fill no stretch."""
    V = scores_RV.shape[1]
    whole = V - V % STRETCH
    return scores_RV[:, :whole].unflatten(1, (-1, STRETCH)), scores_RV[:, whole:]


def stretches_pay(scores_RV: Tensor, k: int) -> bool:
    """Whether stretches are quicker: on a CPU, for many scores, in a vocabulary of many times k stretches."""
    large = scores_RV.numel() >= MANY and scores_RV.shape[1] >= 8 * max(k, 4) * STRETCH
    return large and scores_RV.device.type == "cpu"


def running_sum(x_BV: Tensor) -> Tensor:
    """The sum of each row up to each place.

    A GPU does a row after another, so long rows are added up in blocks, and these one to the other.
    """
    if not x_BV.is_cuda or x_BV.numel() < MANY:
        return x_BV.cumsum(-1)
    return blockwise_sum(x_BV)


def blockwise_sum(x_BV: Tensor) -> Tensor:
    """The running sum by blocks."""
    V = x_BV.shape[1]
    within_BCL = F.pad(x_BV, (0, -V % BLOCK)).unflatten(1, (-1, BLOCK)).cumsum(-1)
    before_BC = F.pad(within_BCL[:, :-1, -1].cumsum(-1), (1, 0))
    return (within_BCL + before_BC[..., None]).flatten(1)[:, :V]


def in_parts(scores_RV: Tensor) -> tuple[Tensor, ...]:
    """A few rows at a time, or all rows where parts gain nothing."""
    if scores_RV.numel() <= NEAR or scores_RV.device.type != "cpu":
        return (scores_RV,)
    return scores_RV.split(max(1, NEAR // scores_RV.shape[1]))
