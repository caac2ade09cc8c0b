"""Strided and fixed attention of long texts by the flash kernel of a GPU.

The kernel knows two shapes: a triangle, where row i sees the rows up to i, and a window on it. Both steps of
a sparse pattern are such shapes, if tokens are laid out in the right order:

    the last w tokens       the text as it is, by a window
    the own block           every block is a triangle
    every l-th token        every column is a triangle, less the rows that the window has shown already
    the tails of blocks     c queries of each block and its c keys make c rows. A triangle c rows lower lets
                            row (b, t) see all tails before block b - 1, and of that one the first t + 1 keys.
                            What it leaves out is a small table: n * c scores.

The shapes of a pattern are shares of one softmax (shares.py), so memory grows in proportion to the length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..masks import AllOf, AnyOf, Causal, Mask, PerHead, Window
from ..positions.base import once
from ..sparse_masks import BlockTail, EveryNth, SameBlock
from ..view import View
from .pieces import FEWER, LONG, CutLayout, ScorePiece
from .shares import OneSoftmax, SoftmaxShare
from .sparse import Band, Columns, Heads, Layout, Tails, blocks_of, by_layouts, in_blocks, layouts_of

WIDEST = 256  # of a head that the kernel takes
MOST = 65535  # rows, or heads, that a GPU starts at once


class Kernel(Protocol):
    """Attention of [B, T, H, K] queries by a triangle, and its gradients; scores are not scaled.

    Keys and values may have fewer heads, each for as many heads of queries.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
        """Outputs [B, T, H, K] and the logarithm of the softmax's denominator [B, H, T]."""

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, window: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of queries, keys and values."""


class Flash:
    """torch's flash kernel."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
        T = q.shape[1]
        found = torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, T, T, 0.0, True, False, scale=1.0, **sides(window)
        )
        return found[0], found[1]

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, window: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        T, grad = q.shape[1], grad if grad.stride(-1) == 1 else grad.contiguous()
        unused = torch.empty(2, dtype=torch.uint64, device=q.device)  # the state of dropout
        return torch.ops.aten._flash_attention_backward(
            grad, q, k, v, out, norm, None, None, T, T, 0.0, True, unused, unused, scale=1.0, **sides(window)
        )


def sides(window: int | None) -> dict[str, int]:
    return {} if window is None else {"window_size_left": window, "window_size_right": 0}


# Layouts.


