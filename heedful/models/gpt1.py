"""GPT-1 (Radford et al. 2018): a decoder, trained as a language model and then fine-tuned for each task."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import FeedForward, LayerNorm, PostNorm
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
from .base.settings import same_as
from .base.shells import Decoder
from .gpt2 import block_names
from .hf.folder import one_of, read, refuse_unless
from .hf.names import Table, same


@dataclass(frozen=True)
class GPT1Config(Config):
    vocab: Vocab = 40478
    context: Context = 512
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu_tanh"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    eps: Eps = 1e-05
    tie_embeddings: TieEmbeddings = True


MODEL_TYPES = ("openai-gpt",)  # Hugging Face's
PRESETS = {"gpt1": GPT1Config()}


def build(config: GPT1Config) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), Learned(c.context, c.width), dropout=c.dropout)
    stack = Stack([build_block(c) for _ in range(c.layers)])
    model = Decoder(inputs, stack, Tied() if c.tie_embeddings else Untied(c.width, c.vocab))
    normal_(model, std=0.02)
    return model


def build_block(c: GPT1Config) -> Block:
    attention = MultiHeadAttention(c.width, c.heads, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        PostNorm(attention, LayerNorm(c.width, c.eps), c.dropout),
        PostNorm(feed_forward, LayerNorm(c.width, c.eps), c.dropout),
    )


# Hugging Face, where GPT-1 is "openai-gpt"; its "gelu" is the tanh form.

ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}
COMMON_NAMES = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> GPT1Config:
    afn = one_of(ACTIVATIONS, "afn", read(theirs, "afn", "gelu"))
    refuse_unless(theirs, "resid_pdrop", read(theirs, "embd_pdrop", 0.1), default=0.1)
    width = read(theirs, "n_embd", 768)
    return GPT1Config(
        vocab=read(theirs, "vocab_size", 40478),
        context=read(theirs, "n_positions", 512),
        layers=read(theirs, "n_layer", 12),
        width=width,
        heads=read(theirs, "n_head", 12),
        ffn_width=4 * width,
        activation=ACTIVATIONS[afn],
        dropout=read(theirs, "resid_pdrop", 0.1),
        attention_dropout=read(theirs, "attn_pdrop", 0.1),
        eps=read(theirs, "layer_norm_epsilon", 1e-5),
        tie_embeddings=read(theirs, "tie_word_embeddings", True),
    )


def write_config(c: GPT1Config) -> dict[str, Any]:
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        "vocab_size": c.vocab,
        "n_positions": c.context,
        "n_layer": c.layers,
        "n_embd": c.width,
        "n_head": c.heads,
        "afn": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == c.activation),
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.attention_dropout,
        "layer_norm_epsilon": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
    }


def names(c: GPT1Config) -> Table:
    head = [] if c.tie_embeddings else [same("lm_head.weight", "head.linear.weight")]
    return Table(
        [
            same("transformer.tokens_embed.weight", "inputs.tokens.weight"),
            same("transformer.positions_embed.weight", "inputs.position.table"),
            *block_names("transformer.h.{}", "stack.blocks.{}"),
            *head,
        ],
        prefix="transformer.",
        copies={"lm_head.weight": "transformer.tokens_embed.weight"} if c.tie_embeddings else {},
        ignored=("h.{}.attn.bias", "position_ids"),
    )
