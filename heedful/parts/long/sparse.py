"""Sparse attention by gathering: lay tokens out so that those who may see each other stand together.

A sparse mask says who may look at whom; a `Layout` says where to find them. It arranges n queries and n keys
into groups, so that only pairs within a group are ever scored, and the mask's own rule then decides which of
those count. So the result is that of the masked table, and the cost is that of the groups:

    Band      blocks of l and those before them    n * 2l        windows, blocks, the first strided step
    Columns   every l-th token                     n * n/l       the second strided step
    Tails     the last c tokens of every block     n * c * n/l   the second fixed step

With l near sqrt(n), all of them cost n^1.5 (Child et al. 2019). A mask that is the union of two steps has two
layouts: the scores of both stand side by side under one softmax, and no pair is counted twice.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from ..masks import AllOf, AnyOf, Causal, Combined, Mask, PerHead, Window
from ..positions.base import once
from ..sparse_masks import BlockTail, EveryNth, SameBlock
from ..view import View, without_empty_rows

FEWER, FAR_FEWER = (
    2,
    6,
)  # times fewer scores than the table before gathering pays: by a kernel, and in the open

Heads = range | list[int]


class Layout(ABC):
    """An arrangement of n tokens into groups. Letters: G groups of T queries and S keys; X is anything."""

    length: int  # tokens after which the arrangement repeats

    @abstractmethod
    def queries(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        """[B, H, n, X] to [B, H, G, T, X]; what is not there is filled in."""

    @abstractmethod
    def keys(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        """[B, H, n, X] to [B, H, G, S, X]."""

    @abstractmethod
    def back(self, x_BHGTX: Tensor, n: int) -> Tensor:
        """What `queries` did, undone."""

    @abstractmethod
    def keys_back(self, x_BHGSX: Tensor, n: int) -> Tensor:
        """What `keys` did, undone: where a key stands in several groups, the sum over them."""

    @abstractmethod
    def covers(self, q: Tensor, k: Tensor) -> Tensor:
        """Whether the query at position q and the key at position k, not after it, share a group."""

    @abstractmethod
    def scores(self, n: int) -> int:
        """How many pairs are scored."""

    def is_triangle(self, mask: Mask) -> bool:
        """Whether the mask is, within every group, the causal one: then a kernel needs no table."""
        return False


@dataclass(frozen=True)
class Band(Layout):
    """Blocks of `length`; each sees itself and `back` blocks before it."""

    length: int
    look_back: int = 1

    def queries(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        return in_blocks(x_BHNX, self.length, fill)

    def keys(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        own_BHGTX = in_blocks(x_BHNX, self.length, fill)
        if not self.look_back:
            return own_BHGTX
        before = F.pad(own_BHGTX, (0, 0, 0, 0, self.look_back, 0), value=fill)
        G = own_BHGTX.shape[2]
        return torch.cat([before[:, :, i : i + G] for i in range(self.look_back + 1)], dim=3)

    def back(self, x_BHGTX: Tensor, n: int) -> Tensor:
        return x_BHGTX.flatten(2, 3)[:, :, :n]

    def keys_back(self, x_BHGSX: Tensor, n: int) -> Tensor:
        G = x_BHGSX.shape[2]
        parts = x_BHGSX.split(self.length, dim=3)
        places = range(-self.look_back, 1)  # of each part, in blocks from its group's own
        sums = sum(F.pad(x, (0, 0, 0, 0, i, -i)) for i, x in zip(places, parts, strict=True) if -i < G)
        return self.back(sums, n)  # type: ignore[arg-type]

    def covers(self, q: Tensor, k: Tensor) -> Tensor:
        return q // self.length - k // self.length <= self.look_back

    def scores(self, n: int) -> int:
        return blocks_of(n, self.length) * self.length**2 * (self.look_back + 1)

    def is_triangle(self, mask: Mask) -> bool:
        return mask == Causal() & SameBlock(self.length)


@dataclass(frozen=True)
class Columns(Layout):
    """Written in lines of `stride`, the text is read down its columns."""

    stride: int

    @property
    def length(self) -> int:  # type: ignore[override]
        return self.stride

    def queries(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        return in_blocks(x_BHNX, self.stride, fill).transpose(2, 3)

    def keys(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        return self.queries(x_BHNX, fill)

    def back(self, x_BHGTX: Tensor, n: int) -> Tensor:
        return x_BHGTX.transpose(2, 3).flatten(2, 3)[:, :, :n]

    def keys_back(self, x_BHGSX: Tensor, n: int) -> Tensor:
        return self.back(x_BHGSX, n)

    def covers(self, q: Tensor, k: Tensor) -> Tensor:
        return (q - k) % self.stride == 0

    def scores(self, n: int) -> int:
        return self.stride * blocks_of(n, self.stride) ** 2

    def is_triangle(self, mask: Mask) -> bool:
        return mask == Causal() & EveryNth(self.stride)


@dataclass(frozen=True)
class Tails(Layout):
    """Every query sees `tail` tokens of each block, `skipped` tails before its end."""

    length: int
    tail: int
    skipped: int = 0

    def queries(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        return x_BHNX[:, :, None]

    def keys(self, x_BHNX: Tensor, fill: int = 0) -> Tensor:
        end = self.length - self.skipped * self.tail
        return in_blocks(x_BHNX, self.length, fill)[..., end - self.tail : end, :].flatten(2, 3)[:, :, None]

    def back(self, x_BHGTX: Tensor, n: int) -> Tensor:
        return x_BHGTX[:, :, 0]

    def keys_back(self, x_BHGSX: Tensor, n: int) -> Tensor:
        tails = x_BHGSX[:, :, 0].unflatten(2, (-1, self.tail))
        after = self.skipped * self.tail
        return F.pad(tails, (0, 0, self.length - after - self.tail, after)).flatten(2, 3)[:, :, :n]

    def covers(self, q: Tensor, k: Tensor) -> Tensor:
        return (self.length - 1 - k % self.length + 0 * q) // self.tail == self.skipped

    def scores(self, n: int) -> int:
        return n * self.tail * blocks_of(n, self.length)


def blocks_of(n: int, length: int) -> int:
    return -(-n // length)


def in_blocks(x_BHNX: Tensor, length: int, fill: int = 0) -> Tensor:
    """[B, H, n, X] to [B, H, blocks, length, X]; the last block is filled up."""
    missing = -x_BHNX.shape[2] % length
    if missing:
        x_BHNX = F.pad(x_BHNX, (0, 0, 0, missing), value=fill)
    return x_BHNX.unflatten(2, (-1, length))


def numbers(some: tuple[int, ...], device: torch.device) -> Tensor:
    """Numbers on a device."""
    return torch.tensor(some, device=device) if torch.compiler.is_compiling() else kept_numbers(some, device)


@cache
def kept_numbers(some: tuple[int, ...], device: torch.device) -> Tensor:
    """The same, kept there: a recorded step cannot fetch them from the host."""
    with torch.inference_mode(False):
        return torch.tensor(some, device=device)


# Which layout a mask has.


def layouts_of(mask: Mask, head: int = 0) -> tuple[Layout, ...] | None:
    """Layouts that together cover whatever the mask allows one head; None if it has no such form."""
    if isinstance(mask, PerHead):
        return layouts_of(mask.masks[head % len(mask.masks)], head)
    if isinstance(mask, AnyOf):
        found = [layouts_of(member, head) for member in mask.masks]
        return None if None in found else tuple(layout for some in found for layout in some or ())
    if not isinstance(mask, AllOf):
        return None
    for member in mask.masks:
        if isinstance(member, Combined) and (found_inside := layouts_of(member, head)):
            return found_inside
        if Causal() not in mask.masks:  # layouts look back only
            continue
        if isinstance(member, Window):
            return (Band(max(1, member.width - 1)),)
        if isinstance(member, SameBlock):
            return (Band(member.length, member.look_back),)
        if isinstance(member, EveryNth):
            return (Columns(member.stride),)
        if isinstance(member, BlockTail):
            return (Tails(member.length, member.tail, head % member.head_groups),)
    return None


def gather_pays(mask: object, H: int) -> bool:
    """Whether tokens stand in order, under a mask whose layouts have far fewer scores than the table."""
    if not isinstance(mask, View) or not isinstance(mask.mask, Combined):
        return False
    if not mask.in_order or mask.T != mask.S:
        return False
    for head in range(H if mask.mask.by_head else 1):
        layouts = layouts_of(mask.mask, head)
        if layouts is None:
            return False
        times = FEWER if len(layouts) == 1 else FAR_FEWER
        if times * sum(layout.scores(mask.T) for layout in layouts) > mask.T**2:
            return False
    return True


# Attention.


def attend_gathered(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTL: Tensor,
    view: View,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention by a sparse mask, in the time and memory of the pairs that its layouts have."""
    scale = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale

    def attend(q: Tensor, k: Tensor, v: Tensor, heads: Heads) -> Tensor:
        return attend_laid_out(q, k, v, view, heads, scale, dropout)

    return by_layouts(attend, q_BHTK, k_BHTK, v_BHTL, view.mask)


