"""Soft lookup: attention as it was before it had heads and projections. A query matches all keys softly.

The score is handed in (`Additive`, `Bilinear`, `Dot`); keys and values are the source itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention import Score, masked_softmax
from ..cache import Cache, KeysValues
from ..masks import full
from ..positions.base import NoPosition, index_of
from ..view import View
from ..watch import Watchable, is_watched, observe
from .state_cache import StateCache


class Lookup(Watchable):
    """softmax(score(q, k)) v.

    Keys come prepared: what of a score needs no query is computed once a sentence.
    """

    heads = 1

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score, self.position = score, NoPosition()

    def forward(
        self, q_B1TK: Tensor, k_B1SK: Tensor, v_B1SL: Tensor, view: View, record: bool = True
    ) -> Tensor:
        """record: False for a call that whoever watches shall not see."""
        scores_B1TS = self.score.between(q_B1TK, k_B1SK)
        weights_B1TS = masked_softmax(scores_B1TS, None if view.sees_all else view)
        others = {"q": q_B1TK, "k": k_B1SK, "v": v_B1SL, "scores": scores_B1TS}
        return observe(self, view, weights_B1TS, record, **others) @ v_B1SL


class Cross(nn.Module):
    """A decoder's lookup in its source."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.layer = Lookup(score)

    def source(self, keys_BSK: Tensor, values_BSL: Tensor, cache: Cache | None, i: int = 0) -> KeysValues:
        """Keys, prepared for the score, and values: once for all steps if there is a cache."""

        def compute() -> KeysValues:
            return self.layer.score.prepared(keys_BSK[:, None]), values_BSL[:, None]

        return cache.layers[i].source(compute) if isinstance(cache, StateCache) else compute()

    def forward(self, q_BTK: Tensor, source: KeysValues, view: View) -> Tensor:
        """What each query takes home, [B, T, L]."""
        return self.layer(q_BTK[:, None], *source, view)[:, 0]

    def unwatched(self, q_BTK: Tensor, source: KeysValues, view: View) -> Tensor:
        """The same, unrecorded: a loop over tokens shows them all at once when it has ended."""
        return self.layer(q_BTK[:, None], *source, view, record=False)[:, 0]

    def show(self, q_BTK: Tensor, source: KeysValues, view: View) -> None:
        """Let whoever watches see all queries of a loop as one call."""
        if is_watched(self.layer):
            self.layer(q_BTK[:, None], *source, view)


def needed(source_BSD: Tensor | None) -> Tensor:
    """The source, if there is one."""
    if source_BSD is None:
        raise ValueError("this decoder reads a source, but none was given")
    return source_BSD


def one_query(view: View | None, source_BSD: Tensor) -> View:
    """The view of a single query: where the source has words."""
    k_pos = None if view is None or view.all_present else view.k_pos
    return View(full(), 1, source_BSD.shape[1], source_BSD.device, None, k_pos)


def at_first_word(source_BSD: Tensor, view: View | None) -> Tensor:
    """The source at each row's first word, which is the first slot unless padding comes first."""
    if view is None or view.all_present:
        return source_BSD[:, 0]
    first_B = (torch.atleast_2d(index_of(view.k_pos)) >= 0).long().argmax(-1).expand(len(source_BSD))
    return source_BSD[torch.arange(len(source_BSD), device=first_B.device), first_B]
