"""Prompts: what every search is given, checked.

Rows of tokens, their lengths, their ends, their greatest lengths.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from ..errors import BadInput

Ends = int | Collection[int] | None


def pad(rows: Sequence[Sequence[int]], device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """Prompts of unequal length as tokens [B, T] and lengths [B]."""
    T = max(map(len, rows), default=0)
    tokens_BT = torch.tensor([[*row, *[0] * (T - len(row))] for row in rows], dtype=torch.long, device=device)
    return tokens_BT.view(len(rows), T), torch.tensor([len(row) for row in rows], device=device)


def checked_lengths(prompts_BT: Tensor, lengths_B: Tensor | None) -> Tensor | None:
    """The lengths if rows differ in theirs, None if all are full; a row without any token is refused."""
    B, T = prompts_BT.shape
    lengths = [T] * B if lengths_B is None else lengths_B.tolist()
    if len(lengths) != B:
        raise BadInput(f"there are {B} prompts but {len(lengths)} lengths: give one for each")
    for row, length in enumerate(lengths):
        if not 1 <= length <= T:
            what = "is empty" if length < 1 else f"has a length of {length} in a table of {T}"
            raise BadInput(f"prompt {row} {what}: give at least one token, such as the beginning of sentence")
    return None if all(length == T for length in lengths) else lengths_B


def checked(
    prompts_BT: Tensor, lengths_B: Tensor | None, longest: int | Sequence[int], eos: Ends
) -> tuple[Tensor | None, list[int], list[int]]:
    """The lengths if rows differ in theirs, the greatest length of each row, and the tokens that end it."""
    limits = limits_of(longest, len(prompts_BT))
    return checked_lengths(prompts_BT, lengths_B), limits, ends_of(eos)


def ends_of(eos: Ends) -> list[int]:
    """The tokens that end a sentence: none, one or several."""
    return [] if eos is None else [eos] if isinstance(eos, int) else sorted(set(eos))


def limits_of(longest: int | Sequence[int], rows: int) -> list[int]:
    """How many tokens each row may have at most."""
    limits = [longest] * rows if isinstance(longest, int) else list(longest)
    if len(limits) != rows:
        raise BadInput(
            f"there are {rows} prompts but {len(limits)} greatest lengths: give one for all, or one each"
        )
    if any(limit < 1 for limit in limits):
        raise BadInput(f"the greatest length is {min(limits)}: at least one token must be allowed")
    return limits
