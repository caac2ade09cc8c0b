"""T-DMCA with experts (Liu et al. 2018): one of its feed-forward layers becomes a mixture of 128 or 256."""

from __future__ import annotations

from dataclasses import dataclass

from ..parts.experts import check_chosen
from ..parts.layers import FeedForward
from . import dmca
from .base.fields import BalanceLossWeight, CapacityFactor, Experts, MoeEvery, Router, TopK
from .base.initialize import level_
from .base.shells import Decoder
from .mixture import put_experts


@dataclass(frozen=True)
class MixtureDMCAConfig(dmca.DMCAConfig):
    experts: Experts = 128
    top_k: TopK = 2
    moe_every: MoeEvery = 5
    router: Router = "noisy"
    balance_loss_weight: BalanceLossWeight = 0.01
    capacity_factor: CapacityFactor = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen(self.top_k, self.experts)


PRESETS = {
    "t-dmca-128": MixtureDMCAConfig(),
    "t-dmca-256": MixtureDMCAConfig(context=7500, experts=256),
}


def build(config: MixtureDMCAConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    model = dmca.build(c)
    put_experts(model.stack, c, lambda: FeedForward(c.width, c.ffn_width, c.activation))
    level_(model)
    return model
