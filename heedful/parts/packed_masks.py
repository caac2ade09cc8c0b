"""Masks of packed rows: several documents share a row, and none sees another's tokens."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .masks import Mask


@dataclass(frozen=True, eq=False)
class Document(Mask):
    """Positions of the same document, for rows that pack several: ids[b, position] names the document."""

    ids: Tensor
    sparse = True
    sees_self = True

    @property
    def batch(self) -> int | None:
        return len(self.ids)

    @property
    def longest(self) -> int | None:
        return self.ids.shape[1]

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return self.ids[b, q.clamp(min=0)] == self.ids[b, k.clamp(min=0)]

    def __repr__(self) -> str:
        return f"Document(ids={self.ids.tolist()})"


@dataclass(frozen=True, eq=False)
class Across(Mask):
    """A packed source: queries of a document see the document of the same number in another packed row.

    query_ids[b, position] and key_ids[b, position] name the documents; -1 is padding, which nobody sees.
    """

    query_ids: Tensor
    key_ids: Tensor

    @property
    def batch(self) -> int | None:
        return len(self.query_ids)

    @property
    def longest(self) -> int | None:
        return min(self.query_ids.shape[1], self.key_ids.shape[1])

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        key = self.key_ids[b, k.clamp(min=0)]
        return (self.query_ids[b, q.clamp(min=0)] == key) & (key >= 0)

    def __repr__(self) -> str:
        return f"Across(query_ids={self.query_ids.tolist()}, key_ids={self.key_ids.tolist()})"


@dataclass(frozen=True, eq=False)
class FromStart(Mask):
    """A rule whose blocks begin where documents do: starts[b, position] is the start of its document."""

    mask: Mask
    starts: Tensor

    @property
    def batch(self) -> int | None:
        return len(self.starts)

    @property
    def by_head(self) -> bool:
        return self.mask.by_head

    @property
    def longest(self) -> int | None:
        return self.starts.shape[1]

    @property
    def past_only(self) -> bool:
        return self.mask.past_only

    @property
    def sees_self(self) -> bool:
        return self.mask.sees_self

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        q, k = (place - self.starts[b, place.clamp(min=0)] for place in (q, k))
        return self.mask.allows(b, h, q, k)

    def __repr__(self) -> str:
        return f"FromStart({self.mask!r}, starts={self.starts.tolist()})"


def document(ids: Tensor) -> Mask:
    """Packed rows: tokens of one document see each other only.

    Args:
        ids: The document of each position, [B, T].

    Returns:
        The rule.

    Example:
        >>> print(document(torch.tensor([[0, 0, 1]])).picture(3))
         ■ ■ ·
         ■ ■ ·
         · · ■
    """
    return Document(ids)


def across(query_ids: Tensor, key_ids: Tensor) -> Mask:
    """Packed rows of a target and of its source: documents of the same number belong together.

    Args:
        query_ids: The document of each position of the target, [B, T].
        key_ids: The document of each position of the source, [B, S].

    Returns:
        The rule.

    Example:
        >>> across(torch.tensor([[0, 1]]), torch.tensor([[0, 1]])).table(2)
        [[True, False], [False, True]]
    """
    return Across(query_ids, key_ids)
