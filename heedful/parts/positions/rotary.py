"""Rotary positions: order lies in the angle between query and key (Su et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from .absolute import frequencies
from .base import Memo, Position, Positions, PositionSizes, index_of, once


class Rotary(Position):
    """Turn each pair of coordinates by position * w_i: q . k then depends on distance only (Su et al. 2021).

    Args:
        width: Numbers of a query.
        layout: Which coordinates make a pair: "interleaved" (0 1)(2 3).. as in the paper, or "halves"
            (0 K/2)(1 K/2+1).. as in LLaMA; the same up to a permutation of the projection's columns.
        base: As in `frequencies`.

    Example:
        >>> q = torch.tensor([[[[1.0, 0.0]]]])
        >>> Rotary(2).rotate(q, torch.tensor([1]))  # by one radian
        tensor([[[[0.5403, 0.8415]]]])
    """

    def __init__(self, width: int, layout: str = "interleaved", base: float = 10000.0) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"rotary positions turn pairs of coordinates: head width {width} is odd")
        if layout not in ("interleaved", "halves"):
            raise ValueError(f'layout is "interleaved" or "halves", not "{layout}"')
        self.width, self.layout, self.base = width, layout, base

    @classmethod
    def build(cls, sizes: PositionSizes) -> Rotary:
        return cls(sizes.key_width)

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
    """Every frequency divided by `factor`: far positions look nearer (Chen et al. 2023b).

    Attributes:
        factor: How much longer texts become.

    Example:
        >>> LinearScaling(factor=4.0).factor
        4.0
    """

    factor: float
    magnitude: ClassVar[float] = 1.0

    def __call__(self, w: Tensor) -> Tensor:
        return w / self.factor


@dataclass(frozen=True)
class Llama3Scaling:
    """LLaMA 3's scaling (Grattafiori et al. 2024): low frequencies divided, high ones kept.

    A frequency is divided if its turn is longer than original / low positions, kept if it is shorter than
    original / high, and interpolated in between.

    Attributes:
        factor: How much longer texts become.
        low: See above.
        high: See above.
        original: Positions that the model was first trained on.

    Example:
        >>> Llama3Scaling(factor=8.0, low=1.0, high=4.0, original=8192).original
        8192
    """

    factor: float
    low: float
    high: float
    original: int  # the longest text that the model was trained on before
    magnitude: ClassVar[float] = 1.0

    def __call__(self, w: Tensor) -> Tensor:
        turns = self.original * w / (2 * math.pi)  # within the original length
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return kept * w + (1 - kept) * w / self.factor


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): fast pairs are kept, slow pairs are divided by `factor`, with a ramp between.

    A pair is kept if it turns more than `fast` times within the original length, and divided if it turns less
    than `slow` times.

    Attributes:
        factor: How much longer texts become.
        fast: See above.
        slow: See above.
        original: Positions that the model was first trained on.
        base: As in `frequencies`.
        whole: Whether the ends of the ramp are rounded to whole pairs.
        magnitude: Factor of queries and keys, which makes attention sharper.

    Example:
        >>> YarnScaling(factor=4.0, fast=32.0, slow=1.0, original=4096, base=10000.0).magnitude
        1.0
    """

    factor: float
    fast: float
    slow: float
    original: int  # the longest text that the model was trained on before
    base: float  # of the frequencies
    whole: bool = True  # whether the ramp begins and ends at a whole pair
    magnitude: float = 1.0

    def __call__(self, w: Tensor) -> Tensor:
        first, last = self.ramp(2 * len(w))
        pairs = torch.arange(len(w), dtype=w.dtype, device=w.device)
        divided = ((pairs - first) / (last - first)).clamp(0, 1)
        return divided * w / self.factor + (1 - divided) * w

    def ramp(self, width: int) -> tuple[float, float]:
        """The last pair that is kept, and the first that is divided by the whole factor."""
        first, last = self.pair_of(self.fast, width), self.pair_of(self.slow, width)
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        return first, last + 0.001 if first == last else last

    def pair_of(self, turns: float, width: int) -> float:
        """Which pair turns so many times within the original length: w_i = base^(-2i/width), solved for i."""
        return width * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.base))


@dataclass(frozen=True)
class LongRopeScaling:
    """LongRoPE (Ding et al. 2024): every frequency is divided by a factor of its own, found by search.

    These are the factors for texts up to the original length. Longer texts have other factors.

    Attributes:
        factors: One for each frequency.
        magnitude: Factor of queries and keys.

    Example:
        >>> LongRopeScaling(factors=(1.0, 1.5)).magnitude
        1.0
    """

    factors: tuple[float, ...]
    magnitude: float = 1.0

    def __call__(self, w: Tensor) -> Tensor:
        return w / torch.tensor(self.factors, dtype=w.dtype, device=w.device)


Scaling = LinearScaling | Llama3Scaling | YarnScaling | LongRopeScaling


class StretchedRotary(Rotary):
    """Rotary positions of a model made to read longer texts than it was first trained on, by turning less.

    Args:
        width: Numbers of a query.
        stretch: How frequencies are divided: `LinearScaling`, `Llama3Scaling`, `YarnScaling` or
            `LongRopeScaling`.
        layout: As in `Rotary`.
        base: As in `frequencies`.

    Example:
        >>> q, near, far = torch.ones(1, 1, 1, 4), torch.tensor([1]), torch.tensor([2])
        >>> stretched = StretchedRotary(4, LinearScaling(factor=2.0)).rotate(q, far)
        >>> bool(torch.allclose(stretched, Rotary(4).rotate(q, near)))
        True
    """

    def __init__(
        self,
        width: int,
        stretch: Scaling,
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

    def angles(self, index: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        cos, sin = super().angles(index, dtype)
        m = self.stretch.magnitude
        return (cos, sin) if m == 1 else (cos * m, sin * m)


class PartialRotary(Position):
    """Rotary positions in the first coordinates of each head; the others have none (GPT-J, GPT-NeoX, Phi).

    Args:
        rotary: What turns the first coordinates; its width says how many.

    Example:
        >>> PartialRotary(Rotary(2)).rotate(torch.ones(1, 1, 1, 4), torch.tensor([1]))[..., 2:]
        tensor([[[[1., 1.]]]])
    """

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.rotary = rotary

    def rotate(self, x_BHTK: Tensor, positions: Positions, memo: Memo | None = None) -> Tensor:
        turned, kept = x_BHTK.tensor_split([self.rotary.width], dim=-1)
        return torch.cat([self.rotary.rotate(turned, positions, memo), kept], dim=-1)


def rotary_of(width: int, turned: int, layout: str, base: float = 10000.0) -> Rotary | PartialRotary:
    """Rotary positions in the first `turned` coordinates of heads of this width."""
    rotary = Rotary(turned, layout, base)
    return rotary if turned == width else PartialRotary(rotary)


SCHEMES: dict[str, type[Position]] = {
    "rotary": Rotary,
}
