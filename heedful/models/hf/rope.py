"""Rotary positions in Hugging Face configs: `rope_parameters`, and `rope_scaling` in older ones."""

from __future__ import annotations

import math
from reprlib import repr as short
from typing import Any

from ...errors import BadInput
from .folder import one_of, read, read_or_null

ROPE_TYPES = {"default": "none", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}


def rope_of(theirs: dict[str, Any]) -> dict[str, Any]:
    """What a config says of its rotary positions, with what older configs say beside it."""
    rope = theirs.get("rope_scaling") or theirs.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise BadInput(f"rope_parameters must be an object {{...}}, not {short(rope)}")
    beside = ("rope_theta", "partial_rotary_factor")
    rope = {**{key: theirs[key] for key in beside if key in theirs}, **rope}
    if theirs.get("original_max_position_embeddings") is not None:  # transformers prefers this one
        rope["original_max_position_embeddings"] = theirs["original_max_position_embeddings"]
    return rope


def kind_of(rope: dict[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def read_rope(rope: dict[str, Any], context: int, base: float = 10000.0) -> dict[str, Any]:
    """How positions turn, under our names. base: the default of rope_theta."""
    kind = one_of(ROPE_TYPES, "rope_type", kind_of(rope))
    base = read_base(rope, base)
    found: dict[str, Any] = {"rotary_base": base, "rope_scaling": ROPE_TYPES[kind]}
    original = read(rope, "original_max_position_embeddings", context)
    if kind == "linear":
        found["rope_factor"] = read(rope, "factor", 1.0)
    if kind == "llama3":
        found["rope_factor"] = read(rope, "factor", 1.0)
        found["rope_low_freq_factor"] = read(rope, "low_freq_factor", 1.0)
        found["rope_high_freq_factor"] = read(rope, "high_freq_factor", 4.0)
        found["rope_original_context"] = original
    if kind == "yarn":
        if base <= 1:
            raise BadInput(f"rope_theta is {base}; YaRN needs more than 1")
        given = read_or_null(rope, "factor", 1.0)
        factor = context / original if given is None else given
        found["rope_factor"] = factor
        found["rope_original_context"] = original
        found["rope_beta_fast"] = read_or_null(rope, "beta_fast", 32.0) or 32.0
        found["rope_beta_slow"] = read_or_null(rope, "beta_slow", 1.0) or 1.0
        found["rope_magnitude"] = yarn_magnitude(rope, factor)
        found["rope_truncate"] = read(rope, "truncate", True)
    return found


def read_base(rope: dict[str, Any], default: float = 10000.0) -> float:
    """The base of the frequencies. Below 1, single precision cannot hold the angles."""
    base = read(rope, "rope_theta", default)
    if base < 1:
        raise BadInput(f"rope_theta is {base}; it must be at least 1")
    return base


def yarn_magnitude(rope: dict[str, Any], factor: float) -> float:
    """What YaRN multiplies queries and keys by."""
    given = read_or_null(rope, "attention_factor", 1.0)
    if given is not None:
        return given

    def grown(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1

    above, below = (read_or_null(rope, name, 1.0) for name in ("mscale", "mscale_all_dim"))
    return grown(above) / grown(below) if above and below else grown(1)


def write_rope(c: Any) -> dict[str, Any]:
    """The same in their words."""
    said: dict[str, Any] = {"rope_type": "default" if c.rope_scaling == "none" else c.rope_scaling}
    if c.rope_scaling != "none":
        said["factor"] = c.rope_factor
    if c.rope_scaling == "llama3":
        said |= {"low_freq_factor": c.rope_low_freq_factor, "high_freq_factor": c.rope_high_freq_factor}
    if c.rope_scaling == "yarn":
        said |= {"beta_fast": c.rope_beta_fast, "beta_slow": c.rope_beta_slow}
        said |= {"attention_factor": c.rope_magnitude, "truncate": c.rope_truncate}
    if c.rope_scaling in ("llama3", "yarn"):
        said["original_max_position_embeddings"] = c.rope_original_context
    return said
