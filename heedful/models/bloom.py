"""BLOOM (Le Scao et al. 2022): GPT-2 with ALiBi instead of a table of positions, and normed embeddings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import FeedForward, LayerNorm, PreNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.relative import ALiBi
from .base.config import Config
from .base.fields import AttentionDropout, Context, Dropout, Eps, Heads, Layers, TieEmbeddings, Vocab, Width
from .base.initialize import normal_
from .base.shells import Decoder
from .hf.folder import read, refuse_unless
from .hf.names import Table, by_heads, same, weight_and_bias


@dataclass(frozen=True)
class BloomConfig(Config):
    vocab: Vocab = 250880
    context: Context = 2048
    layers: Layers = 24
    width: Width = 1024
    heads: Heads = 16
    dropout: Dropout = 0.0
    attention_dropout: AttentionDropout = 0.0
    eps: Eps = 1e-05
    tie_embeddings: TieEmbeddings = True


MODEL_TYPES = ("bloom",)  # Hugging Face's
PRESETS = {
    "bloom-560m": BloomConfig(),
    "bloom-1b7": BloomConfig(width=2048),
    "bloom": BloomConfig(layers=70, width=14336, heads=112),
}


def build(config: BloomConfig) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), norm=LayerNorm(c.width, c.eps))
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    model = Decoder(inputs, stack, Tied() if c.tie_embeddings else Untied(c.width, c.vocab))
    normal_(model, std=0.02)
    return model


def build_block(c: BloomConfig) -> Block:
    attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout, position=ALiBi(c.heads))
    feed_forward = FeedForward(c.width, 4 * c.width, "gelu_tanh")
    return Block(
        PreNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PreNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


# Hugging Face

COMMON_NAMES = {"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> BloomConfig:
    refuse_unless(theirs, "is_causal", True)
    if theirs.get("pretraining_tp", 1) != 1:  # in slices, theirs leaves out a bias
        refuse_unless(theirs, "slow_but_exact", False)
    refuse_unless(theirs, "apply_residual_connection_post_layernorm", False)
    return BloomConfig(
        vocab=read(theirs, "vocab_size", 250880),
        context=read(theirs, "seq_length", 2048),
        layers=read(theirs, "n_layer", 2),
        width=read(theirs, "hidden_size", 64),
        heads=read(theirs, "n_head", 8),
        dropout=read(theirs, "hidden_dropout", 0.0),
        attention_dropout=read(theirs, "attention_dropout", 0.0),
        eps=read(theirs, "layer_norm_epsilon", 1e-5),
        tie_embeddings=read(theirs, "tie_word_embeddings", True),
    )


def write_config(c: BloomConfig) -> dict[str, Any]:
    return {
        "model_type": "bloom",
        "architectures": ["BloomForCausalLM"],
        "vocab_size": c.vocab,
        "seq_length": c.context,
        "n_layer": c.layers,
        "hidden_size": c.width,
        "n_head": c.heads,
        "hidden_dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "layer_norm_epsilon": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
    }


def names(c: BloomConfig) -> Table:
    theirs, attention, feed_forward = (
        "transformer.h.{}",
        "stack.blocks.{}.attention",
        "stack.blocks.{}.feed_forward",
    )
    head = [] if c.tie_embeddings else [same("lm_head.weight", "head.linear.weight")]
    return Table(
        [
            same("transformer.word_embeddings.weight", "inputs.tokens.weight"),
            *weight_and_bias("transformer.word_embeddings_layernorm", "inputs.norm"),
            *(
                by_heads(
                    f"{theirs}.self_attention.query_key_value.{kind}",
                    c.heads,
                    *(f"{attention}.layer.{part}.{kind}" for part in ("query", "key", "value")),
                )
                for kind in ("weight", "bias")
            ),
            *weight_and_bias(f"{theirs}.self_attention.dense", f"{attention}.layer.out"),
            *weight_and_bias(f"{theirs}.mlp.dense_h_to_4h", f"{feed_forward}.layer.up"),
            *weight_and_bias(f"{theirs}.mlp.dense_4h_to_h", f"{feed_forward}.layer.down"),
            *weight_and_bias(f"{theirs}.input_layernorm", f"{attention}.norm"),
            *weight_and_bias(f"{theirs}.post_attention_layernorm", f"{feed_forward}.norm"),
            *weight_and_bias("transformer.ln_f", "stack.norm"),
            *head,
        ],
        prefix="transformer.",
        copies={"lm_head.weight": "transformer.word_embeddings.weight"} if c.tie_embeddings else {},
    )
