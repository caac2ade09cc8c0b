"""k-means (Lloyd 1982): a few points such that each of many has one of them near."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 15
AT_ONCE = 1 << 23  # distances that are taken together


def k_means(points_NX: Tensor, K: int, generator: torch.Generator) -> tuple[Tensor, float]:
    """(K centers [K, X], the mean square of what a coordinate is off). Of points that are the same, one counts.

    If there are fewer points than centers, some centers are the same.
    """
    points_NX = points_NX.unique(dim=0)
    order = torch.randperm(len(points_NX), generator=generator)
    centers_KX = points_NX[order.repeat(-(-K // len(order)))[:K]]
    for _ in range(ROUNDS):
        nearest_N = nearest(points_NX, centers_KX)
        counts_K = torch.bincount(nearest_N, minlength=K)
        sums_KX = torch.zeros_like(centers_KX).index_add_(0, nearest_N, points_NX)
        means_KX = sums_KX / counts_K.clamp(min=1)[:, None]
        centers_KX = torch.where(counts_K[:, None] > 0, means_KX, centers_KX)
    off = (points_NX - centers_KX[nearest(points_NX, centers_KX)]).square().mean().item()
    return centers_KX, off


def nearest(points_NX: Tensor, centers_KX: Tensor) -> Tensor:
    """The number of each point's nearest center [N]: |p - c|^2 is least where p . c - |c|^2 / 2 is most."""
    half_K = centers_KX.square().sum(1) / 2
    parts = points_NX.split(max(1, AT_ONCE // len(centers_KX)))
    return torch.cat([(some @ centers_KX.T - half_K).argmax(1) for some in parts])
