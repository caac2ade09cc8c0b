"""A decoder with linear attention (Katharopoulos et al. 2020), otherwise GPT-2: its cost is linear."""

from __future__ import annotations

from dataclasses import dataclass

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.long.linear import KernelAttention, KernelScore
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Sinusoidal
from .base.config import Config
from .base.initialize import LEVEL, level_
from .base.shells import Decoder


@dataclass(frozen=True)
class LinearConfig(Config):
    vocab: int = 50257
    context: int = 1024  # what it is trained on; sinusoids and sums never end
    layers: int = 12
    width: int = 768
    heads: int = 12
    ffn_width: int = 3072
    activation: str = "gelu_tanh"
    dropout: float = 0.1
    eps: float = 1e-5


PRESETS = {"linear-124m": LinearConfig()}


def build(config: LinearConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    tokens = TokenEmbedding(c.vocab, c.width, LEVEL)
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    model = Decoder(Inputs(tokens, Sinusoidal(c.width), dropout=c.dropout), stack, Tied())
    level_(model)
    return model


def build_block(c: LinearConfig) -> Block:
    attention = KernelAttention(MultiHeadAttention(c.width, c.heads, score=KernelScore()))
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PreNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )
