"""Streaming: write token by token, and hand each over as it comes. Greedy and sampling differ only in the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
    soon: bool = True,
) -> Iterator[list[Token]]:
    """After each step, the new token of every row that still writes.

    A row ends with an end of sentence or after `longest` tokens (one number for all rows, or one each), and then
    costs nothing any more. The step must be fresh: the prompts are fed to it here. Where looking at a token means
    waiting for a device (`step.ahead`), several are written before they are looked at, the first few sooner if somebody waits
    for them (`soon`); what a row wrote after its end is then thrown away.
    """
    B, device = len(prompts_BT), prompts_BT.device
    ends = torch.tensor(ends_of(eos), dtype=torch.long, device=device)
    limits = limits_of(longest, B)
    lengths_B = checked_lengths(prompts_BT, lengths_B)
    written = begun(filters, prompts_BT, lengths_B)
    rows, rows_R = list(range(B)), torch.arange(B, device=device)  # those still written
    done = 0  # tokens in each
    if not B:
        return
    chosen = [choice(step.last(prompts_BT, lengths_B), choose, rows_R, filters, written)]
    while True:
        tokens_NR, log_p_NR, best_NR = (torch.stack(column) for column in zip(*chosen, strict=True))
        columns = tokens_NR, log_p_NR, best_NR, torch.isin(tokens_NR, ends)
        going = list(range(len(rows)))
        for tokens, log_p, best, ended in zip(*(column.tolist() for column in columns), strict=True):
            done += 1
            check_choice([best[r] for r in going], [rows[r] for r in going])
            last = [ended[r] or done >= limits[row] for r, row in enumerate(rows)]
            yield [Token(rows[r], tokens[r], log_p[r], last[r], ended[r]) for r in going]
            going = [r for r in going if not last[r]]
        if not going:
            return
        tokens_R, run = tokens_NR[-1], min(2 * len(chosen), step.ahead) if soon else step.ahead
        for newest in tokens_NR:
            written = None if written is None else written.then(newest)
        if len(going) < len(rows):
            going_R = torch.tensor(going, device=device)
            step.reorder(going_R)
            rows, rows_R, tokens_R = [rows[r] for r in going], rows_R[going_R], tokens_R[going_R]
            written = None if written is None else written.select(going_R)
        run = min(run, min(limits[row] for row in rows) - done)
        chosen = several(step, tokens_R, run, choose, rows_R, filters, written)


Choice = tuple[Tensor, Tensor, Tensor]  # tokens, their log-probabilities, and their scores


def several(
    step: Step,
    tokens_R: Tensor,
    run: int,
    choose: Choose,
    rows_R: Tensor,
    filters: Sequence[Filter],
    written: Written | None,
) -> list[Choice]:
    """Feed the newest tokens, and write `run` more in every row."""
    if choose is likeliest and not filters and (quick := step.likeliest(tokens_R, run)) is not None:
        return list(zip(*quick, strict=True))
    chosen: list[Choice] = []
    for _ in range(run):
        chosen.append(choice(step.last(tokens_R[:, None]), choose, rows_R, filters, written))
        tokens_R = chosen[-1][0]
        written = None if written is None else written.then(tokens_R)
    return chosen


def choice(
    scores_RV: Tensor, choose: Choose, rows_R: Tensor, filters: Sequence[Filter], written: Written | None
) -> Choice:
    """The next token of every row."""
    allowed_RV = apply(filters, scores_RV, written)
    tokens_R = choose(allowed_RV, rows_R)
    return tokens_R, log_probabilities(scores_RV, tokens_R), allowed_RV.amax(-1)


def likeliest(scores_BV: Tensor, rows_B: Tensor) -> Tensor:
    """The choice that makes a stream greedy."""
    return scores_BV.argmax(-1)


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
