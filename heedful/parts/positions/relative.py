"""Relative positions: the scores learn how far apart two tokens are (Shaw, Transformer-XL, ALiBi, T5)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .absolute import frequencies, sinusoids
from .base import IN_ORDER, KEPT, Memo, Position, Positions, PositionSizes, index_of, once


def distances(q_pos: Positions, k_pos: Positions) -> Tensor:
    """key minus query, [T, S] or [B, T, S]."""
    return index_of(k_pos)[..., None, :] - index_of(q_pos)[..., :, None]


class Shaw(Position):
    """Edge vectors by clipped distance, in keys and in values (Shaw, Uszkoreit and Vaswani 2018).

        e_ij = q_i (k_j + a^K_ij) / sqrt(K)      z_i = sum_j weights_ij (v_j + a^V_ij)

    with a_ij = table[clip(j - i, -clip, clip)].

    Args:
        clip: Distance from which on all count alike.
        key_width: Numbers of a key.
        value_width: Numbers of a value; None: no edge vectors in values.
        heads: Tables: 1 for all heads, or one a head.

    Example:
        >>> q = k = torch.randn(1, 2, 5, 8)
        >>> Shaw(clip=3, key_width=8).bias(q, k, torch.arange(5), torch.arange(5)).shape
        torch.Size([1, 2, 5, 5])
    """

    uses_values = True

    @classmethod
    def build(cls, sizes: PositionSizes) -> Shaw:
        return cls(sizes.clip, sizes.key_width, sizes.value_width, sizes.heads)

    def __init__(self, clip: int, key_width: int, value_width: int | None = None, heads: int = 1) -> None:
        super().__init__()
        self.clip = clip
        self.keys_HRK = nn.Parameter(torch.empty(heads, 2 * clip + 1, key_width))
        self.values_HRL = nn.Parameter(torch.empty(heads, 2 * clip + 1, value_width or key_width))
        nn.init.xavier_uniform_(self.keys_HRK)
        nn.init.xavier_uniform_(self.values_HRL)

    def edges(self, q_pos: Positions, k_pos: Positions) -> Tensor:
        """Which row of the tables each pair uses, [1 or B, T, S]."""
        edges = distances(q_pos, k_pos).clamp(-self.clip, self.clip) + self.clip
        return edges if edges.ndim == 3 else edges[None]

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor:
        return edge_scores(q_BHTK, self.keys_HRK, self.edges(q_pos, k_pos)) / math.sqrt(q_BHTK.shape[-1])

    def values(
        self, weights_BHTS: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor:
        return edge_values(weights_BHTS, self.values_HRL, self.edges(q_pos, k_pos))


def edge_scores(q_BHTK: Tensor, table_HRK: Tensor, edges_BTS: Tensor) -> Tensor:
    """q_i . table[edge_ij]: score all R edge vectors once, then look up (cheaper than T x S vectors)."""
    per_edge_BHTR = q_BHTK @ table_HRK.to(q_BHTK.dtype).mT
    B, H, T, _ = per_edge_BHTR.shape
    return per_edge_BHTR.gather(-1, edges_BTS[:, None].expand(B, H, T, -1))


def edge_values(weights_BHTS: Tensor, table_HRL: Tensor, edges_BTS: Tensor) -> Tensor:
    """sum_j weights_ij table[edge_ij]: add up the weight that falls on each edge, then mix the R vectors."""
    B, H, T, _ = weights_BHTS.shape
    R = table_HRL.shape[1]
    per_edge_BHTR = weights_BHTS.new_zeros(B, H, T, R)
    per_edge_BHTR = per_edge_BHTR.scatter_add(-1, edges_BTS[:, None].expand(B, H, T, -1), weights_BHTS)
    return per_edge_BHTR @ table_HRL.to(weights_BHTS.dtype)


class TransformerXL(Position):
    """Content and distance scored apart (Dai et al. 2019), for causal attention.

        A_ij = (q_i + u) k_j + (q_i + v) (R_{i-j} W_R)      all divided by sqrt(K)

    R is the sinusoid of the distance ("halves" layout, as in the authors' code). The term q_i k_j is the
    attention's own; this adds the other three. Where tokens stand in order, the scores of all distances are
    shifted into place; elsewhere each is looked up.

    Args:
        width: Width of the sinusoids.
        heads: Number of heads.
        key_width: Numbers of a key.
        u: Usually shared over layers, and then passed in; None: one of its own.
        v: The same for distances.
        clamp: Distances from here on count as this one; None: no limit. No distance may exceed the number of
            keys.

    Example:
        >>> q = k = torch.randn(1, 2, 5, 8)
        >>> layer = TransformerXL(width=16, heads=2, key_width=8)
        >>> layer.bias(q, k, torch.arange(5), torch.arange(5)).shape
        torch.Size([1, 2, 5, 5])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        key_width: int,
        u: nn.Parameter | None = None,
        v: nn.Parameter | None = None,
        clamp: int | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.width, self.clamp = heads, width, clamp
        self.distance = nn.Linear(width, heads * key_width, bias=False)
        self.u_HK = nn.Parameter(torch.zeros(heads, key_width)) if u is None else u
        self.v_HK = nn.Parameter(torch.zeros(heads, key_width)) if v is None else v

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor:
        S, asks_BHTK = k_BGSK.shape[-2], q_BHTK + self.v_HK[:, None]
        if memo is not None and memo.get(IN_ORDER):
            edges_HSK = self.edges(torch.arange(S - 1, -1, -1, device=q_BHTK.device))
            place_BHTS = shifted(asks_BHTK @ edges_HSK.mT)
        else:
            edges_HRK = self.kept_edges(S, q_BHTK.device, (memo or {}).get(KEPT))
            steps_BTS = (-distances(q_pos, k_pos)).clamp(0, edges_HRK.shape[1] - 1)
            steps_BTS = steps_BTS if steps_BTS.ndim == 3 else steps_BTS[None]
            place_BHTS = edge_scores(asks_BHTK, edges_HRK, steps_BTS)
        k_BHSK = k_BGSK.repeat_interleave(self.heads // k_BGSK.shape[1], dim=1)
        content_BH1S = self.u_HK[:, None] @ k_BHSK.mT
        return (place_BHTS + content_BH1S) / math.sqrt(q_BHTK.shape[-1])

    def kept_edges(self, S: int, device: torch.device, kept: Memo | None) -> Tensor:
        """R W_R of the distances below S; of a few more where they are kept, for the steps that follow."""
        kept = None if torch.is_grad_enabled() else kept
        R = S if kept is None else -(-S // ROUNDED) * ROUNDED
        R = R if self.clamp is None else min(R, self.clamp + 1)
        return once(kept, (id(self), R), lambda: self.edges(torch.arange(R, device=device)))

    def edges(self, distances_S: Tensor) -> Tensor:
        """R W_R of these distances, [H, S, K]."""
        distances_S = distances_S if self.clamp is None else distances_S.clamp(max=self.clamp)
        w = frequencies(self.width, device=distances_S.device)
        table_SD = sinusoids(distances_S, w, interleaved=False)
        weight = self.distance.weight
        return self.distance(table_SD.to(weight.dtype)).unflatten(-1, (self.heads, -1)).transpose(0, 1)


ROUNDED = 64  # distances that are kept at once


def shifted(x_BHTS: Tensor) -> Tensor:
    """Scores by distance, columns S-1 .. 0, to scores by key, for queries that are the last T of S tokens.

    Row t of T moves left by T-1-t: with one column of zeros in front, the table is read as [S+1, T], its
    first row dropped, and read as [T, S] again (Dai et al. 2019, appendix B). What lies in the future is left
    over from other rows.
    """
    B, H, T, S = x_BHTS.shape
    return F.pad(x_BHTS, (1, 0)).view(B, H, S + 1, T)[:, :, 1:].reshape(B, H, T, S)


class ALiBi(Position):
    """A penalty that grows with distance, at a slope of each head's own (Press, Smith and Lewis 2022).

    Head h of H subtracts 2^(-8h/H) times the distance of query and key from their score. It learns nothing;
    `alibi_slopes` gives the slopes, also of other numbers of heads than powers of two.

    Args:
        heads: Number of heads.

    Example:
        >>> q = k = torch.zeros(1, 2, 3, 4)
        >>> ALiBi(heads=2).bias(q, k, torch.arange(3), torch.arange(3)).shape
        torch.Size([2, 3, 3])
    """

    @classmethod
    def build(cls, sizes: PositionSizes) -> ALiBi:
        return cls(sizes.heads)

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor:
        dtype = torch.promote_types(q_BHTK.dtype, torch.float32)
        return once(
            memo, ("alibi", self.heads, dtype), lambda: alibi_bias(q_pos, k_pos, self.heads).to(dtype)
        )


def alibi_slopes(heads: int) -> list[float]:
    """2^(-8h/H), h = 1..H, for H a power of two.

    Otherwise the slopes of the next lower power, then every other slope of the next higher.

    Args:
        heads: Number of heads H.

    Returns:
        A slope for each head.

    Example:
        >>> alibi_slopes(4)
        [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * (heads - power) + 1, 2)]


def alibi_bias(q_pos: Positions, k_pos: Positions, heads: int) -> Tensor:
    """-slope * distance.

    Args:
        q_pos: Positions of queries.
        k_pos: Positions of keys.
        heads: Number of heads H.

    Returns:
        [H, T, S] or [B, H, T, S].

    Example:
        >>> alibi_bias(torch.tensor([2]), torch.arange(3), heads=1)
        tensor([[[-0.0078, -0.0039, -0.0000]]], dtype=torch.float64)
    """
    distance = distances(q_pos, k_pos).abs().unsqueeze(-3)
    slopes_H = torch.tensor(alibi_slopes(heads), device=distance.device, dtype=torch.float64)
    return -slopes_H[:, None, None] * distance


def t5_bucket(distance: Tensor, buckets: int = 32, farthest: int = 128, both_ways: bool = True) -> Tensor:
    """key minus query to a bucket: exact near by, then logarithmic up to `farthest` (Raffel et al. 2020).

    Args:
        distance: Distances.
        buckets: Number of buckets.
        farthest: Distance of the last bucket.
        both_ways: Half the buckets for keys after the query; otherwise those all fall in bucket 0.

    Returns:
        Buckets.

    Example:
        >>> t5_bucket(torch.tensor([0, -3, 3, -1000]))
        tensor([ 0,  3, 19, 15])
    """
    start = torch.zeros_like(distance)
    if both_ways:
        buckets //= 2
        start = (distance > 0) * buckets
        away = distance.abs()
    else:
        away = (-distance).clamp(min=0)
    exact = buckets // 2
    ratio = (away.clamp(min=1).float() / exact).log() / math.log(farthest / exact)
    far = exact + (ratio * (buckets - exact)).long()
    return start + torch.where(away < exact, away, far.clamp(max=buckets - 1))


class T5Buckets(Position):
    """One learned number a head for each bucket of distance (Raffel et al. 2020); shared over layers.

    T5 leaves its scores unscaled: its initialization absorbs the scale. Use it with `Dot()`.

    Args:
        heads: Number of heads.
        buckets: As in `t5_bucket`.
        farthest: As in `t5_bucket`.
        both_ways: As in `t5_bucket`.

    Example:
        >>> q = k = torch.zeros(1, 2, 3, 4)
        >>> T5Buckets(heads=2).bias(q, k, torch.arange(3), torch.arange(3)).shape
        torch.Size([2, 3, 3])
    """

    one_for_all = True

    @classmethod
    def build(cls, sizes: PositionSizes) -> T5Buckets:
        if sizes.clip <= sizes.buckets // 2:
            raise ValueError(
                f"max_distance is {sizes.clip}, and half of {sizes.buckets} buckets are exact: raise it"
            )
        return cls(sizes.heads, sizes.buckets, sizes.clip, sizes.both_ways)

    def __init__(self, heads: int, buckets: int = 32, farthest: int = 128, both_ways: bool = True) -> None:
        super().__init__()
        self.buckets, self.farthest, self.both_ways = buckets, farthest, both_ways
        self.table = nn.Parameter(torch.zeros(buckets, heads))

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor:
        sizes = (self.buckets, self.farthest, self.both_ways)
        bucket = once(memo, ("t5", *sizes), lambda: t5_bucket(distances(q_pos, k_pos), *sizes))
        return self.table[bucket].movedim(-1, -3)


SCHEMES: dict[str, type[Position]] = {
    "shaw": Shaw,
    "alibi": ALiBi,
    "t5": T5Buckets,
}
