"""T5 (Raffel et al. 2020): a pre-norm encoder-decoder without biases, with relative positions.

Also mT5 (Xue et al. 2021), for many languages.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from reprlib import repr as short
from typing import Annotated, Any

from torch import nn

from ..errors import BadInput
from ..parts.attention import Dot
from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import FeedForward, GatedFeedForward, PreNorm, RMSNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.relative import T5Buckets
from .base.config import Config
from .base.fields import (
    Activation,
    Buckets,
    DecoderLayers,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    KeyWidth,
    Layers,
    MaxDistance,
    TieEmbeddings,
    Vocab,
    Width,
    divided,
    ratio,
)
from .base.settings import GIVEN, same_as
from .base.shells import Decoder, Encoder, EncoderDecoder
from .hf.folder import (
    ACTIVATION_NAMES,
    THEIR_ACTIVATIONS,
    read,
    read_activation,
    read_unless_null,
    refuse_unless,
)
from .hf.names import Rule, Table, same


@dataclass(frozen=True)
class T5Config(Config):
    vocab: Vocab = 32128
    layers: Layers = 6
    decoder_layers: DecoderLayers = same_as("layers")
    width: Width = 512
    heads: Heads = 8
    key_width: KeyWidth = divided("width", "heads")
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "relu"
    gated: Annotated[bool, "a gated feed-forward layer (T5 1.1)"] = False
    buckets: Buckets = 32
    max_distance: MaxDistance = 128
    dropout: Dropout = 0.1
    eps: Eps = 1e-06
    tie_embeddings: TieEmbeddings = True
    scale_output: Annotated[bool, "scale the input of the output matrix by width^-1/2 (T5; not T5 1.1)"] = (
        True
    )
    multilingual: Annotated[bool, "mT5, which is T5 1.1 under another name", GIVEN] = False


MODEL_TYPES = ("t5", "mt5")  # Hugging Face's
PRESETS = {
    "t5-small": T5Config(),
    "t5-base": T5Config(layers=12, decoder_layers=12, width=768, heads=12, ffn_width=3072),
    "mt5-small": T5Config(
        vocab=250112,
        layers=8,
        heads=6,
        key_width=64,
        ffn_width=1024,
        activation="gelu_tanh",
        gated=True,
        tie_embeddings=False,
        scale_output=False,
        multilingual=True,
    ),
}


def build(config: T5Config) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    tokens = TokenEmbedding(c.vocab, c.width)
    reading = T5Buckets(c.heads, c.buckets, c.max_distance, both_ways=True)
    writing = T5Buckets(c.heads, c.buckets, c.max_distance, both_ways=False)
    encoder = Encoder(Inputs(tokens, dropout=c.dropout), build_stack(c, c.layers, reading, cross=False))
    scale = 1 / math.sqrt(c.width) if c.scale_output else 1.0
    head = Tied(scale=scale) if c.tie_embeddings else Untied(c.width, c.vocab, scale=scale)
    decoder = Decoder(
        Inputs(tokens, dropout=c.dropout), build_stack(c, c.decoder_layers, writing, cross=True), head
    )
    model = EncoderDecoder(encoder, decoder)
    initialize(model)
    return model


def build_stack(c: T5Config, layers: int, position: T5Buckets, cross: bool) -> Stack:
    """One table of distances for all layers; none towards the source. Dropout also after the last norm."""
    blocks = [build_block(c, position, cross) for _ in range(layers)]
    return Stack(blocks, nn.Sequential(RMSNorm(c.width, c.eps), nn.Dropout(c.dropout)))


def build_block(c: T5Config, position: T5Buckets, cross: bool) -> Block:
    def attention(position: T5Buckets | None) -> PreNorm:
        layer = MultiHeadAttention(
            c.width,
            c.heads,
            key_width=c.key_width,
            bias=False,
            dropout=c.dropout,
            score=Dot(),
            position=position,
        )
        return PreNorm(layer, RMSNorm(c.width, c.eps), c.dropout)

    feed_forward = (GatedFeedForward if c.gated else FeedForward)(
        c.width, c.ffn_width, c.activation, bias=False, dropout=c.dropout
    )
    return Block(
        attention(position),
        PreNorm(feed_forward, RMSNorm(c.width, c.eps), c.dropout),
        attention(None) if cross else None,
    )


def initialize(model: EncoderDecoder) -> None:
    """Each matrix by its fan-in; the query's also by sqrt(K), in place of the scale its scores go without."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            nn.init.normal_(module.query.weight, std=(module.query.in_features * module.key_width) ** -0.5)
            for part in (module.key, module.value, module.out):
                nn.init.normal_(part.weight, std=part.in_features**-0.5)
        elif isinstance(module, FeedForward | GatedFeedForward | Untied):
            for linear in module.children():
                if isinstance(linear, nn.Linear):
                    nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
        elif isinstance(module, TokenEmbedding):
            nn.init.normal_(module.weight, std=1.0)
    width = model.encoder.inputs.tokens.weight.shape[1]
    for module in model.modules():
        if isinstance(module, T5Buckets):
            nn.init.normal_(module.table, std=width**-0.5)


# Hugging Face

