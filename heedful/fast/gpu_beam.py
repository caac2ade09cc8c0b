"""Beam search on a lane: several steps of all searches in graphs, and only then a look at which of them are over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ..decode.step import CHUNK
from .kernels.beam import Beams, extend_beams

if TYPE_CHECKING:
    from ..decode.beam_settings import BeamSettings
    from ..decode.beam_state import PrefixTree, Rules, Searches
    from .cuda_graph import GraphStep, Lane

KINDS = 8  # of searches whose buffers and graphs a lane keeps


def beams_on(lane: Lane, rules: Rules) -> Beams:
    """The lane's buffers for such a search; those of the last few kinds of search are kept."""
    settings, size = rules.settings, 1 << (rules.longest + 1).bit_length()
    key = (settings.width, settings.stopping, settings.length_penalty, settings.alpha, rules.ends, size)
    if key not in lane.beams:
        if len(lane.beams) == KINDS:
            oldest = lane.beams.pop(next(iter(lane.beams)))
            lane.graphs.pop(graph_of(oldest), None)
        lengths_L = torch.arange(size, device=rules.ends_E.device).clamp(min=1)
        penalties_L = settings.penalty(lengths_L, torch.float32)
        N, V = lane.rows // settings.width, lane.lowered.words
        lane.beams[key] = Beams.room(
            N, settings.width, settings.stopping, settings.alpha > 0, rules.ends_E, penalties_L, CHUNK, V
        )
    return lane.beams[key]


def graph_of(beams: Beams) -> tuple[str, int]:
    """The name of its graph."""
    return "beams", id(beams)


def extended(
    step: GraphStep, searches: Searches, tree: PrefixTree, rules: Rules, n: int, run: int
) -> Searches:
    """`run` tokens more for every prefix, after n. What comes back lies in the lane's buffers, until the next time."""
    assert run <= CHUNK, "there is no room to write down more"
    N, W = searches.totals_NW.shape
    if not searches.in_place:
        step.reorder(searches.rows_NW.flatten(), searches.siblings)
    lane = step.with_room(run)
    beams = beams_on(lane, rules)
    tokens_NW = lane.tokens_R[: N * W].view(N, W)
    for into, given in (
        (tokens_NW, searches.tokens_NW), (beams.limits_N, searches.limits_N), (beams.totals_NW, searches.totals_NW),
        (beams.nodes_NW, searches.nodes_NW), (beams.scores_NF, searches.scores_NF),
        (beams.finished_NF, searches.finished_NF),
    ):  # fmt: skip
        if into.data_ptr() != given.data_ptr():  # not there any more
            into[:N] = given
    beams.over_N.fill_(1)
    beams.over_N[:N] = searches.over_N
    beams.steps_N.fill_(n)
    beams.counts_N.zero_()
    beams.base.fill_(tree.size)

    def once() -> None:
        scores_RV = lane.lowered(lane.tokens_R, lane.room)
        lane.room.lengths_R.add_(1).clamp_(max=lane.spare)
        assert lane.room.origin_RS is not None
        extend_beams(scores_RV, lane.tokens_R, lane.room.origin_RS, lane.room.lengths_R, beams)

    changing = (
        beams.totals_NW, beams.nodes_NW, beams.scores_NF, beams.finished_NF, beams.over_N, beams.steps_N, beams.counts_N,
    )  # fmt: skip
    for _ in range(run):
        lane.run(graph_of(beams), once, changing)
    step.used += run
    step.shared = True
    considered = (beams.before_HNC, beams.tokens_HNC, beams.log_p_HNC)
    tree.add(*(column[:run].flatten().clone() for column in considered))
    rows_NW = torch.arange(N * W, device=tokens_NW.device).view(N, W)  # they have traded places already
    return replace(
        searches, in_place=True, siblings=True, rows_NW=rows_NW, tokens_NW=tokens_NW,
        totals_NW=beams.totals_NW[:N], nodes_NW=beams.nodes_NW[:N], limits_N=beams.limits_N[:N],
        scores_NF=beams.scores_NF[:N], finished_NF=beams.finished_NF[:N], over_N=beams.over_N[:N] != 0,
        lowest_N=torch.minimum(searches.lowest_N, beams.best_HN[:run, :N].amin(0)),
    )  # fmt: skip


def suits(settings: BeamSettings, searches: Searches) -> bool:
    """Whether the kernels know such a search, once every search has as many prefixes as it is to have."""
    full = searches.totals_NW.shape[1] == settings.width
    return full and settings.groups == 1 and not settings.coverage and settings.width <= 32
