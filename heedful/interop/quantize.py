"""Quantized weights, through torchao: the matrices of all blocks and of an untied output layer.

    int8   8 bits per weight, one scale per row
    int4   4 bits per weight, one scale per 128, 64 or 32 weights (per row if none of these divides the row)

Only weights are rounded. They are dequantized on the fly, so products are computed as before, on every
device. A weight of int4 takes a byte here: it needs the memory of int8, and shows how much quality 4 bits
cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..errors import BadInput
from ..parts.blocks import Block
from ..parts.embeddings import Untied
from .packages import needed, quiet

KINDS = ("int8", "int4")
GROUPS = (128, 64, 32)


def quantize_weights(model: nn.Module, kind: str) -> nn.Module:
    """The same model with rounded weights; it can be used, and no longer trained or saved."""
    if kind not in KINDS:
        raise BadInput(f'`quantize` is {" or ".join(KINDS)}, not "{kind}"')
    with quiet():
        ao = needed("torchao.quantization", "quant")
        grain = needed("torchao.quantization.granularity", "quant")
    layers = list(linear_layers(model))
    if not layers:
        raise BadInput(f"a {type(model).__name__} has no matrices in blocks that can be quantized")
    for layer in layers:
        with quiet():
            ao.quantize_(layer, config_of(ao, grain, kind, layer.in_features))
    return model


def linear_layers(model: nn.Module) -> Iterator[nn.Linear]:
    """The linear layers of all blocks, and of the output if it is not the embedding's own matrix."""
    for module in model.modules():
        if isinstance(module, Block | Untied):
            yield from (layer for layer in module.modules() if type(layer) is nn.Linear)


def config_of(ao: Any, grain: Any, kind: str, width: int) -> Any:
    """torchao's settings for a matrix whose rows have `width` weights."""
    if kind == "int8":
        return ao.Int8WeightOnlyConfig()
    group = next((size for size in GROUPS if width % size == 0), None)
    granularity = grain.PerAxis(0) if group is None else grain.PerGroup(group)
    return ao.IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, "int4"),  # noqa: B009 (mypy knows none)
        granularity=granularity,
    )
