"""A mixture of experts that translates: the Transformer with experts instead of feed-forward layers."""

from __future__ import annotations

from dataclasses import dataclass

from ..parts.experts import check_chosen
from ..parts.layers import FeedForward
from . import transformer
from .base.fields import BalanceLossWeight, CapacityFactor, Experts, MoeEvery, Router, TopK
from .base.initialize import xavier_
from .base.shells import EncoderDecoder
from .mixture import put_experts


@dataclass(frozen=True)
class MixtureTransformerConfig(transformer.TransformerConfig):
    experts: Experts = 8
    top_k: TopK = 2
    moe_every: MoeEvery = 1
    router: Router = "noisy"
    balance_loss_weight: BalanceLossWeight = 0.01
    capacity_factor: CapacityFactor = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_chosen(self.top_k, self.experts)


PRESETS = {"transformer-8x63m": MixtureTransformerConfig()}


def build(config: MixtureTransformerConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    model = transformer.build(c)

    def expert(hidden: int) -> FeedForward:
        return FeedForward(c.width, hidden, c.activation, dropout=c.activation_dropout)

    put_experts(model.encoder.stack, c, lambda: expert(c.ffn_width))
    put_experts(model.decoder.stack, c, lambda: expert(c.decoder_ffn_width))
    xavier_(model)
    return model
