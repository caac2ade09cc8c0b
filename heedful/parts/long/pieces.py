"""Sparse attention piece by piece: memory grows in proportion to the length, whatever the stride.

Gathering (sparse.py) keeps the scores of all its groups, n^1.5 of them. Here only a few groups are scored
at a time, and the backward pass computes the scores of each piece again. The layouts of a mask are shares of
one softmax (shares.py). No table of who may look at whom is kept either. A mask without documents or padding
repeats: what a block may see depends on how far away it is. So the table of the last piece is that of every
piece, with its first columns left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..masks import Causal, Combined, Full, Mask, Window
from ..positions.base import once
from ..sparse_masks import BlockTail, EveryNth, SameBlock
from ..view import View
from .shares import OneSoftmax
from .sparse import Band, Columns, Heads, Layout, Tails, blocks_of, by_layouts, layouts_of, numbers

PAIRS = 1 << 18  # scores at a time: they stay in the cache of a processor
LONG = 2048  # tokens from which on pieces are not slower than gathering, at a quarter of its memory
FEWER = 3  # times fewer scores than the table before pieces pay
STEPS = 4  # slices of a long group at least: keys after a slice are not scored


@dataclass(frozen=True)
class ScorePiece:
    """Some queries of some groups, and the keys to score; `missing` columns of the table are left out."""

    groups: slice
    queries: slice
    keys: slice
    missing: int


# Where a mask can be cut.


def period(mask: Mask) -> int | None:
    """The shift of all positions after which a mask is the same again; None if there is none."""
    if isinstance(mask, Combined):
        found = [period(member) for member in mask.masks]
        return None if None in found else math.lcm(*(one for one in found if one))
    if isinstance(mask, SameBlock | BlockTail):
        return mask.length
    return 1 if isinstance(mask, Causal | Full | Window | EveryNth) else None


def repeats(mask: Mask, layouts: tuple[Layout, ...]) -> bool:
    """Whether the table of one piece is that of every other, so that `attend_in_pieces` covers the mask."""
    shift = period(mask)
    if not layouts or shift is None:
        return False
    every = 1 if any(isinstance(layout, Columns) for layout in layouts) else layouts[0].length
    return every % shift == 0 and len({layout.length for layout in layouts}) == 1


def pieces_pay(view: View, H: int, dropout: float) -> bool:
    """Whether a long text in order is best read in pieces, under a mask with far fewer scores than the table.

    Several layouts share a softmax, which no kernel does, and tails need a large table. Bands and columns
    alone have a faster kernel. torch.compile would unroll the loop over the pieces.
    """
    if dropout or not view.in_order or view.T != view.S or view.T < LONG or torch.compiler.is_compiling():
        return False
    found = [layouts_of(view.mask, head) or () for head in range(H if view.mask.by_head else 1)]
    if not all(repeats(view.mask, layouts) for layouts in found):
        return False
    slow = any(len(layouts) > 1 or isinstance(layouts[0], Tails) for layouts in found)
    scores = max(sum(layout.scores(view.T) for layout in layouts) for layouts in found)
    return slow and FEWER * scores <= view.T**2


def pieces_of(layout: Layout, n: int, most: int) -> tuple[list[ScorePiece], int]:
    """Pieces of at most `most` scores, if possible, and the tokens up to the end of the last piece."""
    blocks = blocks_of(n, layout.length)
    if isinstance(layout, Band):
        return list(pieces_of_band(layout, blocks, most)), (layout.look_back + 1) * layout.length
    rows, keys, groups = (
        (layout.length, layout.tail, 1) if isinstance(layout, Tails) else (1, 1, layout.length)
    )
    row = rows * keys * blocks
    step = min(max(1, most // row), blocks_of(blocks, STEPS))
    some = max(1, most // (row * step))
    last = (blocks - 1) // step * step
    found = [
        ScorePiece(
            slice(g, g + some),
            slice(i * rows, (i + step) * rows),
            slice(0, (i + step) * keys),
            (last - i) * keys,
        )
        for i in range(0, blocks, step)
        for g in range(0, groups, some)
    ]
    return found, (last + step) * layout.length


def pieces_of_band(layout: Band, blocks: int, most: int) -> Iterator[ScorePiece]:
    """The first blocks one by one, since there is less before them; then as many as may be."""
    back, length = layout.look_back, layout.length
    everything = slice(0, length)
    for i in range(min(back, blocks)):
        missing = (back - i) * length
        yield ScorePiece(slice(i, i + 1), everything, slice(missing, (back + 1) * length), missing)
    some = max(1, most // ((back + 1) * length**2))
    for i in range(back, blocks, some):
        yield ScorePiece(slice(i, i + some), everything, slice(0, (back + 1) * length), 0)


def cuts_of(view: View, heads: Heads, most: int, device: torch.device) -> list[CutLayout]:
    """The layouts of some heads in pieces, and who may look at whom in each: no pair counts twice."""
    layouts, asked = layouts_of(view.mask, heads[0]) or (), tuple(heads) if view.mask.by_head else (0,)
    if not repeats(view.mask, layouts):
        raise ValueError(f"{view.mask!r} is not the same for every piece: attend_fused computes it otherwise")
    if not view.in_order or view.T != view.S:
        raise ValueError(
            f"{view.T} queries and {view.S} keys are not one text in order, from its first token on"
        )

    def cut(i: int, layout: Layout) -> CutLayout:
        pieces, tokens = pieces_of(layout, view.T, most)
        rows = max(piece.queries.stop - piece.queries.start for piece in pieces)
        places_11N1 = torch.arange(tokens, device=device)[None, None, :, None]
        q_T1 = layout.queries(places_11N1)[0, 0, -1, -rows:]
        k_1S = layout.keys(places_11N1)[0, 0, -1].mT
        h_H111 = numbers(asked, device)[:, None, None, None]
        allowed = view.mask.allows(torch.zeros_like(h_H111), h_H111, q_T1, k_1S) & (k_1S <= q_T1)
        for earlier in layouts[:i]:
            allowed = allowed & ~earlier.covers(q_T1, k_1S)
        return CutLayout(layout, pieces, ~allowed)

    return once(
        view.memo, ("pieces", layouts, asked, most), lambda: [cut(i, some) for i, some in enumerate(layouts)]
    )


# Attention.


def attend_in_pieces(
    q_BHTK: Tensor,
    k_BHTK: Tensor,
    v_BHTL: Tensor,
    view: View,
    scale: float | None = None,
    most: int = PAIRS,
) -> Tensor:
    """`attend_gathered` in memory that grows in proportion to the length; `most` scores at a time."""
    scale = 1 / math.sqrt(q_BHTK.shape[-1]) if scale is None else scale
    device = q_BHTK.device.type
    if torch.is_autocast_enabled(device) and q_BHTK.dtype != torch.float64:
        half = torch.get_autocast_dtype(device)
        q_BHTK, k_BHTK, v_BHTL = (x.to(half) for x in (q_BHTK, k_BHTK, v_BHTL))

    def attend(q: Tensor, k: Tensor, v: Tensor, heads: Heads) -> Tensor:
        each = max(1, most // (q.shape[0] * q.shape[1]))
        return OneSoftmax.apply(q * scale, k, v, cuts_of(view, heads, each, q.device))

    return by_layouts(attend, q_BHTK, k_BHTK, v_BHTL, view.mask)


@dataclass(frozen=True)
class CutLayout:
    """A layout in pieces, and the table of its last piece: who may not look at whom, [heads, 1, T, S]."""

    layout: Layout
    pieces: list[ScorePiece]
    hidden_H1TS: Tensor

    def mixed(self, q_BHNK: Tensor, k_BHNK: Tensor, v_BHNL: Tensor) -> tuple[Tensor, Tensor]:
        layout, dtype = self.layout, torch.promote_types(q_BHNK.dtype, torch.float32)
        q, k, v = layout.queries(q_BHNK), layout.keys(k_BHNK), layout.keys(v_BHNL)
        out_BHGTL = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=dtype)
        norm_BHGT1 = q.new_empty((*q.shape[:-1], 1), dtype=dtype)
        for piece in self.pieces:
            groups, queries = piece.groups, piece.queries
            scores = self.scored(piece, q, k, dtype)
            top = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(dtype).min)
            weights = scores.sub_(top).exp_()
            total = weights.sum(-1, keepdim=True)
            mean = (weights.to(v.dtype) @ v[:, :, groups, piece.keys]).to(dtype) / total.clamp(min=1)
            out_BHGTL[:, :, groups, queries] = mean
            norm_BHGT1[:, :, groups, queries] = top + total.log()
        n = q_BHNK.shape[2]
        return layout.back(out_BHGTL, n), layout.back(norm_BHGT1, n)

    def gradients(
        self,
        q_BHNK: Tensor,
        k_BHNK: Tensor,
        v_BHNL: Tensor,
        grad_BHNL: Tensor,
        out_BHNL: Tensor,
        norm_BHN1: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        layout, n, dtype = self.layout, q_BHNK.shape[2], norm_BHN1.dtype
        q, k, v = layout.queries(q_BHNK), layout.keys(k_BHNK), layout.keys(v_BHNL)
        shared_BHN1 = (grad_BHNL.to(dtype) * out_BHNL).sum(-1, keepdim=True)
        grad, norm, shared = (layout.queries(x) for x in (grad_BHNL, norm_BHN1, shared_BHN1))
        dq, dk, dv = (torch.zeros_like(x, dtype=dtype) for x in (q, k, v))
        for piece in self.pieces:
            mine = (slice(None), slice(None), piece.groups, piece.queries)
            theirs = (slice(None), slice(None), piece.groups, piece.keys)
            weights = self.scored(piece, q, k, dtype).sub_(norm[mine]).exp_()
            dv[theirs] += weights.to(grad.dtype).mT @ grad[mine]
            d_scores = (grad[mine] @ v[theirs].mT).to(dtype).sub_(shared[mine]).mul_(weights).to(q.dtype)
            dq[mine] = (d_scores @ k[theirs]).to(dtype)
            dk[theirs] += d_scores.mT @ q[mine]
        return layout.back(dq, n), layout.keys_back(dk, n), layout.keys_back(dv, n)

    def scored(self, piece: ScorePiece, q_BHGTK: Tensor, k_BHGSK: Tensor, dtype: torch.dtype) -> Tensor:
        """The scores of one piece, -inf where nobody may look."""
        q, k = q_BHGTK[:, :, piece.groups, piece.queries], k_BHGSK[:, :, piece.groups, piece.keys]
        T, S = q.shape[-2], k.shape[-2]
        hidden = self.hidden_H1TS[..., :T, piece.missing : piece.missing + S]
        return (q @ k.mT).to(dtype).masked_fill_(hidden, float("-inf"))
