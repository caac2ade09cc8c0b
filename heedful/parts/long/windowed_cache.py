"""Windowed caches: for attentions that need not keep every key and value.

`Remembering` is such an attention: it reads with an ordinary one inside, and makes the cache of its layer.
`OwnCache` counts tokens for all layers; each `OwnLayer` keeps what its attention asks for, under positions of
its own:

    RecentLayer       the last tokens only           Transformer-XL, windows, blocks
    CompressedLayer   three tokens as one            heedful/parts/long/compressed.py
    RunningSumsLayer  one matrix for all the past    heedful/parts/long/linear.py

Nothing is forgotten so fast that a cache could not be rewound by a few tokens (`SLACK`): speculative decoding
does so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..cache import Cache, GrowingLayer, KeysValues, LayerCache, check_rows, count_on
from ..multihead import MultiHeadAttention, join_heads
from ..positions.base import KEPT, Memo, index_of
from ..view import View

SLACK = 128  # tokens that are kept beyond need, so that a cache can be rewound


# The cache.


class OwnLayer(LayerCache, ABC):
    """What one layer remembers, in its own way."""

    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        raise TypeError(f"{type(self).__name__} is no list of keys and values: its own attention reads it")

    @abstractmethod
    def advance(self) -> None:
        """The new tokens are part of the past now."""

    @abstractmethod
    def reorder(self, rows: Tensor) -> None:
        """Row b becomes what row rows[b] was."""

    @abstractmethod
    def rewind(self, lengths_B: Tensor) -> None:
        """Forget everything from position lengths[b] on."""


class OwnCache(Cache):
    """Counts the tokens of every row; what of them is remembered is each layer's business."""

    def __init__(self, layers: Sequence[OwnLayer]) -> None:
        self.layers: Sequence[OwnLayer] = layers
        self.size = 0  # tokens in the longest row
        self.rows: int | None = None  # unknown before the first call
        self.lengths_B: Tensor | None = None  # once rows differ
        self.pending: tuple[int, Tensor | None] = 0, None

    def lengths(self, like_B: Tensor) -> Tensor:
        """Tokens in each row."""
        return torch.full_like(like_B, self.size) if self.lengths_B is None else self.lengths_B

    def next_positions(self, T: int, lengths_B: Tensor | None = None) -> Tensor | None:
        if lengths_B is None:
            return None if self.lengths_B is None else count_on(self.lengths_B, T, None)
        return count_on(self.lengths(lengths_B), T, lengths_B)

    def begin(self, q_pos: Tensor | None, B: int, T: int) -> tuple[int, Tensor | None]:
        if self.rows is not None:
            check_rows(B, self.rows, "the cache")
        if q_pos is None:
            if self.lengths_B is not None:
                raise ValueError("rows of this cache have different lengths: positions must be given")
            self.pending = self.size + T, None
        else:
            ends_B = q_pos.expand(B, T).amax(-1) + 1
            self.pending = self.size + T, torch.maximum(self.lengths(ends_B), ends_B)
        self.begun = B
        return self.size + T, None

    def advance(self) -> None:
        (self.size, self.lengths_B), self.rows = self.pending, self.begun
        for layer in self.layers:
            layer.advance()

    def reorder(self, rows: Tensor) -> None:
        if self.rows is None:
            return
        self.rows = len(rows)
        self.lengths_B = None if self.lengths_B is None else self.lengths_B[rows]
        for layer in self.layers:
            layer.reorder(rows)
            if layer.source_kv is not None:
                layer.source_kv = (layer.source_kv[0][rows], layer.source_kv[1][rows])

    def rewind(self, lengths_B: Tensor) -> None:
        if self.rows is None:
            return
        self.lengths_B = torch.minimum(self.lengths(lengths_B), lengths_B)
        self.size = int(self.lengths_B.max())
        for layer in self.layers:
            layer.rewind(self.lengths_B)


class Remembering(nn.Module, ABC):
    """An attention that remembers in its own way. `inner` has the matrices, and can be watched."""

    inner: MultiHeadAttention

    @abstractmethod
    def layer_cache(self) -> OwnLayer:
        """An empty memory of one layer."""

    def remembered(self, length: int) -> int:
        """Numbers that it keeps of a row of `length` tokens, but for those that it could be rewound to."""
        return length * self.inner.kv_heads * (self.inner.key_width + self.inner.value_width)

    @property
    def heads(self) -> int:
        return self.inner.heads

    @property
    def out(self) -> nn.Linear:
        """The matrix that puts heads together."""
        return self.inner.out


