"""A mixture of experts for text: GPT-2 with experts (Shazeer et al. 2017) instead of feed-forward layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..parts.blocks import StackLike
from ..parts.experts import check_chosen, make_experts
from ..parts.layers import FeedForward
from . import gpt2
from .base.fields import BalanceLossWeight, CapacityFactor, Experts, MoeEvery, Router, TopK
from .base.initialize import normal_
from .base.shells import Decoder


@dataclass(frozen=True)
class MixtureConfig(gpt2.GPT2Config):
    experts: Experts = 8
    top_k: TopK = 2
    moe_every: MoeEvery = 1
    router: Router = "noisy"
    balance_loss_weight: BalanceLossWeight = 0.01
    capacity_factor: CapacityFactor = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen(self.top_k, self.experts)


PRESETS = {"mixture-8x124m": MixtureConfig()}


def build(config: MixtureConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    model = gpt2.build(c)
    put_experts(model.stack, c, lambda: FeedForward(c.width, c.ffn_width, c.activation))
    return initialize(model)


def put_experts(stack: StackLike, c: Any, expert: Callable[[], nn.Module]) -> None:
    """Experts in the last block, and in one of `c.every` before it. expert: makes one."""
    for block in list(stack.blocks)[::-1][:: c.moe_every]:
        experts = make_experts(
            expert, c.width, c.experts, c.top_k, c.router, c.balance_loss_weight, c.capacity_factor
        )
        block.feed_forward.layer = experts  # type: ignore[union-attr]


def initialize(model: Decoder) -> Decoder:
    """As GPT-2: N(0, 0.02), and less where a layer adds to the residual. Gates stay as they were made."""
    normal_(model, std=0.02)
    layers = 2 * len(model.stack.blocks)
    for name, weight in model.named_parameters():
        if name.endswith(("attention.layer.out.weight", ".down.weight")):
            nn.init.normal_(weight, std=0.02 / math.sqrt(layers))
    return model
