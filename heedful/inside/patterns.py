"""Patterns of attention: which keys a query would attend to if a head did one simple thing.

A pattern is a table of cells [T, S]. The share of a head is the mean weight that its queries give to these
cells. Beside it stands a baseline: the same share with the allowed keys of each query shuffled, which on
average is the number of cells over the number of allowed keys. The mean over all shuffles is exact, so no
seed is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import BadInput
from ..files import one_line
from ..tasks.student import quantile

CHOICE = 2  # keys that a query must be allowed, so that it has a choice
FARTHEST = 1000  # of the offsets that can be asked for
KINDS = ("cross", "self", "encoder")


@dataclass(frozen=True, eq=False)
class AttentionGrid:
    """One text as one kind of attention sees it: queries down, keys across."""

    kind: str  # cross, self or encoder
    queries_T: Tensor  # token numbers
    keys_S: Tensor
    query_marks_T: Tensor  # which tokens are special or punctuation
    key_marks_S: Tensor
    gold_TS: Tensor | None = None  # cells that the reference alignment links
    parents_TS: Tensor | None = None  # cells that lead from a word to the one it depends on
    words: bool = True  # False for the patches of an image, which are not tokens of a text

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.queries_T), len(self.keys_S)


Cells = Callable[
    [AttentionGrid], Tensor | None
]  # the cells [T, S] of a pattern; None where it does not apply


@dataclass(frozen=True)
class AttentionPattern:
    """What a head might do, by name."""

    name: str
    cells: Cells = field(repr=False, compare=False)


# The cells of each pattern


def offset(distance: int) -> AttentionPattern:
    """To the token so many places on: 0 is the query itself, -1 the token before it."""

    def cells(grid: AttentionGrid) -> Tensor | None:
        T, S = grid.shape
        if grid.kind == "cross" or abs(distance) >= T:
            return None
        return torch.ones(T, S, dtype=torch.bool).triu(distance).tril(distance)

    return AttentionPattern(f"offset:{distance}", cells)


def first_cells(grid: AttentionGrid) -> Tensor | None:
    """To the first key. The first query of self-attention would attend to itself, and does not count."""
    cells_TS = torch.zeros(grid.shape, dtype=torch.bool)
    cells_TS[0 if grid.kind == "cross" else 1 :, 0] = True
    return cells_TS


def same_cells(grid: AttentionGrid) -> Tensor | None:
    """To an earlier occurrence of the query's token."""
    if grid.kind == "cross" or not grid.words:
        return None
    return (grid.queries_T[:, None] == grid.keys_S).tril(-1)


def after_same_cells(grid: AttentionGrid) -> Tensor | None:
    """To the token after an earlier occurrence of the query's token (induction)."""
    earlier_TS = same_cells(grid)
    if earlier_TS is None:
        return None
    cells_TS = torch.zeros_like(earlier_TS)
    cells_TS[:, 1:] = earlier_TS[:, :-1]
    return cells_TS.tril(-1)


def gold_cells(grid: AttentionGrid) -> Tensor | None:
    return grid.gold_TS


def parent_cells(grid: AttentionGrid) -> Tensor | None:
    return grid.parents_TS


def child_cells(grid: AttentionGrid) -> Tensor | None:
    return None if grid.parents_TS is None else grid.parents_TS.mT


CLASSES = ("words", "marks", "any")


def classes(queries: str, keys: str) -> AttentionPattern:
    """From one class of tokens to another; the query itself does not count."""

    def members(marks: Tensor, name: str) -> Tensor:
        return torch.ones_like(marks) if name == "any" else marks == (name == "marks")

    def cells(grid: AttentionGrid) -> Tensor | None:
        if not grid.words:
            return None
        cells_TS = members(grid.query_marks_T, queries)[:, None] & members(grid.key_marks_S, keys)
        return cells_TS if grid.kind == "cross" else cells_TS & ~torch.eye(*grid.shape, dtype=torch.bool)

    return AttentionPattern(f"{queries}>{keys}", cells)


