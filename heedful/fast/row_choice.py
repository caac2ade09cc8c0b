"""The next token of many rows, each with its own filters and its own dice, in as few operations as there are
kinds of rows.

Temperature, top-k, top-p and min-p at the end of a row's filters take one operation for all rows, however
their numbers differ (`Cut`). Filters before them are applied to the rows that share them together. Nothing
here waits for the device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..decode.filters import Context, Filter, MinP, Temperature, TopK, TopP
from ..decode.sampling import draw, rolls
from ..decode.scores import NEVER, apply, argmax, log_probability, precise, running_sum
from ..decode.slots import Row
from ..decode.streaming import to_device

LAST = (Temperature, TopK, TopP, MinP)  # filters that look at the scores alone, in the order of the options
TAU, K, P, M, DRAWN, HEIGHT = range(6)  # how a row chooses: the numbers of these filters, and its dice
NEUTRAL = (1.0, 0.0, 1.0, 0.0, 0.0, 0.0)  # of a row that takes the most likely token


@dataclass(eq=False)
class TokenChooser:
    """How the tokens of one row are chosen."""

    row: Row
    first: tuple[Filter, ...] = field(init=False)  # filters, all but the last few
    how: list[float] = field(init=False)  # the numbers of the last few, and whether tokens are drawn
    kinds: frozenset[str] = field(init=False)  # which of these differ from those of other rows
    rolls: Iterator[float] | None = field(init=False)
    plain: bool = field(init=False)  # the most likely token is taken, whatever came before

    def __post_init__(self) -> None:
        self.first, last = split(self.row.filters)
        self.rolls = None if self.row.seed is None else rolls(self.row.seed)
        numbers: dict[type, float] = {type(one): value for one in last for value in vars(one).values()}
        self.plain = not self.row.filters and self.rolls is None
        drawn = float(self.rolls is not None)
        self.how = [*(numbers.get(kind, NEUTRAL[n]) for n, kind in enumerate(LAST)), drawn, 0.0]
        self.kinds = frozenset(kind.__name__ for kind in numbers) | ({"drawn"} if drawn else set())

    def roll(self) -> float:
        """The next number of its dice."""
        return 0.0 if self.rolls is None else next(self.rolls)


def split(filters: Sequence[Filter]) -> tuple[tuple[Filter, ...], list[Filter]]:
    """All filters but the last few, and these: temperature, top-k, top-p and min-p, in this order."""
    last: list[Filter] = []
    for one in reversed(filters):
        place = LAST.index(type(one)) if type(one) in LAST else len(LAST)
        if place >= (LAST.index(type(last[0])) if last else len(LAST)):
            break
        last.insert(0, one)
    return tuple(filters[: len(filters) - len(last)]), last


class RowChoice:
    """The choice of some rows. It holds what does not change while these are the rows."""

    def __init__(self, choosers: Sequence[TokenChooser], device: torch.device) -> None:
        self.choosers, self.device = choosers, device
        groups: dict[tuple[Filter, ...], list[int]] = defaultdict(list)
        for n, one in enumerate(choosers):
            groups[one.first].append(n)
        self.groups = [(filters, some, self.index(some)) for filters, some in groups.items() if filters]
        self.kinds = frozenset().union(*(one.kinds for one in choosers))
        self.how_6N = to_device(torch.tensor([one.how for one in choosers], dtype=torch.float64), device).T
        self.cut = Cut(self.how_6N[..., None], self.kinds, max(int(one.how[K]) for one in choosers))

    def index(self, some: list[int]) -> Tensor | None:
        """Where rows stand among all; None: everywhere."""
        return None if len(some) == len(self.choosers) else self.at(some)

    def at(self, some: list[int]) -> Tensor:
        return to_device(torch.tensor(some, dtype=torch.long), self.device)

    def __call__(
        self, scores_NV: Tensor, context: Callable[[Tensor | None], Context]
    ) -> tuple[Tensor, Tensor, Tensor, dict[int, Exception]]:
        """Tokens, their log-probabilities, the best score that was allowed, and in which rows filters failed.

        context: what was written in some of the rows, None for all.
        """
        scores_NV, wrong = precise(scores_NV), dict[int, Exception]()
        allowed_NV = scores_NV
        for filters, numbers, some_M in self.groups:
            try:
                allowed_NV = filtered(filters, allowed_NV, some_M, context)
            except Exception:  # noqa: BLE001  filters may fail in any way
                for n in numbers:
                    try:
                        allowed_NV = filtered(filters, allowed_NV, self.at([n]), context)
                    except Exception as error:  # noqa: BLE001
                        wrong[n] = error
        allowed_NV = self.cut(allowed_NV)
        tokens_N = argmax(allowed_NV)
        if "drawn" in self.kinds:
            heights = torch.tensor([one.roll() for one in self.choosers], dtype=torch.float64)
            drawn_N = draw(allowed_NV.double().softmax(-1), to_device(heights, self.device))
            tokens_N = torch.where(self.how_6N[DRAWN] > 0, drawn_N, tokens_N)
        return tokens_N, log_probability(scores_NV, tokens_N), allowed_NV.amax(-1), wrong


def filtered(
    filters: Sequence[Filter],
    scores_NV: Tensor,
    some_M: Tensor | None,
    context: Callable[[Tensor | None], Context],
) -> Tensor:
    """The scores, with filters applied to those of some rows, or of all."""
    if some_M is None:
        return apply(filters, scores_NV, context(None))
    return scores_NV.index_copy(0, some_M, apply(filters, scores_NV[some_M], context(some_M)))


@dataclass(frozen=True)
class Cut:
    """Temperature, top-k, top-p and min-p of many rows, each with its own numbers."""

    how_6N1: Tensor
    kinds: frozenset[str]  # those that any row has
    k: int  # of top-k, at most

    def __call__(self, scores_NV: Tensor) -> Tensor:
        if "Temperature" in self.kinds:
            scores_NV = divided(scores_NV, self.how_6N1[TAU].to(scores_NV.dtype))
        if "TopK" in self.kinds:
            scores_NV = self.only_k(scores_NV, self.how_6N1[K])
        if "TopP" in self.kinds:
            scores_NV = only_p(scores_NV, self.how_6N1[P])
        if "MinP" in self.kinds:
            ratio_NV = (scores_NV - scores_NV.amax(-1, keepdim=True)).exp()
            scores_NV = scores_NV.masked_fill(ratio_NV < self.how_6N1[M].to(ratio_NV.dtype), NEVER)
        return scores_NV

    def only_k(self, scores_NV: Tensor, k_N1: Tensor) -> Tensor:
        """`TopK` with a number of its own for each row; 0 keeps all."""
        most = min(self.k, scores_NV.shape[-1])
        border_N1 = scores_NV.topk(most).values.gather(1, (k_N1.long() - 1).clamp(0, most - 1))
        above_NV, equal_NV = scores_NV > border_N1, scores_NV == border_N1
        places_N1 = k_N1 - above_NV.sum(-1, keepdim=True)
        kept_NV = above_NV | equal_NV & (running_sum(equal_NV.int()) <= places_N1)
        return scores_NV.masked_fill(~(kept_NV | (k_N1 == 0)), NEVER)


def only_p(scores_NV: Tensor, p_N1: Tensor) -> Tensor:
    """`TopP` with a share of its own for each row; 1 keeps all."""
    sorted_NV, order_NV = scores_NV.sort(dim=-1, descending=True, stable=True)
    share_NV = sorted_NV.double().softmax(-1)
    cut_NV = (running_sum(share_NV) - share_NV >= p_N1) & (p_N1 < 1)
    cut_NV[:, 0] = False
    return scores_NV.masked_fill(cut_NV.scatter(-1, order_NV, cut_NV), NEVER)


def divided(scores_NV: Tensor, by_N1: Tensor) -> Tensor:
    """scores / by, to the bit as torch divides by one number: a GPU multiplies by its reciprocal."""
    return scores_NV * by_N1.reciprocal() if scores_NV.is_cuda else scores_NV / by_N1
