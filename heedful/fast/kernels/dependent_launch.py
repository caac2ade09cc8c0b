"""Dependent launch: a kernel is on the device before the one before it has ended (from Hopper on).

A decoding step is a hundred kernels of a few microseconds, of which starting is a good part. A kernel that
may start early says at once that the next one may too, fetches what nobody is about to write (weights), and
then waits for the one before.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

LINE = tl.constexpr(64)  # numbers of 2 bytes in a line of the device's cache


@triton.jit
def begin(EARLY: tl.constexpr):
    """Let the next kernel come, and wait for the one before."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def invite(EARLY: tl.constexpr):
    """Let the next kernel come."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait(EARLY: tl.constexpr):
    """Until the kernel before has ended and all that it wrote can be read."""
    if EARLY:
        tl.extra.cuda.gdc_wait()


@triton.jit
def fetch(places):
    """Have the device's cache read what lies there."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [places], dtype=tl.int32, is_pure=False, pack=1
    )


def early(device: torch.device) -> dict[str, Any]:
    """How to launch a kernel that takes EARLY."""
    return {"EARLY": True, "launch_pdl": True} if can(device) else {"EARLY": False}


@cache
def can(device: torch.device) -> bool:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return device.type == "cuda" and not interpreted and torch.cuda.get_device_capability(device) >= (9, 0)