NAMED: dict[str, Cells] = {
    "first": first_cells,
    "same": same_cells,
    "after-same": after_same_cells,
    "gold": gold_cells,
    "parent": parent_cells,
    "child": child_cells,
}
SPELLINGS = f"offset:-1, {', '.join(NAMED)}, or two of {', '.join(CLASSES)} as in words>marks"


def parse_pattern(spelling: str) -> AttentionPattern:
    """A pattern by its name: offset:-1, first, same, after-same, gold, parent, child, words>marks.

    offset:K is the token K places on. gold is the reference alignment of a translation. parent and child
    follow the dependency tree of the text.
    """
    if spelling in NAMED:
        return AttentionPattern(spelling, NAMED[spelling])
    found = re.fullmatch(r"offset:([+-]?[0-9]{1,4})", spelling, re.ASCII)
    if found and abs(int(found[1])) <= FARTHEST:
        return offset(int(found[1]))
    sides = spelling.split(">")
    if len(sides) == 2 and all(side in CLASSES for side in sides):
        return classes(*sides)
    raise BadInput(f'a pattern is {SPELLINGS}, not "{one_line(spelling)}"')


# Shares


@dataclass(frozen=True, eq=False)
class Shares:
    """What N heads do of P patterns in one text: sums over its queries, and how many queries count."""

    weights_PN: Tensor
    baseline_PN: Tensor
    rows_PN: Tensor


def shares(
    weights_NTS: Tensor, allowed_NTS: Tensor, grid: AttentionGrid, patterns: Sequence[AttentionPattern]
) -> Shares:
    """The weight that each head gives to the cells of each pattern, beside that of shuffled keys.

    Queries count that have a choice of keys, and at least one of the pattern's among them. allowed: [N, T,
    S], or [1, T, S] if it is the same for all heads.
    """
    none_TS = torch.zeros(grid.shape, dtype=torch.bool)
    found = [pattern.cells(grid) for pattern in patterns]
    cells_PTS = torch.stack([none_TS if cells is None else cells for cells in found])
    open_PNTS = cells_PTS[:, None] & allowed_NTS
    keys_NT = allowed_NTS.sum(-1)
    counted_PNT = open_PNTS.any(-1) & (keys_NT >= CHOICE)
    weights_PNT = torch.einsum("nts,pts->pnt", weights_NTS.double(), cells_PTS.double())
    chance_PNT = open_PNTS.sum(-1).double() / keys_NT.clamp(min=1)
    sums = [(table * counted_PNT).sum(-1) for table in (weights_PNT, chance_PNT)]
    rows_PN = counted_PNT.sum(-1).double()
    N = len(weights_NTS)
    return Shares(sums[0], *(table.expand(len(patterns), N) for table in (sums[1], rows_PN)))


# Intervals


@dataclass(frozen=True, eq=False)
class Estimate:
    """Means over all units of several texts, with their 95 % intervals: tensors of one shape."""

    mean: Tensor
    low: Tensor
    high: Tensor

    def at(self, *index: int) -> tuple[float, float, float]:
        return float(self.mean[index]), float(self.low[index]), float(self.high[index])


def estimate(sums_I: Tensor, counts_I: Tensor) -> Estimate:
    """The mean of what was summed over `counts` units of each of I texts (the first axis).

    The mean is a ratio of two sums over texts. Its interval is Student's, of the texts' deviations from this
    ratio, so texts are the sample, and long ones weigh more. One text alone shows no spread: its interval is
    not a number.
    """
    sums_I, counts_I = sums_I.double(), counts_I.double().expand(sums_I.shape)
    total = counts_I.sum(0)
    mean = sums_I.sum(0) / total
    texts = (counts_I > 0).sum(0)
    off_I = sums_I - mean * counts_I
    spread = (off_I.square().sum(0) * texts / (texts - 1)).sqrt() / total
    by_count = {
        count: quantile(count - 1) if count > 1 else float("nan") for count in set(texts.flatten().tolist())
    }
    half = spread * torch.tensor([by_count[count] for count in texts.flatten().tolist()]).view(texts.shape)
    return Estimate(mean, mean - half, mean + half)
