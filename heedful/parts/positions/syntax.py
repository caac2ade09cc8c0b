"""Positions from syntax: where a word stands in the dependency tree of its sentence."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .absolute import Absolute, Sinusoidal
from .base import Memo, Position, Positions, PositionSizes, Tree, need_tree, once
from .relative import Shaw, edge_scores, edge_values


class StructuralAbsolute(Absolute):
    """Depth in the dependency tree beside the index (Wang, Tu, Wang and Shi 2019).

    PE_i = tanh(PE(index_i) U + PE(depth_i) V), both sinusoidal. The paper says that the fusion is non-linear;
    tanh with two matrices is our reading of it.

    Args:
        width: Numbers of an encoding.

    Example:
        >>> tree = Tree(torch.arange(3), heads_BW=torch.tensor([[1, 2, -1]]))
        >>> StructuralAbsolute(4).embed(torch.zeros(1, 3, 4), tree).shape
        torch.Size([1, 3, 4])
    """

    place = "input"
    needs_tree = True
    without_tree = Sinusoidal

    @classmethod
    def build(cls, sizes: PositionSizes) -> StructuralAbsolute:
        return cls(sizes.width)

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
    """Shaw's edge vectors by distance in the sentence, plus those in the tree (Wang et al. 2019).

    Args:
        clip: As in `Shaw`.
        key_width: As in `Shaw`.
        value_width: As in `Shaw`.
        heads: As in `Shaw`.
        scope: Which pairs of words count as related: as in `structural_distances`.

    Example:
        >>> tree = Tree(torch.arange(3), heads_BW=torch.tensor([[1, 2, -1]]))
        >>> q = k = torch.randn(1, 2, 3, 8)
        >>> StructuralRelative(clip=3, key_width=8).bias(q, k, tree, tree).shape
        torch.Size([1, 2, 3, 3])
    """

    uses_values = True
    needs_tree = True
    without_tree = Shaw

    @classmethod
    def build(cls, sizes: PositionSizes) -> StructuralRelative:
        return cls(sizes.clip, sizes.key_width, sizes.value_width, sizes.heads, sizes.scope)

    def __init__(
        self, clip: int, key_width: int, value_width: int | None = None, heads: int = 1, scope: str = "edge"
    ):
        super().__init__()
        self.scope = scope
        self.sequence = Shaw(clip, key_width, value_width, heads)
        self.tree = Shaw(clip, key_width, value_width, heads)

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


SCHEMES: dict[str, type[Position]] = {
    "structural-absolute": StructuralAbsolute,
    "structural-relative": StructuralRelative,
}
