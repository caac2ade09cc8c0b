"""Attention of one new token a row to the keys before it, in the buffers of a static cache.

Each program is one head of one row: it turns the query and the new key by their position (rotary), puts the
new key and value into the cache, and adds up the values by the weights as it goes along the keys (online
softmax: Milakov and Gimelshein 2018). `origin` says in which row of the cache each token of a row lies: the
hypotheses of a beam then share what they have in common, and trading places copies nothing but this table.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dependent_launch import begin, early

PLAIN, HALVES, INTERLEAVED = 0, 1, 2  # which coordinates rotary positions turn together
FEWEST_SHARES, MOST_SHARES = 4, 16  # of a past, where it is shared at all
SHARE = 128  # slots of a share at least
BUSY = 1024  # programs that are enough for a GPU
SHARED = {"BS": 128, "num_warps": 4, "num_stages": 1}


@triton.jit
def _turned(p, i, here, cosines, sines, place, K: tl.constexpr, PAIRS: tl.constexpr):
    """A vector, turned by its position."""
    v = tl.load(p + i, mask=here, other=0.0).to(tl.float32)
    if PAIRS:
        if PAIRS == 1:
            partner, angle, first = (i + K // 2) % K, i % (K // 2), i < K // 2
        else:
            partner, angle, first = i ^ 1, i // 2, i % 2 == 0
        cos = tl.load(cosines + place * (K // 2) + angle, mask=here, other=0.0)
        sin = tl.load(sines + place * (K // 2) + angle, mask=here, other=0.0)
        other = tl.load(p + partner, mask=here, other=0.0).to(tl.float32)
        v = v * cos + tl.where(first, -other, other) * sin
    return v


@triton.jit
def _attended(top, total, mixed, q, k_SK, v_SK, there):
    """The running softmax after some more keys."""
    score = tl.where(there, tl.sum(k_SK.to(tl.float32) * q[None, :], 1), float("-inf"))
    higher = tl.maximum(top, tl.max(score, 0))
    weight, fade = tl.exp(score - higher), tl.exp(top - higher)
    total = total * fade + tl.sum(weight, 0)
    mixed = mixed * fade + tl.sum(weight[:, None] * v_SK.to(tl.float32), 0)
    return higher, total, mixed


@triton.jit
def self_kernel(
    qkv, keys, values, lengths, origin, cosines, sines, out, parts, ended, scale,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, SLOTS, PAIRS: tl.constexpr, TABLE: tl.constexpr,
    SHARES: tl.constexpr, BK: tl.constexpr, BS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    row, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g = h // (H // G)
    length = tl.load(lengths + row)
    i = tl.arange(0, BK)
    here = i < K
    base = qkv + row * (H + 2 * G) * K
    kind = keys.dtype.element_ty
    q = _turned(base + h * K, i, here, cosines, sines, length, K, PAIRS).to(kind).to(tl.float32) * scale
    top, total = float("-inf"), 0.0
    mixed = tl.zeros((BK,), tl.float32)
    if share == 0:  # the new token itself
        k = _turned(base + (H + g) * K, i, here, cosines, sines, length, K, PAIRS).to(kind)
        v = tl.load(base + (H + G + g) * K + i, mask=here, other=0.0).to(kind)
        if h % (H // G) == 0:
            at = (row.to(tl.int64) * G + g) * SLOTS * K + length * K
            tl.store(keys + at + i, k, mask=here)
            tl.store(values + at + i, v, mask=here)
        top = tl.sum(q * k.to(tl.float32), 0)
        total = 1.0
        mixed = v.to(tl.float32)
    for s0 in range(share * BS, length, SHARES * BS):
        s = s0 + tl.arange(0, BS)
        there = s < length
        cell = tl.full((BS,), 0, tl.int64) + row
        if TABLE:
            cell = tl.load(origin + row * SLOTS + s, mask=there, other=0).to(tl.int64)
        at = ((cell * G + g) * SLOTS + s) * K
        mask = there[:, None] & here[None, :]
        k_SK = tl.load(keys + at[:, None] + i[None, :], mask=mask, other=0.0)
        v_SK = tl.load(values + at[:, None] + i[None, :], mask=mask, other=0.0)
        top, total, mixed = _attended(top, total, mixed, q, k_SK, v_SK, there)
    if SHARES > 1:  # whoever ends last puts the shares together
        first = (row * H + h) * SHARES
        mine = parts + (first + share) * (BK + 2)
        tl.store(mine + i, mixed)
        tl.store(mine + BK, top)
        tl.store(mine + BK + 1, total)
        tl.debug_barrier()
        if tl.atomic_add(ended + row * H + h, 1, sem="acq_rel") == SHARES - 1:
            tl.store(ended + row * H + h, 0)
            p = tl.arange(0, SHARES)
            other = parts + (first + p) * (BK + 2)
            tops = tl.load(other + BK, cache_modifier=".cg")
            weight = tl.exp(tops - tl.max(tops, 0))
            z_PK = tl.load(other[:, None] + i[None, :], cache_modifier=".cg")
            mixed = tl.sum(z_PK * weight[:, None], 0)
            total = tl.sum(tl.load(other + BK + 1, cache_modifier=".cg") * weight, 0)
            tl.store(out + (row * H + h) * K + i, (mixed / total).to(out.dtype.element_ty), mask=here)
    else:
        tl.store(out + (row * H + h) * K + i, (mixed / total).to(out.dtype.element_ty), mask=here)


@triton.jit
def cross_kernel(
    q, keys, values, sources, lengths, out, scale,
    H: tl.constexpr, G: tl.constexpr, K: tl.constexpr, SLOTS, BK: tl.constexpr, BS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    begin(EARLY)
    row, h = tl.program_id(0), tl.program_id(1)
    source = tl.load(sources + row).to(tl.int64)
    length = tl.load(lengths + source)
    i = tl.arange(0, BK)
    here = i < K
    query = tl.load(q + (row * H + h) * K + i, mask=here, other=0.0).to(tl.float32) * scale
    base = (source * G + h // (H // G)) * SLOTS * K
    top, total = float("-inf"), 0.0
    out_K = tl.zeros((BK,), tl.float32)
    for s0 in range(0, length, BS):
        s = s0 + tl.arange(0, BS)
        at = base + s[:, None] * K + i[None, :]
        mask = (s < length)[:, None] & here[None, :]
        k_SK = tl.load(keys + at, mask=mask, other=0.0).to(tl.float32)
        v_SK = tl.load(values + at, mask=mask, other=0.0).to(tl.float32)
        score = tl.where(s < length, tl.sum(k_SK * query[None, :], 1), float("-inf"))
        higher = tl.maximum(top, tl.max(score, 0))
        weight, fade = tl.exp(score - higher), tl.exp(top - higher)
        total = total * fade + tl.sum(weight, 0)
        out_K = out_K * fade + tl.sum(weight[:, None] * v_SK, 0)
        top = higher
    out_K = tl.where(total > 0, out_K / total, 0.0)  # an empty source gives nothing
    tl.store(out + (row * H + h) * K + i, out_K.to(out.dtype.element_ty), mask=here)


def stretch(programs: int, slots: int) -> dict[str, int]:
    """How many keys a program reads at a time.

    Many programs over a short past are fastest with one warp each, others with long stretches (measured on an
    H200).
    """
    if programs >= 256 and slots <= 128:
        return {"BS": 64, "num_warps": 1, "num_stages": 1}
    return {"BS": 128, "num_warps": 2, "num_stages": 1}


def shares_of(programs: int, slots: int) -> int:
    """How many programs share a long past, where there are too few to keep a GPU busy: a power of two.

    The last to end puts the shares together, so there is no second kernel (measured on an H200).
    """
    most = min(MOST_SHARES, BUSY // programs, slots // SHARE)
    return 1 if most < FEWEST_SHARES else 1 << (most.bit_length() - 1)


def attend_cached(
    qkv_RX: Tensor,
    keys_RGSK: Tensor,
    values_RGSK: Tensor,
    lengths_R: Tensor,
    *,
    heads: int,
    scale: float,
    origin_RS: Tensor | None = None,
    rotary: tuple[int, Tensor, Tensor] | None = None,
    ended_RH: Tensor | None = None,
) -> Tensor:
    """Put the new keys and values at slot lengths[r] of row r, and attend to all up to there.

    qkv: queries, keys and values of the new tokens side by side. rotary: the layout, and tables [positions, K
    / 2] of cosines and sines. ended: zeros, which stay zeros; with them several programs may share a past.
    """
    R, (_, G, S, K) = len(qkv_RX), keys_RGSK.shape
    out_RD = torch.empty(R, heads * K, dtype=qkv_RX.dtype, device=qkv_RX.device)
    pairs, cosines, sines = rotary or (PLAIN, qkv_RX, qkv_RX)
    width = triton.next_power_of_2(K)
    shares = 1 if ended_RH is None else shares_of(R * heads, S)
    parts = qkv_RX if shares == 1 else torch.empty(R * heads * shares, width + 2, device=qkv_RX.device)
    how = SHARED if shares > 1 else stretch(R * heads, S)
    origin, ended = (lengths_R if table is None else table for table in (origin_RS, ended_RH))
    self_kernel[(R, heads, shares)](
        qkv_RX, keys_RGSK, values_RGSK, lengths_R, origin, cosines, sines, out_RD, parts, ended, scale,
        H=heads, G=G, K=K, SLOTS=S, PAIRS=pairs, TABLE=origin_RS is not None, SHARES=shares, BK=width,
        **how, **early(qkv_RX.device),
    )  # fmt: skip
    return out_RD


def attend_source(
    q_RD: Tensor,
    keys_BGSK: Tensor,
    values_BGSK: Tensor,
    sources_R: Tensor,
    lengths_B: Tensor,
    *,
    heads: int,
    scale: float,
) -> Tensor:
    """Attend to the keys of source sources[r], of which lengths[b] are real."""
    _, G, S, K = keys_BGSK.shape
    out_RD = torch.empty_like(q_RD)
    width = triton.next_power_of_2(K)
    cross_kernel[(len(q_RD), heads)](
        q_RD, keys_BGSK, values_BGSK, sources_R, lengths_B, out_RD, scale,
        H=heads, G=G, K=K, SLOTS=S, BK=width, **stretch(len(q_RD) * heads, S), **early(q_RD.device),
    )  # fmt: skip
    return out_RD
