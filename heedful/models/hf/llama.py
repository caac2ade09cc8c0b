"""The settings of LLaMA-style decoders in Hugging Face configs: llama, mistral, ministral, qwen2, qwen3.

What differs: which projections have biases, which layers see only a window, whether queries and keys have
norms, and the defaults of settings that a config leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import BadInput
from .folder import (
    ACTIVATION_NAMES,
    one_of,
    read,
    read_activation,
    read_or_null,
    read_unless_null,
    refuse_unless,
)
from .rope import read_rope, rope_of, write_rope

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Defaults:
    """What a config of a family may leave out, where families differ."""

    name: str  # of its language model
    vocab: int = 32000
    context: int = 131072
    ffn_width: int = 14336
    kv_heads: int | None = 8  # None: as many as heads
    key_width: int | None = None  # None: width / heads


VARIANTS = {
    "llama": Defaults("LlamaForCausalLM", context=2048, ffn_width=11008, kv_heads=None),
    "mistral": Defaults("MistralForCausalLM"),
    "ministral": Defaults("MinistralForCausalLM"),
    "qwen2": Defaults("Qwen2ForCausalLM", 151936, 32768, 22016, 32),
    "qwen3": Defaults("Qwen3ForCausalLM", 151936, 32768, 22016, 32, 128),
}


def read_settings(theirs: dict[str, Any]) -> dict[str, Any]:
    """The fields of a LlamaConfig."""
    variant = one_of(VARIANTS, "model_type", theirs.get("model_type", "llama"))
    default = VARIANTS[variant]
    width, heads = read(theirs, "hidden_size", 4096), read(theirs, "num_attention_heads", 32)
    layers = read(theirs, "num_hidden_layers", 32)
    context = read(theirs, "max_position_embeddings", default.context)
    rope = rope_of(theirs)
    refuse_unless(rope, "partial_rotary_factor", 1.0)
    return {
        "vocab": read(theirs, "vocab_size", default.vocab),
        "context": context,
        "layers": layers,
        "width": width,
        "heads": heads,
        "kv_heads": read_kv_heads(theirs, heads, default.kv_heads),
        "key_width": read_key_width(theirs, width, heads, default.key_width),
        "ffn_width": read(theirs, "intermediate_size", default.ffn_width),
        "activation": read_activation(theirs, "hidden_act", "silu"),
        **read_biases(theirs, variant),
        "dropout": read_unless_null(theirs, "resid_pdrop", 0.0),
        "attention_dropout": read_unless_null(theirs, "attention_dropout", 0.0),
        "eps": read(theirs, "rms_norm_eps", 1e-6),
        "tie_embeddings": read(theirs, "tie_word_embeddings", False),
        "qk_norm": variant == "qwen3",
        "causal": read(theirs, "is_causal", True),
        **read_windows(theirs, variant, layers),
        **read_rope(rope, context),
    }


def read_kv_heads(theirs: dict[str, Any], heads: int, default: int | None) -> int:
    """Key/value heads; null means as many as there are query heads."""
    found = theirs.get("num_key_value_heads", default)
    return heads if found is None else read({"num_key_value_heads": found}, "num_key_value_heads", heads)


def read_key_width(theirs: dict[str, Any], width: int, heads: int, default: int | None = None) -> int:
    if theirs.get("head_dim", default) is None and width % heads:
        raise BadInput(f"hidden_size {width} cannot be divided into {heads} heads (num_attention_heads)")
    return read_unless_null(theirs, "head_dim", default or width // heads)


def read_biases(theirs: dict[str, Any], variant: str) -> dict[str, bool]:
    """Qwen2 always has biases on queries, keys and values, LLaMA and Qwen3 where the config says so."""
    if variant == "qwen2":
        return {"attention_bias": True, "out_bias": False}
    return {
        "attention_bias": variant in ("llama", "qwen3") and read(theirs, "attention_bias", False),
        "ffn_bias": variant == "llama" and read(theirs, "mlp_bias", False),
    }


# Windows


def read_windows(theirs: dict[str, Any], variant: str, layers: int) -> dict[str, Any]:
    """The window, and which layers have it."""
    if variant == "llama":
        refuse_windows(theirs, layers)
        return {}
    window = read_or_null({"sliding_window": 4096} | theirs, "sliding_window", 1)
    first = 0
    if variant in ("qwen2", "qwen3"):
        window = window if read(theirs, "use_sliding_window", False) else None
        first = theirs.get("max_window_layers", 28)
        if type(first) is not int:
            raise BadInput(f"max_window_layers must be a whole number, not {first!r}")
    usual = [SLIDING if window and layer >= first else FULL for layer in range(layers)]
    kinds = read_layer_types(theirs, layers) or usual
    if variant == "mistral" and kinds != usual:
        raise BadInput('layer_types mixes kinds, which mistral does not: set model_type to "ministral"')
    return windows_of(window, kinds)


def refuse_windows(theirs: dict[str, Any], layers: int) -> None:
    """LLaMA's layers see everything before them."""
    if SLIDING in read_layer_types(theirs, layers) or theirs.get("sliding_window") is not None:
        raise BadInput('a llama has no sliding_window: remove it, or set model_type to "mistral"')