def by_layouts(
    attend: Callable[[Tensor, Tensor, Tensor, Heads], Tensor],
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTL: Tensor,
    mask: Mask,
) -> Tensor:
    """`attend`, called once for all heads that have the same layouts."""
    H = q_BHTK.shape[1]
    if not mask.by_head:
        return attend(q_BHTK, k_BHTK, v_BHTL, range(H))
    alike: dict[tuple[Layout, ...] | None, list[int]] = {}
    for head in range(H):
        alike.setdefault(layouts_of(mask, head), []).append(head)
    found = []
    for some in alike.values():
        q, k, v = (x.index_select(1, numbers(tuple(some), x.device)) for x in (q_BHTK, k_BHTK, v_BHTL))
        found.append(attend(q, k, v, some))
    order = numbers(tuple(head for some in alike.values() for head in some), q_BHTK.device).argsort()
    return torch.cat(found, dim=1).index_select(1, order)


def attend_laid_out(
    q_BHNK: Tensor,
    k_BHNK: Tensor,
    v_BHNL: Tensor,
    view: View,
    heads: Heads,
    scale: float,
    dropout: float,
) -> Tensor:
    """The same for heads that have the same layouts."""
    layouts = layouts_of(view.mask, heads[0])
    if layouts is None:
        raise ValueError(f"{view.mask!r} has no layout to gather by")
    if len(layouts) > 1:
        return attend_side_by_side(q_BHNK, k_BHNK, v_BHNL, view, layouts, heads, scale, dropout)
    (layout,), (B, H, n, _) = layouts, q_BHNK.shape
    q, k, v = (x.flatten(0, 1) for x in (layout.queries(q_BHNK), layout.keys(k_BHNK), layout.keys(v_BHNL)))
    table, empty = None, None
    triangle = layout.is_triangle(view.mask)
    if not triangle:
        allowed = allowed_pairs(view, layouts, heads)[0]
        if allowed.shape[:2] != (1, 1):
            allowed = allowed.expand(B, H, *allowed.shape[2:])
        table, empty = without_empty_rows(allowed.flatten(0, 1))
    out = F.scaled_dot_product_attention(q, k, v, table, dropout, is_causal=triangle, scale=scale)
    out = out if empty is None else out.masked_fill(empty, 0)
    return layout.back(out.unflatten(0, (B, H)), n)


