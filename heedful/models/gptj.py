"""GPT-J (Wang and Komatsuzaki 2021): attention and feed-forward layer side by side, behind one norm."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from ..parts.blocks import ParallelBlock, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import Branch, FeedForward, LayerNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.rotary import rotary_of
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
    RotaryWidth,
    TieEmbeddings,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import normal_
from .base.settings import derived
from .base.shells import Decoder
from .gpt2 import COMMON_NAMES  # noqa: F401 (also theirs)
from .hf.folder import ACTIVATION_NAMES, read, read_activation, read_unless_null, refuse_unless
from .hf.names import Rule, Table, same, weight_and_bias


@dataclass(frozen=True)
class GPTJConfig(Config):
    vocab: Vocab = 50400
    context: Context = 2048
    layers: Layers = 28
    width: Width = 4096
    heads: Heads = 16
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu_tanh"
    rotary_width: RotaryWidth = derived("a quarter of a head", lambda c: max(2, c.width // c.heads // 8 * 2))
    dropout: Dropout = 0.0
    attention_dropout: AttentionDropout = 0.0
    eps: Eps = 1e-05
    tie_embeddings: TieEmbeddings = False


MODEL_TYPES = ("gptj",)  # Hugging Face's
PRESETS = {"gpt-j-6b": GPTJConfig()}


def build(config: GPTJConfig) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02). Its scores have a bias."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), dropout=c.dropout)
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    model = Decoder(inputs, stack, Tied(c.vocab) if c.tie_embeddings else Untied(c.width, c.vocab, bias=True))
    normal_(model, std=0.02)
    return model


def build_block(c: GPTJConfig) -> ParallelBlock:
    """Both layers read the same norm."""
    norm = LayerNorm(c.width, c.eps)
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        bias=False,
        dropout=c.attention_dropout,
        position=rotary_of(c.width // c.heads, c.rotary_width, "interleaved"),
    )
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    return ParallelBlock(Branch(attention, norm, c.dropout), Branch(feed_forward, norm, c.dropout))


# Hugging Face: its rotary layout is "interleaved" too.


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> GPTJConfig:
    refuse_unless(theirs, "is_causal", True)
    refuse_unless(theirs, "resid_pdrop", read(theirs, "embd_pdrop", 0.0), default=0.0)
    width, heads = read(theirs, "n_embd", 4096), read(theirs, "n_head", 16)
    turned = read(theirs, "rotary_dim", 64)
    if turned % 2 or turned > width // heads:
        raise BadInput(
            f"rotary_dim is {turned} of heads of {width // heads} dimensions: "
            f"heedful turns an even number of them, from 2 to all"
        )
    return GPTJConfig(
        vocab=read(theirs, "vocab_size", 50400),
        context=read(theirs, "n_positions", 2048),
        layers=read(theirs, "n_layer", 28),
        width=width,
        heads=heads,
        ffn_width=read_unless_null(theirs, "n_inner", 4 * width),
        activation=read_activation(theirs, "activation_function", "gelu_new"),
        rotary_width=turned,
        dropout=read(theirs, "resid_pdrop", 0.0),
        attention_dropout=read(theirs, "attn_pdrop", 0.0),
        eps=read(theirs, "layer_norm_epsilon", 1e-5),
        tie_embeddings=read(theirs, "tie_word_embeddings", False),
    )


def write_config(c: GPTJConfig) -> dict[str, Any]:
    return {
        "model_type": "gptj",
        "architectures": ["GPTJForCausalLM"],
        "vocab_size": c.vocab,
        "n_positions": c.context,
        "n_layer": c.layers,
        "n_embd": c.width,
        "n_head": c.heads,
        "n_inner": c.ffn_width,
        "activation_function": ACTIVATION_NAMES[c.activation],
        "rotary_dim": c.rotary_width,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.attention_dropout,
        "layer_norm_epsilon": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
    }


def names(c: GPTJConfig) -> Table:
    theirs, attention, feed_forward = (
        "transformer.h.{}",
        "stack.blocks.{}.attention",
        "stack.blocks.{}.feed_forward",
    )
    parts = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}
    return Table(
        [
            same("transformer.wte.weight", "inputs.tokens.weight"),
            *(same(f"{theirs}.attn.{a}.weight", f"{attention}.layer.{b}.weight") for a, b in parts.items()),
            *weight_and_bias(f"{theirs}.ln_1", f"{attention}.norm"),
            *weight_and_bias(f"{theirs}.mlp.fc_in", f"{feed_forward}.layer.up"),
            *weight_and_bias(f"{theirs}.mlp.fc_out", f"{feed_forward}.layer.down"),
            *weight_and_bias("transformer.ln_f", "stack.norm"),
            *head_names(c),
        ],
        prefix="transformer.",
        copies={"lm_head.weight": "transformer.wte.weight"} if c.tie_embeddings else {},
        ignored=("h.{}.attn.bias", "h.{}.attn.masked_bias"),
    )


def head_names(c: GPTJConfig) -> list[Rule]:
    if c.tie_embeddings:
        return [same("lm_head.bias", "head.bias")]
    return weight_and_bias("lm_head", "head.linear")
