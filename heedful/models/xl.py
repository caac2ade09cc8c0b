"""Transformer-XL (Dai et al. 2019): a decoder with segment recurrence and relative positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PostNorm
from ..parts.long.segments import RecurrentAttention
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.relative import TransformerXL
from .base.config import Config
from .base.fields import (
    SIZE,
    Activation,
    AttentionDropout,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    Layers,
    MaxDistance,
    Vocab,
    Width,
)
from .base.initialize import normal_
from .base.settings import derived, same_as
from .base.shells import Decoder


@dataclass(frozen=True)
class XLConfig(Config):
    vocab: Vocab = 267735
    context: Annotated[int, SIZE, "tokens of a segment"] = 150
    memory_length: Annotated[int, SIZE, "tokens before a segment that it sees, in training"] = same_as(
        "context"
    )
    eval_memory_length: Annotated[int, SIZE, "the same in evaluation and generation"] = same_as(
        "memory_length"
    )
    max_distance: MaxDistance = derived(
        "context + memory_length", lambda made: made.context + made.memory_length
    )
    layers: Layers = 16
    width: Width = 410
    heads: Heads = 10
    ffn_width: FfnWidth = 2100
    activation: Activation = "relu"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    eps: Eps = 1e-05


PRESETS = {
    "transformer-xl-base": XLConfig(eval_memory_length=640, max_distance=400)
}  # of WikiText-103, without its adaptive softmax


def build(config: XLConfig) -> Decoder:
    """The decoder, with fresh weights. Biases u and v are shared by all layers."""
    c = config
    u, v = (nn.Parameter(torch.zeros(c.heads, c.width // c.heads)) for _ in range(2))
    inputs = Inputs(TokenEmbedding(c.vocab, c.width, math.sqrt(c.width)), dropout=c.dropout)
    model = Decoder(inputs, Stack([build_block(c, u, v) for _ in range(c.layers)]), Tied())
    normal_(model, std=0.02)
    for bias in (u, v):
        nn.init.normal_(bias, std=0.02)
    return model


def build_block(c: XLConfig, u: nn.Parameter, v: nn.Parameter) -> Block:
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        bias=False,
        dropout=c.attention_dropout,
        position=TransformerXL(c.width, c.heads, c.width // c.heads, u, v, c.max_distance),
    )
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation, dropout=c.dropout)
    return Block(
        PostNorm(RecurrentAttention(attention, c.eval_memory_length), LayerNorm(c.width, c.eps), c.dropout),
        PostNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )
