"""Operations: what a forward pass asks of a device, by shape, so that its time can be predicted.

A part lists the operations that take time: matrix products, attention, and passes over vectors. Their FLOPs
are those of the part; their shapes decide how fast a device is at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MatrixProduct:
    """[rows, inner] times [inner, outer]."""

    rows: int
    inner: int
    outer: int

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inner * self.outer

    @property
    def numbers(self) -> int:
        """Numbers that are read and written."""
        return self.rows * (self.inner + self.outer) + self.inner * self.outer


@dataclass(frozen=True)
class AttentionProducts:
    """Scores and weighted values of `tables` pairs of a row and a head."""

    tables: int
    queries: int
    keys: int
    width: int  # of a head: of a key and of a value, on average
    of_source: bool = False  # whether a source is read, all of which is visible

    @property
    def flops(self) -> int:
        """All pairs of the table are counted, those that a mask hides too."""
        return 4 * self.tables * self.queries * self.keys * self.width

    @property
    def numbers(self) -> int:
        """Numbers of queries, keys, values and outputs."""
        return 2 * self.tables * (self.queries + self.keys) * self.width


@dataclass(frozen=True)
class VectorPass:
    """Something done to each number of `rows` vectors."""

    kind: Literal["norm", "activation", "gated activation", "dropout"]
    rows: int
    width: int

    @property
    def numbers(self) -> int:
        return self.rows * self.width


Operation = MatrixProduct | AttentionProducts | VectorPass
Operations = tuple[Operation, ...]
