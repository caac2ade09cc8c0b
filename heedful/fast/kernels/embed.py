"""The input of the first block for one token a row: its embedding, scaled, and its position."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dependent_launch import begin, early


@triton.jit
def embed_kernel(tokens, places, table, positions, x, D, scale, BD: tl.constexpr, EARLY: tl.constexpr):
    begin(EARLY)
    row = tl.program_id(0)
    token, place = tl.load(tokens + row).to(tl.int64), tl.load(places + row)
    d = tl.arange(0, BD)
    v = tl.load(table + token * D + d, mask=d < D, other=0.0).to(tl.float32) * scale
    v += tl.load(positions + place * D + d, mask=d < D, other=0.0).to(tl.float32)
    tl.store(x + row * D + d, v.to(x.dtype.element_ty), mask=d < D)


def embed(tokens_R: Tensor, places_R: Tensor, table_VD: Tensor, positions_SD: Tensor, scale: float) -> Tensor:
    """scale * table[token] + positions[place]."""
    R, D = len(tokens_R), table_VD.shape[1]
    x_RD = torch.empty(R, D, dtype=table_VD.dtype, device=tokens_R.device)
    width = triton.next_power_of_2(D)
    embed_kernel[(R,)](
        tokens_R, places_R, table_VD, positions_SD, x_RD, D, scale, BD=width, **early(tokens_R.device)
    )
    return x_RD
