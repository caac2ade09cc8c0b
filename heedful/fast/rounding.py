"""Weights rounded in place to the numbers of 8 bits that the kernels of a step read (`kernels/packed.py`).

A model rounded like this computes on any device, by the plain parts, what packed steps compute. What packing
costs is the difference between its loss and that of the model as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..models.base.shells import Decoder, EncoderDecoder, decoder_of
from ..parts.blocks import Block
from ..parts.embeddings import Tied, Untied
from .kernels.packed import packed, unpacked


@torch.no_grad()
def round_weights(model: Decoder | EncoderDecoder, kind: str) -> None:
    """Round what a step multiplies with: the decoder's matrices, but for keys and values of a source.

    kind: "int8" or "fp8". The embedding stays as it is. Where the output layer uses it too, the output layer
    gets a matrix of its own.
    """
    decoder = decoder_of(model)
    for layer in read_by_steps(decoder):
        layer.weight.copy_(rounded(layer.weight, kind))
    head = decoder.head
    if isinstance(head, Tied):
        weight_VD = decoder.inputs.tokens.weight
        V, D = weight_VD.shape
        with torch.device("meta"):
            own = Untied(D, V, scale=head.scale)
        own.linear.weight = nn.Parameter(rounded(weight_VD, kind))
        own.linear.register_parameter("bias", head.bias)
        decoder.head = own
    elif isinstance(head, Untied):
        head.linear.weight.copy_(rounded(head.linear.weight, kind))


def read_by_steps(decoder: Decoder) -> list[nn.Linear]:
    """The linear layers of all blocks that a step multiplies with."""
    blocks = [module for module in decoder.modules() if isinstance(module, Block)]
    crosses = [getattr(block.cross, "layer", None) for block in blocks]
    of_sources = [layer for cross in crosses if cross is not None for layer in (cross.key, cross.value)]
    layers = [layer for block in blocks for layer in block.modules() if type(layer) is nn.Linear]
    return [layer for layer in layers if not any(layer is other for other in of_sources)]


def rounded(weight_NK: Tensor, kind: str) -> Tensor:
    """The numbers of 8 bits nearest to a weight."""
    return unpacked(packed(weight_NK.detach(), kind)).to(weight_NK.dtype)
