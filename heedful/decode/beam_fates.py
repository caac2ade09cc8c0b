"""Fates: every candidate that a beam search considers, and what becomes of it.

A search that is given a listener tells it of each step (`Expansion`). `Fates` is such a listener. A candidate

    lives       among the W prefixes that the next step extends
    ended       finished, and among the best W finished hypotheses when the search is over
    beaten      finished, but W finished hypotheses score higher
    fell off    less likely than the W that live on; or an end that is not among the best W candidates
    forbidden   likely enough without the filters, one of which rules it out

A candidate that has ended may be beaten later. A prefix of the greatest length counts as finished.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .scores import NEVER
from .streaming import Hypothesis

Fate = Literal["lives", "ended", "beaten", "fell off", "forbidden"]
FATES: tuple[Fate, ...] = ("lives", "ended", "beaten", "fell off", "forbidden")


@dataclass(frozen=True)
class Ruled:
    """Candidates of N searches, as likely as if there were no filters, and which of them a filter forbids."""

    parents_NC: Tensor  # the live prefix, among W
    tokens_NC: Tensor
    log_p_NC: Tensor
    totals_NC: Tensor
    scores_NC: Tensor
    forbidden_NC: Tensor


@dataclass(frozen=True)
class Expansion:
    """One step of N searches: their candidates, best first, and what becomes of each."""

    length: int  # tokens of a candidate
    sentences_N: Tensor
    groups_N: Tensor
    over_N: Tensor  # searches that were over before: this step means nothing to them
    nodes_NC: Tensor  # the number of each candidate
    before_NC: Tensor  # the number of the prefix that it extends; -1 for the empty one
    tokens_NC: Tensor
    log_p_NC: Tensor  # of its last token
    totals_NC: Tensor  # log P as the filters change it; -inf where there is no candidate
    scores_NC: Tensor  # what it scores if it ends as it stands
    finished_NC: Tensor  # whether it competes as a finished hypothesis
    lives_NC: Tensor  # whether the next step extends it
    best_NF: Tensor  # numbers of the best finished hypotheses after this step; -1 where there is none
    prefixes_NW: Tensor  # the numbers of the prefixes that were extended
    ruled: Ruled | None = None  # with filters


Listener = Callable[[Expansion], None]


@dataclass
class Candidate:
    """A prefix that a search considered: its last token, and how likely it is."""

    id: int  # its place in the list of candidates
    before: int  # the candidate that it extends; -1: none
    token: int
    log_probability: float  # of the token, before any filter
    total: float  # log P of the whole prefix, as the filters change it
    score: float  # what it is ranked by if it ends here
    step: int  # its length in tokens
    fate: Fate
    sentence: int = 0
    group: int = 1


class Fates:
    """A listener that keeps the candidates of all searches, in the order of their steps."""

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []
        self.known: dict[int, Candidate] = {}  # by the search's own numbers
        self.finished: dict[tuple[int, int], list[int]] = {}  # of each search, those that have ended

    def __call__(self, step: Expansion) -> None:
        columns = ("nodes_NC", "before_NC", "tokens_NC", "log_p_NC", "totals_NC", "scores_NC")
        rows = zip(*(getattr(step, name).tolist() for name in columns), strict=True)
        marks = zip(step.finished_NC.tolist(), step.lives_NC.tolist(), step.best_NF.tolist(), strict=True)
        searches = zip(step.sentences_N.tolist(), step.groups_N.tolist(), step.over_N.tolist(), strict=True)
        for n, ((sentence, group, over), row, mark) in enumerate(zip(searches, rows, marks, strict=True)):
            if not over:
                self.add(step.length, sentence, group + 1, row, mark)
                self.add_forbidden(step, n, sentence, group + 1)

    def add(self, length: int, sentence: int, group: int, row: Sequence[list], mark: Sequence[list]) -> None:
        """The candidates of one search, and the finished ones that they beat."""
        finished, lives, best = mark[0], mark[1], set(mark[2])
        ended = self.finished.setdefault((sentence, group), [])
        for number in ended:
            self.known[number].fate = "ended" if number in best else "beaten"
        for place, (node, before, token, log_p, total, score) in enumerate(zip(*row, strict=True)):
            if not total > NEVER:
                continue
            fate: Fate = "lives" if lives[place] else "fell off"
            if finished[place]:
                fate = "ended" if node in best else "beaten"
                ended.append(node)
            self.known[node] = self.new(before, token, log_p, total, score, length, fate, sentence, group)

    def add_forbidden(self, step: Expansion, n: int, sentence: int, group: int) -> None:
        """What would have been a candidate without the filters."""
        if step.ruled is None:
            return
        which_C = step.ruled.forbidden_NC[n]
        before_X = step.prefixes_NW[n, step.ruled.parents_NC[n, which_C]]
        columns = (step.ruled.tokens_NC, step.ruled.log_p_NC, step.ruled.totals_NC, step.ruled.scores_NC)
        rows = zip(before_X.tolist(), *(column[n, which_C].tolist() for column in columns), strict=True)
        for before, token, log_p, total, score in rows:
            self.new(before, token, log_p, total, score, step.length, "forbidden", sentence, group)

    def new(self, before: int, *rest: object) -> Candidate:
        parent = self.known[before].id if before >= 0 else -1
        one = Candidate(len(self.candidates), parent, *rest)  # type: ignore[arg-type]
        self.candidates.append(one)
        return one

    def of_sentence(self, sentence: int = 0) -> list[Candidate]:
        """The candidates of one sentence, numbered anew."""
        mine = [one for one in self.candidates if one.sentence == sentence]
        place = {-1: -1} | {one.id: n for n, one in enumerate(mine)}
        return [Candidate(**vars(one) | {"id": place[one.id], "before": place[one.before]}) for one in mine]


def way_to(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """The candidates from the first token to one of them."""
    found: list[Candidate] = []
    while number >= 0:
        found.append(candidates[number])
        number = candidates[number].before
    return found[::-1]


def replay(candidates: Sequence[Candidate], ends: Collection[int], n_best: int) -> list[Hypothesis]:
    """The result of a search, from the fates of its candidates alone.

    Of equal scores, those of the group that was over first come first.
    """
    found: dict[tuple[int, ...], Hypothesis] = {}
    over: dict[int, int] = {}
    for one in candidates:
        over[one.group] = max(over.get(one.group, 0), one.step)
    for one in sorted(candidates, key=lambda one: (-one.score, over[one.group], one.group)):
        if one.fate == "ended":
            way = way_to(candidates, one.id)
            tokens = [each.token for each in way]
            log_p = [each.log_probability for each in way]
            found.setdefault(tuple(tokens), Hypothesis(tokens, one.score, log_p, one.token in ends))
    return list(found.values())[:n_best]


def lives_on(alive_NA: Tensor, totals_NC: Tensor, ended_NC: Tensor) -> Tensor:
    """Which candidates the next step extends: [N, C]."""
    chosen_NC = torch.zeros_like(ended_NC).scatter_(1, alive_NA, True)
    return chosen_NC & ~ended_NC & (totals_NC > NEVER)
