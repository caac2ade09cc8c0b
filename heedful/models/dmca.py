"""T-D and T-DMCA (Liu et al. 2018): a decoder for long texts, with local and memory-compressed attention.

layer_pattern  one letter for each layer, repeated: l attends to its own block, m to all tokens, compressed
               three to one, f to all tokens. T-DMCA is "lm" over five layers (l m l m l); T-D is "f".

A task with a source becomes a language model by writing source, delimiter and target in one row. T-ED, the
encoder-decoder that reads the source separately, is `transformer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding
from ..parts.layers import RESIDUALS, FeedForward, LayerNorm
from ..parts.long.compressed import KINDS
from ..parts.long.windowed_cache import RecentAttention
from ..parts.masks import Mask, causal
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Sinusoidal
from ..parts.sparse_masks import SameBlock
from .base.config import Config
from .base.fields import (
    SIZE,
    Activation,
    Context,
    Dropout,
    FfnWidth,
    Heads,
    Layers,
    Norm,
    Vocab,
    Width,
    choices,
    ratio,
)
from .base.initialize import LEVEL, level_
from .base.shells import Decoder


@dataclass(frozen=True)
class DMCAConfig(Config):
    vocab: Vocab = 32000
    context: Context = 11000
    layers: Layers = 5
    width: Width = 512
    heads: Heads = 8
    ffn_width: FfnWidth = ratio(4, "width")
    layer_pattern: Annotated[str, "letters of the layers, repeated: l local, m compressed, f full"] = "lm"
    block: Annotated[int, SIZE, "tokens of a block of local attention"] = 256
    look_back: Annotated[bool, "local attention sees the block before, too"] = False
    compress: Annotated[
        str, choices("long/compressed.py", "KINDS"), "what is compressed: keys and values, or the input"
    ] = "kv"
    norm: Norm = "post"
    activation: Activation = "relu"
    dropout: Dropout = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.layer_pattern or set(self.layer_pattern) - set("lmf"):
            raise ValueError(
                f"layer_pattern is made of l (local), m (compressed) and f (full), not {self.layer_pattern!r}"
            )

    def kind(self, layer: int) -> str:
        """The letter of a layer."""
        return self.layer_pattern[layer % len(self.layer_pattern)]

    @property
    def far(self) -> int:
        """How far back a local layer may look."""
        return self.block * (1 + self.look_back)


PRESETS = {
    "t-d": DMCAConfig(context=4000, layers=6, layer_pattern="f"),
    "t-dmca": DMCAConfig(),
}


def build(config: DMCAConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    tokens = TokenEmbedding(c.vocab, c.width, LEVEL)
    inputs = Inputs(tokens, Sinusoidal(c.width), dropout=c.dropout)
    blocks = [build_block(c, c.kind(layer)) for layer in range(c.layers)]
    masks = [mask_of(c, c.kind(layer)) for layer in range(c.layers)]
    model = Decoder(inputs, Stack(blocks, LayerNorm(c.width) if c.norm == "pre" else None), Tied(), masks)
    level_(model)
    return model


def mask_of(c: DMCAConfig, kind: str) -> Mask:
    return causal() & SameBlock(c.block, int(c.look_back)) if kind == "l" else causal()


def build_block(c: DMCAConfig, kind: str) -> Block:
    inner = MultiHeadAttention(c.width, c.heads)
    attention: nn.Module = inner
    if kind == "m":
        attention = KINDS[c.compress](inner)
    elif (
        kind == "l" or "l" in c.layer_pattern or "m" in c.layer_pattern
    ):  # a cache is of one kind: full layers keep all
        attention = RecentAttention(inner, c.far if kind == "l" else FOREVER)
    residual = RESIDUALS[c.norm]
    return Block(
        residual(attention, LayerNorm(c.width), c.dropout),
        residual(FeedForward(c.width, c.ffn_width, c.activation), LayerNorm(c.width), c.dropout),
    )


FOREVER = 1 << 40
