"""Batches of texts of like length, whose results come in the order of the texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..decode.options import check_batch
from ..errors import NotFinite
from ..tasks.evaluation import MOST_TOKENS, by_length

T = TypeVar("T")


def in_batches(rows: Sequence[list[int]], batch: int, do: Callable[[list[int]], Sequence[T]]) -> list[T]:
    """Results in the order of the rows, from a function of the numbers of some that are alike in length."""
    check_batch(batch)
    found: dict[int, T] = {}
    with torch.no_grad():
        for some in by_length([len(row) for row in rows], batch, MOST_TOKENS):
            found.update(zip(some, do(some), strict=True))
    return [found[i] for i in range(len(rows))]


def finite(found: Tensor, folder: str) -> Tensor:
    """The same numbers, if they are numbers."""
    if not torch.isfinite(found).all():
        raise NotFinite(f"{folder} gives what is not a number: heedful doctor says which of its weights")
    return found
