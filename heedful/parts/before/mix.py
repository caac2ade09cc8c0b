"""The scalar mix: what a task takes of the layers of a model that it leaves as it is (Peters et al. 2018).

    ELMo_k = gamma sum_j s_j h_kj,    s = softmax(w)

Which layer is worth how much is all that is learned here. With w = 0, it is their mean times gamma.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def scalar_mix(layers_BTJD: Tensor, weights_J: Tensor, gamma: Tensor) -> Tensor:
    """gamma sum_j softmax(w)_j h_j."""
    return gamma * torch.einsum("j,btjd->btd", weights_J.softmax(0).to(layers_BTJD.dtype), layers_BTJD)


class ScalarMix(nn.Module):
    """`scalar_mix` of layers that come side by side, with learned weights. norm: normalize each vector first.

    The norm learns nothing, and is taken of every vector by itself: who else is in the batch makes no
    difference.
    """

    def __init__(self, layers: int, norm: bool = False) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))
        self.norm = norm

    def forward(self, layers_BTX: Tensor) -> Tensor:
        layers_BTJD = layers_BTX.unflatten(-1, (len(self.weights), -1))
        if self.norm:
            layers_BTJD = F.layer_norm(layers_BTJD, layers_BTJD.shape[-1:])
        return scalar_mix(layers_BTJD, self.weights, self.gamma)

    def penalty(self) -> Tensor:
        """|w|^2, which a large factor keeps at 0: at the mean of all layers."""
        return self.weights.square().sum()
