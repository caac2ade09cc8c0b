"""A GPT of today: what has proved to learn faster at equal size, put together from the same parts.

Compared with GPT-2: rotary instead of learned positions, normalized queries and keys (Henry et al. 2020),
squared ReLU (So et al. 2021), RMSNorm, no biases, an untied head, and matrices that add to the residual
starting from zero, so that at first every block is the identity. Public records of training small GPTs fast
agree on these, with Muon.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, TokenEmbedding, Untied
from ..parts.layers import FeedForward, PreNorm, RMSNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.rotary import Rotary
from .base.config import Config
from .base.fields import Context, Dropout, Eps, FfnWidth, Heads, Layers, Vocab, Width, ratio
from .base.initialize import normal_
from .base.shells import Decoder


@dataclass(frozen=True)
class ModernConfig(Config):
    vocab: Vocab = 50257
    context: Context = 1024
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 6
    ffn_width: FfnWidth = ratio(4, "width")
    dropout: Dropout = 0.0
    eps: Eps = 1e-06


PRESETS = {"modern-162m": ModernConfig()}


def build(config: ModernConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    stack = Stack([build_block(c) for _ in range(c.layers)], RMSNorm(c.width, c.eps))
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), norm=RMSNorm(c.width, c.eps), dropout=c.dropout)
    return initialize(Decoder(inputs, stack, Untied(c.width, c.vocab)))


def build_block(c: ModernConfig) -> Block:
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        bias=False,
        dropout=c.dropout,
        position=Rotary(c.width // c.heads),
        qk_norm=lambda width: RMSNorm(width, c.eps),
    )
    feed_forward = FeedForward(c.width, c.ffn_width, "relu_squared", bias=False)
    return Block(
        PreNorm(attention, RMSNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, RMSNorm(c.width, c.eps), c.dropout),
    )


def initialize(model: Decoder) -> Decoder:
    """N(0, 1 / fan-in) inside, and zero where a layer adds to the residual and in the head."""
    normal_(model, std=0.02)
    for name, weight in model.named_parameters():
        if name.endswith(
            ("attention.layer.out.weight", "feed_forward.layer.down.weight", "head.linear.weight")
        ):
            nn.init.zeros_(weight)
        elif weight.ndim == 2 and "blocks." in name:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    return model
