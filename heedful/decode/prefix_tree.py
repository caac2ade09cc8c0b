"""The prefixes of a beam search as one tree, whose ways from the root are read once, at the end."""

from __future__ import annotations

import torch
from torch import Tensor

from .streaming import HostCopy


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
