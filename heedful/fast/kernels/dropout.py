"""Dropout without a table: a number's place and a seed say whether it stays, forwards and backwards alike.

Places are counted in 32 bits: of tensors with fewer than `kernels.MOST` numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl


def odds(dropout: float) -> dict:
    """What a kernel is told of a share that is dropped."""
    return {"P": dropout, "LIMIT": round(dropout * (1 << 24))}


@triton.jit
def _mixed(x):
    """A hash of 32 bits, a multiply-xorshift with the low bias of Wellons' search."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def kept(seed, place, LIMIT: tl.constexpr):
    """Which numbers stay: of 2^24 that may be drawn, those from LIMIT on."""
    low, high = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    drawn = _mixed(_mixed(place.to(tl.uint32) ^ low) ^ high)
    return (drawn >> 8).to(tl.int32) >= LIMIT