@dataclass(frozen=True)
class Whole(Layout):
    """The text as it is."""

    length: int = 1

    def queries(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        return x_BHNX[:, :, None]

    def keys(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        return x_BHNX[:, :, None]

    def back(self, x_BHGTX: Tensor, n: int) -> Tensor:
        return x_BHGTX[:, :, 0]

    def keys_back(self, x_BHGSX: Tensor, n: int) -> Tensor:
        return x_BHGSX[:, :, 0]

    def covers(self, q: Tensor, k: Tensor) -> Tensor:
        return k <= q

    def scores(self, n: int) -> int:
        return n**2


@dataclass(frozen=True)
class TailRows(Tails):
    """Queries of a block in groups of `tail`, so that there are as many rows as keys."""

    def queries(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        blocks = in_blocks(x_BHNX, self.length, fill)
        filled = F.pad(blocks, (0, 0, 0, -self.length % self.tail), value=fill)
        return filled.unflatten(3, (-1, self.tail)).transpose(2, 3).flatten(3, 4)

    def back(self, x_BHGTX: Tensor, n: int) -> Tensor:
        blocks = x_BHGTX.unflatten(3, (-1, self.tail)).transpose(2, 3).flatten(3, 4)
        return blocks[:, :, :, : self.length].flatten(2, 3)[:, :, :n]


@dataclass(frozen=True)
class NearTails(Tails):
    """Every block sees the tail before it; and its own, if `own`."""

    own: bool = False

    def queries(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        return in_blocks(x_BHNX, self.length, fill)

    def keys(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        tails = super().keys(x_BHNX, fill)[:, :, 0].unflatten(2, (-1, self.tail))
        before = F.pad(tails, (0, 0, 0, 0, 1, 0), value=fill)[:, :, :-1]
        return torch.cat([before, tails], dim=3) if self.own else before

    def back(self, x_BHGTX: Tensor, n: int) -> Tensor:
        return x_BHGTX.flatten(2, 3)[:, :, :n]

    def keys_back(self, x_BHGSX: Tensor, n: int) -> Tensor:
        tails = F.pad(x_BHGSX[:, :, 1:, : self.tail], (0, 0, 0, 0, 0, 1))
        if self.own:
            tails = tails + x_BHGSX[:, :, :, self.tail :]
        return super().keys_back(tails.flatten(2, 3)[:, :, None], n)


# Shares of a softmax.


@dataclass(frozen=True)
class Triangle:
    """A layout whose row i sees the rows up to i - lower, and of these no more than a window."""

    layout: Layout
    kernel: Kernel
    lower: int = 0
    window: int | None = None

    def mixed(self, q_BHNK: Tensor, k_BHNK: Tensor, v_BHNL: Tensor) -> tuple[Tensor, Tensor]:
        out, norm_YGT = self.kernel.forward(*self.rows(q_BHNK, k_BHNK, v_BHNL), self.window)
        return self.back(out, q_BHNK), self.back(norm_YGT.mT[..., None], q_BHNK, float("-inf"))

    def gradients(
        self,
        q_BHNK: Tensor,
        k_BHNK: Tensor,
        v_BHNL: Tensor,
        grad_BHNL: Tensor,
        out_BHNL: Tensor,
        norm_BHN1: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        layout, n = self.layout, q_BHNK.shape[2]
        q, k, v = self.rows(q_BHNK, k_BHNK, v_BHNL)
        grad, out, norm = (self.lowered(layout.queries(x)) for x in (grad_BHNL, out_BHNL, norm_BHN1))
        norm_YGT = norm[..., 0].mT.contiguous()
        dq, dk, dv = self.kernel.backward(grad, q, k, v, out, norm_YGT, self.window)
        H = q_BHNK.shape[1]
        dk, dv = (grouped(rows_around(x, after=self.lower), H) for x in (dk, dv))
        return self.back(dq, q_BHNK), layout.keys_back(dk, n), layout.keys_back(dv, n)

    def rows(self, q_BHNK: Tensor, k_BHNK: Tensor, v_BHNL: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of a plain triangle, [B * H, T, groups, K]."""
        k, v = (as_heads(self.layout.keys(x)) for x in (k_BHNK, v_BHNL))
        q_YTGK, last = self.lowered(self.layout.queries(q_BHNK)), k.shape[1] - self.lower
        return q_YTGK, k[:, :last], v[:, :last]

    def lowered(self, x_BHGTX: Tensor) -> Tensor:
        """The rows that see any."""
        return as_heads(x_BHGTX)[:, self.lower :]

    def back(self, x_YTGX: Tensor, q_BHNK: Tensor, fill: float = 0.0) -> Tensor:
        """[B, H, n, X] of the rows that see any; what the others have is filled in."""
        x = rows_around(x_YTGX, before=self.lower, fill=fill)
        return self.layout.back(grouped(x, q_BHNK.shape[1]), q_BHNK.shape[2])


def rows_around(x_YTGX: Tensor, before: int = 0, after: int = 0, fill: float = 0.0) -> Tensor:
    """Rows of one number before and after others."""
    return F.pad(x_YTGX, (0, 0, 0, 0, before, after), value=fill) if before or after else x_YTGX


def as_heads(x_BHGTX: Tensor) -> Tensor:
    """[B, H, G, T, X] to [B * H, T, G, X]: every group is a head of its own. Nothing is copied if heads lie
    one after another in memory."""
    return x_BHGTX.flatten(0, 1).transpose(1, 2)


def grouped(x_YTGX: Tensor, H: int) -> Tensor:
    """What `as_heads` did, undone."""
    return x_YTGX.transpose(1, 2).unflatten(0, (-1, H))


def near_tails(layout: NearTails, n: int, device: torch.device) -> SoftmaxShare:
    """The keys of near tails that the triangle of `TailRows` leaves out."""
    blocks, (length, c) = blocks_of(n, layout.length), (layout.length, layout.tail)
    i, t = torch.arange(length, device=device)[:, None], torch.arange(c, device=device)
    before_GTS = (t > i % c).expand(blocks, length, c).clone()
    before_GTS[0] = False
    if layout.own:
        first = length - (layout.skipped + 1) * c
        own = (first + t <= i).expand(blocks, length, c)
        before_GTS = torch.cat([before_GTS, own], dim=-1)
    everything = ScorePiece(slice(None), slice(None), slice(None), 0)
    return CutLayout(layout, [everything], ~before_GTS[None])


# Which shares a mask has.


def rule_of(mask: Mask) -> Mask | None:
    """What a causal mask lets see besides; None of any other mask."""
    if not isinstance(mask, AllOf) or len(mask.masks) != 2 or Causal() not in mask.masks:
        return None
    return mask.masks[mask.masks[0] == Causal()]


def rules_of(mask: Mask, head: int = 0) -> tuple[Mask | None, ...]:
    """The rules of one head, of which any lets it see a key."""
    if isinstance(mask, PerHead):
        return rules_of(mask.masks[head % len(mask.masks)], head)
    return tuple(rule_of(one) for one in (mask.masks if isinstance(mask, AnyOf) else (mask,)))


def steps_of(mask: Mask, head: int = 0) -> tuple[Mask, ...] | None:
    """The steps of a pattern that the kernel computes, the near one first; None of any other mask."""
    rules = rules_of(mask, head)
    if any(isinstance(rule, Window) and rule.width == 1 for rule in rules):
        return None  # its layout is that of a window of two, and heads of one layout are computed together
    for found in (rules, rules[::-1]):
        match found:
            case (Window() | SameBlock(look_back=0) | EveryNth() | BlockTail(),) | (Window(), EveryNth()):
                return found  # type: ignore[return-value]
            case (SameBlock(look_back=0) as own, BlockTail() as far) if own.length == far.length:
                return own, far
    return None


def shares_of(
    steps: tuple[Mask, ...], head: int, n: int, device: torch.device, kernel: Kernel
) -> Iterator[SoftmaxShare]:
    """What the steps of a pattern let a head see, as the kernel computes it."""
    for step in steps:
        match step:
            case Window():
                yield Triangle(Whole(), kernel, 0, step.width - 1)
            case SameBlock():
                yield Triangle(Band(step.length, 0), kernel)
            case EveryNth():
                near = steps[0]  # a window has shown some rows of a column already
                seen = (near.width - 1) // step.stride + 1 if isinstance(near, Window) else 0
                yield Triangle(Columns(step.stride), kernel, seen)
            case BlockTail():
                yield from tail_shares(step, head, n, device, kernel, own=len(steps) == 1)


def tail_shares(
    far: BlockTail, head: int, n: int, device: torch.device, kernel: Kernel, own: bool
) -> Iterator[SoftmaxShare]:
    skipped = head % far.head_groups
    yield Triangle(TailRows(far.length, far.tail, skipped), kernel, far.tail)
    yield near_tails(NearTails(far.length, far.tail, skipped, own), n, device)


def flash_pays(q_BHTK: Tensor, v_BGSL: Tensor, view: View, dropout: float) -> bool:
    """Whether the kernel reads a long text in order faster than anything else: where a step needs a softmax
    of several shares. Steps of one triangle are left to what has no need to merge."""
    (B, H, n, K), L = q_BHTK.shape, v_BGSL.shape[-1]
    if not q_BHTK.is_cuda or dropout or torch.compiler.is_compiling():
        return False
    if not view.in_order or view.T != view.S or n < LONG or K != L or K % 8 or K > WIDEST:
        return False
    if half_of(q_BHTK) not in (torch.bfloat16, torch.float16):
        return False
    heads = range(H if view.mask.by_head else 1)
    if any(steps_of(view.mask, head) is None for head in heads):
        return False
    layouts = [layouts_of(view.mask, head) or () for head in heads]
    several = any(len(some) > 1 or isinstance(some[0], Tails) for some in layouts)
    scores = max(sum(layout.scores(n) for layout in some) for some in layouts)
    groups = max(max(layout.length, blocks_of(n, layout.length)) for some in layouts for layout in some)
    return several and FEWER * scores <= n**2 and max(B * H, groups) <= MOST


def half_of(x: Tensor) -> torch.dtype:
    """The type that x is computed in."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


FLASH = Flash()


def attend_flash(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTK: Tensor,
    view: View,
    scale: float | None = None,
    kernel: Kernel = FLASH,
) -> Tensor:
    """Attention by a strided or fixed mask, in memory that grows in proportion to the length."""
    scale, dtype = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale, half_of(q_BHTK)
    q_BHTK, k_BHTK, v_BHTK = (x.to(dtype) for x in (q_BHTK, k_BHTK, v_BHTK))

    def attend(q: Tensor, k: Tensor, v: Tensor, heads: Heads) -> Tensor:
        steps = steps_of(view.mask, heads[0])
        if steps is None:
            raise ValueError(f"{view.mask!r} is no strided or fixed pattern: attend_fused takes any mask")

        def shares() -> tuple[SoftmaxShare, ...]:
            return tuple(shares_of(steps, heads[0], view.T, q.device, kernel))

        return OneSoftmax.apply(
            q * scale, k, v, once(view.memo, ("flash", kernel, layouts_of(view.mask, heads[0])), shares)
        )

    return by_layouts(attend, q_BHTK, k_BHTK, v_BHTK, view.mask)