def projected(layer: MultiHeadAttention, x_BTD: Tensor, view: View) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of new tokens, head by head."""
    return layer.queries(x_BTD, view), *layer.keys_values(x_BTD, view)


def mixed(layer: MultiHeadAttention, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSL: Tensor, view: View) -> Tensor:
    """What the queries take home, heads together again."""
    return layer.out(join_heads(layer.attend(q_BHTK, k_BGSK, v_BGSL, view)))


def positions_of(view: View, B: int) -> Tensor:
    """Where the new tokens of every row stand, [B, T]."""
    return torch.atleast_2d(index_of(view.q_pos)).expand(B, view.T)


# The last tokens only.


class RecentLayer(OwnLayer):
    """Keys and values of the last `reach` tokens before those of a call; what is older is nobody's."""

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach, self.kept = reach, GrowingLayer()
        self.k_pos_BS: Tensor | None = None
        self.pending: Tensor | None = None
        self.tables: Memo = {}  # what positions have to say at every call

    def extend(self, k_BGTK: Tensor, v_BGTL: Tensor, q_pos_BT: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, values and positions of what is remembered and of the new tokens."""
        k_pos_BS = q_pos_BT if self.k_pos_BS is None else torch.cat([self.k_pos_BS, q_pos_BT], dim=-1)
        self.pending = k_pos_BS
        far = k_pos_BS.amax() + 1  # a row that waits has no first new token
        start_B1 = torch.where(q_pos_BT >= 0, q_pos_BT, far).amin(-1, keepdim=True)
        seen_BS = torch.where(k_pos_BS >= start_B1 - self.reach, k_pos_BS, -1)
        return *self.kept.append(k_BGTK, v_BGTL), seen_BS

    def advance(self) -> None:
        self.kept.advance()
        self.k_pos_BS = self.pending
        if self.k_pos_BS is not None and self.k_pos_BS.shape[1] > 2 * (self.reach + SLACK):
            self.forget(self.k_pos_BS)

    def forget(self, k_pos_BS: Tensor) -> None:
        """Drop the first slots, as far as no row needs them; now and then, since what stays is copied."""
        needed_BS = k_pos_BS >= k_pos_BS.amax(-1, keepdim=True) - self.reach - SLACK
        first = int(needed_BS.any(0).long().argmax())
        if first and self.kept.kv is not None:
            k_BGSK, v_BGSL = self.kept.kv
            self.kept.kv = k_BGSK[:, :, first:].contiguous(), v_BGSL[:, :, first:].contiguous()
            self.k_pos_BS = k_pos_BS[:, first:]

    def reorder(self, rows: Tensor) -> None:
        self.kept.reorder(rows, [])
        self.k_pos_BS = None if self.k_pos_BS is None else self.k_pos_BS[rows]

    def rewind(self, lengths_B: Tensor) -> None:
        if self.k_pos_BS is not None:
            self.k_pos_BS = torch.where(self.k_pos_BS < lengths_B[:, None], self.k_pos_BS, -1)


class RecentAttention(Remembering):
    """An attention whose mask never looks back farther than `reach`: its cache need not, either."""

    def __init__(self, inner: MultiHeadAttention, reach: int) -> None:
        super().__init__()
        self.inner, self.reach = inner, reach

    def layer_cache(self) -> RecentLayer:
        return RecentLayer(self.reach)

    def remembered(self, length: int) -> int:
        return super().remembered(min(length, self.reach))

    def forward(
        self,
        x_BTD: Tensor,
        view: View,
        source_BSD: Tensor | None = None,
        cache: RecentLayer | None = None,
    ) -> Tensor:
        if cache is None:
            return self.inner(x_BTD, view)
        return recall(self.inner, x_BTD, view, cache)


def recall(layer: MultiHeadAttention, x_BTD: Tensor, view: View, cache: RecentLayer) -> Tensor:
    """Attention of new tokens to themselves and to what a layer still remembers."""
    q_BHTK, k_BGTK, v_BGTL = projected(layer, x_BTD, view)
    q_pos_BT = positions_of(view, len(x_BTD))
    k_BGSK, v_BGSL, k_pos_BS = cache.extend(k_BGTK, v_BGTL, q_pos_BT)
    if k_BGSK.shape[-2] == view.T and view.in_order:  # the beginning: nothing is remembered yet
        return mixed(layer, q_BHTK, k_BGSK, v_BGSL, view)
    seen = View(view.mask, view.T, k_BGSK.shape[-2], x_BTD.device, q_pos_BT, k_pos_BS)
    seen.memo[KEPT] = cache.tables
    return mixed(layer, q_BHTK, k_BGSK, v_BGSL, seen)
