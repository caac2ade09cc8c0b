"""An open decoder: a language model of any parts. GPT-2's order with the choices of `OpenConfig`.

Named decoders (gpt1, gpt2, llama, modern) are as they were published, and can be saved for Hugging Face. This
one is for comparing parts: positions, score functions, widths of heads, norms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..parts.embeddings import Tied, TokenEmbedding, Untied
from .base.choices import ALONE, POSITIONS, OpenConfig, Side, build_inputs, build_stack
from .base.fields import (
    Activation,
    AttentionDropout,
    Context,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    Layers,
    Norm,
    TieEmbeddings,
    Vocab,
    Width,
    plain_position_names,
    ratio,
)
from .base.initialize import LEVEL, level_
from .base.settings import Choices, same_as
from .base.shells import Decoder


@dataclass(frozen=True)
class DecoderConfig(OpenConfig):
    vocab: Vocab = 50257
    context: Context = 1024
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    norm: Norm = "pre"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    eps: Eps = 1e-5
    tie_embeddings: TieEmbeddings = True
    positions: Annotated[str, Choices(plain_position_names), "position encoding"] = "rotary"


PRESETS = {"decoder-124m": DecoderConfig()}


def build(config: DecoderConfig) -> Decoder:
    """The decoder, with fresh weights: words are as large as sinusoids (`LEVEL`), whatever the positions."""
    c, side = config, side_of(config)
    inputs = build_inputs(side, TokenEmbedding(c.vocab, side.token_width, LEVEL))
    tied = c.tie_embeddings and side.token_width == c.width
    model = Decoder(inputs, build_stack(side), Tied() if tied else Untied(c.width, c.vocab))
    level_(model)
    return model


def side_of(c: DecoderConfig) -> Side:
    return Side(
        config=c,
        order=POSITIONS[c.positions][1],
        attention_dropout=c.attention_dropout,
        **{name: getattr(c, name) for name in ALONE},
    )
