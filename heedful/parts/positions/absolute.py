"""Absolute positions: an encoding of the index, added to the embedding or concatenated to it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from .base import Position, Positions, PositionSizes, check_length, index_of


class Absolute(Position, ABC):
    """An encoding P of the position; Z + P is what the block sees."""

    place = "input"
    width: int

    @abstractmethod
    def encode(self, positions: Positions) -> Tensor:
        """[..., T] positions to [..., T, width] encodings."""

    def embed(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        return x_BTD + self.encode(positions).to(x_BTD.dtype)


class Concatenated(Position):
    """[Z ; P] instead of Z + P: the encoding has its own coordinates, and the model is that much wider.

    Args:
        encoding: The encoding P.

    Example:
        >>> Concatenated(Sinusoidal(4)).embed(torch.zeros(1, 2, 8), torch.tensor([[0, 1]])).shape
        torch.Size([1, 2, 12])
    """

    place = "input"

    @classmethod
    def build(cls, sizes: PositionSizes) -> Concatenated:
        return cls(Sinusoidal(sizes.own_width, layout=sizes.layout))

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
    """Angular frequencies w_i, i = 0 .. width/2 - 1.

    Args:
        width: Numbers of a vector.
        kind: "paper" (Vaswani et al. 2017) is base^(-2i/width). "t2t" (tensor2tensor, fairseq) is
            base^(-i/(width/2 - 1)), which ends at exactly 1/base and is no permutation of the paper's.
        base: See above.
        device: Where to make them, so that nobody has to wait for them.

    Returns:
        Frequencies [width / 2] in fp64.

    Example:
        >>> frequencies(4)
        tensor([1.0000, 0.0100], dtype=torch.float64)
    """
    i = torch.arange(width // 2, dtype=torch.float64, device=device)
    if kind == "paper":
        return base ** (-2 * i / width)
    if kind == "t2t":
        return base ** (-i / max(width // 2 - 1, 1))
    raise ValueError(f'frequencies are "paper" or "t2t", not "{kind}"')


def sinusoids(index: Tensor, w: Tensor, interleaved: bool = True) -> Tensor:
    """sin and cos of index * w, in fp64.

    Args:
        index: Positions, of any shape.
        w: Frequencies [R].
        interleaved: Sine and cosine of each frequency side by side, or all sines before all cosines.

    Returns:
        Encodings [..., 2 R].

    Example:
        >>> sinusoids(torch.tensor([0]), frequencies(4))
        tensor([[0., 1., 0., 1.]], dtype=torch.float64)
    """
    angles = index.clamp(min=0).to(torch.float64)[..., None] * w
    pair = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return (pair if interleaved else pair.mT).flatten(-2)


class Sinusoidal(Absolute):
    """Sines and cosines of falling frequency: no parameters, and PE(p + k) is a rotation of PE(p).

    Args:
        width: Numbers of an encoding.
        layout: "interleaved" as in the paper (sin, cos, sin, cos, ...) or "halves" (all sines first).
        frequencies: As the `kind` of `frequencies`.
        base: As in `frequencies`.
        precision: What the sinusoids were rounded to, in a model that kept them in a table.
        offset: Number of the first position; fairseq counts from its padding's id on.

    Example:
        >>> Sinusoidal(4).encode(torch.tensor([0, 1])).shape
        torch.Size([2, 4])
    """

    def __init__(
        self,
        width: int,
        layout: str = "interleaved",
        frequencies: str = "paper",
        base: float = 10000.0,
        precision: str = "float32",
        offset: int = 0,
    ) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"sinusoids come in pairs: width {width} is odd")
        if layout not in ("interleaved", "halves"):
            raise ValueError(f'layout is "interleaved" or "halves", not "{layout}"')
        self.width, self.layout, self.kind, self.base = width, layout, frequencies, base
        self.precision, self.offset = PRECISIONS[precision], offset

    @classmethod
    def build(cls, sizes: PositionSizes) -> Sinusoidal:
        return cls(sizes.width, layout=sizes.layout, precision=sizes.precision)

    def encode(self, positions: Positions) -> Tensor:
        index = index_of(positions).clamp(min=0) + self.offset
        w = frequencies(self.width, self.kind, self.base, index.device)
        exact = sinusoids(index, w, self.layout == "interleaved")
        return exact if self.precision == torch.float32 else exact.float().to(self.precision).double()


PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Learned(Absolute):
    """A table of one vector a position; flexible, and ends where the table ends.

    Args:
        length: Positions of the table.
        width: Numbers of a vector.

    Example:
        >>> Learned(length=16, width=4).longest
        16
    """

    @classmethod
    def build(cls, sizes: PositionSizes) -> Learned:
        return cls(sizes.context, sizes.width)

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
    """A learned table whose first `offset` rows are unused: RoBERTa counts from its padding's id on."""

    def __init__(self, length: int, width: int, offset: int) -> None:
        super().__init__(length + offset, width)
        self.longest, self.offset = length, offset

    def encode(self, positions: Positions) -> Tensor:
        index = index_of(positions)
        if index.device.type == "cpu" and not torch.compiler.is_compiling() and index.numel():
            check_length(int(index.max()) + 1, self)
        return nn.functional.embedding(index.clamp(min=0) + self.offset, self.table)


class CaptionAndGrid(Absolute):
    """A caption, then a picture: a vector for each place of the caption, each row and each column.

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


SCHEMES: dict[str, type[Position]] = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "concatenated": Concatenated,
}
