"""Phi-3 (Abdin et al. 2024; also Phi-3.5 and Phi-4): a LLaMA whose heads may turn in part only.

Long-context versions have a factor for each rotary frequency (LongRoPE): one list for texts up to the
original context, another for longer ones. Here, texts end at the original context.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from ..errors import BadInput
from ..parts.positions.base import UpTo
from ..parts.positions.rotary import LongRopeScaling, PartialRotary, Rotary, StretchedRotary
from . import llama
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
    divided,
)
from .base.settings import GIVEN, Range, same_as
from .base.shells import Decoder
from .hf.folder import (
    ACTIVATION_NAMES,
    one_of,
    read,
    read_activation,
    read_or_null,
    read_unless_null,
    refuse_unless,
)
from .hf.llama import read_key_width, read_kv_heads
from .hf.names import Table, one_below_another, same
from .hf.rope import kind_of, read_base, rope_of


@dataclass(frozen=True)
class Phi3Config(Config):
    vocab: Vocab = 32064
    context: Context = 4096
    layers: Layers = 32
    width: Width = 3072
    heads: Heads = 32
    kv_heads: KeyValueHeads = same_as("heads")
    key_width: KeyWidth = divided("width", "heads")
    ffn_width: FfnWidth = 8192
    activation: Activation = "silu"
    attention_dropout: AttentionDropout = 0.0
    rotary_base: Annotated[float, AMOUNT, "base of the rotary frequencies (theta)"] = 10000.0
    rotary_share: Annotated[float, Range(0, 1, "(]"), "share of each head that turns with positions"] = 1.0
    eps: Eps = 1e-05
    tie_embeddings: TieEmbeddings = False
    window: Annotated[int | None, SIZE, "tokens that a layer sees; None: all"] = None
    causal: Annotated[bool, "whether no token sees those after it", GIVEN] = True
    short_factors: Annotated[tuple[float, ...], "what divides each rotary frequency", GIVEN] = ()
    long_factors: Annotated[tuple[float, ...], "the same for texts longer than context", GIVEN] = ()
    long_context: Annotated[int, SIZE, "the longest text that long_factors are for", GIVEN] = same_as(
        "context"
    )
    original_context: Annotated[int, SIZE, "the longest text that short_factors are for", GIVEN] = same_as(
        "context"
    )
    magnitude: Annotated[float, AMOUNT, "what multiplies queries and keys, with factors", GIVEN] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.short_factors)
        if len(self.long_factors) != count or count not in (0, self.rotary_width // 2):
            raise ValueError(
                f"{self.rotary_width // 2} frequencies need as many short and long factors, "
                f"not {count} and {len(self.long_factors)}"
            )

    @property
    def rotary_width(self) -> int:
        """Coordinates of a head that turn."""
        return int(self.key_width * self.rotary_share)


MODEL_TYPES = ("phi3",)  # Hugging Face's
PRESETS = {"phi3-mini-4k": Phi3Config(window=2047)}
SAME = {field.name for field in fields(Phi3Config)} & {field.name for field in fields(llama.LlamaConfig)}


def build(config: Phi3Config) -> Decoder:
    """LLaMA's decoder with these positions, and fresh weights."""
    c = config
    rotary = build_rotary(c)
    position = rotary if c.rotary_width == c.key_width else PartialRotary(rotary)
    model = llama.build_with(llama.LlamaConfig(**{name: getattr(c, name) for name in SAME}), position)
    if c.short_factors:
        model.inputs.position = UpTo(c.original_context, "LongRoPE's original context")
    return model


def build_rotary(c: Phi3Config) -> Rotary:
    if not c.short_factors:
        return Rotary(c.rotary_width, layout="halves", base=c.rotary_base)
    scaling = LongRopeScaling(c.short_factors, c.magnitude)
    return StretchedRotary(c.rotary_width, scaling, layout="halves", base=c.rotary_base)


# Hugging Face


