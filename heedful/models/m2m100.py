"""M2M100 (Fan et al. 2020): one translator for many languages, each of which is a token.

NLLB (NLLB Team 2022) is the same network for 200 languages.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Sinusoidal
from .base.config import Config
from .base.fields import (
    SIZE,
    Activation,
    ActivationDropout,
    AttentionDropout,
    Context,
    DecoderFfnWidth,
    DecoderHeads,
    DecoderLayers,
    Dropout,
    FfnWidth,
    Heads,
    Layers,
    ScaleEmbeddings,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import xavier_
from .base.settings import same_as
from .base.shells import Decoder, Encoder, EncoderDecoder
from .hf.folder import read, read_token, refuse_unless
from .hf.names import Table, same
from .transformer import COMMON_NAMES, read_sizes, stack_names, write_sizes  # noqa: F401 (also theirs)


@dataclass(frozen=True)
class M2M100Config(Config):
    vocab: Vocab = 128112
    context: Context = 1024
    layers: Layers = 12
    decoder_layers: DecoderLayers = same_as("layers")
    width: Width = 1024
    heads: Heads = 16
    decoder_heads: DecoderHeads = same_as("heads")
    ffn_width: FfnWidth = ratio(4, "width")
    decoder_ffn_width: DecoderFfnWidth = same_as("ffn_width")
    activation: Activation = "relu"
    scale_embeddings: ScaleEmbeddings = True
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.1
    activation_dropout: ActivationDropout = 0.0
    offset: Annotated[int, SIZE, "number of the first position: fairseq counts from its padding on"] = 2


MODEL_TYPES = ("m2m_100",)  # Hugging Face's; NLLB has the same
PRESETS = {
    "m2m100-418m": M2M100Config(),
    "nllb-200-600m": M2M100Config(vocab=256206),
}


def build(config: M2M100Config) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    tokens = TokenEmbedding(c.vocab, c.width, math.sqrt(c.width) if c.scale_embeddings else 1.0)
    encoder = Encoder(build_inputs(c, tokens), build_stack(c, c.layers, c.heads, c.ffn_width, cross=False))
    decoder = Decoder(
        build_inputs(c, tokens),
        build_stack(c, c.decoder_layers, c.decoder_heads, c.decoder_ffn_width, cross=True),
        Tied(),
    )
    model = EncoderDecoder(encoder, decoder)
    xavier_(model)
    return model


def build_inputs(c: M2M100Config, tokens: TokenEmbedding) -> Inputs:
    """Sinusoids of tensor2tensor's frequencies, numbered from after the padding's id on."""
    position = Sinusoidal(c.width, layout="halves", frequencies="t2t", offset=c.offset)
    return Inputs(tokens, position, dropout=c.dropout)


def build_stack(c: M2M100Config, layers: int, heads: int, hidden: int, cross: bool) -> Stack:
    return Stack([build_block(c, heads, hidden, cross) for _ in range(layers)], LayerNorm(c.width))


def build_block(c: M2M100Config, heads: int, hidden: int, cross: bool) -> Block:
    def attention() -> PreNorm:
        layer = MultiHeadAttention(c.width, heads, dropout=c.attention_dropout)
        return PreNorm(layer, LayerNorm(c.width), c.dropout)

    feed_forward = FeedForward(c.width, hidden, c.activation, dropout=c.activation_dropout)
    return Block(
        attention(), PreNorm(feed_forward, LayerNorm(c.width), c.dropout), attention() if cross else None
    )


# Hugging Face

DEFAULTS = {"activation_function": "relu", "scale_embedding": True, "attention_dropout": 0.1}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> M2M100Config:
    refuse_unless(theirs, "tie_word_embeddings", True)
    vocab = read(theirs, "vocab_size", 128112)
    offset = read_token(theirs, "pad_token_id", 1, vocab) + 1
    return M2M100Config(vocab=vocab, offset=offset, **read_sizes(DEFAULTS | theirs))


def write_config(c: M2M100Config) -> dict[str, Any]:
    return {
        "model_type": "m2m_100",
        "architectures": ["M2M100ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": c.vocab,
        "pad_token_id": c.offset - 1,
        **write_sizes(c),
    }


def names(c: M2M100Config) -> Table:
    tied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return Table(
        [
            same("model.shared.weight", "encoder.inputs.tokens.weight"),
            *stack_names("encoder", "pre"),
            *stack_names("decoder", "pre"),
        ],
        prefix="model.",
        copies={name: "model.shared.weight" for name in tied},
        ignored=("encoder.embed_positions.weights", "decoder.embed_positions.weights"),
    )
