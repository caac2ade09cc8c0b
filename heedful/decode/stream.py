"""Streaming: write token by token, and hand each over as it comes. Greedy and sampling differ only in the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import torch
from torch import Tensor

from .filters import Filter, apply, check_choice, precise
from .step import Step
from .written import Ends, Token, Written, checked_lengths, ends_of, limits_of

Choose = Callable[[Tensor, Tensor], Tensor]  # scores [B, V] and the rows they belong to, to tokens [B]


@torch.no_grad()
def stream(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    choose: Choose,
    longest: int | Sequence[int],
    eos: Ends = None,
    filters: Sequence[Filter] = (),
) -> Iterator[list[Token]]:
    """After each step, the new token of every row that still writes.

    A row ends with an end of sentence or after `longest` tokens (one number for all rows, or one each), and then
    costs nothing any more. The step must be fresh: the prompts are fed to it here.
    """
    B, device = len(prompts_BT), prompts_BT.device
    ends = torch.tensor(ends_of(eos), dtype=torch.long, device=device)
    limits_B = torch.tensor(limits_of(longest, B), device=device)
    lengths_B = checked_lengths(prompts_BT, lengths_B)
    written = begun(filters, prompts_BT, lengths_B)
    rows_R = torch.arange(B, device=device)  # R of them are still being written
    if not B:
        return
    scores_RV = step.last(prompts_BT, lengths_B)
    for n in count(1):
        allowed_RV = apply(filters, scores_RV, written)
        check_choice(allowed_RV.amax(-1), rows_R)
        tokens_R = choose(allowed_RV, rows_R)
        ended_R = torch.isin(tokens_R, ends)
        last_R = ended_R | (n >= limits_B[rows_R])
        yield news(rows_R, tokens_R, log_probabilities(scores_RV, tokens_R), last_R, ended_R)
        written = None if written is None else written.then(tokens_R)
        if bool(last_R.any()):
            going = (~last_R).nonzero()[:, 0]
            if not len(going):
                return
            step.reorder(going)
            rows_R, tokens_R = rows_R[going], tokens_R[going]
            written = None if written is None else written.select(going)
        scores_RV = step.last(tokens_R[:, None])


def begun(filters: Sequence[Filter], prompts_BT: Tensor, lengths_B: Tensor | None) -> Written | None:
    """The prompts, if any filter is going to read them."""
    if not filters:
        return None
    B, T = prompts_BT.shape
    return Written.prompts(
        prompts_BT, torch.full((B,), T, device=prompts_BT.device) if lengths_B is None else lengths_B
    )


def log_probabilities(scores_BV: Tensor, tokens_B: Tensor) -> Tensor:
    """log softmax of the scores, at one token a row, in fp32 at least."""
    scores_BV = precise(scores_BV)
    return scores_BV.gather(1, tokens_B[:, None])[:, 0] - scores_BV.logsumexp(-1)


def news(rows_B: Tensor, tokens_B: Tensor, log_p_B: Tensor, last_B: Tensor, ended_B: Tensor) -> list[Token]:
    columns = (rows_B, tokens_B, log_p_B, last_B, ended_B)
    return [Token(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
