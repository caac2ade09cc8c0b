"""Masks: who may look at whom.

A `Mask` is a rule over (batch row, head, query position, key position); True means "may attend".
Rules combine with `&` and `|`, print as a small picture, and stay symbolic until a kernel asks for
a form it can use: a boolean tensor (`dense`) or a FlexAttention predicate (`flex`).

Positions are explicit: caches, unequal prompts and packed rows are then no special cases.
Position -1 means "nobody is here" (padding, an empty cache slot) and no rule lets anyone attend to it; what a
query at -1 gets is for nobody to read. A query that may attend to nobody gets output 0 and gradient 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from .mask_picture import mask_svg
from .notebooks import framed

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Mask(ABC):
    """A rule: may the query at position q, in batch row b and head h, attend to the key at position k?

    Rules combine with `&` and `|`, and print as a small picture. Position -1 means that nobody is there.

    Example:
        >>> print((causal() & window(2)).picture(4))
         ■ · · ·
         ■ ■ · ·
         · ■ ■ ·
         · · ■ ■
        >>> causal().table(2)
        [[True, False], [True, True]]
        >>> class Even(Mask):
        ...     def allows(self, b, h, q, k):
        ...         return k % 2 == 0
        >>> bool(Even().allows(*torch.tensor([0, 0, 3, 2])))  # row, head, query, key
        True
    """

    @property
    def batch(self) -> int | None:
        """Rows the rule tells apart; None if it is the same for every row."""
        return None

    @property
    def by_head(self) -> bool:
        """Whether heads differ."""
        return False

    @property
    def longest(self) -> int | None:
        """Positions the rule knows about; None if any."""
        return None

    @property
    def sparse(self) -> bool:
        """Whether whole blocks of the score table stay empty, so that a block-sparse kernel pays."""
        return False

    @property
    def past_only(self) -> bool:
        """Whether nobody sees what comes after: padding at the end of a row is then hidden already."""
        return False

    @property
    def by_place(self) -> bool:
        """Whether it matters where a text begins, and not only how far apart two tokens are."""
        return False

    @abstractmethod
    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """The rule itself, elementwise over tensors that broadcast together.

        Args:
            b: Batch rows.
            h: Heads.
            q: Positions of queries.
            k: Positions of keys.

        Returns:
            Booleans: True means "may attend".
        """

    @property
    def sees_self(self) -> bool:
        """Whether every query may at least attend to its own position, so that no row is empty."""
        return False

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented
        return AllOf((*_members(self, AllOf), *_members(other, AllOf)))

    def __or__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented
        return AnyOf((*_members(self, AnyOf), *_members(other, AnyOf)))

    def dense(self, q_pos: Tensor, k_pos: Tensor, heads: int = 1) -> Tensor:
        """The rule as a boolean tensor.

        Args:
            q_pos: Positions of queries, [T] or [B, T].
            k_pos: Positions of keys, [S] or [B, S].
            heads: Number of heads.

        Returns:
            Booleans that broadcast to [B, H, T, S].

        Example:
            >>> causal().dense(torch.tensor([2]), torch.arange(4)).shape
            torch.Size([1, 1, 1, 4])
        """
        q_B1T1 = torch.atleast_2d(q_pos)[:, None, :, None]
        k_B11S = torch.atleast_2d(k_pos)[:, None, None, :]
        b = torch.arange(self.batch or 1, device=q_pos.device)[:, None, None, None]
        h = torch.arange(heads if self.by_head else 1, device=q_pos.device)[None, :, None, None]
        return self.allows(b, h, q_B1T1, k_B11S) & (k_B11S >= 0)

    def flex(self, q_pos: Tensor, k_pos: Tensor) -> Predicate:
        """The rule as FlexAttention wants it: over slots, which are looked up as positions."""
        q_BT, k_BS = torch.atleast_2d(q_pos), torch.atleast_2d(k_pos)
        q_rows, k_rows = len(q_BT), len(k_BS)

        def mask_mod(b: Tensor, h: Tensor, q_slot: Tensor, k_slot: Tensor) -> Tensor:
            q = q_BT[b if q_rows > 1 else 0, q_slot]
            k = k_BS[b if k_rows > 1 else 0, k_slot]
            return self.allows(b, h, q, k) & (k >= 0)

        return mask_mod

    def table(self, size: int, row: int = 0, head: int = 0) -> list[list[bool]]:
        """The first `size` positions of one batch row and head, queries downwards and keys across.

        Args:
            size: Number of positions.
            row: The batch row.
            head: The head.

        Returns:
            Rows of booleans.
        """
        size = min(size, self.longest or size)
        here = torch.arange(size)
        allowed = self.dense(here, here, head + 1)
        allowed = allowed.expand(max(row + 1, len(allowed)), max(head + 1, allowed.shape[1]), size, size)
        return allowed[row, head].tolist()

    def picture(self, size: int = 8, row: int = 0, head: int = 0, words: Sequence[str] = ()) -> str:
        """The same table for a terminal.

        Args:
            size: Number of positions.
            row: The batch row.
            head: The head.
            words: The tokens at the positions, which then begin the lines; they replace `size`.

        Returns:
            A line for each query, with ■ for a key that it may attend to and · for any other.

        Example:
            >>> print(causal().picture(words=["The", "cat", "sleeps"]))
               The ■ · ·
               cat ■ ■ ·
            sleeps ■ ■ ■
        """
        rows = self.table(len(words) or size, row, head)
        wide = max(map(len, words), default=0)
        names = [f"{word:>{wide}}" for word in words] or [""] * len(rows)
        marks = ["".join(" ■" if yes else " ·" for yes in line) for line in rows]
        return "\n".join(name + line for name, line in zip(names, marks, strict=False))

    def svg(self, size: int = 12, row: int = 0, head: int = 0, words: Sequence[str] = ()) -> str:
        """The same table as the text of an SVG file, with the positions of queries and keys, or their words.

        Args:
            size: Number of positions.
            row: The batch row.
            head: The head.
            words: The tokens at the positions; they replace `size`.

        Returns:
            The text.

        Example:
            >>> causal().svg(words=["The", "cat", "sleeps"])[:4]
            '<svg'
        """
        which = [f"row {row} of {self.batch}"] if self.batch else []
        which += [f"head {head}; heads differ"] if self.by_head else []
        allowed, title = self.table(len(words) or size, row, head), " ".join(repr(self).split())
        return mask_svg(allowed, title, ", ".join(which), words)

    def html(self, size: int = 12, row: int = 0, head: int = 0) -> str:
        """The same picture for a notebook."""
        return framed(self.svg(size, row, head))

    def __str__(self) -> str:
        return f"{self!r}\n{self.picture()}"

    def _repr_html_(self) -> str:
        return self.html()


@dataclass(frozen=True)
class Full(Mask):
    """Everyone sees everyone: an encoder without padding."""

    sees_self = True

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) | (q < k)  # True in the shape of the pair, also under vmap


@dataclass(frozen=True)
class Causal(Mask):
    """Nobody sees the future: k <= q. Strict leaves out the query's own position too: k < q.

    The strict form is the lecture's shifted one (its first row is empty); the other is the default.
    """

    strict: bool = False
    past_only = True

    @property
    def sees_self(self) -> bool:
        return not self.strict

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k < q if self.strict else k <= q


@dataclass(frozen=True)
class Window(Mask):
    """Neighbors closer than `width` positions on either side; `causal() & window(w)` for the past only."""

    width: int
    sparse = True
    sees_self = True

    def __post_init__(self) -> None:
        at_least_one(width=self.width)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q - k < self.width) & (k - q < self.width)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """Keys before each row's length: the rest of the row is padding."""

    lengths: Tensor

    @property
    def batch(self) -> int | None:
        return len(self.lengths)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k < self.lengths[b]

    def __repr__(self) -> str:
        return f"Padding(lengths={self.lengths.tolist()})"


