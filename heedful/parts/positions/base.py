"""Positions: where order enters the model.

Attention by itself sees a set: shuffle the keys and nothing changes. A `Position` puts order back in one
of four places, and most schemes use just one: `embed` (absolute encodings, at the input), `rotate`
(rotary, on queries and keys), `bias` (relative schemes, added to the scores), `values` (Shaw, added to
the output). Everything here is given positions; nothing counts slots, so padding and caches need no care.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import BadInput


@dataclass(frozen=True)
class Tree:
    """Positions that also know the sentence's dependency tree: heads[b, w] is the word that word w hangs on.

    The root is its own head (index equal to its own) or -1. Where words are cut into pieces, words[b, t] is
    the word that token t belongs to: all pieces of a word have its place in the tree.
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


@dataclass(frozen=True)
class PositionSizes:
    """What a Transformer tells the scheme that it is built with."""

    width: int
    heads: int
    key_width: int
    value_width: int
    context: int = 1024  # the longest sequence, of a learned table
    own_width: int = 1  # of encodings that have coordinates of their own
    layout: str = "interleaved"  # of sinusoids
    precision: str = "float32"  # that sinusoids are rounded to
    clip: int = 16  # greater distances count as this one
    buckets: int = 32  # of distances
    both_ways: bool = True  # whether a token sees those after it
    scope: str = "edge"  # which words of a tree are related


class Position(nn.Module):
    """The places where order can enter; a scheme overrides the ones it uses. This class itself uses none.

    A scheme that a Transformer can choose by name says where it goes (`place`) and makes itself (`build`).

    Attributes:
        without_tree: The scheme that reads texts without trees in the place of one that needs them.
        longest: The number of positions, if they end.

    Example:
        >>> class Nearer(Position):
        ...     def bias(self, q_BHTK, k_BGSK, q_pos, k_pos, memo=None):
        ...         return -(q_pos[:, None] - k_pos[None, :]).abs().float()
        >>> q = k = torch.zeros(1, 1, 2, 4)
        >>> Nearer().bias(q, k, torch.arange(2), torch.arange(2))
        tensor([[-0., -1.],
                [-1., -0.]])
        >>> x = torch.ones(1, 2, 4)
        >>> Nearer().embed(x, torch.arange(2)) is x and Nearer().rotate(q, torch.arange(2)) is q
        True
        >>> Nearer().values(torch.ones(1, 1, 2, 2), torch.arange(2), torch.arange(2)) is None
        True
    """

    place = "attention"  # or "input"
    one_for_all = False  # whether all layers share one, and not only one of a kind
    without_tree: type[Position] | None = None  # for texts without one, if it needs a tree
    added_width = 0  # how much `embed` widens its input (only concatenation does)
    longest: int | None = None  # the last position it knows, plus one (most know any)
    limit = "the learned position table"  # what ends there
    uses_values = False  # whether `values` needs the attention weights, which no fused kernel hands out
    needs_tree = False  # whether positions must be a `Tree` (only those from syntax)

    @classmethod
    def build(cls, sizes: PositionSizes) -> Position:
        return cls()

    def embed(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        """Order at the input: called once, on the embeddings.

        Args:
            x_BTD: Embeddings.
            positions: Where they stand.

        Returns:
            Embeddings that know their positions.
        """
        return x_BTD

    def rotate(self, x_BHTK: Tensor, positions: Positions, memo: Memo | None = None) -> Tensor:
        """Order in queries and keys: called on each before their product.

        Args:
            x_BHTK: Queries or keys.
            positions: Where they stand.
            memo: Remembers tables between the layers of one forward pass.

        Returns:
            Queries or keys that know their positions.
        """
        return x_BHTK

    def bias(
        self, q_BHTK: Tensor, k_BGSK: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor | None:
        """Order in the scores: added after scaling.

        Args:
            q_BHTK: Queries.
            k_BGSK: Keys.
            q_pos: Where the queries stand.
            k_pos: Where the keys stand.
            memo: Remembers tables between the layers of one forward pass.

        Returns:
            A bias that broadcasts to [B, H, T, S]; None: no bias.
        """
        return None

    def values(
        self, weights_BHTS: Tensor, q_pos: Positions, k_pos: Positions, memo: Memo | None = None
    ) -> Tensor | None:
        """Order in the output: added to the weighted values.

        Args:
            weights_BHTS: Attention weights.
            q_pos: Where the queries stand.
            k_pos: Where the keys stand.
            memo: Remembers tables between the layers of one forward pass.

        Returns:
            Vectors [B, H, T, L]; None: nothing.
        """
        return None


class NoPosition(Position):
    """No order: the model sees a bag of words (or gets order from the causal mask alone).

    Example:
        >>> x = torch.ones(1, 2, 4)
        >>> NoPosition().embed(x, torch.arange(2)) is x
        True
    """


class UpTo(NoPosition):
    """No order at the input, and an end: for models whose attention knows positions up to some length."""

    longest: int

    def __init__(self, longest: int, limit: str) -> None:
        super().__init__()
        self.longest, self.limit = longest, limit

    def embed(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        index = index_of(positions)
        if index.device.type == "cpu" and not torch.compiler.is_compiling() and index.numel():
            check_length(int(index.max()) + 1, self)
        return x_BTD


def check_length(size: int, position: Position) -> None:
    """Refuse a sequence that a learned table cannot hold."""
    if position.longest is not None and size > position.longest:
        raise BadInput(
            f"a sequence of {size} tokens does not fit {position.limit} of {position.longest}: "
            f"shorten it, or use a model with a longer {position.limit.split()[-1]}"
        )


def need_tree(positions: Positions) -> Tree:
    if not isinstance(positions, Tree):
        raise TypeError(
            "positions from syntax need the sentence's tree: give it, as positions=Tree(index, heads)"
        )
    return positions