COMMON_NAMES = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}
TIED = {"lm_head.weight": "shared.weight"}  # in every config; a file that holds two matrices has two


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> T5Config:
    many = theirs.get("model_type") == "mt5"
    refuse_unless(theirs, "is_decoder", False)
    gated, activation = read_feed_forward(theirs, "gated-gelu" if many else "relu")
    layers = read(theirs, "num_layers", 8 if many else 6)
    tied = read(theirs, "tie_word_embeddings", True)
    return T5Config(
        vocab=read(theirs, "vocab_size", 250112 if many else 32128),
        layers=layers,
        decoder_layers=read_unless_null(theirs, "num_decoder_layers", layers),
        width=read(theirs, "d_model", 512),
        heads=read(theirs, "num_heads", 6 if many else 8),
        key_width=read(theirs, "d_kv", 64),
        ffn_width=read(theirs, "d_ff", 1024 if many else 2048),
        activation=activation,
        gated=gated,
        buckets=read(theirs, "relative_attention_num_buckets", 32),
        max_distance=read(theirs, "relative_attention_max_distance", 128),
        dropout=read(theirs, "dropout_rate", 0.1),
        eps=read(theirs, "layer_norm_epsilon", 1e-6),
        tie_embeddings="lm_head.weight" not in names if names else tied,
        scale_output=not many and read(theirs, "scale_decoder_outputs", tied),
        multilingual=many,
    )


def read_feed_forward(theirs: dict[str, Any], default: str) -> tuple[bool, str]:
    """Whether the feed-forward layer is gated, and its activation: by one name, or by two settings."""
    projection = read(theirs, "feed_forward_proj", default)
    gated, _, act = projection.rpartition("-")
    act = "gelu_new" if projection == "gated-gelu" else act  # transformers reads it so
    if gated not in ("", "gated") or act not in THEIR_ACTIVATIONS:
        raise BadInput(
            f"feed_forward_proj is {short(projection)}; heedful knows relu, gated-gelu and the like"
        )
    return read(theirs, "is_gated_act", gated == "gated"), read_activation(theirs, "dense_act_fn", act)


def write_config(c: T5Config) -> dict[str, Any]:
    act = ACTIVATION_NAMES[c.activation]
    named = "gelu" if c.gated and act == "gelu_new" else act
    return {
        "model_type": "mt5" if c.multilingual else "t5",
        "architectures": ["MT5ForConditionalGeneration" if c.multilingual else "T5ForConditionalGeneration"],
        "is_encoder_decoder": True,
        "vocab_size": c.vocab,
        "num_layers": c.layers,
        "num_decoder_layers": c.decoder_layers,
        "d_model": c.width,
        "num_heads": c.heads,
        "d_kv": c.key_width,
        "d_ff": c.ffn_width,
        "feed_forward_proj": f"gated-{named}" if c.gated else named,
        "is_gated_act": c.gated,
        "dense_act_fn": act,
        "relative_attention_num_buckets": c.buckets,
        "relative_attention_max_distance": c.max_distance,
        "dropout_rate": c.dropout,
        "layer_norm_epsilon": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
        "scale_decoder_outputs": c.scale_output,
    }


def attention_names(theirs: str, ours: str, kind: str) -> list[Rule]:
    parts = {"q": "query", "k": "key", "v": "value", "o": "out"}
    inside = [same(f"{theirs}.{kind}.{a}.weight", f"{ours}.layer.{b}.weight") for a, b in parts.items()]
    return [*inside, same(f"{theirs}.layer_norm.weight", f"{ours}.norm.weight")]


def stack_names(c: T5Config, side: str) -> list[Rule]:
    theirs, ours = f"{side}.block.{{}}.layer", f"{side}.stack.blocks.{{}}"
    last = 2 if side == "decoder" else 1
    parts = {"wi_0": "gate", "wi_1": "up", "wo": "down"} if c.gated else {"wi": "up", "wo": "down"}
    return [
        *attention_names(f"{theirs}.0", f"{ours}.attention", "SelfAttention"),
        *(attention_names(f"{theirs}.1", f"{ours}.cross", "EncDecAttention") if side == "decoder" else []),
        *(
            same(f"{theirs}.{last}.DenseReluDense.{a}.weight", f"{ours}.feed_forward.layer.{b}.weight")
            for a, b in parts.items()
        ),
        same(f"{theirs}.{last}.layer_norm.weight", f"{ours}.feed_forward.norm.weight"),
        same(
            f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            f"{side}.stack.blocks.0.attention.layer.position.table",
        ),
        same(f"{side}.final_layer_norm.weight", f"{side}.stack.norm.0.weight"),
    ]


def names(c: T5Config) -> Table:
    head = [] if c.tie_embeddings else [same("lm_head.weight", "decoder.head.linear.weight")]
    copies = {"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"}
    return Table(
        [
            same("shared.weight", "encoder.inputs.tokens.weight"),
            *stack_names(c, "encoder"),
            *stack_names(c, "decoder"),
            *head,
        ],
        copies=copies | ({"lm_head.weight": "shared.weight"} if c.tie_embeddings else {}),
        # The released checkpoints carry a table between decoder and encoder that no layer reads.
        ignored=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    )
