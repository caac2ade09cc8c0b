"""The Sparse Transformer (Child et al. 2019): two steps of sparse attention reach every token in n sqrt(n).

pattern  strided: the last l tokens, then every l-th; for pictures and sound, whose rows have one length
         fixed: the own block so far, then the last few tokens of every block; for text
         window: the last l tokens only, in every layer: linear, and what is farther takes several layers
head_pattern  interleaved: layers take turns; merged: every head sees both; heads: heads take turns
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import isqrt
from typing import Annotated, Literal

from torch import nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.long.windowed_cache import RecentAttention
from ..parts.masks import Mask, PerHead, causal, window
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Learned
from ..parts.sparse_masks import fixed_steps, strided_steps
from .base.config import Config
from .base.fields import SIZE, Context, Dropout, Eps, FfnWidth, Heads, Layers, Vocab, Width, ratio
from .base.initialize import normal_
from .base.settings import derived
from .base.shells import Decoder


@dataclass(frozen=True)
class SparseConfig(Config):
    vocab: Vocab = 256
    context: Context = 12288
    layers: Layers = 30
    width: Width = 512
    heads: Heads = 8
    ffn_width: FfnWidth = ratio(4, "width")
    pattern: Annotated[Literal["strided", "fixed", "window"], "which tokens attention sees"] = "fixed"
    head_pattern: Annotated[
        Literal["interleaved", "merged", "heads"],
        "layers alternate, every head sees both, or heads alternate",
    ] = "interleaved"
    stride: Annotated[int, SIZE, "the stride, the length of a block, or the width of the window"] = derived(
        "near the root of context", lambda made: max(2, isqrt(made.context))
    )
    summary_length: Annotated[int, SIZE, "fixed: tokens at the end of each block that all see"] = derived(
        "stride / 8", lambda made: max(1, made.stride // 8)
    )
    dropout: Dropout = 0.4
    eps: Eps = 1e-05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.summary_length > self.stride:
            raise ValueError(
                f"summary_length is {self.summary_length}, more than a block (stride) of {self.stride}"
            )


PRESETS = {
    "sparse-enwik8": SparseConfig(stride=128, summary_length=32)
}  # with a vector for each of its places, where the paper adds up two


def masks_of(c: SparseConfig) -> tuple[Mask, ...]:
    """What layers see, in turns."""
    if c.pattern == "window":
        return (causal() & window(c.stride),)
    if c.pattern == "strided":
        first, second = strided_steps(c.stride)
    else:  # heads have tails of their own, as far as there is room for them
        first, second = fixed_steps(c.stride, c.summary_length, min(c.heads, c.stride // c.summary_length))
    return {
        "interleaved": (first, second),
        "merged": (first | second,),
        "heads": (PerHead((first, second)),),
    }[c.head_pattern]


def build(config: SparseConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), Learned(c.context, c.width), dropout=c.dropout)
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    return initialize(Decoder(inputs, stack, Tied(), masks_of(c)))


def build_block(c: SparseConfig) -> Block:
    attention: nn.Module = MultiHeadAttention(c.width, c.heads)
    if c.pattern == "window":
        attention = RecentAttention(attention, c.stride)  # type: ignore[arg-type]
    feed_forward = FeedForward(c.width, c.ffn_width, "gelu_sigmoid")
    return Block(
        PreNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


def initialize(model: Decoder) -> Decoder:
    """N(0, 0.02), and 1 / sqrt(2N) of it where a layer adds to the residual, 2N times in all."""
    normal_(model, std=0.02)
    ends = (
        "attention.layer.out.weight",
        "attention.layer.inner.out.weight",
        "feed_forward.layer.down.weight",
    )
    for name, weight in model.named_parameters():
        if name.endswith(ends):
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * len(model.stack.blocks)))
    return model
