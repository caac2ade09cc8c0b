"""T-DMCA with experts (Liu et al. 2018): one of its feed-forward layers becomes a mixture of 128 or 256."""

from __future__ import annotations

from dataclasses import dataclass

from ..parts.layers import FeedForward
from . import dmca
from .base.initialize import level_
from .base.shells import Decoder
from .mixture import check_experts, put_experts


@dataclass(frozen=True)
class MixtureDMCAConfig(dmca.DMCAConfig):
    experts: int = 128  # what these are: see MixtureConfig
    top_k: int = 2
    moe_every: int = 5  # of five layers, the last
    router: str = "noisy"
    balance_loss_weight: float = 0.01
    capacity_factor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_experts(self.experts, self.top_k, self.router)


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
