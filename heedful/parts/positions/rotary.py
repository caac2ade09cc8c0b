"""Rotary positions: order lies in the angle between query and key (Su et al. 2021)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .absolute import frequencies
from .base import Memo, Position, Positions, PositionSizes, index_of, once


class Rotary(Position):
    """Turn each pair of coordinates by position * w_i: q .

    k then depends on the distance only (Su et al. 2021).

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
    """Every frequency divided by `factor`: far positions look nearer (Chen et al. 2023)."""

    factor: float

    def __call__(self, w: Tensor) -> Tensor:
        return w / self.factor


@dataclass(frozen=True)
class Llama3Scaling:
    """LLaMA 3's scaling (Grattafiori et al. 2024): low frequencies divided, high ones kept.

    A frequency is divided if its turn is longer than original / low positions, kept if it is shorter than
    original / high, and interpolated in between.
    """

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


SCHEMES: dict[str, type[Position]] = {
    "rotary": Rotary,
}
