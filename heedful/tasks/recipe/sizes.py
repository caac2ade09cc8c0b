"""Sizes of models by name; an architecture takes those of the settings that its Config has."""

from __future__ import annotations

from typing import Any


def sized(layers: int, width: int, heads: int, ffn_width: int, context: int) -> dict[str, Any]:
    return {
        "layers": layers,
        "width": width,
        "heads": heads,
        "ffn_width": ffn_width,
        "context": context,
        "reader_width": width,  # of a network that reads ELMo's vectors
    }


def two_thirds(ffn_width: int) -> int:
    """The width at which three matrices have as many numbers as two, to the next multiple of 8."""
    return -(-2 * ffn_width // 24) * 8


SIZES: dict[str, dict[str, Any]] = {
    "tiny": sized(2, 128, 4, 512, 256),
    "small": sized(4, 256, 4, 1024, 256),
    "base": sized(6, 512, 8, 2048, 512),
    "large": sized(6, 1024, 16, 4096, 1024),
}
