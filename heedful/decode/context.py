"""Context: everything that stands before the token to be chosen, as filters read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Context:
    """The prompt of each row and the tokens after it. Padding (-1) comes first, so all rows end together."""

    tokens_BT: Tensor
    counts_B: Tensor  # how many of the tokens are new, the others being the prompt
    rows_B: Tensor  # the row of the original batch that each row belongs to
    batch: int  # rows in the original batch

    @classmethod
    def prompts(cls, prompts_BT: Tensor, lengths_B: Tensor) -> Context:
        """Before the first token."""
        B, device = len(prompts_BT), prompts_BT.device
        counts_B = torch.zeros(B, dtype=torch.long, device=device)
        return cls(left_padded(prompts_BT, lengths_B), counts_B, torch.arange(B, device=device), B)

    def then(self, tokens_B: Tensor) -> Context:
        """One token more in every row."""
        tokens_BT = torch.cat([self.tokens_BT, tokens_B[:, None]], -1)
        return Context(tokens_BT, self.counts_B + 1, self.rows_B, self.batch)

    def select(self, rows: Tensor) -> Context:
        """Row b becomes what row rows[b] was."""
        return Context(self.tokens_BT[rows], self.counts_B[rows], self.rows_B[rows], self.batch)


def context_of(filters: Sequence[object], prompts_BT: Tensor, lengths_B: Tensor | None) -> Context | None:
    """The prompts, if there is any filter to read them."""
    if not filters:
        return None
    B, T = prompts_BT.shape
    full_B = torch.full((B,), T, device=prompts_BT.device)
    return Context.prompts(prompts_BT, full_B if lengths_B is None else lengths_B)


def left_padded(tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """Rows padded at the end, padded (with -1) at the beginning instead."""
    T = tokens_BT.shape[1]
    from_BT = torch.arange(T, device=tokens_BT.device) - (T - lengths_B[:, None])
    return torch.where(from_BT >= 0, tokens_BT.gather(1, from_BT.clamp(min=0)), -1)
