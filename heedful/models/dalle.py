"""DALL-E's second stage (Ramesh et al. 2021): one decoder writes a picture after its caption, token by token.

    start  a  small  red  circle  [pad 5]  [pad 6]  |  17  4  4  29 ..    the cells of the picture, row by row

Token ids, in order: the caption's words, a pad for each position of the caption, the picture's codes, the
start. The position decides what may come next: a word or a pad in the caption, a code in the picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ..parts.blocks import Block, Stack
from ..parts.cache import Cache
from ..parts.embeddings import Inputs, TokenEmbedding, Untied
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.masks import Mask
from ..parts.multihead import MultiHeadAttention
from ..parts.picture_masks import picture_column, picture_convolution, picture_row
from ..parts.positions.absolute import CaptionAndGrid
from .base.config import Config
from .base.fields import (
    LARGEST,
    SIZE,
    Activation,
    AttentionDropout,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    Layers,
    TextLength,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import normal_
from .base.settings import GIVEN, Range
from .base.shells import Decoder


@dataclass(frozen=True)
class DalleConfig(Config):
    vocab: Vocab = 16384
    text_length: TextLength = 256
    codes: Annotated[int, SIZE, "size of the codebook of image codes", GIVEN] = 8192
    rows: Annotated[int, SIZE, "rows of image codes", GIVEN] = 32
    columns: Annotated[int, SIZE, "columns of image codes", GIVEN] = 32
    layers: Layers = 64
    width: Width = 3968
    heads: Heads = 62
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    window: Annotated[int, Range(0, LARGEST), "cells that the last layer sees in every direction"] = 5
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.0
    eps: Eps = 1e-05

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    @property
    def context(self) -> int:
        """Tokens that are read: the start, the caption, and the picture."""
        return 1 + self.text_length + self.cells

    @property
    def first_code(self) -> int:
        """The number of the picture's first code, after the words and the pads."""
        return self.vocab + self.text_length

    @property
    def start(self) -> int:
        """The number of the token that begins, the last of all."""
        return self.first_code + self.codes


PRESETS = {"dalle": DalleConfig()}


def masks_of(c: DalleConfig) -> list[Mask]:
    """What each layer sees: row, column, row, row, and so on; the last one like a convolution."""
    text = 1 + c.text_length
    row, column = picture_row(text, c.columns), picture_column(text, c.columns)
    kinds = [column if i % 4 == 2 else row for i in range(1, c.layers)]
    return [*kinds, picture_convolution(text, c.columns, 2 * c.window + 1)]


class Dalle(nn.Module):
    """The decoder, and what it knows of places: which tokens can stand where."""

    def __init__(self, decoder: Decoder, config: DalleConfig) -> None:
        super().__init__()
        self.decoder, self.config = decoder, config

    def stream(self, words_BL: Tensor, lengths_B: Tensor, codes_BN: Tensor | None = None) -> Tensor:
        """Tokens [B, T]: the start, captions with the pads of the places that they leave empty, and pictures.

        words: captions' tokens, at most as many as there are places; after lengths[b] of them, anything.
        """
        c, (B, L), device = self.config, words_BL.shape, words_BL.device
        if L > c.text_length:
            raise ValueError(f"a caption of {L} tokens does not fit the {c.text_length} places of this model")
        start_B1 = torch.full((B, 1), c.start, device=device)
        pads_BL = torch.arange(c.vocab, c.first_code, device=device).repeat(B, 1)
        pads_BL[:, :L] = torch.where(
            torch.arange(L, device=device) < lengths_B[:, None], words_BL, pads_BL[:, :L]
        )
        picture = [] if codes_BN is None else [c.first_code + codes_BN]
        return torch.cat([start_B1, pads_BL, *picture], dim=1)

    def forward(self, tokens_BT: Tensor, *, cache: Cache | None = None) -> Tensor:
        """Scores [B, T, V] for the token after each, -inf where it cannot stand; cache: as a decoder's."""
        first = 0 if cache is None else cache.size  # type: ignore[attr-defined]
        return self.restricted(self.decoder(tokens_BT, cache=cache), first)

    def restricted(self, scores_BTV: Tensor, first: int = 0) -> Tensor:
        """Scores after positions first, first + 1, ..: words and pads in the caption, then codes."""
        c, T, device = self.config, scores_BTV.shape[1], scores_BTV.device
        token_V = torch.arange(scores_BTV.shape[2], device=device)
        code_V = (token_V >= c.first_code) & (token_V < c.start)
        word_V = token_V < c.first_code
        before_picture_T1 = torch.arange(first, first + T, device=device)[:, None] < c.text_length
        return scores_BTV.masked_fill(~torch.where(before_picture_T1, word_V, code_V), -math.inf)

    def both(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """(scores of words and pads [B, L, ..], scores of codes [B, N, ..]): `forward` without its -inf.

        tokens: whole streams, whose last token nothing follows.
        """
        c, decoder = self.config, self.decoder
        matrix, _ = decoder.head.matrix(decoder.inputs.tokens)  # type: ignore[operator]
        hidden_BTD = decoder.hidden(tokens_BT[:, :-1])
        words = hidden_BTD[:, : c.text_length] @ matrix[: c.first_code].T
        codes = hidden_BTD[:, c.text_length :] @ matrix[c.first_code : c.start].T
        return words, codes


def build(config: DalleConfig) -> Dalle:
    """The decoder, with fresh weights."""
    c = config
    vocab = c.start + 1
    position = CaptionAndGrid(1 + c.text_length, c.rows, c.columns, c.width)
    inputs = Inputs(TokenEmbedding(vocab, c.width), position, dropout=c.dropout)
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    decoder = Decoder(inputs, stack, Untied(c.width, vocab), masks_of(c))
    normal_(decoder, std=0.02)
    for name, weight in decoder.named_parameters():
        if name.endswith(("attention.layer.out.weight", "feed_forward.layer.down.weight")):
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * c.layers))
    return Dalle(decoder, c)


def build_block(c: DalleConfig) -> Block:
    attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PreNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )
