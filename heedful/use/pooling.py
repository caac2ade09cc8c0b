"""Pooling: the vectors of a text's tokens become one, (hidden_BTD, lengths_B) to [B, D]."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..decode.step import at_last

if TYPE_CHECKING:
    from ..interop.hf.sentences import Sentences

Pool = Callable[[Tensor, Tensor], Tensor]


def poolings_of(asked: str | None, said: Sentences | None, last: bool) -> list[Pool]:
    """The pooling of the call, or those of the folder, or the mean. Vectors of several stand side by side.

    last: the token that stands for all is a text's last one.
    """
    if asked == "class":
        return [at_last if last else at_first]
    if asked is None and said is not None:
        return [POOLS[name] for name in said.poolings]
    return [mean_over_real]


def real_tokens(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """[B, T, 1]: which are tokens, and not padding."""
    slots_T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)
    return (slots_T < lengths_B[:, None])[..., None]


def at_first(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """The first token's."""
    return hidden_BTD[:, 0]


def mean_over_real(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """The mean of each row's real tokens."""
    real_BT1 = real_tokens(hidden_BTD, lengths_B)
    count_B1 = real_BT1.sum(1)  # one vector may stand for all of them
    return hidden_BTD.masked_fill(~real_BT1, 0).sum(1) / count_B1


def over_root(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """The sum over a row's tokens, divided by the root of their number."""
    return mean_over_real(hidden_BTD, lengths_B) * real_tokens(hidden_BTD, lengths_B).sum(1).sqrt()


def largest(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """Of each feature the largest among a row's tokens."""
    return hidden_BTD.masked_fill(~real_tokens(hidden_BTD, lengths_B), -torch.inf).amax(1)


def later_weighs_more(hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
    """A mean in which the n-th token counts n times."""
    places_T = torch.arange(1, hidden_BTD.shape[1] + 1, device=hidden_BTD.device)
    weights_BT1 = real_tokens(hidden_BTD, lengths_B) * places_T[None, :, None]
    return (hidden_BTD.masked_fill(weights_BT1 == 0, 0) * weights_BT1).sum(1) / weights_BT1.sum(1)


POOLS: dict[str, Pool] = {  # by sentence-transformers' names
    "cls": at_first,
    "mean": mean_over_real,
    "max": largest,
    "mean_sqrt_len_tokens": over_root,
    "weightedmean": later_weighs_more,
    "lasttoken": at_last,
}