def read_config(theirs: dict[str, Any], names: Collection[str] = ()) -> Phi3Config:
    refuse_unless(theirs, "resid_pdrop", 0.0)
    width, heads = read(theirs, "hidden_size", 3072), read(theirs, "num_attention_heads", 32)
    config = Phi3Config(
        vocab=read(theirs, "vocab_size", 32064),
        context=read(theirs, "max_position_embeddings", 4096),
        layers=read(theirs, "num_hidden_layers", 32),
        width=width,
        heads=heads,
        kv_heads=read_kv_heads(theirs, heads, None),
        key_width=read_key_width(theirs, width, heads),
        ffn_width=read(theirs, "intermediate_size", 8192),
        activation=read_activation(theirs, "hidden_act", "silu"),
        attention_dropout=read(theirs, "attention_dropout", 0.0),
        rotary_base=read_base(rope_of(theirs)),
        rotary_share=read_unless_null(rope_of(theirs), "partial_rotary_factor", 1.0),
        eps=read(theirs, "rms_norm_eps", 1e-5),
        tie_embeddings=read(theirs, "tie_word_embeddings", False),
        window=read_or_null(theirs, "sliding_window", 1),
        causal=read(theirs, "is_causal", True),
    )
    return replace(config, **read_factors(theirs, config.context))


def read_factors(theirs: dict[str, Any], context: int) -> dict[str, Any]:
    """LongRoPE's factors, which older configs call su or yarn."""
    rope = rope_of(theirs)
    if one_of(("default", "longrope", "su", "yarn"), "rope_type", kind_of(rope)) == "default":
        return {}
    original = read(theirs, "original_max_position_embeddings", 4096)
    return {
        "context": min(context, original),
        "long_context": context,
        "original_context": original,
        "short_factors": read_numbers(rope, "short_factor"),
        "long_factors": read_numbers(rope, "long_factor"),
        "magnitude": longrope_magnitude(rope, context, original),
    }


def read_numbers(rope: dict[str, Any], name: str) -> tuple[float, ...]:
    found = rope.get(name)
    if not isinstance(found, list) or not found or not all(type(x) in (int, float) and x > 0 for x in found):
        raise BadInput(f"{name} must be a list of numbers above 0, one for each rotary frequency")
    return tuple(map(float, found))


def longrope_magnitude(rope: dict[str, Any], context: int, original: int) -> float:
    given = read_or_null(rope, "attention_factor", 1.0)
    factor = read_or_null(rope, "factor", 1.0)
    factor = context / original if factor is None else factor
    if given is not None:
        return given
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))


def write_config(c: Phi3Config) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default"}
    if c.short_factors:
        rope = {"rope_type": "longrope", "attention_factor": c.magnitude}
        rope |= {"short_factor": list(c.short_factors), "long_factor": list(c.long_factors)}
    return {
        "model_type": "phi3",
        "architectures": ["Phi3ForCausalLM"],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.long_context,
        "original_max_position_embeddings": c.original_context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.key_width,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "attention_dropout": c.attention_dropout,
        "sliding_window": c.window,
        "rope_parameters": rope | {"rope_theta": c.rotary_base, "partial_rotary_factor": c.rotary_share},
        "rms_norm_eps": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
        **({} if c.causal else {"is_causal": False}),
    }


def names(c: Phi3Config) -> Table:
    theirs, ours = "model.layers.{}", "stack.blocks.{}"
    attention, feed_forward = f"{ours}.attention", f"{ours}.feed_forward"
    qkv = {"query": c.heads * c.key_width, "key": c.kv_heads * c.key_width, "value": c.kv_heads * c.key_width}
    both = {"gate": c.ffn_width, "up": c.ffn_width}
    head = [] if c.tie_embeddings else [same("lm_head.weight", "head.linear.weight")]
    rules = [
        same("model.embed_tokens.weight", "inputs.tokens.weight"),
        same("model.norm.weight", "stack.norm.weight"),
        same(f"{theirs}.input_layernorm.weight", f"{attention}.norm.weight"),
        same(f"{theirs}.post_attention_layernorm.weight", f"{feed_forward}.norm.weight"),
        one_below_another(
            f"{theirs}.self_attn.qkv_proj.weight",
            {f"{attention}.layer.{part}.weight": rows for part, rows in qkv.items()},
        ),
        same(f"{theirs}.self_attn.o_proj.weight", f"{attention}.layer.out.weight"),
        one_below_another(
            f"{theirs}.mlp.gate_up_proj.weight",
            {f"{feed_forward}.layer.{part}.weight": rows for part, rows in both.items()},
        ),
        same(f"{theirs}.mlp.down_proj.weight", f"{feed_forward}.layer.down.weight"),
        *head,
    ]
    copies = {"lm_head.weight": "model.embed_tokens.weight"} if c.tie_embeddings else {}
    return Table(rules, prefix="model.", copies=copies, ignored=("layers.{}.self_attn.rotary_emb.inv_freq",))
