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
from .base.fields import Activation, Context, Dropout, Eps, FfnWidth, Heads, Layers, Vocab, Width, ratio
from .base.initialize import LEVEL, level_
from .base.shells import Decoder


@dataclass(frozen=True)
class LinearConfig(Config):
    vocab: Vocab = 50257
    context: Context = 1024
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu_tanh"
    dropout: Dropout = 0.1
    eps: Eps = 1e-05


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
