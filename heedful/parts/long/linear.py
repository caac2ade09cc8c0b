"""Kernel attention (Katharopoulos et al. 2020): weights phi(q) .

phi(k) instead of exp(q . k), and so linear in length.

    out_i = phi(q_i) sum_{j<=i} phi(k_j) v_j^T  /  phi(q_i) sum_{j<=i} phi(k_j)        phi(x) = elu(x) + 1

The sums over the past are running sums: a matrix of [K, L + 1] numbers a head is all that has to be
remembered, however long the text. `KernelScore` is the same thing in the open, for those who want to see the
weights: a softmax of log(phi(q) . phi(k)) divides each weight by their sum.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention import Score, repeat_heads
from ..masks import Causal
from ..multihead import MultiHeadAttention, join_heads
from ..view import View
from ..watch import is_watched
from .windowed_cache import SLACK, OwnLayer, Remembering, positions_of, projected

CHUNK = 64  # tokens whose weights are looked at one by one; farther back there are sums only


def phi(x: Tensor) -> Tensor:
    """elu(x) + 1, which is above 0; in fp32 at least, since sums run over the whole text."""
    return F.elu(x.to(torch.promote_types(x.dtype, torch.float32))) + 1


class KernelScore(Score):
    """log(phi(q) . phi(k)): under a softmax, the weights of kernel attention."""

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return (phi(q_BHTK) @ phi(k_BHSK).mT).log()

    def as_dot(self, q_BHTK: Tensor, k_BGSK: Tensor) -> None:
        return None


def with_ones(v_BHSL: Tensor) -> Tensor:
    """Values and a column of ones, whose weighted sum is the sum of the weights."""
    return F.pad(v_BHSL.to(torch.promote_types(v_BHSL.dtype, torch.float32)), (0, 1), value=1.0)


def divided(sums_BHTL: Tensor) -> Tensor:
    """Weighted values by the sum of their weights."""
    return sums_BHTL[..., :-1] / sums_BHTL[..., -1:]


def causal_sums(phi_q_BHTK: Tensor, phi_k_BHTK: Tensor, v_BHTL: Tensor, chunk: int = CHUNK) -> Tensor:
    """phi(q_i) sum_{j<=i} phi(k_j) v_j^T: by weights within a chunk, by running sums over earlier chunks."""
    T = phi_q_BHTK.shape[2]
    q_BHNCK, k_BHNCK, v_BHNCL = (
        F.pad(x, (0, 0, 0, -T % chunk)).unflatten(2, (-1, chunk)) for x in (phi_q_BHTK, phi_k_BHTK, v_BHTL)
    )
    own_BHNKL = k_BHNCK.mT @ v_BHNCL
    before_BHNKL = own_BHNKL.cumsum(2) - own_BHNKL
    near_BHNCL = (q_BHNCK @ k_BHNCK.mT).tril() @ v_BHNCL
    return (near_BHNCL + q_BHNCK @ before_BHNKL).flatten(2, 3)[:, :, :T]


def in_full(x: Tensor) -> torch.autocast:
    """Products in the precision that they are given in: sums over a text are too long for half of it."""
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)  # "meta" has no numbers


def attend_linear(q_BHTK: Tensor, k_BHTK: Tensor, v_BHTL: Tensor) -> Tensor:
    """Causal kernel attention in time and memory that grow with T: phi(x) = elu(x) + 1 in place of exp.

    Args:
        q_BHTK: Queries.
        k_BHTK: Keys.
        v_BHTL: Values.

    Returns:
        The weighted mean of the values so far for each query, [B, H, T, L].

    Example:
        >>> q = k = torch.zeros(1, 1, 2, 4)
        >>> attend_linear(q, k, torch.tensor([[[[1.0], [3.0]]]]))
        tensor([[[[1.],
                  [2.]]]])
    """
    with in_full(q_BHTK):
        return divided(causal_sums(phi(q_BHTK), phi(k_BHTK), with_ones(v_BHTL))).to(v_BHTL.dtype)


class KernelAttention(Remembering):
    """Attention by running sums where tokens stand in order; by the formula elsewhere and while watched."""

    def __init__(self, inner: MultiHeadAttention) -> None:
        super().__init__()
        if not isinstance(inner.score, KernelScore) or inner.dropout:
            raise ValueError(
                "kernel attention is made of an attention with score=KernelScore() and no dropout"
            )
        self.inner = inner

    def layer_cache(self) -> RunningSumsLayer:
        return RunningSumsLayer()

    def remembered(self, length: int) -> int:
        return self.inner.heads * self.inner.key_width * (self.inner.value_width + 1)

    def forward(
        self,
        x_BTD: Tensor,
        view: View,
        source_BSD: Tensor | None = None,
        cache: RunningSumsLayer | None = None,
    ) -> Tensor:
        inner = self.inner
        if cache is None and (is_watched(inner) or not view.in_order or view.mask != Causal()):
            return inner(x_BTD, view)
        q_BHTK, k_BGTK, v_BGTL = projected(inner, x_BTD, view)
        k_BHTK, v_BHTL = repeat_heads(k_BGTK, inner.heads), repeat_heads(v_BGTL, inner.heads)
        if cache is None:
            out_BHTL = attend_linear(q_BHTK, k_BHTK, v_BHTL)
        else:
            with in_full(x_BTD):
                out_BHTL = cache.extend(q_BHTK, k_BHTK, v_BHTL, positions_of(view, len(x_BTD)))
        return inner.out(join_heads(out_BHTL))


class RunningSumsLayer(OwnLayer):
    """The cache of one layer: a matrix for the far past, and the last tokens, which can be taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.sums_BHKL: Tensor | None = None  # sum of phi(k) [v ; 1]^T over the far past
        self.recent: tuple[Tensor, Tensor, Tensor] | None = None  # phi(k), [v ; 1] and positions [B, S]
        self.pending: tuple[Tensor, Tensor, Tensor] | None = None

    def extend(self, q_BHTK: Tensor, k_BHTK: Tensor, v_BHTL: Tensor, q_pos_BT: Tensor) -> Tensor:
        """What new tokens take home from all before them and from themselves."""
        nobody_B1T1 = (q_pos_BT < 0)[:, None, :, None]
        phi_q, v_BHTM = phi(q_BHTK), with_ones(v_BHTL)
        phi_k = phi(k_BHTK).masked_fill(nobody_B1T1, 0)  # padding weighs nothing,
        sums_BHTM = causal_sums(phi_q, phi_k, v_BHTM)
        self.pending = phi_k, v_BHTM, q_pos_BT
        if self.recent is not None:
            old_k, old_v, old_pos = self.recent
            sums_BHTM = sums_BHTM + (phi_q @ there(old_k, old_pos).mT) @ old_v
            self.pending = (
                torch.cat([old_k, phi_k], dim=2),
                torch.cat([old_v, v_BHTM], dim=2),
                torch.cat([old_pos, q_pos_BT], dim=1),
            )
        if self.sums_BHKL is not None:
            sums_BHTM = sums_BHTM + phi_q @ self.sums_BHKL
        return divided(sums_BHTM.masked_fill(nobody_B1T1, 1)).to(v_BHTL.dtype)  # and has none to divide by

    def advance(self) -> None:
        if self.pending is None:
            return
        self.recent, self.pending = self.pending, None
        k, v, pos = self.recent
        if pos.shape[1] > 2 * SLACK:
            self.fold(k, v, pos)

    def fold(self, k: Tensor, v: Tensor, pos: Tensor) -> None:
        """Add to the matrix what no row will be rewound to."""
        far = int((pos >= pos.amax(-1, keepdim=True) - SLACK).any(0).long().argmax())
        if not far:
            return
        sums = there(k[:, :, :far], pos[:, :far]).mT @ v[:, :, :far]
        self.sums_BHKL = sums if self.sums_BHKL is None else self.sums_BHKL + sums
        self.recent = k[:, :, far:].contiguous(), v[:, :, far:].contiguous(), pos[:, far:]

    def reorder(self, rows: Tensor) -> None:
        self.sums_BHKL = None if self.sums_BHKL is None else self.sums_BHKL[rows]
        if self.recent is not None:
            k, v, pos = self.recent
            self.recent = k[rows], v[rows], pos[rows]

    def rewind(self, lengths_B: Tensor) -> None:
        if self.recent is None:
            return
        k, v, pos = self.recent
        lost = (torch.where(pos >= 0, pos, pos.amax() + 1).amin(-1) > lengths_B).any()
        if self.sums_BHKL is not None and bool(lost):
            raise ValueError(f"running sums can be rewound by {SLACK} tokens at most")
        self.recent = k, v, torch.where(pos < lengths_B[:, None], pos, -1)


def there(phi_k_BHSK: Tensor, pos_BS: Tensor) -> Tensor:
    """Keys that weigh nothing where nobody is."""
    return phi_k_BHSK.masked_fill((pos_BS < 0)[:, None, :, None], 0)