@dataclass(frozen=True)
class Combined(Mask):
    """Several rules at once; the kind of combination is the subclass."""

    masks: tuple[Mask, ...]

    @property
    def batch(self) -> int | None:
        sizes = [m.batch for m in self.masks if m.batch is not None]
        return max(sizes) if sizes else None

    @property
    def by_head(self) -> bool:
        return any(m.by_head for m in self.masks)

    @property
    def longest(self) -> int | None:
        sizes = [m.longest for m in self.masks if m.longest is not None]
        return min(sizes) if sizes else None

    @property
    def by_place(self) -> bool:
        return any(m.by_place for m in self.masks)


class AllOf(Combined):
    """`a & b`: every rule must allow it."""

    @property
    def past_only(self) -> bool:
        return any(m.past_only for m in self.masks)

    @property
    def sparse(self) -> bool:
        return any(m.sparse for m in self.masks)

    @property
    def sees_self(self) -> bool:
        return all(m.sees_self for m in self.masks)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return reduce(torch.logical_and, [m.allows(b, h, q, k) for m in self.masks])

    def __repr__(self) -> str:
        return "(" + " & ".join(map(repr, self.masks)) + ")"


class AnyOf(Combined):
    """`a | b`: one rule that allows it is enough."""

    @property
    def past_only(self) -> bool:
        return all(m.past_only for m in self.masks)

    @property
    def sparse(self) -> bool:
        return all(m.sparse for m in self.masks)

    @property
    def sees_self(self) -> bool:
        return any(m.sees_self for m in self.masks)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return reduce(torch.logical_or, [m.allows(b, h, q, k) for m in self.masks])

    def __repr__(self) -> str:
        return "(" + " | ".join(map(repr, self.masks)) + ")"


