"""Vec2Seq: a decoder writes the caption of a picture, which an encoder gives it as one vector or as a grid.

    pixels -> patches -> encoder (a Vision Transformer's) -> grid: x_1 .. x_N, a vector for each patch
                                                          -> one vector: the class token's, or the mean of all
    start  a     small  red                               -> decoder (the Transformer's), with cross-attention
    a      small red    circle

The vectors are the source of the decoder's cross-attention. One vector is a source of length 1: the whole
picture must fit into it, and attention to it has nothing to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from ..parts.blocks import Stack
from ..parts.embeddings import TokenEmbedding, Untied
from ..parts.layers import LayerNorm
from ..parts.positions.absolute import Sinusoidal
from . import transformer, vit
from .base.choices import build_inputs, build_stack
from .base.config import Config
from .base.fields import (
    Activation,
    AttentionDropout,
    Channels,
    DecoderLayers,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    ImageSize,
    Layers,
    PatchSize,
    Vocab,
    Width,
    ratio,
)
from .base.heads import FirstToken, MeanOverTokens
from .base.initialize import normal_, xavier_
from .base.settings import same_as
from .base.shells import Decoder, Encoder, EncoderDecoder
from .transformer import TransformerConfig
from .vit import PatchInputs, ViTConfig

BASE = 100.0  # of the sinusoids of a grid, which has few rows


def rows_and_columns(grid: int, width: int, device: torch.device | None = None) -> Tensor:
    """Sinusoids of each patch's row and of its column, half of the width each: [grid * grid, width]."""
    half = width // 4 * 2  # sinusoids come in pairs
    places = torch.arange(grid, device=device)
    rows_RK, columns_CK = (Sinusoidal(size, base=BASE).encode(places) for size in (half, width - half))
    rows_RCK, columns_RCK = rows_RK[:, None].expand(-1, grid, -1), columns_CK[None].expand(grid, -1, -1)
    return torch.cat([rows_RCK, columns_RCK], -1).flatten(0, 1)


class Grid(nn.Module):
    """A vector for each patch, row by row, with its position added; the class token is left out.

    An encoder need not keep where a patch was. A decoder that is to say "left of" has to know, so positions
    are added again, as in DETR (Carion et al. 2020).
    """

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        _, T, D = hidden_BTD.shape
        return hidden_BTD[:, 1:] + rows_and_columns(math.isqrt(T - 1), D, hidden_BTD.device).to(hidden_BTD)

    def length(self, tokens: int) -> int:
        """How many vectors are handed on, of so many tokens."""
        return tokens - 1


class OneVector(nn.Module):
    """One vector for the whole picture, as a source of length 1."""

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        self.pool = pool

    def forward(self, hidden_BTD: Tensor) -> Tensor:
        return self.pool(hidden_BTD, None)[:, None]

    def length(self, tokens: int) -> int:
        return 1


# What the decoder sees of a picture.
SEES: dict[str, Callable[[], nn.Module]] = {
    "grid": Grid,
    "class": lambda: OneVector(FirstToken()),
    "mean": lambda: OneVector(MeanOverTokens()),
}


@dataclass(frozen=True)
class CaptionerConfig(Config):
    vocab: Vocab = 8000
    image_size: ImageSize = 224
    patch_size: PatchSize = 16
    channels: Channels = 3
    source: Annotated[
        Literal["grid", "class", "mean"], "what the decoder sees: all patches, the class token, or the mean"
    ] = "grid"
    layers: Layers = 12
    decoder_layers: DecoderLayers = same_as("layers")
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    eps: Eps = 1e-06

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.reading  # which refuses patches that do not fit

    @property
    def reading(self) -> ViTConfig:
        """The sizes of the encoder."""
        return ViTConfig(
            image_size=self.image_size,
            patch_size=self.patch_size,
            channels=self.channels,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            ffn_width=self.ffn_width,
            activation=self.activation,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            eps=self.eps,
            prediction_heads=(),
        )

    @property
    def writing(self) -> TransformerConfig:
        """The sizes of the decoder."""
        return TransformerConfig(
            vocab=self.vocab,
            target_vocab=self.vocab,
            decoder_layers=self.decoder_layers,
            width=self.width,
            heads=self.heads,
            decoder_heads=self.heads,
            decoder_ffn_width=self.ffn_width,
            activation=self.activation,
            norm="pre",
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )

    @property
    def source_length(self) -> int:
        """How many vectors of a picture the decoder sees."""
        return 1 if self.source != "grid" else self.reading.grid**2


PRESETS = {"captioner-b16": CaptionerConfig(decoder_layers=6)}


PictureToText = EncoderDecoder  # a kind of its own: tasks that read words cannot train it


def build(config: CaptionerConfig) -> PictureToText:
    """The encoder of a Vision Transformer and the decoder of the Transformer, with fresh weights."""
    c = config
    model = EncoderDecoder(build_encoder(c), build_decoder(c.writing))
    normal_(model.encoder, std=0.02)
    xavier_(model.decoder)
    normal_(model.decoder.head, std=0.02)
    return model


def build_encoder(c: CaptionerConfig) -> Encoder:
    blocks = [vit.build_block(c.reading) for _ in range(c.layers)]
    stack = Stack(blocks, LayerNorm(c.width, c.eps))
    return Encoder(PatchInputs(c.reading), stack, project_out=SEES[c.source]())


def build_decoder(c: TransformerConfig) -> Decoder:
    _, writes = transformer.sides_of(c)
    tokens = TokenEmbedding(c.target_vocab, c.width, math.sqrt(c.width))
    return Decoder(build_inputs(writes, tokens), build_stack(writes), Untied(c.width, c.target_vocab))
