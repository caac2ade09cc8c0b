"""Beam search by CUDA graphs: several steps of all searches before the host looks which of them are over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ..decode.step import CHUNK
from .kernels.beam import Beams, extend_beams

if TYPE_CHECKING:
    from ..decode.beam import Rules, Searches
    from ..decode.beam_settings import BeamSettings
    from ..decode.prefix_tree import PrefixTree
    from .cuda_graph import GraphRunner, GraphStep

KINDS = 8  # of searches whose buffers and graphs a runner keeps
KEPT = ("limits_N", "totals_NW", "nodes_NW", "scores_NF", "finished_NF")  # of searches, in their buffers
CHANGING = ("totals_NW", "nodes_NW", "scores_NF", "finished_NF", "over_N", "steps_N", "counts_N")


def beams_on(runner: GraphRunner, rules: Rules) -> Beams:
    """The runner's buffers for such a search; those of the last few kinds of search are kept."""
    settings, size = rules.settings, 1 << (rules.longest + 1).bit_length()
    key = (
        settings.width,
        settings.stopping,
        settings.length_penalty,
        settings.length_alpha,
        rules.ends,
        size,
    )
    if key not in runner.beams:
        if len(runner.beams) == KINDS:
            oldest = runner.beams.pop(next(iter(runner.beams)))
            runner.graphs.pop(graph_of(oldest), None)
        lengths_L = torch.arange(size, device=rules.ends_E.device).clamp(min=1)
        penalties_L = settings.penalty(lengths_L, torch.float32)
        N, V = runner.rows // settings.width, runner.gpu.words
        runner.beams[key] = Beams.room(
            N,
            settings.width,
            settings.stopping,
            settings.length_alpha > 0,
            rules.ends_E,
            penalties_L,
            CHUNK,
            V,
        )
    return runner.beams[key]


def graph_of(beams: Beams) -> tuple[str, int]:
    """The name of the graph that works on these buffers."""
    return "beams", id(beams)


def extended(
    step: GraphStep, searches: Searches, tree: PrefixTree, rules: Rules, n: int, run: int
) -> Searches:
    """`run` tokens more for every prefix of n.

    The result lies in the runner's buffers until the next call.
    """
    assert run <= CHUNK, "there is no room to write down more"
    N, W = searches.totals_NW.shape
    if not searches.in_place:
        step.reorder(searches.rows_NW.flatten(), searches.siblings)
    runner = step.with_room(run)
    beams = beams_on(runner, rules)
    tokens_NW = runner.tokens_R[: N * W].view(N, W)
    held = [(getattr(beams, name), getattr(searches, name)) for name in KEPT]
    for into, given in [(tokens_NW, searches.tokens_NW), *held]:
        if into.data_ptr() != given.data_ptr():  # not there any more
            into[:N] = given
    beams.over_N.fill_(1)
    beams.over_N[:N] = searches.over_N
    beams.steps_N.fill_(n)
    beams.counts_N.zero_()
    beams.base.fill_(tree.size)

    def once() -> None:
        scores_RV = runner.gpu(runner.tokens_R, runner.buffers)
        runner.buffers.lengths_R.add_(1).clamp_(max=runner.spare)
        extend_beams(scores_RV, runner.tokens_R, runner.buffers.origin_RS, runner.buffers.lengths_R, beams)

    changing = [getattr(beams, name) for name in CHANGING]
    for _ in range(run):
        runner.run(graph_of(beams), once, changing)
    step.used += run
    step.shared = True
    considered = (beams.before_HNC, beams.tokens_HNC, beams.log_p_HNC)
    tree.add(*(column[:run].flatten().clone() for column in considered))
    rows_NW = torch.arange(N * W, device=tokens_NW.device).view(N, W)  # they have traded places already
    return replace(
        searches,
        in_place=True,
        siblings=True,
        rows_NW=rows_NW,
        tokens_NW=tokens_NW,
        over_N=beams.over_N[:N] != 0,
        lowest_N=torch.minimum(searches.lowest_N, beams.best_HN[:run, :N].amin(0)),
        **{name: getattr(beams, name)[:N] for name in KEPT},
    )


def suits(settings: BeamSettings, searches: Searches) -> bool:
    """Whether there are kernels for such a search; they need all prefixes of every search to be there."""
    full = searches.totals_NW.shape[1] == settings.width
    return full and settings.beam_groups == 1 and not settings.coverage_penalty and settings.width <= 32
