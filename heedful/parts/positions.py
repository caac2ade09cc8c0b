"""Positions: where order enters the model.

Attention by itself sees a set: shuffle the keys and nothing changes. A `Position` puts order back in one
of four places, and most schemes use just one: `embed` (absolute encodings, at the input), `rotate`
(rotary, on queries and keys), `bias` (relative schemes, added to the scores), `values` (Shaw, added to
the output). Everything here is given positions; nothing counts slots, so padding and caches need no care.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Tree:
    """Positions that also know the sentence's dependency tree: heads[b, w] is the word that word w hangs on.

    The root is its own head (index equal to its own) or -1. Where words are cut into pieces, words[b, t] is the word
    that token t belongs to: all pieces of a word have its place in the tree.
    """

    index: Tensor
    heads_BW: Tensor
    words_BT: Tensor | None = None  # None: every token is a word


Positions = Tensor | Tree


def index_of(positions: Positions) -> Tensor:
    """The plain index, whatever else the positions carry."""
    return positions.index if isinstance(positions, Tree) else positions


Memo = dict[Any, Any]  # tables that depend on positions alone, made once a call and shared by its layers
IN_ORDER = "in order"  # in a memo: whether keys are 0, 1, .. and queries the last of them
KEPT = "kept"  # in a memo: another one, which a cache keeps from call to call
CLOSED = "closed"  # in a memo: nothing more is to be remembered


def once(memo: Memo | None, key: Any, compute: Callable[[], Any]) -> Any:
    """What `compute` gives, remembered under `key` if there is a memo. For tables without gradients only:
    a recomputed layer (activation checkpointing) finds them already made."""
    if memo is None:
        return compute()
    if key in memo:
        return memo[key]
    found = compute()
    if CLOSED not in memo:
        memo[key] = found
    return found


class Position(nn.Module):
    """The places where order can enter; a scheme overrides the ones it uses. This class itself uses none."""

    added_width = 0  # how much `embed` widens its input (only concatenation does)
    longest: int | None = None  # the last position it knows, plus one (only learned tables end)
    needs_tree = False  # whether positions must be a `Tree` (only those from syntax)

    def embed(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        """Order at the input: called once, on the embeddings."""
        return x_BTD

    def rotate(self, x_BHTK: Tensor, positions: Positions, memo: Memo | None = None) -> Tensor:
        """Order in queries and keys: called on each before their product."""
        return x_BHTK

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor | None:
        """Order in the scores: added after scaling, broadcasts to [B, H, T, S]."""
        return None

    def values(
        self, weights_BHTS: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor | None:
        """Order in the output: added to the weighted values."""
        return None

    @property
    def uses_values(self) -> bool:
        """Whether `values` needs the attention weights, which no fused kernel hands out."""
        return False


class NoPosition(Position):
    """No order: the model sees a bag of words (or gets order from the causal mask alone)."""


# Absolute: an encoding of the index, added to the embedding or concatenated to it.


class Absolute(Position, ABC):
    """An encoding P of the position; Z + P is what the block sees."""

    width: int

    @abstractmethod
    def encode(self, positions: Positions) -> Tensor:
        """[..., T] positions to [..., T, width] encodings."""

    def embed(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        return x_BTD + self.encode(positions).to(x_BTD.dtype)


class Concatenated(Position):
    """[Z ; P] instead of Z + P: the encoding has its own coordinates, and the model is that much wider."""

    def __init__(self, encoding: Absolute) -> None:
        super().__init__()
        self.encoding = encoding
        self.added_width, self.longest = encoding.width, encoding.longest

    def embed(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        encoding = self.encoding.encode(positions).to(x_BTD.dtype)
        return torch.cat([x_BTD, encoding.expand(*x_BTD.shape[:-1], -1)], dim=-1)


def frequencies(
    width: int, kind: str = "paper", base: float = 10000.0, device: torch.device | None = None
) -> Tensor:
    """Angular frequencies w_i, i = 0 .. width/2 - 1; made on the device, which would have to be waited for otherwise.

    paper (Vaswani et al. 2017): base^(-2i/width). t2t (tensor2tensor, fairseq): base^(-i/(width/2 - 1)),
    which ends at exactly 1/base and is *not* a permutation of the paper's.
    """
    i = torch.arange(width // 2, dtype=torch.float64, device=device)
    if kind == "paper":
        return base ** (-2 * i / width)
    if kind == "t2t":
        return base ** (-i / max(width // 2 - 1, 1))
    raise ValueError(f'frequencies are "paper" or "t2t", not "{kind}"')


def sinusoids(index: Tensor, w: Tensor, interleaved: bool = True) -> Tensor:
    """sin and cos of index * w, in fp64: side by side for each frequency, or all sines before all cosines."""
    angles = index.clamp(min=0).to(torch.float64)[..., None] * w
    pair = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return (pair if interleaved else pair.mT).flatten(-2)


class Sinusoidal(Absolute):
    """Sines and cosines of falling frequency: no parameters, and PE(p + k) is a rotation of PE(p).

    layout: "interleaved" as in the paper (sin, cos, sin, cos, ...) or "halves" (all sines, then all cosines).
    """

    def __init__(
        self, width: int, layout: str = "interleaved", frequencies: str = "paper", base: float = 10000.0
    ) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"sinusoids come in pairs: width {width} is odd")
        if layout not in ("interleaved", "halves"):
            raise ValueError(f'layout is "interleaved" or "halves", not "{layout}"')
        self.width, self.layout, self.kind, self.base = width, layout, frequencies, base

    def encode(self, positions: Positions) -> Tensor:
        index = index_of(positions)
        w = frequencies(self.width, self.kind, self.base, index.device)
        return sinusoids(index, w, self.layout == "interleaved")


class Learned(Absolute):
    """A table of one vector a position; flexible, and ends where the table ends."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.longest, self.width = length, width
        self.table = nn.Parameter(torch.empty(length, width))
        nn.init.normal_(self.table, std=0.02)

    def encode(self, positions: Positions) -> Tensor:
        index = index_of(positions)
        if index.device.type == "cpu" and not torch.compiler.is_compiling() and index.numel():
            check_length(int(index.max()) + 1, self)
        return nn.functional.embedding(index.clamp(min=0), self.table)


