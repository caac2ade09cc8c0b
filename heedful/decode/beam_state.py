"""The state of a beam search: the live prefixes of each search, and the tree of every prefix that was
considered.

N searches (a sentence, or a group of a sentence, each), W prefixes of each, F finished hypotheses kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from .beam_settings import BeamSettings
from .filters import NEVER, Filter
from .transfer import HostCopy, to_device


@dataclass(frozen=True)
class Rules:
    """What all searches of a call have in common."""

    settings: BeamSettings
    ends: tuple[int, ...]  # tokens that end a sentence
    ends_E: Tensor  # the same, where the scores are
    longest: int  # tokens of any hypothesis
    filters: Sequence[Filter]


class PrefixTree:
    """Every prefix considered so far: a node is a token, its log-probability, and its parent (-1: none)."""

    def __init__(self) -> None:
        self.size = 0
        self.columns: list[tuple[Tensor, Tensor, Tensor]] = []

    def grow(self, before_NC: Tensor, tokens_NC: Tensor, log_p_NC: Tensor) -> Tensor:
        """New nodes; their numbers come back."""
        start = self.size
        self.add(before_NC.flatten(), tokens_NC.flatten(), log_p_NC.flatten())
        return torch.arange(start, self.size, device=tokens_NC.device).view_as(tokens_NC)

    def add(self, before_X: Tensor, tokens_X: Tensor, log_p_X: Tensor) -> None:
        self.columns.append((before_X, tokens_X, log_p_X))
        self.size += len(tokens_X)

    def read(self, nodes: list[int]) -> list[tuple[list[int], list[float]]]:
        """For each node, the tokens from the root to it, and their log-probabilities."""
        columns = (torch.cat(column) for column in zip(*self.columns, strict=True))
        before_X, tokens_X, log_p_X = HostCopy(*columns).wait()
        before_X, tokens_X = before_X.long(), tokens_X.long()
        at_P, ways = torch.tensor(nodes, dtype=torch.long), []
        while bool((at_P >= 0).any()):
            ways.append(at_P)
            at_P = torch.where(at_P >= 0, before_X[at_P], -1)
        if not ways:
            return []
        way_PL = torch.stack(ways[::-1], 1)  # those that are shorter start later
        starts = (way_PL < 0).sum(1).tolist()
        found = zip(tokens_X[way_PL].tolist(), log_p_X[way_PL].tolist(), starts, strict=True)
        return [(tokens[start:], log_p[start:]) for tokens, log_p, start in found]


@dataclass(frozen=True)
class Searches:
    """N searches side by side: the W live prefixes of each, and its best finished hypotheses."""

    sentences_N: Tensor
    groups_N: Tensor
    limits_N: Tensor
    totals_NW: Tensor  # log P so far; -inf where there is no prefix
    nodes_NW: Tensor  # where each prefix ends in the tree
    tokens_NW: Tensor  # its newest token
    rows_NW: Tensor  # the row of the step it continues
    in_place: bool  # and it stands there already
    siblings: bool  # all rows of the step are continued, each by prefixes of the same search
    attended_NWS: Tensor | None  # attention that each word of the source has received
    scores_NF: Tensor  # of finished hypotheses, best first; -inf where there is none yet
    finished_NF: Tensor  # where they end in the tree
    over_N: Tensor  # whether it finds nothing more
    lowest_N: Tensor  # the lowest that its best total has been, if it needed one: is there always a number?

    def select(self, which_N: Tensor) -> Searches:
        """Only some of the searches, by their numbers."""
        whole = {field.name: getattr(self, field.name) for field in fields(self)}
        kept: dict[str, Any] = {name: x[which_N] if isinstance(x, Tensor) else x for name, x in whole.items()}
        return replace(Searches(**kept), in_place=False, siblings=False)


def begin(limits: list[int], settings: BeamSettings, dtype: torch.dtype, device: torch.device) -> Searches:
    """One empty prefix for each search."""
    B, G, F = len(limits), settings.groups, settings.width
    sentences_N = torch.arange(B * G, device=device) // G
    nobody_N1 = torch.full((B * G, 1), -1, device=device)
    return Searches(
        sentences_N,
        groups_N=torch.arange(G, device=device).repeat(B),
        limits_N=to_device(torch.tensor(limits), device)[sentences_N],
        totals_NW=torch.zeros(B * G, 1, dtype=dtype, device=device),
        nodes_NW=nobody_N1,
        tokens_NW=nobody_N1,
        rows_NW=torch.arange(B * G, device=device)[:, None],
        in_place=True,
        siblings=True,
        attended_NWS=None,
        scores_NF=torch.full((B * G, F), NEVER, dtype=dtype, device=device),
        finished_NF=nobody_N1.repeat(1, F),
        over_N=torch.zeros(B * G, dtype=torch.bool, device=device),
        lowest_N=torch.zeros(B * G, dtype=dtype, device=device),
    )
