"""Gemma 3 (Gemma Team 2025), its text decoder: norms around every layer and in attention, and windows.

Five layers in six see only the last tokens, with rotary positions that turn fast. The sixth sees everything,
with positions that turn slowly.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from reprlib import repr as short
from typing import Annotated, Any, Literal

from ..errors import BadInput
from ..parts.attention import ScaledBy
from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import GatedFeedForward, OffsetRMSNorm, SandwichNorm
from ..parts.masks import Mask, causal, full, window
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.rotary import LinearScaling, Rotary, StretchedRotary
from .base.config import Config
from .base.fields import (
    AMOUNT,
    SIZE,
    Activation,
    AttentionDropout,
    Context,
    Eps,
    FfnWidth,
    Heads,
    KeyValueHeads,
    KeyWidth,
    Layers,
    TieEmbeddings,
    Vocab,
    Width,
)
from .base.initialize import normal_
from .base.settings import GIVEN, derived
from .base.shells import Decoder
from .hf.folder import ACTIVATION_NAMES, one_of, read, read_activation, read_unless_null, refuse_unless
from .hf.llama import FULL, SLIDING, read_layer_types
from .hf.names import Rule, Table, same, weight_and_bias
from .hf.rope import kind_of, read_base


@dataclass(frozen=True)
class Gemma3Config(Config):
    vocab: Vocab = 262208
    context: Context = 131072
    layers: Layers = 26
    width: Width = 2304
    heads: Heads = 8
    kv_heads: KeyValueHeads = 4
    key_width: KeyWidth = 256
    ffn_width: FfnWidth = 9216
    activation: Activation = "gelu_tanh"
    attention_bias: Annotated[bool, "biases in attention"] = False
    attention_dropout: AttentionDropout = 0.0
    query_divisor: Annotated[float, AMOUNT, "scores are divided by the square root of this"] = 256.0
    window: Annotated[int, SIZE, "tokens that a windowed layer sees; farther ones are hidden"] = 4096
    global_layers: Annotated[tuple[int, ...], "the layers that see everything", GIVEN] = derived(
        "every sixth", lambda made: tuple(range(5, made.layers, 6))
    )
    rotary_base: Annotated[float, AMOUNT, "base of the rotary frequencies of layers that see all"] = 1e6
    local_rotary_base: Annotated[float, AMOUNT, "base of the rotary frequencies of windowed layers"] = 1e4
    rope_scaling: Annotated[Literal["none", "linear"], "how positions of layers that see all are scaled"] = (
        "none"
    )
    rope_factor: Annotated[float, AMOUNT, "those positions are slowed down by this factor"] = 1.0
    eps: Eps = 1e-06
    tie_embeddings: TieEmbeddings = True
    causal: Annotated[bool, "whether no token sees those after it", GIVEN] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rope_factor < 1 or self.query_divisor == 0:
            raise ValueError(
                f"rope_factor is at least 1 and query_divisor above 0, "
                f"not {self.rope_factor} and {self.query_divisor}"
            )


MODEL_TYPES = ("gemma3_text",)  # Hugging Face's
PRESETS = {
    "gemma3-270m": Gemma3Config(
        vocab=262144,
        context=32768,
        layers=18,
        width=640,
        heads=4,
        kv_heads=1,
        ffn_width=2048,
        window=512,
    ),
    "gemma3-1b": Gemma3Config(
        vocab=262144,
        context=32768,
        width=1152,
        heads=4,
        kv_heads=1,
        ffn_width=6912,
        window=512,
    ),
}


def build(config: Gemma3Config) -> Decoder:
    """The decoder, with fresh weights: N(0, 0.02)."""
    c = config
    stack = Stack([build_block(c, layer) for layer in range(c.layers)], OffsetRMSNorm(c.width, c.eps))
    head = Tied() if c.tie_embeddings else Untied(c.width, c.vocab)
    model = Decoder(Inputs(TokenEmbedding(c.vocab, c.width, c.width**0.5)), stack, head, masks_of(c))
    normal_(model, std=0.02)
    return model


def masks_of(c: Gemma3Config) -> tuple[Mask, ...]:
    """What each layer sees; without `causal`, windows reach to both sides."""
    everything = causal() if c.causal else full()
    near = causal() & window(c.window) if c.causal else window(c.window)
    return tuple(everything if layer in c.global_layers else near for layer in range(c.layers))


def build_block(c: Gemma3Config, layer: int) -> Block:
    attention = MultiHeadAttention(
        c.width,
        c.heads,
        kv_heads=c.kv_heads,
        key_width=c.key_width,
        bias=c.attention_bias,
        dropout=c.attention_dropout,
        score=ScaledBy(c.query_divisor**-0.5),
        position=build_position(c, layer),
        qk_norm=lambda width: OffsetRMSNorm(width, c.eps),
    )
    feed_forward = GatedFeedForward(c.width, c.ffn_width, c.activation)
    return Block(
        SandwichNorm(attention, OffsetRMSNorm(c.width, c.eps), OffsetRMSNorm(c.width, c.eps)),
        SandwichNorm(feed_forward, OffsetRMSNorm(c.width, c.eps), OffsetRMSNorm(c.width, c.eps)),
    )


def build_position(c: Gemma3Config, layer: int) -> Rotary:
    if layer not in c.global_layers:
        return Rotary(c.key_width, layout="halves", base=c.local_rotary_base)
    if c.rope_scaling == "none":
        return Rotary(c.key_width, layout="halves", base=c.rotary_base)
    return StretchedRotary(c.key_width, LinearScaling(c.rope_factor), layout="halves", base=c.rotary_base)


# Hugging Face


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> Gemma3Config:
    for capped in ("final_logit_softcapping", "attn_logit_softcapping"):
        refuse_unless(theirs, capped, None)
    layers = read(theirs, "num_hidden_layers", 26)
    return Gemma3Config(
        vocab=read(theirs, "vocab_size", 262208),
        context=read(theirs, "max_position_embeddings", 131072),
        layers=layers,
        width=read(theirs, "hidden_size", 2304),
        heads=read(theirs, "num_attention_heads", 8),
        kv_heads=read(theirs, "num_key_value_heads", 4),
        key_width=read(theirs, "head_dim", 256),
        ffn_width=read(theirs, "intermediate_size", 9216),
        activation=read_activation(theirs, "hidden_activation", "gelu_pytorch_tanh"),
        attention_bias=read(theirs, "attention_bias", False),
        attention_dropout=read_unless_null(theirs, "attention_dropout", 0.0),
        query_divisor=read(theirs, "query_pre_attn_scalar", 256.0),
        global_layers=read_global_layers(theirs, layers),
        eps=read(theirs, "rms_norm_eps", 1e-6),
        tie_embeddings=read(theirs, "tie_word_embeddings", True),
        **read_sight(theirs),
        **read_rotary(theirs),
    )


def read_global_layers(theirs: dict[str, Any], layers: int) -> tuple[int, ...]:
    every = read(theirs, "sliding_window_pattern", 6)  # what older configs say
    usual = [SLIDING if (layer + 1) % every else FULL for layer in range(layers)]
    kinds = read_layer_types(theirs, layers) or usual
    return tuple(layer for layer, kind in enumerate(kinds) if kind == FULL)


def read_sight(theirs: dict[str, Any]) -> dict[str, Any]:
    """Who sees whom: two settings can open both sides, and each counts the window in its own way."""
    size = read(theirs, "sliding_window", 4096)
    both_ways = read_unless_null(theirs, "use_bidirectional_attention", False)
    size = size // 2 + 1 if both_ways else size
    if not read(theirs, "is_causal", True):
        return {"window": size + 1, "causal": False}
    return {"window": size, "causal": not both_ways}


def read_rotary(theirs: dict[str, Any]) -> dict[str, Any]:
    """How positions turn. Today's configs describe both kinds of layers in one place."""
    both, older = theirs.get("rope_parameters") or {}, theirs.get("rope_scaling") or {}
    kinds = both.values() if isinstance(both, dict) and both.keys() <= {FULL, SLIDING} else [both]
    if not all(isinstance(kind, dict | None) for kind in [*kinds, older]) or both.keys() - {FULL, SLIDING}:
        raise BadInput(f"rope_parameters must describe {FULL} and {SLIDING}, not {short(both)}")
    whole = {"rope_theta": theirs.get("rope_theta", 1e6)} | (both.get(FULL) or {}) | older
    near = {"rope_theta": theirs.get("rope_local_base_freq", 1e4)} | (both.get(SLIDING) or {})
    one_of(("default",), f"rope_type of {SLIDING}", kind_of(near))
    scaling = one_of(("default", "linear"), f"rope_type of {FULL}", kind_of(whole))
    for rope in (whole, near):
        refuse_unless(rope, "partial_rotary_factor", 1.0)
    found = {"rotary_base": read_base(whole), "local_rotary_base": read_base(near)}
    if scaling == "default":
        return found
    return found | {"rope_scaling": "linear", "rope_factor": read(whole, "factor", 1.0)}


