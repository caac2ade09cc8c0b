"""Which models a group of processes can compute together; what splits them (tensor.py) is slow to import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from ...errors import BadInput
from ...parts.blocks import Block
from ...parts.layers import FeedForward, GatedFeedForward
from ...parts.multihead import MultiHeadAttention
from ...parts.positions.base import Position


def kind_of(module: nn.Module) -> type:
    """A module's class, before `fast.training` gave it a twin."""
    return getattr(type(module), "plain", type(module))


def refuse_unsplittable(model: nn.Module, parts: int) -> None:
    """One sentence on the first thing that a group of so many processes cannot compute together."""
    layers = list(attention_layers(model))
    if not layers:
        raise BadInput(
            f"tensor={parts} splits the attention of a Transformer, and this model has none: leave it out"
        )
    for layer in layers:
        name, position = kind_of(layer).__name__, getattr(layer, "position", None)
        if kind_of(layer) is not MultiHeadAttention:
            raise BadInput(
                f"tensor={parts} cannot split attention of the kind {name}: leave it out, or choose an "
                "architecture with plain heads, such as gpt2, llama, transformer or mixture"
            )
        if type(position).bias is not Position.bias or position.uses_values:  # type: ignore[union-attr]
            raise BadInput(
                f"tensor={parts} splits attention by heads, and the positions {type(position).__name__} tell "
                "each head something else: leave it out, or choose other positions"
            )
        for what, number in (("heads", layer.heads), ("key/value heads", layer.kv_heads)):
            if number % parts:
                raise BadInput(f"tensor={parts} cannot divide {number} {what} evenly: choose a divisor")
    for module in model.modules():
        if kind_of(module) in (FeedForward, GatedFeedForward) and module.up.out_features % parts:  # type: ignore[union-attr,operator]
            hidden = module.up.out_features  # type: ignore[union-attr]
            raise BadInput(f"tensor={parts} cannot divide a feed-forward width of {hidden} evenly")


def attention_layers(model: nn.Module) -> Iterator[Any]:
    """What attends in each block, and attention that stands elsewhere."""
    inside = [
        sublayer.layer
        for block in model.modules()
        if isinstance(block, Block)
        for sublayer in (block.attention, block.cross)
        if sublayer is not None and hasattr(sublayer, "layer")
    ]
    seen = {id(layer) for layer in inside}
    yield from inside
    yield from (m for m in model.modules() if isinstance(m, MultiHeadAttention) and id(m) not in seen)
