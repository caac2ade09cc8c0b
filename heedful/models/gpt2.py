"""GPT-2 (Radford et al. 2019): GPT-1 with pre-norm and a final norm, and larger in every size."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

from torch import nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.masks import causal, full
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Learned
from .base.config import Config
from .base.fields import (
    Activation,
    AttentionDropout,
    Context,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    Layers,
    TieEmbeddings,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import normal_
from .base.settings import GIVEN, same_as
from .base.shells import Decoder
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_unless_null, refuse_unless
from .hf.names import Rule, Table, same, thirds, transposed, weight_and_bias


@dataclass(frozen=True)
class GPT2Config(Config):
    vocab: Vocab = 50257
    context: Context = 1024
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu_tanh"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    eps: Eps = 1e-05
    tie_embeddings: TieEmbeddings = True
    causal: Annotated[bool, "whether no token sees those after it", GIVEN] = True


MODEL_TYPES = ("gpt2",)  # Hugging Face's
PRESETS = {
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(layers=24, width=1024, heads=16, ffn_width=4096),
    "gpt2-large": GPT2Config(layers=36, width=1280, heads=20, ffn_width=5120),
    "gpt2-xl": GPT2Config(layers=48, width=1600, heads=25, ffn_width=6400),
}


def build(config: GPT2Config) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), Learned(c.context, c.width), dropout=c.dropout)
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    head = Tied() if c.tie_embeddings else Untied(c.width, c.vocab)
    return initialize(Decoder(inputs, stack, head, (causal() if c.causal else full(),)))


def build_block(c: GPT2Config) -> Block:
    attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PreNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


def initialize(model: Decoder) -> Decoder:
    """N(0, 0.02), and less where a layer adds to the residual: the sum over N layers then keeps its size."""
    normal_(model, std=0.02)
    layers = 2 * len(model.stack.blocks)
    for name, weight in model.named_parameters():
        if name.endswith(("attention.layer.out.weight", "feed_forward.layer.down.weight")):
            nn.init.normal_(weight, std=0.02 / math.sqrt(layers))
    return model


# Hugging Face

COMMON_NAMES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> GPT2Config:
    refuse_unless(theirs, "scale_attn_weights", True)
    refuse_unless(theirs, "scale_attn_by_inverse_layer_idx", False)
    refuse_unless(theirs, "add_cross_attention", False)
    refuse_unless(theirs, "resid_pdrop", read(theirs, "embd_pdrop", 0.1), default=0.1)
    width = read(theirs, "n_embd", 768)
    return GPT2Config(
        vocab=read(theirs, "vocab_size", 50257),
        context=read(theirs, "n_positions", 1024),
        layers=read(theirs, "n_layer", 12),
        width=width,
        heads=read(theirs, "n_head", 12),
        ffn_width=read_unless_null(theirs, "n_inner", 4 * width),
        activation=read_activation(theirs, "activation_function", "gelu_new"),
        dropout=read(theirs, "resid_pdrop", 0.1),
        attention_dropout=read(theirs, "attn_pdrop", 0.1),
        eps=read(theirs, "layer_norm_epsilon", 1e-5),
        tie_embeddings=read(theirs, "tie_word_embeddings", True),
        causal=read(theirs, "is_causal", True),
    )


def write_config(c: GPT2Config) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": c.vocab,
        "n_positions": c.context,
        "n_layer": c.layers,
        "n_embd": c.width,
        "n_head": c.heads,
        "n_inner": c.ffn_width,
        "activation_function": ACTIVATION_NAMES[c.activation],
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.attention_dropout,
        "layer_norm_epsilon": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
        **({} if c.causal else {"is_causal": False}),
    }


def block_names(theirs: str, ours: str) -> list[Rule]:
    """GPT-1 and GPT-2 name the inside of a block alike; matrices are [in, out]."""
    attention, feed_forward = f"{ours}.attention", f"{ours}.feed_forward"
    qkv = [f"{attention}.layer.{part}" for part in ("query", "key", "value")]
    return [
        thirds(f"{theirs}.attn.c_attn.weight", *(f"{part}.weight" for part in qkv)),
        thirds(f"{theirs}.attn.c_attn.bias", *(f"{part}.bias" for part in qkv)),
        *weight_and_bias(f"{theirs}.attn.c_proj", f"{attention}.layer.out", transposed),
        *weight_and_bias(f"{theirs}.mlp.c_fc", f"{feed_forward}.layer.up", transposed),
        *weight_and_bias(f"{theirs}.mlp.c_proj", f"{feed_forward}.layer.down", transposed),
        *weight_and_bias(f"{theirs}.ln_1", f"{attention}.norm"),
        *weight_and_bias(f"{theirs}.ln_2", f"{feed_forward}.norm"),
    ]


def names(c: GPT2Config) -> Table:
    head = [] if c.tie_embeddings else [same("lm_head.weight", "head.linear.weight")]
    return Table(
        [
            same("transformer.wte.weight", "inputs.tokens.weight"),
            same("transformer.wpe.weight", "inputs.position.table"),
            *block_names("transformer.h.{}", "stack.blocks.{}"),
            *weight_and_bias("transformer.ln_f", "stack.norm"),
            *head,
        ],
        prefix="transformer.",
        copies={"lm_head.weight": "transformer.wte.weight"} if c.tie_embeddings else {},
        ignored=("h.{}.attn.bias", "h.{}.attn.masked_bias"),
    )
