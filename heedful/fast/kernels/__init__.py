"""Kernels for GPUs: each does in one launch what the parts do one after the other.

Small work is limited by launches and large work by memory, so both gain. Each kernel is proven equal to the
parts.

For the decoding step: `linear`, `attend`, `embed`, `choose`, `beam`. For training: `inputs`, `product`,
`heads`, `short`, `up_projection`, `residual`, `loss`. They are written in Triton, which comes with torch for
CUDA; nothing imports them where it is missing.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

from ...parts.fused import HALVES

THERE = find_spec("triton") is not None
WIDEST = 8192  # numbers of a vector that one program can hold
MOST = 1 << 31  # numbers of a tensor whose places are counted in 32 bits


def trains(x: Tensor) -> bool:
    """Whether the kernels of training are to be used: in half precision on a GPU, inside of torch.compile.

    Outside of it a training step waits for Python, which takes longer to launch one of them than torch takes
    for all that it does at once.
    """
    quick = x.is_cuda and x.dtype in HALVES and THERE
    return quick and torch.is_grad_enabled() and torch.compiler.is_compiling()


def embeds(tokens: Tensor) -> bool:
    """Whether a kernel can look tokens up in training."""
    return tokens.is_cuda and THERE