def attend_side_by_side(
    q_BHNK: Tensor,
    k_BHNK: Tensor,
    v_BHNL: Tensor,
    view: View,
    layouts: tuple[Layout, ...],
    heads: Heads,
    scale: float,
    dropout: float,
) -> Tensor:
    """The scores of several layouts under one softmax."""
    n, dtype = q_BHNK.shape[2], torch.promote_types(q_BHNK.dtype, torch.float32)
    rows, hidden = [], []
    for layout, allowed in zip(layouts, allowed_pairs(view, layouts, heads), strict=True):
        scores_BHGTS = (layout.queries(q_BHNK) @ layout.keys(k_BHNK).mT).to(dtype) * scale
        scores_BHGTS = scores_BHGTS.masked_fill(~allowed, torch.finfo(dtype).min)
        rows.append(layout.back(scores_BHGTS, n))
        hidden.append(layout.back(~allowed, n))
    weights_BHNS = torch.cat(rows, dim=-1).softmax(-1).masked_fill(torch.cat(hidden, dim=-1), 0)
    weights_BHNS = F.dropout(weights_BHNS.to(q_BHNK.dtype), dropout)
    shares = weights_BHNS.split([row.shape[-1] for row in rows], dim=-1)
    outs = [
        layout.back(layout.queries(share) @ layout.keys(v_BHNL), n)
        for layout, share in zip(layouts, shares, strict=True)
    ]
    return torch.stack(outs).sum(0)


def allowed_pairs(view: View, layouts: tuple[Layout, ...], heads: Heads) -> list[Tensor]:
    """For every layout, which pairs of its groups count: as the mask says, and not in a layout before it."""

    def compute() -> list[Tensor]:
        device = view.q_pos.device  # type: ignore[union-attr]
        places_11N1 = torch.arange(view.T, device=device)[None, None, :, None]
        b = torch.arange(view.mask.batch or 1, device=device)[:, None, None, None, None]
        h = numbers(tuple(heads) if view.mask.by_head else (0,), device)[None, :, None, None, None]
        found = []
        for i, layout in enumerate(layouts):
            q, k = layout.queries(places_11N1, fill=-1), layout.keys(places_11N1, fill=-1).mT
            allowed = view.mask.allows(b, h, q, k) & (k >= 0) & (k <= q)
            for earlier in layouts[:i]:
                allowed = allowed & ~earlier.covers(q, k)
            found.append(allowed)
        return found

    return once(view.memo, ("gathered", layouts, tuple(heads) if view.mask.by_head else ()), compute)
