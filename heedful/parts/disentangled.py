"""Disentangled attention (He et al. 2021): what a token says and how far away it stands are scored apart.

    score_ij = (q_i . k_j  +  q_i . K[i - j]  +  k_j . Q[i - j]) / sqrt(3 K)

K and Q are projections of one table of distances, a row for each, which all layers share. The first term is
the attention's own; the second asks from content to place (c2p), the third from place to content (p2c).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import ScaledDot
from .blocks import Block
from .cache import LayerCache
from .layers import activation
from .masks import Full
from .multihead import MultiHeadAttention
from .positions.base import Memo, Position, Positions, index_of, once
from .positions.relative import distances, edge_scores
from .view import View


class ScaledByTerms(ScaledDot):
    """q . k / sqrt(terms K): a sum of several such products, brought back to a variance of 1."""

    def __init__(self, terms: int) -> None:
        super().__init__()
        self.terms = terms

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> tuple[Tensor, Tensor, float]:
        return q_BHTK, k_BGSK, 1 / math.sqrt(self.terms * q_BHTK.shape[-1])


def log_bucket(distance: Tensor, buckets: int, farthest: int) -> Tensor:
    """A distance as it is up to half of `buckets`, then logarithmic up to `farthest`; its sign stays."""
    half = buckets // 2
    away = distance.abs().clamp(min=half - 1)
    ratio = (away / half).log() / torch.full((), (farthest - 1) / half).log()
    far = (ratio * (half - 1)).ceil().long() + half
    return torch.where(away <= half, distance, far * distance.sign())


class Distances(nn.Module):
    """A row for each distance from -span to span - 1, which layers share; norm: of rows, before each use."""

    def __init__(
        self, span: int, width: int, norm: nn.Module | None = None, buckets: tuple[int, int] | None = None
    ) -> None:
        """buckets: how many, and the farthest they reach; without them, distances are as they are."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2 * span, width))
        self.norm = norm or nn.Identity()
        self.span, self.buckets = span, buckets
        nn.init.normal_(self.weight, std=0.02)

    def forward(self) -> Tensor:
        return self.norm(self.weight)

    def rows(self, q_pos: Positions, k_pos: Positions, memo: Memo | None = None) -> Tensor:
        """Which row each pair uses, [1 or B, T, S]."""

        def compute() -> Tensor:
            steps = -distances(q_pos, k_pos)
            steps = steps if self.buckets is None else log_bucket(steps, *self.buckets)
            rows = (steps + self.span).clamp(0, 2 * self.span - 1)
            return rows if rows.ndim == 3 else rows[None]

        return once(memo, ("disentangled", self.span, self.buckets), compute)


Project = Callable[[Tensor], Tensor]


class Disentangled(Position):
    """The two terms of distance.

    key, query: what projects the table for c2p and for p2c; None: no such term.
    """

    def __init__(
        self,
        table: Distances,
        heads: int,
        terms: int,
        key: Project | None,
        query: Project | None,
        dropout: float = 0.0,
    ) -> None:
        """terms: how many products make a score. dropout: of the table."""
        super().__init__()
        self.table, self.heads, self.terms = table, heads, terms
        self.key, self.query = key, query
        self.dropout = nn.Dropout(dropout)

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor | None:
        if self.key is None and self.query is None:
            return None
        rows_BTS, table_RD = self.table.rows(q_pos, k_pos, memo), self.dropout(self.table())
        found = []
        if self.key is not None:
            found.append(edge_scores(q_BHTK, self.by_head(self.key(table_RD)), rows_BTS))
        if self.query is not None:
            found.append(edge_scores(k_BGSK, self.by_head(self.query(table_RD)), rows_BTS.mT).mT)
        return sum(found[1:], found[0]) / math.sqrt(self.terms * q_BHTK.shape[-1])

    def by_head(self, x_RX: Tensor) -> Tensor:
        return x_RX.unflatten(-1, (self.heads, -1)).transpose(0, 1)


class DisentangledAttention(MultiHeadAttention):
    """Attention by content and by distance.

    ways: of c2p and p2c; shared: content's projections serve distances too. key_bias: whether keys, of
    content and of distances, have one.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        table: Distances,
        ways: tuple[str, ...],
        shared: bool,
        dropout: float = 0.0,
        table_dropout: float = 0.0,
        key_bias: bool = True,
    ) -> None:
        terms = 1 + len(ways)
        super().__init__(width, heads, dropout=dropout, score=ScaledByTerms(terms))
        if not key_bias:
            self.key = nn.Linear(width, width, bias=False)
        key: Project = self.own_key if shared else nn.Linear(width, width, bias=key_bias)
        query: Project = self.own_query if shared else nn.Linear(width, width)
        self.position = Disentangled(
            table,
            heads,
            terms,
            key if "c2p" in ways else None,
            query if "p2c" in ways else None,
            table_dropout,
        )

    def own_key(self, x_RD: Tensor) -> Tensor:
        return self.key(x_RD)

    def own_query(self, x_RD: Tensor) -> Tensor:
        return self.query(x_RD)


class ConvolvedBlock(Block):
    """A block that also reads each token's neighbors: norm(block(x) + activation(convolution(x))).

    The first of the largest DeBERTa is one. Padding counts as nothing.
    """

    keeps_packed_rows = False

    def __init__(
        self, block: Block, width: int, kernel: int, activation_name: str, norm: nn.Module, dropout: float
    ) -> None:
        super().__init__(block.attention, block.feed_forward)
        self.convolution = nn.Conv1d(width, width, kernel, padding=(kernel - 1) // 2)
        self.norm, self.dropout, self.activation = norm, nn.Dropout(dropout), activation(activation_name)

    def forward(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: LayerCache | None = None,
        aux: object = None,
    ) -> Tensor:
        if view is not None and not isinstance(view.mask, Full):
            raise ValueError(
                "a convolution reads across the documents of a packed row: give each a row of its own"
            )
        y_BTD = super().forward(x_BTD, view, source_BSD, source_view, cache)
        if view is not None and not view.in_order:
            x_BTD = x_BTD * (index_of(view.q_pos) >= 0)[..., None]
        near_BTD = F.conv1d(
            x_BTD.mT, self.convolution.weight, self.convolution.bias, padding=self.convolution.padding
        ).mT
        return self.norm(y_BTD + self.activation(self.dropout(near_BTD)))