def read_layer_types(theirs: dict[str, Any], layers: int) -> list[str]:
    """The kind of attention of each layer; nothing if the config does not say."""
    kinds = theirs.get("layer_types")
    if kinds is None:
        return []
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise BadInput(f"layer_types must be a list of {layers} names, one for each of num_hidden_layers")
    return [one_of((FULL, SLIDING), "layer_types", kind) for kind in kinds]


def windows_of(window: int | None, kinds: list[str]) -> dict[str, Any]:
    windowed = tuple(layer for layer, kind in enumerate(kinds) if kind == SLIDING)
    if windowed and window is None:
        raise BadInput(f"layer_types names {SLIDING}, and no sliding_window says how far such a layer sees")
    mixed = 0 < len(windowed) < len(kinds)
    return {"window": window if windowed else None, "windowed_layers": windowed if mixed else ()}


def layer_types(c: Any) -> list[str]:
    return [SLIDING if windowed else FULL for windowed in c.kinds]


# The way back


def variant_of(c: Any) -> str:
    """The family that has such a model."""
    if c.saved_as:
        return c.saved_as
    if c.qk_norm:
        return "qwen3"
    if c.attention_bias and not c.out_bias:
        return "qwen2"
    if c.window is None:
        return "llama"
    return "ministral" if c.windowed_layers else "mistral"


def write_settings(c: Any) -> dict[str, Any]:
    variant = variant_of(c)
    if variant == "llama" and c.width % c.heads:
        raise BadInput(
            f"Hugging Face has no llama of width {c.width} with {c.heads} heads: it divides evenly"
        )
    return {
        "model_type": variant,
        "architectures": [VARIANTS[variant].name],
        "vocab_size": c.vocab,
        "max_position_embeddings": c.context,
        "num_hidden_layers": c.layers,
        "hidden_size": c.width,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.key_width,
        "intermediate_size": c.ffn_width,
        "hidden_act": ACTIVATION_NAMES[c.activation],
        **write_own(c, variant),
        **({"resid_pdrop": c.dropout} if c.dropout else {}),  # GPT-2's name: theirs has no such dropout
        "attention_dropout": c.attention_dropout,
        **write_rotary(c),
        "rms_norm_eps": c.eps,
        "tie_word_embeddings": c.tie_embeddings,
        **({} if c.causal else {"is_causal": False}),
    }


def write_own(c: Any, variant: str) -> dict[str, Any]:
    """The settings that not all of these families have."""
    if variant == "llama":
        return {"attention_bias": c.attention_bias, "mlp_bias": c.ffn_bias}
    if variant == "mistral":
        return {"sliding_window": c.window}
    windows = {"sliding_window": c.window, "layer_types": layer_types(c)}
    if variant == "ministral":  # which needs a window even where no layer has it
        return windows | {"sliding_window": c.window or c.context}
    windows |= {"use_sliding_window": c.window is not None, "max_window_layers": c.layers}
    return windows | ({"attention_bias": c.attention_bias} if variant == "qwen3" else {})


def write_rotary(c: Any) -> dict[str, Any]:
    """transformers before version 5 reads `rope_theta` and `rope_scaling`."""
    said = write_rope(c)
    older = {} if c.rope_scaling == "none" else {"rope_scaling": said}
    return {
        "rope_theta": c.rotary_base,
        **older,
        "rope_parameters": said | {"rope_theta": c.rotary_base},
    }
