"""Quantized weights, through torchao: the matrices of all blocks and of an untied output layer.

Only weights are rounded, to 8 bits each with one scale per row. They are dequantized on the fly, so products
are computed as before, on every device. There are no 4 bits: docs/howto/exchange.md says why.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from ..errors import BadInput
from ..parts.blocks import Block
from ..parts.embeddings import Untied
from .packages import needed, quiet

KINDS = ("int8",)


def quantize_weights(model: nn.Module, kind: str) -> nn.Module:
    """The same model with rounded weights; it can be used, and no longer trained or saved."""
    if kind not in KINDS:
        raise BadInput(f'`quantize` is {" or ".join(KINDS)}, not "{kind}"')
    with quiet():
        ao = needed("torchao.quantization", "quant")
    layers = list(linear_layers(model))
    if not layers:
        raise BadInput(f"a {type(model).__name__} has no matrices in blocks that can be quantized")
    for layer in layers:
        with quiet():
            ao.quantize_(layer, ao.Int8WeightOnlyConfig())
    return model


def linear_layers(model: nn.Module) -> Iterator[nn.Linear]:
    """The linear layers of all blocks, and of the output if it is not the embedding's own matrix."""
    for module in model.modules():
        if isinstance(module, Block | Untied):
            yield from (layer for layer in module.modules() if type(layer) is nn.Linear)