class PerHead(Combined):
    """Different heads, different rules: head h follows masks[h mod n].

    Attributes:
        masks: The rules.

    Example:
        >>> print(PerHead((full(), causal())).picture(2, head=1))
         ■ ·
         ■ ■
    """

    @property
    def by_head(self) -> bool:
        return True

    @property
    def past_only(self) -> bool:
        return all(m.past_only for m in self.masks)

    @property
    def sparse(self) -> bool:
        return all(m.sparse for m in self.masks)

    @property
    def sees_self(self) -> bool:
        return all(m.sees_self for m in self.masks)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        n = len(self.masks)
        return reduce(
            torch.logical_or, [(h % n == i) & m.allows(b, h, q, k) for i, m in enumerate(self.masks)]
        )

    def __repr__(self) -> str:
        return f"PerHead{self.masks!r}"


def at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, not {size}")


def _members(mask: Mask, kind: type[Combined]) -> tuple[Mask, ...]:
    return mask.masks if isinstance(mask, kind) else (mask,)


def full() -> Mask:
    """Everyone sees everyone.

    Returns:
        The rule.

    Example:
        >>> full().table(2)
        [[True, True], [True, True]]
    """
    return Full()


def causal(strict: bool = False) -> Mask:
    """Nobody sees the future.

    Args:
        strict: Nobody sees themselves either: the lecture's shifted form.

    Returns:
        The rule.

    Example:
        >>> print(causal().picture(3))
         ■ · ·
         ■ ■ ·
         ■ ■ ■
    """
    return Causal(strict)


def padding(lengths: Tensor) -> Mask:
    """Only real tokens are seen, at the start of each row.

    Args:
        lengths: Number of real tokens of each row, [B].

    Returns:
        The rule.

    Example:
        >>> print(padding(torch.tensor([3, 2])).picture(3, row=1))
         ■ ■ ·
         ■ ■ ·
         ■ ■ ·
    """
    return Padding(lengths)


def window(width: int) -> Mask:
    """Neighbors closer than `width`; with `causal()`, the sliding window k > q - width.

    Args:
        width: Positions on either side, with one's own.

    Returns:
        The rule.

    Example:
        >>> print(window(2).picture(3))
         ■ ■ ·
         ■ ■ ■
         · ■ ■
    """
    return Window(width)


def prefix(lengths: Tensor) -> Mask:
    """Prefix language model: the first tokens are seen by all, the rest is causal.

    Args:
        lengths: Number of first tokens of each row, [B].

    Returns:
        The rule.

    Example:
        >>> print(prefix(torch.tensor([2])).picture(3))
         ■ ■ ·
         ■ ■ ·
         ■ ■ ■
    """
    return causal() | padding(lengths)
