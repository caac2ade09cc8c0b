"""GPT-NeoX (Black et al. 2022): attention and feed-forward side by side, and heads rotated in part.

Also Pythia (Biderman et al. 2023).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from reprlib import repr as short
from typing import Annotated, Any

from ..errors import BadInput
from ..parts.blocks import Block, ParallelBlock, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import Branch, FeedForward, LayerNorm, PreNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.rotary import rotary_of
from .base.config import Config
from .base.fields import (
    AMOUNT,
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
from .hf.folder import ACTIVATION_NAMES, read, read_activation, refuse_unless
from .hf.names import Table, by_heads, same, weight_and_bias


@dataclass(frozen=True)
class GPTNeoXConfig(Config):
    vocab: Vocab = 50432
    context: Context = 2048
    layers: Layers = 44
    width: Width = 6144
    heads: Heads = 64
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    parallel: Annotated[bool, "attention and feed-forward layer read the same vectors"] = True
    attention_bias: Annotated[bool, "biases in attention"] = True
    rotary_width: RotaryWidth = derived("a quarter of a head", lambda c: c.width // c.heads // 8 * 2)
    rotary_base: Annotated[float, AMOUNT, "base of the rotary frequencies (theta)"] = 10000.0
    dropout: Dropout = 0.0
    attention_dropout: AttentionDropout = 0.0
    eps: Eps = 1e-05
    tie_embeddings: TieEmbeddings = False


MODEL_TYPES = ("gpt_neox",)  # Hugging Face's
PRESETS = {
    "pythia-70m": GPTNeoXConfig(vocab=50304, layers=6, width=512, heads=8),
    "pythia-160m": GPTNeoXConfig(vocab=50304, layers=12, width=768, heads=12),
    "gpt-neox-20b": GPTNeoXConfig(),
}


def build(config: GPTNeoXConfig) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02)."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), dropout=c.dropout)
    stack = Stack([build_block(c) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    model = Decoder(inputs, stack, Tied() if c.tie_embeddings else Untied(c.width, c.vocab))
    normal_(model, std=0.02)
    return model


def build_block(c: GPTNeoXConfig) -> Block:
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        bias=c.attention_bias,
        dropout=c.attention_dropout,
        position=rotary_of(c.width // c.heads, c.rotary_width, "halves", c.rotary_base),
    )
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation)
    norms = LayerNorm(c.width, c.eps), LayerNorm(c.width, c.eps)
    if c.parallel:
        return ParallelBlock(
            Branch(attention, norms[0], c.dropout), Branch(feed_forward, norms[1], c.dropout)
        )
    return Block(PreNorm(attention, norms[0], c.dropout), PreNorm(feed_forward, norms[1], c.dropout))


# Hugging Face: its rotary layout is "halves" too.


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> GPTNeoXConfig:
    refuse_unless(theirs, "is_causal", True)
    width, heads = read(theirs, "hidden_size", 6144), read(theirs, "num_attention_heads", 64)
    return GPTNeoXConfig(
        vocab=read(theirs, "vocab_size", 50432),
        context=read(theirs, "max_position_embeddings", 2048),
        layers=read(theirs, "num_hidden_layers", 44),
        width=width,
        heads=heads,
        ffn_width=read(theirs, "intermediate_size", 24576),
        activation=read_activation(theirs, "hidden_act", "gelu"),
        parallel=read(theirs, "use_parallel_residual", True),
        attention_bias=read(theirs, "attention_bias", True),
        dropout=read(theirs, "hidden_dropout", 0.0),
        attention_dropout=read(theirs, "attention_dropout", 0.0),
        eps=read(theirs, "layer_norm_eps", 1e-5),
        tie_embeddings=read(theirs, "tie_word_embeddings", False),
        **read_rotary(theirs, width // heads),
    )


def read_rotary(theirs: dict[str, Any], head: int) -> dict[str, Any]:
    """How positions turn. Today's configs say it in one place, older ones beside other settings."""
    rope = theirs.get("rope_scaling") or theirs.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise BadInput(f"rope_parameters must be an object {{...}}, not {short(rope)}")
    refuse_unless({"rope_type": rope.get("rope_type", rope.get("type", "default"))}, "rope_type", "default")
    older = {key: theirs[name] for name, key in OLDER.items() if name in theirs}
    said = older | rope
    part = read(said, "partial_rotary_factor", 0.25)
    turned = int(head * part)
    if turned < 2 or turned % 2 or turned > head:
        raise BadInput(
            f"partial_rotary_factor is {part} of heads of {head} dimensions: "
            f"heedful turns an even number of them, from 2 to all, not {turned}"
        )
    return {"rotary_width": turned, "rotary_base": read(said, "rope_theta", 10000.0)}


OLDER = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}


def write_config(c: GPTNeoXConfig) -> dict[str, Any]:
    part = c.rotary_width / (c.width // c.heads)
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "use_parallel_residual": c.parallel,
        "attention_bias": c.attention_bias,
        "hidden_dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "layer_norm_eps": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
        "rotary_pct": part,  # transformers before version 5 reads these two
        "rotary_emb_base": c.rotary_base,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": c.rotary_base,
            "partial_rotary_factor": part,
        },
    }


def names(c: GPTNeoXConfig) -> Table:
    theirs, ours = "gpt_neox.layers.{}", "stack.blocks.{}"
    attention, feed_forward = f"{ours}.attention", f"{ours}.feed_forward"
    head = [] if c.tie_embeddings else [same("embed_out.weight", "head.linear.weight")]
    return Table(
        [
            same("gpt_neox.embed_in.weight", "inputs.tokens.weight"),
            *(
                by_heads(
                    f"{theirs}.attention.query_key_value.{kind}",
                    c.heads,
                    *(f"{attention}.layer.{part}.{kind}" for part in ("query", "key", "value")),
                )
                for kind in ("weight", "bias")
            ),
            *weight_and_bias(f"{theirs}.attention.dense", f"{attention}.layer.out"),
            *weight_and_bias(f"{theirs}.mlp.dense_h_to_4h", f"{feed_forward}.layer.up"),
            *weight_and_bias(f"{theirs}.mlp.dense_4h_to_h", f"{feed_forward}.layer.down"),
            *weight_and_bias(f"{theirs}.input_layernorm", f"{attention}.norm"),
            *weight_and_bias(f"{theirs}.post_attention_layernorm", f"{feed_forward}.norm"),
            *weight_and_bias("gpt_neox.final_layer_norm", "stack.norm"),
            *head,
        ],
        prefix="gpt_neox.",
        copies={"embed_out.weight": "gpt_neox.embed_in.weight"} if c.tie_embeddings else {},
        ignored=tuple(f"layers.{{}}.attention.{name}" for name in ("bias", "masked_bias"))
        + ("layers.{}.attention.rotary_emb.inv_freq",),
        old={"lm_head.weight": "embed_out.weight"},
    )