def write_config(c: Gemma3Config) -> dict[str, Any]:
    scaled = c.rope_scaling == "linear"
    scaling = {"rope_type": "linear", "factor": c.rope_factor} if scaled else {"rope_type": "default"}
    return {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.key_width,
        "intermediate_size": c.ffn_width,
        "hidden_activation": "gelu_pytorch_tanh"
        if c.activation == "gelu_tanh"
        else ACTIVATION_NAMES[c.activation],
        "attention_bias": c.attention_bias,
        "attention_dropout": c.attention_dropout,
        "query_pre_attn_scalar": c.query_divisor,
        "sliding_window": c.window if c.causal else 2 * (c.window - 1),
        "use_bidirectional_attention": not c.causal,
        "layer_types": [FULL if layer in c.global_layers else SLIDING for layer in range(c.layers)],
        "rope_parameters": {
            FULL: scaling | {"rope_theta": c.rotary_base},
            SLIDING: {"rope_type": "default", "rope_theta": c.local_rotary_base},
        },
        "rms_norm_eps": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
    }


def names(c: Gemma3Config) -> Table:
    theirs, ours = "model.layers.{}", "stack.blocks.{}"
    attention, feed_forward = f"{ours}.attention", f"{ours}.feed_forward"
    head = [] if c.tie_embeddings else [same("lm_head.weight", "head.linear.weight")]
    norms = {
        "input_layernorm": f"{attention}.norm",
        "post_attention_layernorm": f"{attention}.after",
        "pre_feedforward_layernorm": f"{feed_forward}.norm",
        "post_feedforward_layernorm": f"{feed_forward}.after",
        "self_attn.q_norm": f"{attention}.layer.query_norm",
        "self_attn.k_norm": f"{attention}.layer.key_norm",
    }
    rules: list[Rule] = [
        same("model.embed_tokens.weight", "inputs.tokens.weight"),
        same("model.norm.weight", "stack.norm.weight"),
        *(same(f"{theirs}.{a}.weight", f"{b}.weight") for a, b in norms.items()),
        *head,
    ]
    for a, b in {"q": "query", "k": "key", "v": "value", "o": "out"}.items():
        pair = weight_and_bias(f"{theirs}.self_attn.{a}_proj", f"{attention}.layer.{b}")
        rules += pair if c.attention_bias else pair[:1]
    for part in ("gate", "up", "down"):
        rules.append(same(f"{theirs}.mlp.{part}_proj.weight", f"{feed_forward}.layer.{part}.weight"))
    copies = {"lm_head.weight": "model.embed_tokens.weight"} if c.tie_embeddings else {}
    return Table(rules, prefix="model.", copies=copies)
