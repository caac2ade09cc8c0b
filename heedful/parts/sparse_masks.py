"""Masks of the Sparse Transformer (Child et al. 2019): each word attends to a few selected words.

Two steps, of two layers or two heads, connect all words: near ones first, then one of each stretch.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .masks import Mask, at_least_one, causal, window


@dataclass(frozen=True)
class EveryNth(Mask):
    """Positions a whole number of strides apart (Child et al. 2019, the second strided step)."""

    stride: int
    sees_self = True

    def __post_init__(self) -> None:
        at_least_one(stride=self.stride)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q - k) % self.stride == 0


@dataclass(frozen=True)
class SameBlock(Mask):
    """Positions in the same block of `length` (local attention; the first fixed step of Child et al. 2019).

    look_back: how many blocks farther one may look (tensor2tensor's local attention has 1).
    """

    length: int
    look_back: int = 0
    by_place = True
    sparse = True
    sees_self = True

    def __post_init__(self) -> None:
        at_least_one(length=self.length)

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q // self.length - k // self.length).abs() <= self.look_back


@dataclass(frozen=True)
class BlockTail(Mask):
    """Keys among the last `tail` of each block of `length`; head groups take sub-blocks of their own."""

    length: int
    tail: int
    head_groups: int = 1
    by_place = True

    def __post_init__(self) -> None:
        at_least_one(length=self.length, tail=self.tail, head_groups=self.head_groups)
        if self.tail * self.head_groups > self.length:
            raise ValueError(f"{self.head_groups} tails of {self.tail} do not fit a block of {self.length}")

    @property
    def by_head(self) -> bool:
        return self.head_groups > 1

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        from_end = self.length - 1 - k % self.length + 0 * q
        return from_end // self.tail == h % self.head_groups


def strided_steps(stride: int) -> tuple[Mask, Mask]:
    """Both steps of the strided pattern: the last `stride` positions, and every stride-th one.

    Args:
        stride: About the square root of the length.

    Returns:
        The two rules, for two layers or two heads.

    Example:
        >>> near, far = strided_steps(2)
        >>> print(far.picture(4))
         ■ · · ·
         · ■ · ·
         ■ · ■ ·
         · ■ · ■
    """
    return causal() & window(stride + 1), causal() & EveryNth(stride)


def strided(stride: int) -> Mask:
    """Both strided steps merged into one head.

    Args:
        stride: About the square root of the length.

    Returns:
        The rule.

    Example:
        >>> print(strided(2).picture(4))
         ■ · · ·
         ■ ■ · ·
         ■ ■ ■ ·
         · ■ ■ ■
    """
    near, far = strided_steps(stride)
    return near | far


def fixed_steps(length: int, tail: int, head_groups: int = 1) -> tuple[Mask, Mask]:
    """Both steps of the fixed pattern: the own block so far, and the last `tail` of every block.

    Args:
        length: Positions of a block.
        tail: Positions at its end that all later ones see.
        head_groups: Groups of heads that take tails of their own.

    Returns:
        The two rules, for two layers or two heads.

    Example:
        >>> own, ends = fixed_steps(2, 1)
        >>> print(ends.picture(4))
         · · · ·
         · ■ · ·
         · ■ · ·
         · ■ · ■
    """
    return causal() & SameBlock(length), causal() & BlockTail(length, tail, head_groups)


def fixed(length: int, tail: int, head_groups: int = 1) -> Mask:
    """Both fixed steps merged into one head.

    Args:
        length: Positions of a block.
        tail: Positions at its end that all later ones see.
        head_groups: Groups of heads that take tails of their own.

    Returns:
        The rule.

    Example:
        >>> print(fixed(2, 1).picture(4))
         ■ · · ·
         ■ ■ · ·
         · ■ ■ ·
         · ■ ■ ■
    """
    own, summary = fixed_steps(length, tail, head_groups)
    return own | summary
