"""Kernels as operations of torch: with gradients, and such that torch.compile launches them as it launches its own."""

from __future__ import annotations

from typing import Any

from torch.library import triton_op, wrap_triton
from triton.runtime.jit import JITFunction

__all__ = ["block", "launched", "triton_op"]


def launched(kernel: Any) -> Any:
    """The kernel, as it is to be launched inside of a `triton_op`. Triton's interpreter has no other way than its own."""
    return wrap_triton(kernel) if isinstance(kernel, JITFunction) else kernel


def block(size: int) -> int:
    """The next power of two, 16 at least: by comparisons alone, so that torch.compile can keep the size open."""
    power = 16
    while power < size:
        power *= 2
    return power
