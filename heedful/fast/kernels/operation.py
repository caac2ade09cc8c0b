"""Kernels as operations of torch, so that torch.compile knows their outputs and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library, register_autograd, register_fake

LIBRARY = Library("heedful", "DEF")
Function = Callable[..., Any]


def operation(name: str, schema: str, compute: Function, shapes: Function) -> Function:
    """torch.ops.heedful.name. shapes: what it gives back, but for the numbers.

    By torch's lower interface: `custom_op` checks every call for aliases, which takes longer than these
    kernels.
    """
    LIBRARY.define(name + schema)
    for device in ("CUDA", "CPU"):
        LIBRARY.impl(name, compute, device)
    register_fake(f"heedful::{name}", shapes, lib=LIBRARY)
    return getattr(torch.ops.heedful, name)


def differentiable(name: str, backward: Function, remember: Function) -> None:
    register_autograd(f"heedful::{name}", backward, setup_context=remember, lib=LIBRARY)


def block(size: int) -> int:
    """The next power of two, 16 at least."""
    return max(16, 1 << (size - 1).bit_length())
