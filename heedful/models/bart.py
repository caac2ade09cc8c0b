"""BART (Lewis et al. 2020): the Transformer with learned positions and normed inputs.

mBART (Liu et al. 2020) is BART with pre-norm, for many languages.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding
from ..parts.layers import RESIDUALS, FeedForward, LayerNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import LearnedAfter
from .base.config import Config
from .base.fields import (
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
    Norm,
    ScaleEmbeddings,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import normal_
from .base.settings import same_as
from .base.shells import Decoder, Encoder, EncoderDecoder
from .hf.folder import read, refuse_unless
from .hf.names import Rule, Table, reshaped, same, weight_and_bias
from .transformer import COMMON_NAMES, read_sizes, stack_names, write_sizes  # noqa: F401 (also theirs)

OFFSET = 2  # rows before the first position's; fairseq kept them for padding


@dataclass(frozen=True)
class BartConfig(Config):
    vocab: Vocab = 50265
    context: Context = 1024
    layers: Layers = 6
    decoder_layers: DecoderLayers = same_as("layers")
    width: Width = 768
    heads: Heads = 12
    decoder_heads: DecoderHeads = same_as("heads")
    ffn_width: FfnWidth = ratio(4, "width")
    decoder_ffn_width: DecoderFfnWidth = same_as("ffn_width")
    activation: Activation = "gelu"
    norm: Norm = "post"
    scale_embeddings: ScaleEmbeddings = False
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = 0.1
    activation_dropout: ActivationDropout = 0.1


MODEL_TYPES = ("bart", "mbart")  # Hugging Face's
PRESETS = {
    "bart-base": BartConfig(),
    "bart-large": BartConfig(
        layers=12,
        decoder_layers=12,
        width=1024,
        heads=16,
        decoder_heads=16,
        ffn_width=4096,
        decoder_ffn_width=4096,
    ),
}


def build(config: BartConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights: N(0, 0.02)."""
    c = config
    tokens = TokenEmbedding(c.vocab, c.width, math.sqrt(c.width) if c.scale_embeddings else 1.0)
    encoder = Encoder(build_inputs(c, tokens), build_stack(c, c.layers, c.heads, c.ffn_width, cross=False))
    decoder = Decoder(
        build_inputs(c, tokens),
        build_stack(c, c.decoder_layers, c.decoder_heads, c.decoder_ffn_width, cross=True),
        Tied(c.vocab),
    )
    model = EncoderDecoder(encoder, decoder)
    normal_(model, std=0.02)
    return model


def build_inputs(c: BartConfig, tokens: TokenEmbedding) -> Inputs:
    """Both sides have positions and a norm of their own."""
    position = LearnedAfter(c.context, c.width, OFFSET)
    return Inputs(tokens, position, norm=LayerNorm(c.width), dropout=c.dropout)


def build_stack(c: BartConfig, layers: int, heads: int, hidden: int, cross: bool) -> Stack:
    blocks = [build_block(c, heads, hidden, cross) for _ in range(layers)]
    return Stack(blocks, LayerNorm(c.width) if c.norm == "pre" else None)


def build_block(c: BartConfig, heads: int, hidden: int, cross: bool) -> Block:
    residual = RESIDUALS[c.norm]

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(c.width, heads, dropout=c.attention_dropout)

    feed_forward = FeedForward(c.width, hidden, c.activation, dropout=c.activation_dropout)
    return Block(
        residual(attention(), LayerNorm(c.width), c.dropout),
        residual(feed_forward, LayerNorm(c.width), c.dropout),
        residual(attention(), LayerNorm(c.width), c.dropout) if cross else None,
    )


# Hugging Face

MODEL_TYPE = {"post": "bart", "pre": "mbart"}
CLASSES = {"post": "BartForConditionalGeneration", "pre": "MBartForConditionalGeneration"}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> BartConfig:
    norm = "pre" if theirs.get("model_type") == MODEL_TYPE["pre"] else "post"
    for key in ("normalize_before", "add_final_layer_norm"):  # said by older configs, read by nobody
        refuse_unless(theirs, key, norm == "pre")
    refuse_unless(theirs, "normalize_embedding", True)
    refuse_unless(theirs, "static_position_embeddings", False)
    refuse_unless(theirs, "extra_pos_embeddings", OFFSET)
    refuse_unless(theirs, "tie_word_embeddings", True)
    return BartConfig(
        vocab=read(theirs, "vocab_size", 50265),
        norm=norm,
        **read_sizes(theirs),
    )


def write_config(c: BartConfig) -> dict[str, Any]:
    return {
        "model_type": MODEL_TYPE[c.norm],
        "architectures": [CLASSES[c.norm]],
        "is_encoder_decoder": True,
        "vocab_size": c.vocab,
        **write_sizes(c),
        "forced_eos_token_id": None,  # how to write is said in generation_config.json
    }


def input_names(side: str) -> list[Rule]:
    return [
        same(f"model.{side}.embed_positions.weight", f"{side}.inputs.position.table"),
        *weight_and_bias(f"model.{side}.layernorm_embedding", f"{side}.inputs.norm"),
    ]


def names(c: BartConfig) -> Table:
    tied = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return Table(
        [
            same("model.shared.weight", "encoder.inputs.tokens.weight"),
            *input_names("encoder"),
            *input_names("decoder"),
            *stack_names("encoder", c.norm),
            *stack_names("decoder", c.norm),
            reshaped("final_logits_bias", "decoder.head.bias", (1, c.vocab), (c.vocab,)),
        ],
        prefix="model.",
        copies={name: "model.shared.weight" for name in tied},
        zeros=("final_logits_bias",),  # which a model without its head lacks
    )
