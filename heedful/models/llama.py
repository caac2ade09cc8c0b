"""LLaMA-style decoders (Touvron et al. 2023; SmolLM2): RMSNorm first, rotary positions, gated feed-forward,
and query heads that share key/value heads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

from ..errors import BadInput
from ..parts.attention import MultiHeadAttention
from ..parts.blocks import Block, Stack
from ..parts.layers import GatedFeedForward, Inputs, PreNorm, RMSNorm, Tied, TokenEmbedding, Untied
from ..parts.positions import Rotary
from .config import Config
from .huggingface import ACTIVATION_NAMES, read, read_activation, read_unless_null, refuse_unless
from .initialise import normal_
from .names import Rule, Table, same, weight_and_bias
from .shells import Decoder


@dataclass(frozen=True)
class LlamaConfig(Config):
    vocab: int = 32000
    context: int = 2048
    layers: int = 32
    width: int = 4096
    heads: int = 32
    kv_heads: int = 32
    key_width: int = 128
    hidden: int = 11008
    activation: str = "silu"
    attention_bias: bool = False
    feed_forward_bias: bool = False
    attention_dropout: float = 0.0
    rotary_base: float = 10000.0
    eps: float = 1e-6
    tied: bool = False


PRESETS = {
    "smollm2-135m": LlamaConfig(
        vocab=49152,
        context=8192,
        layers=30,
        width=576,
        heads=9,
        kv_heads=3,
        key_width=64,
        hidden=1536,
        rotary_base=100000.0,
        eps=1e-5,
        tied=True,
    ),
}


def build(config: LlamaConfig) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02)."""
    c = config
    position = Rotary(c.key_width, layout="halves", base=c.rotary_base)
    stack = Stack([build_block(c, position) for _ in range(c.layers)], RMSNorm(c.width, c.eps))
    head = Tied() if c.tied else Untied(c.width, c.vocab)
    model = Decoder(Inputs(TokenEmbedding(c.vocab, c.width)), stack, head)
    normal_(model, std=0.02)
    return model


def build_block(c: LlamaConfig, position: Rotary) -> Block:
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        kv_heads=c.kv_heads,
        key_width=c.key_width,
        bias=c.attention_bias,
        dropout=c.attention_dropout,
        position=position,
    )
    feed_forward = GatedFeedForward(c.width, c.hidden, c.activation, bias=c.feed_forward_bias)
    return Block(
        PreNorm(attention, RMSNorm(c.width, c.eps)),
        PreNorm(feed_forward, RMSNorm(c.width, c.eps)),
    )


# Hugging Face, whose rotary layout is "halves" too: no permutation is needed.


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> LlamaConfig:
    rope = theirs.get("rope_scaling") or theirs.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise BadInput(f"rope_parameters must be an object {{...}}, not {short(rope)}")
    refuse_unless(rope, "rope_type", "default", default=rope.get("type"))
    width, heads = read(theirs, "hidden_size", 4096), read(theirs, "num_attention_heads", 32)
    if theirs.get("head_dim") is None and width % heads:
        raise BadInput(f"hidden_size {width} cannot be divided into {heads} heads (num_attention_heads)")
    rotary_base = read(theirs | rope, "rope_theta", 10000.0)
    if rotary_base == 0:
        raise BadInput("rope_theta must be more than 0")
    return LlamaConfig(
        vocab=read(theirs, "vocab_size", 32000),
        context=read(theirs, "max_position_embeddings", 2048),
        layers=read(theirs, "num_hidden_layers", 32),
        width=width,
        heads=heads,
        kv_heads=read_unless_null(theirs, "num_key_value_heads", heads),
        key_width=read_unless_null(theirs, "head_dim", width // heads),
        hidden=read(theirs, "intermediate_size", 11008),
        activation=read_activation(theirs, "hidden_act", "silu"),
        attention_bias=read(theirs, "attention_bias", False),
        feed_forward_bias=read(theirs, "mlp_bias", False),
        attention_dropout=read(theirs, "attention_dropout", 0.0),
        rotary_base=rotary_base,
        eps=read(theirs, "rms_norm_eps", 1e-6),
        tied=read(theirs, "tie_word_embeddings", False),
    )


def write_config(c: LlamaConfig) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.key_width,
        "intermediate_size": c.hidden,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "attention_bias": c.attention_bias,
        "mlp_bias": c.feed_forward_bias,
        "attention_dropout": c.attention_dropout,
        "rope_theta": c.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rotary_base},
        "rms_norm_eps": c.eps,
        "tie_word_embeddings": c.tied,
    }


def names(c: LlamaConfig) -> Table:
    theirs, ours = "model.layers.{}", "stack.blocks.{}"

    def linear(a: str, b: str, bias: bool) -> list[Rule]:
        return weight_and_bias(a, b) if bias else [same(f"{a}.weight", f"{b}.weight")]

    attention = {"q": "query", "k": "key", "v": "value", "o": "out"}
    head = [] if c.tied else [same("lm_head.weight", "head.linear.weight")]
    rules = [
        same("model.embed_tokens.weight", "inputs.tokens.weight"),
        same("model.norm.weight", "stack.norm.weight"),
        same(f"{theirs}.input_layernorm.weight", f"{ours}.attention.norm.weight"),
        same(f"{theirs}.post_attention_layernorm.weight", f"{ours}.feed_forward.norm.weight"),
        *head,
    ]
    for a, b in attention.items():
        rules += linear(f"{theirs}.self_attn.{a}_proj", f"{ours}.attention.layer.{b}", c.attention_bias)
    for part in ("gate", "up", "down"):
        rules += linear(f"{theirs}.mlp.{part}_proj", f"{ours}.feed_forward.layer.{part}", c.feed_forward_bias)
    return Table(
        rules,
        prefix="model.",
        copies={"lm_head.weight": "model.embed_tokens.weight"} if c.tied else {},
        ignored=("layers.{}.self_attn.rotary_emb.inv_freq",),
    )
