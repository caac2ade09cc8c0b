"""Choices: the next token of many rows, each with its own filters and its own dice.

Rows whose filters are equal are filtered together. What is chosen in a row does not depend on the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import BadInput, NotFinite
from .filters import Context, Filter
from .sampling import draw
from .scores import apply, argmax, check_choice, in_parts, log_probability, precise, top_indices

if TYPE_CHECKING:
    from .slots import Row

Top = tuple[tuple[int, float], ...]  # the most likely tokens with their log-probabilities


def chosen(rows: Sequence[Row], scores_BV: Tensor) -> tuple[list[int], list[Exception | None]]:
    """The next token of each row, and what is wrong with a row, if anything."""
    tokens: list[int] = []
    faults: list[Exception | None] = []
    for some_BV in in_parts(precise(scores_BV)):
        some, wrong = chosen_of(rows[len(tokens) : len(tokens) + len(some_BV)], some_BV)
        tokens, faults = tokens + some, faults + wrong
    return tokens, faults


def chosen_of(rows: Sequence[Row], scores_BV: Tensor) -> tuple[list[int], list[Exception | None]]:
    """`chosen` of rows whose scores stay in the processor's caches."""
    scores_BV, wrong = filtered(rows, scores_BV)
    best_B, tokens = scores_BV.amax(-1).tolist(), argmax(scores_BV).tolist()
    faults = [wrong.get(place) or fault_of(best) for place, best in enumerate(best_B)]
    rolls = {place: row.dice.roll()[0] for place, row in enumerate(rows) if row.dice is not None}
    if rolls:
        drawing_BV = scores_BV if len(rolls) == len(rows) else scores_BV[list(rolls)]
        uniform_B = torch.cat(list(rolls.values())).to(scores_BV.device)
        drawn = draw(drawing_BV.double().softmax(-1), uniform_B).tolist()
        for place, token in zip(rolls, drawn, strict=True):
            tokens[place] = token
    return tokens, faults


def filtered(rows: Sequence[Row], scores_BV: Tensor) -> tuple[Tensor, dict[int, Exception]]:
    """The scores as each row's filters leave them, and what is wrong with rows whose filters fail."""
    groups: dict[tuple[Filter, ...], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        groups[tuple(row.filters)].append(place)
    groups.pop((), None)
    wrong: dict[int, Exception] = {}
    changed_BV = scores_BV.clone() if groups else scores_BV
    for filters, places in groups.items():
        try:
            changed_BV[places] = apply(filters, scores_BV[places], context_of(rows, places, scores_BV.device))
        except Exception:  # noqa: BLE001 (filters are anybody's, and one row's may fail)
            for place in places:
                try:
                    context = context_of(rows, [place], scores_BV.device)
                    changed_BV[place] = apply(filters, scores_BV[place, None], context)[0]
                except Exception as error:  # noqa: BLE001
                    wrong[place] = error
    return changed_BV, wrong


def context_of(rows: Sequence[Row], places: Sequence[int], device: torch.device) -> Context:
    """What filters may know of some of the rows: each is a batch of its own."""
    some = [rows[place] for place in places]
    sizes = [len(row.prompt) + row.written for row in some]
    T = max(sizes)
    tokens_BT = torch.full((len(some), T), -1)
    for row_T, row, size in zip(tokens_BT, some, sizes, strict=True):
        assert row.text is not None
        row_T[T - size :] = row.text[:size]
    counts_B = torch.tensor([row.written for row in some], device=device)
    return Context(tokens_BT.to(device), counts_B, torch.zeros_like(counts_B), 1)


def fault_of(best: float) -> Exception | None:
    """What is wrong with scores of which this is the best."""
    try:
        check_choice([best], [0])
    except (BadInput, NotFinite) as error:
        return error
    return None


def alternatives(rows: Sequence[Row], scores_BV: Tensor, tokens: Sequence[int]) -> list[tuple[float, Top]]:
    """The log-probability of each row's token, and the most likely tokens that the row wants to know."""
    scores_BV = precise(scores_BV)
    own = log_probability(scores_BV, torch.tensor(tokens, device=scores_BV.device)).tolist()
    tops: list[Top] = [()] * len(rows)
    wanting = [place for place, row in enumerate(rows) if row.top]
    if wanting:
        log_p_WV = scores_BV[wanting].log_softmax(-1)
        k = min(max(rows[place].top for place in wanting), log_p_WV.shape[1])
        tokens_WK = top_indices(log_p_WV, k)
        names, values = tokens_WK.tolist(), log_p_WV.gather(1, tokens_WK).tolist()
        for place, some, theirs in zip(wanting, names, values, strict=True):
            tops[place] = tuple(zip(some, theirs, strict=True))[: rows[place].top]
    return list(zip(own, tops, strict=True))
