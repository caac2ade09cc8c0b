"""Places: where the tokens of a batch stand, said in one of four ways.

model(tokens_BT)                        # in order: token t of every row stands at t
model(tokens_BT, Lengths(lengths_B))    # each row ends in padding
model(tokens_BT, Packed(documents_BT))  # several documents in a row, which do not see each other
model(tokens_BT, At(positions))         # exactly there; -1 is padding
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .cache import Cache, check_rows
from .masks import Mask, full
from .packed_masks import FromStart, across, document
from .positions.base import Positions, index_of
from .view import View, right_padded


class Places:
    """Where tokens stand. The defaults are those of tokens in order."""

    restarts: ClassVar[bool] = (
        False  # whether each document counts from 0: a row may outgrow a position table
    )

    def check_rows(self, B: int) -> None:
        """Refuse places of another number of rows than the tokens have."""

    def positions(self, T: int, past_only: bool = False) -> Positions | None:
        """The positions of T tokens a row, -1 for padding; None if plainly in order.

        past_only: nobody sees what comes after, so padding at the end of a row is hidden already.
        """
        return None

    def after(self, cache: Cache, T: int) -> Positions | None:
        """The positions of T tokens that follow those in a cache."""
        return cache.next_positions(T)

    def apart(self, masks: Sequence[Mask], T: int) -> tuple[Sequence[Mask], Positions | None]:
        """Masks that keep documents apart, and the positions of embeddings; None: those of the queries."""
        return masks, None

    def real(self, T: int) -> Tensor | None:
        """Which tokens are no padding [B, T]; None if all are."""
        positions = self.positions(T)
        return None if positions is None else index_of(positions) >= 0

    def sees(self, source: Places) -> Mask:
        """Which tokens of a source these may attend to."""
        return full()


class InOrder(Places):
    """Token t of every row stands at t."""


IN_ORDER = InOrder()


@dataclass(frozen=True, eq=False)
class Lengths(Places):
    """Rows with padding at the end: lengths[b] tokens of row b are real.

    Attributes:
        lengths_B: Number of real tokens of each row.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> model(torch.tensor([[5, 7, 9], [4, 6, 0]]), Lengths(torch.tensor([3, 2]))).shape
        torch.Size([2, 3, 1028])
    """

    lengths_B: Tensor

    def check_rows(self, B: int) -> None:
        check_rows(len(self.lengths_B), B, "the batch of tokens")

    def positions(self, T: int, past_only: bool = False) -> Tensor | None:
        return None if past_only else right_padded(self.lengths_B, T)

    def after(self, cache: Cache, T: int) -> Tensor | None:
        return cache.next_positions(T, self.lengths_B)

    def apart(self, masks: Sequence[Mask], T: int) -> tuple[Sequence[Mask], Tensor]:
        # Nobody sees the vectors of padding, so embeddings may take all rows to be in order.
        return masks, torch.arange(T, device=self.lengths_B.device)


@dataclass(frozen=True, eq=False)
class Packed(Places):
    """Rows of several documents, which do not see each other.

    A document is a run: the same number again later in the row is another one.

    Attributes:
        documents_BT: The document that each token belongs to, -1 in the padding.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> model(torch.tensor([[5, 7, 4, 6]]), Packed(torch.tensor([[0, 0, 1, 1]]))).shape
        torch.Size([1, 4, 1028])
    """

    documents_BT: Tensor

    restarts = True

    def check_rows(self, B: int) -> None:
        check_rows(len(self.documents_BT), B, "the batch of tokens")

    def after(self, cache: Cache, T: int) -> Positions | None:
        raise ValueError("a row of several documents cannot be decoded with a cache: give each its own row")

    def apart(self, masks: Sequence[Mask], T: int) -> tuple[Sequence[Mask], Tensor]:
        changes_BT = torch.ones_like(self.documents_BT, dtype=torch.bool)
        changes_BT[:, 1:] = self.documents_BT[:, 1:] != self.documents_BT[:, :-1]
        slots_T = torch.arange(T, device=self.documents_BT.device)
        starts_BT = torch.where(changes_BT, slots_T, 0).cummax(-1).values
        masks = [FromStart(mask, starts_BT) if mask.by_place else mask for mask in masks]
        return [mask & document(changes_BT.cumsum(-1)) for mask in masks], slots_T - starts_BT

    def real(self, T: int) -> Tensor:
        return self.documents_BT >= 0

    def sees(self, source: Places) -> Mask:
        return across(self.documents_BT, source.documents_BT) if isinstance(source, Packed) else full()


@dataclass(frozen=True, eq=False)
class At(Places):
    """Tokens at given positions, -1 for padding; perhaps with the sentence's dependency tree.

    Attributes:
        where: The positions, [T] or [B, T], or a `Tree`.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> model(torch.tensor([[5, 7]]), At(torch.tensor([[0, 3]]))).shape
        torch.Size([1, 2, 1028])
    """

    where: Positions

    def positions(self, T: int, past_only: bool = False) -> Positions:
        return self.where

    def after(self, cache: Cache, T: int) -> Positions:
        return self.where


@dataclass(frozen=True, eq=False)
class Source:
    """What an encoder made of a source.

    Attributes:
        vectors_BSD: Its vectors.
        places: Where its tokens stand.

    Example:
        >>> Source(torch.zeros(1, 5, 8)).vectors_BSD.shape
        torch.Size([1, 5, 8])
    """

    vectors_BSD: Tensor
    places: Places = IN_ORDER

    @property
    def positions(self) -> Tensor | None:
        """Positions of the source's tokens, -1 for padding; None if plainly in order."""
        positions = self.places.positions(self.vectors_BSD.shape[1])
        return None if positions is None else index_of(positions)

    def view(self, places: Places, q_pos: Positions, T: int) -> View:
        """The view that T tokens at these places have of the source."""
        S, device = self.vectors_BSD.shape[1], self.vectors_BSD.device
        return View(places.sees(self.places), T, S, device, q_pos, self.positions)
