"""The best words: the few likeliest of a large vocabulary and their log-probabilities, without sorting or keeping all.

On a CPU the scores of many rows do not fit its caches, and everything that passes through them waits for memory. So a
few rows at a time go through all of it. And to find k of V words, look first at the largest of each stretch of the
vocabulary: the k best words stand in the k best stretches. On other devices, and for few scores, torch's own way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .filters import Filter, apply_to_log_probabilities
from .written import Written

NEAR = 1 << 19  # scores that stay close to the processor while they are looked at
MANY = 1 << 17  # scores from which on stretches are quicker
STRETCH = 128  # words


def best(
    scores_RV: Tensor, k: int, filters: Sequence[Filter] = (), written: Written | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The k best words of each row, best first, as filters leave them: their log-probabilities, the same as changed by
    the filters, and which they are; [R, k] each."""
    found, start = [], 0
    for some_RV in in_parts(scores_RV):
        rows = torch.arange(start, start := start + len(some_RV), device=scores_RV.device)
        mine = None if written is None else written.select(rows)
        log_p_RV, changed_RV = apply_to_log_probabilities(filters, some_RV, mine)
        words_RK = top(changed_RV, k)
        found.append((log_p_RV.gather(1, words_RK), changed_RV.gather(1, words_RK), words_RK))
    log_p_RK, changed_RK, words_RK = (torch.cat(parts) for parts in zip(*found, strict=True))
    return log_p_RK, changed_RK, words_RK


def log_probability(scores_RV: Tensor, words_R: Tensor) -> Tensor:
    """log softmax of the scores at one word a row."""
    parts, words_R1 = in_parts(scores_RV), words_R[:, None]
    if len(parts) == 1:
        return scores_RV.log_softmax(-1).gather(1, words_R1)[:, 0]
    words = words_R1.split(len(parts[0]))
    return torch.cat([z.log_softmax(-1).gather(1, at) for z, at in zip(parts, words, strict=True)])[:, 0]


def likeliest(scores_RV: Tensor) -> Tensor:
    """Each row's likeliest word, the first of equals: argmax."""
    if not pays(scores_RV, 1):
        return scores_RV.argmax(-1)
    stretches_RNL, rest_RX = stretched(scores_RV)
    at_R = stretches_RNL.amax(-1).argmax(-1)
    stretch_RL = stretches_RNL[torch.arange(len(at_R)), at_R]
    words_R = torch.cat([stretch_RL, rest_RX], 1).argmax(-1)
    before_rest = stretches_RNL.shape[1] * STRETCH - STRETCH
    return words_R + torch.where(words_R < STRETCH, at_R * STRETCH, before_rest)


def top(scores_RV: Tensor, k: int) -> Tensor:
    """The k largest of each row, largest first, by their numbers."""
    if not pays(scores_RV, k):
        return scores_RV.topk(k).indices
    R, V = scores_RV.shape
    stretches_RNL, rest_RX = stretched(scores_RV)
    at_RK1 = stretches_RNL.amax(-1).topk(k, sorted=False).indices[..., None]
    words_RY = (at_RK1 * STRETCH + torch.arange(STRETCH)).flatten(1)
    if rest_RX.shape[1]:
        words_RY = torch.cat([words_RY, torch.arange(V - rest_RX.shape[1], V).expand(R, -1)], 1)
    return words_RY.gather(1, scores_RV.gather(1, words_RY).topk(k).indices)


def stretched(scores_RV: Tensor) -> tuple[Tensor, Tensor]:
    """A row's scores as [R, N, STRETCH], and the last few that fill no stretch."""
    V = scores_RV.shape[1]
    whole = V - V % STRETCH
    return scores_RV[:, :whole].unflatten(1, (-1, STRETCH)), scores_RV[:, whole:]


def pays(scores_RV: Tensor, k: int) -> bool:
    """Whether stretches are quicker: on a CPU, for many scores, in a vocabulary of many times k stretches."""
    large = scores_RV.numel() >= MANY and scores_RV.shape[1] >= 8 * max(k, 4) * STRETCH
    return large and scores_RV.device.type == "cpu"


def in_parts(scores_RV: Tensor) -> tuple[Tensor, ...]:
    """A few rows at a time, or all where that gains nothing."""
    if scores_RV.numel() <= NEAR or scores_RV.device.type != "cpu":
        return (scores_RV,)
    return scores_RV.split(max(1, NEAR // scores_RV.shape[1]))