class LearnedAfter(Learned):
    """A learned table whose first `offset` rows stand for no position: RoBERTa counts from its padding's number on."""

    def __init__(self, length: int, width: int, offset: int) -> None:
        super().__init__(length + offset, width)
        self.longest, self.offset = length, offset

    def encode(self, positions: Positions) -> Tensor:
        index = index_of(positions)
        if index.device.type == "cpu" and not torch.compiler.is_compiling() and index.numel():
            check_length(int(index.max()) + 1, self)
        return nn.functional.embedding(index.clamp(min=0) + self.offset, self.table)


class CaptionAndGrid(Absolute):
    """A caption and then a picture, cell by cell: a vector for each place in the caption, and for each row and column.

    (Ramesh et al. 2021.) What a cell gets is the sum of its row's vector and its column's.
    """

    def __init__(self, text: int, rows: int, columns: int, width: int) -> None:
        super().__init__()
        self.text, self.row, self.column = (Learned(length, width) for length in (text, rows, columns))
        self.longest, self.width = text + rows * columns, width

    def encode(self, positions: Positions) -> Tensor:
        index = index_of(positions)
        text, columns = len(self.text.table), len(self.column.table)
        cell = (index - text).clamp(min=0)
        in_picture = self.row.encode(cell // columns) + self.column.encode(cell % columns)
        in_text = self.text.encode(index.clamp(max=text - 1))
        return torch.where((index < text)[..., None], in_text, in_picture)


def check_length(size: int, position: Position) -> None:
    """Refuse a sequence that a learned table cannot hold."""
    if position.longest is not None and size > position.longest:
        raise ValueError(
            f"a sequence of {size} tokens does not fit the learned position table of {position.longest}: "
            f"shorten it, or use a model with a longer table"
        )


class StructuralAbsolute(Absolute):
    """Depth in the dependency tree beside the index (Wang, Tu, Wang and Shi 2019).

    PE_i = tanh(PE(index_i) U + PE(depth_i) V), both sinusoidal. The paper says that the fusion is
    non-linear; tanh with two matrices is our reading of it.
    """

    needs_tree = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.sinusoid = Sinusoidal(width)
        self.from_index = nn.Linear(width, width, bias=False)
        self.from_depth = nn.Linear(width, width, bias=False)

    def encode(self, positions: Positions) -> Tensor:
        tree = need_tree(positions)
        depth_BT = of_tokens(depths(tree.heads_BW), tree)
        index, depth = self.sinusoid.encode(tree.index), self.sinusoid.encode(depth_BT)
        weight = self.from_index.weight.dtype
        return torch.tanh(self.from_index(index.to(weight)) + self.from_depth(depth.to(weight)))


# Relative: the scores learn how far apart two tokens are.


def distances(q_pos: Positions, k_pos: Positions) -> Tensor:
    """key minus query, [T, S] or [B, T, S]."""
    return index_of(k_pos)[..., None, :] - index_of(q_pos)[..., :, None]


class Shaw(Position):
    """Edge vectors by clipped distance, in keys and in values (Shaw, Uszkoreit and Vaswani 2018).

        e_ij = q_i (k_j + a^K_ij) / sqrt(K)      z_i = sum_j weights_ij (v_j + a^V_ij)

    with a_ij = table[clip(j - i, -clip, clip)]. One table for all heads, or one a head.
    """

    def __init__(self, clip: int, key_width: int, value_width: int | None = None, heads: int = 1) -> None:
        super().__init__()
        self.clip = clip
        self.keys_HRK = nn.Parameter(torch.empty(heads, 2 * clip + 1, key_width))
        self.values_HRL = nn.Parameter(torch.empty(heads, 2 * clip + 1, value_width or key_width))
        nn.init.xavier_uniform_(self.keys_HRK)
        nn.init.xavier_uniform_(self.values_HRL)

    @property
    def uses_values(self) -> bool:
        return True

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


def need_tree(positions: Positions) -> Tree:
    if not isinstance(positions, Tree):
        raise TypeError(
            "positions from syntax need the sentence's tree: give it, as positions=Tree(index, heads)"
        )
    return positions


def depths(heads_BW: Tensor) -> Tensor:
    """Edges from each word to the root, which has depth 0."""
    at, is_root = _parents(heads_BW)
    depth = (~is_root).long()
    for _ in range(heads_BW.shape[-1].bit_length()):  # each time, all look twice as far up
        depth, at = depth + depth.gather(-1, at), at.gather(-1, at)
    return depth


def _parents(heads_BW: Tensor) -> tuple[Tensor, Tensor]:
    own = torch.arange(heads_BW.shape[-1], device=heads_BW.device).expand_as(heads_BW)
    is_root = (heads_BW < 0) | (heads_BW == own)
    return torch.where(is_root, own, heads_BW), is_root


def structural_distances(heads_BW: Tensor, scope: str = "edge") -> Tensor:
    """Relative structural position of every pair, [B, W, W] (Wang, Tu, Wang and Shi 2019).

    0 for a word and itself; depth_i - depth_j where i and j are related; else the sum of both depths,
    signed + if i comes after j and - if before. Related means joined by one dependency edge
    (scope="edge", the literal reading and the default) or one being an ancestor of the other ("path").
    """
    if scope not in SCOPES:
        raise ValueError(f'scope is "edge" or "path", not "{scope}"')
    depth = depths(heads_BW)
    parents, _ = _parents(heads_BW)
    at = torch.arange(heads_BW.shape[-1], device=heads_BW.device)
    related = parents[..., None] == at
    if scope == "path":
        above = (related | (at[:, None] == at)).float()
        for _ in range(heads_BW.shape[-1].bit_length()):
            above = (above @ above).clamp(max=1)
        related = above > 0
    related = related | related.mT
    sign = torch.sign(at[:, None] - at[None, :])
    i, j = depth[..., :, None], depth[..., None, :]
    return torch.where(related, i - j, sign * (i + j))


SCOPES = ("edge", "path")


def of_tokens(of_words: Tensor, tree: Tree) -> Tensor:
    """What is said of words ([B, W], or of pairs of them [B, W, W]), for their tokens: pieces inherit it."""
    if tree.words_BT is None:
        return of_words
    words_BT = tree.words_BT.clamp(min=0)  # padding belongs to no word; nobody looks at it
    rows_B = torch.arange(len(words_BT), device=words_BT.device)
    if of_words.ndim == 2:
        return of_words[rows_B[:, None], words_BT]
    return of_words[rows_B[:, None, None], words_BT[:, :, None], words_BT[:, None, :]]


class StructuralRelative(Position):
    """Shaw's edge vectors by distance in the sentence plus the same by distance in the tree (Wang et al. 2019)."""

    needs_tree = True

    def __init__(
        self, clip: int, key_width: int, value_width: int | None = None, heads: int = 1, scope: str = "edge"
    ):
        super().__init__()
        self.scope = scope
        self.sequence = Shaw(clip, key_width, value_width, heads)
        self.tree = Shaw(clip, key_width, value_width, heads)

    @property
    def uses_values(self) -> bool:
        return True

    def tree_edges(self, positions: Positions, memo: Memo | None = None) -> Tensor:
        """Which row of the tree's tables each pair uses, [B, T, T]; the same for all layers of a call."""
        tree, clip = need_tree(positions), self.tree.clip

        def compute() -> Tensor:
            steps_BTT = of_tokens(structural_distances(tree.heads_BW, self.scope), tree)
            return steps_BTT.clamp(-clip, clip) + clip

        return once(memo, ("tree", self.scope, clip), compute)

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor:
        by_tree = edge_scores(q_BHTK, self.tree.keys_HRK, self.tree_edges(q_pos, memo))
        return self.sequence.bias(q_BHTK, k_BGSK, q_pos, k_pos) + by_tree / math.sqrt(q_BHTK.shape[-1])

    def values(
        self, weights_BHTS: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor:
        by_tree = edge_values(weights_BHTS, self.tree.values_HRL, self.tree_edges(q_pos, memo))
        return self.sequence.values(weights_BHTS, q_pos, k_pos) + by_tree


class TransformerXL(Position):
    """Content and distance scored apart (Dai et al. 2019), for causal attention.

        A_ij = (q_i + u) k_j + (q_i + v) (R_{i-j} W_R)      all divided by sqrt(K)

    R is the sinusoid of the distance ("halves" layout, as in the authors' code). The term q_i k_j is the
    attention's own; this adds the other three. u and v are usually shared over layers: pass them in.
    Distances from `clamp` on count as `clamp`; no distance may exceed the number of keys. Where tokens stand in order,
    the scores of all distances are shifted into place; elsewhere each is looked up.
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

    Row t of T moves left by T-1-t: with one column of zeros in front, the table is read as [S+1, T], its first row
    dropped, and read as [T, S] again (Dai et al. 2019, appendix B). What lies in the future is left over from other rows.
    """
    B, H, T, S = x_BHTS.shape
    return F.pad(x_BHTS, (1, 0)).view(B, H, S + 1, T)[:, :, 1:].reshape(B, H, T, S)


class ALiBi(Position):
    """A penalty that grows with distance, at a slope of each head's own (Press, Smith and Lewis 2022)."""

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
    """2^(-8h/H), h = 1..H, for H a power of two; otherwise the next lower power's slopes, then every
    other slope of the next higher."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * (heads - power) + 1, 2)]


def alibi_bias(q_pos: Positions, k_pos: Positions, heads: int) -> Tensor:
    """-slope * distance, [H, T, S] or [B, H, T, S]."""
    distance = distances(q_pos, k_pos).abs().unsqueeze(-3)
    slopes_H = torch.tensor(alibi_slopes(heads), device=distance.device, dtype=torch.float64)
    return -slopes_H[:, None, None] * distance


def t5_bucket(distance: Tensor, buckets: int = 32, farthest: int = 128, both_ways: bool = True) -> Tensor:
    """key minus query to a bucket: exact near by, then logarithmic up to `farthest` (Raffel et al. 2020).

    both_ways: half the buckets for keys after the query; otherwise those all fall in bucket 0.
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
    """

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


# Rotary: order in the angle between query and key.


class Rotary(Position):
    """Turn each pair of coordinates by position * w_i: q . k then depends on the distance only (Su et al. 2021).

    layout: which coordinates make a pair. "interleaved" (0 1)(2 3).. as in the paper, or "halves"
    (0 K/2)(1 K/2+1).. as in LLaMA; the same up to a permutation of the projection's columns.
    """

    def __init__(self, width: int, layout: str = "interleaved", base: float = 10000.0) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"rotary positions turn pairs of coordinates: head width {width} is odd")
        if layout not in ("interleaved", "halves"):
            raise ValueError(f'layout is "interleaved" or "halves", not "{layout}"')
        self.width, self.layout, self.base = width, layout, base

    def rotate(self, x_BHTK: Tensor, positions: Positions, memo: Memo | None = None) -> Tensor:
        dtype = torch.promote_types(x_BHTK.dtype, torch.float32)
        cos, sin = once(memo, (*self.kind, dtype), lambda: self.angles(index_of(positions), dtype))
        if self.layout == "interleaved":
            even, odd = x_BHTK.unflatten(-1, (-1, 2)).unbind(-1)
            turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
        else:
            first, second = x_BHTK.chunk(2, dim=-1)
            turned = torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
        return turned.to(x_BHTK.dtype)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Two of one kind turn by the same angles."""
        return "rotary", self.width, self.base

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """By how much each pair is turned from one position to the next, in fp64."""
        return frequencies(self.width, base=self.base, device=device)

    def angles(self, index: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin of position * frequency, shaped to multiply [B, H, T, K/2]."""
        angles = index.clamp(min=0).to(torch.float64)[..., None] * self.frequencies(index.device)
        angles = angles[:, None] if index.ndim == 2 else angles
        return angles.cos().to(dtype), angles.sin().to(dtype)


@dataclass(frozen=True)
class LinearScaling:
    """Every frequency divided: positions `factor` times as far away look as near as before (Chen et al. 2023)."""

    factor: float

    def __call__(self, w: Tensor) -> Tensor:
        return w / self.factor


@dataclass(frozen=True)
class Llama3Scaling:
    """Divided where a turn is longer than original / low positions, kept where it is shorter than original / high,
    and in between something in between (LLaMA 3; Grattafiori et al. 2024)."""

    factor: float
    low: float
    high: float
    original: int  # the longest text that the model was trained on before

    def __call__(self, w: Tensor) -> Tensor:
        turns = self.original * w / (2 * math.pi)  # within the original length
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return kept * w + (1 - kept) * w / self.factor


class StretchedRotary(Rotary):
    """Rotary positions of a model made to read longer texts than it was first trained on, by turning less."""

    def __init__(
        self,
        width: int,
        stretch: LinearScaling | Llama3Scaling,
        layout: str = "interleaved",
        base: float = 10000.0,
    ) -> None:
        super().__init__(width, layout, base)
        self.stretch = stretch

    @property
    def kind(self) -> tuple[Any, ...]:
        return "rotary", self.width, self.base, self.stretch

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        return self.stretch(super().frequencies(device))


POSITIONS: dict[str, type[Position]] = {
    "none": NoPosition,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "shaw": Shaw,
    "structural-absolute": StructuralAbsolute,
    "structural-relative": StructuralRelative,
    "transformer-xl": TransformerXL,
    "rotary": Rotary,
    "alibi": ALiBi,
    "t5": T5Buckets,
}
