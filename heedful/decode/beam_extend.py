"""One step of beam search: extend every prefix by every token, keep the best, and see which searches are
over.

Besides the usual letters: N searches of W prefixes each, R = N W rows of the step, C candidates, F finished
hypotheses kept.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..errors import BadInput
from .beam_settings import STOPPING, BeamSettings, Standing, coverage_penalty
from .beam_state import PrefixTree, Rules, Searches
from .context import Context
from .filters import NEVER, apply_to_log_probabilities
from .step import Step
from .top_tokens import top_tokens


def extend_by_one(
    searches: Searches,
    scores_RV: Tensor,
    step: Step,
    tree: PrefixTree,
    rules: Rules,
    n: int,
    context: Context | None,
) -> Searches:
    """An n-th token for every prefix, from the scores after each; and which searches are over then."""
    searches, filters = add_attention(searches, step, rules.settings), rules.filters
    if rules.settings.groups > 1:
        log_p_RV, changed_RV = apply_to_log_probabilities(filters, scores_RV, context)
        searches = extend(searches, log_p_RV, changed_RV, tree, rules, n)
    else:  # only the best tokens of each prefix can be among the best of all
        most = min(count(rules.ends_E, rules.settings.width), scores_RV.shape[1])
        log_p_RX, changed_RX, tokens_RX = top_tokens(scores_RV, most, filters, context)
        searches = extend(searches, log_p_RX, changed_RX, tree, rules, n, tokens_RX)
    return replace(searches, over_N=searches.over_N | is_over(searches, n, rules.settings))


def add_attention(searches: Searches, step: Step, settings: BeamSettings) -> Searches:
    """Add up the attention of the prefixes to the source, averaged over heads."""
    if not settings.coverage:
        return searches
    if step.attention is None:
        raise BadInput("the coverage penalty needs the attention to the source: make the step watched=True")
    attended_NWS = step.attention.mean(1).unflatten(0, searches.totals_NW.shape)
    if searches.attended_NWS is not None:
        attended_NWS = attended_NWS + searches.attended_NWS
    return replace(searches, attended_NWS=attended_NWS)


def extend(
    searches: Searches,
    log_p_RV: Tensor,
    changed_RV: Tensor,
    tree: PrefixTree,
    rules: Rules,
    n: int,
    tokens_RV: Tensor | None = None,
) -> Searches:
    """Give every prefix an n-th token: the W best live on, and those that end compete with those that have.

    Searches that are over find nothing more. tokens: which they are, if not the whole vocabulary in order.
    """
    settings, ends, over_N = rules.settings, rules.ends_E, searches.over_N
    (N, W), V, F = searches.totals_NW.shape, log_p_RV.shape[-1], settings.width
    totals_NX = (searches.totals_NW[..., None] + changed_RV.view(N, W, V)).flatten(1)
    tokens_NX = None if tokens_RV is None else tokens_RV.view(N, W * V)
    at_NC, alive_NA = candidates(totals_NX, searches, V, ends, settings, tokens_NX)
    totals_NC, parents_NC, tokens_NC = totals_NX.gather(1, at_NC), at_NC // V, tokens_at(at_NC, V, tokens_NX)
    log_p_NC = log_p_RV.view(N, W * V).gather(1, at_NC)
    nodes_NC = tree.grow(searches.nodes_NW.gather(1, parents_NC), tokens_NC, log_p_NC)

    ended_NC = torch.isin(tokens_NC, ends)
    counts_NC = ended_NC | (searches.limits_N == n)[:, None]
    counts_NC = counts_NC & ~over_N[:, None]
    counts_NC[:, F:] = False
    scores_NC = score(totals_NC, covered(searches, settings).gather(1, parents_NC), n, settings)
    merged = torch.cat([searches.scores_NF, scores_NC.masked_fill(~counts_NC, NEVER)], 1)
    scores_NF, order_NF = merged.topk(F)

    parents_NA = parents_NC.gather(1, alive_NA)
    first_row_N1 = torch.arange(0, N * W, W, device=at_NC.device)[:, None]
    attended = searches.attended_NWS
    top_N = totals_NC.amax(-1)
    found_N = (searches.scores_NF[:, 0] > NEVER) & ~top_N.isnan()  # then it may have nowhere to go
    return replace(
        searches,
        totals_NW=totals_NC.masked_fill(ended_NC, NEVER).gather(1, alive_NA),
        nodes_NW=nodes_NC.gather(1, alive_NA),
        tokens_NW=tokens_NC.gather(1, alive_NA),
        rows_NW=first_row_N1 + parents_NA,
        in_place=False,
        siblings=True,
        attended_NWS=None if attended is None else attended.take_along_dim(parents_NA[..., None], 1),
        scores_NF=scores_NF,
        finished_NF=torch.cat([searches.finished_NF, nodes_NC], 1).gather(1, order_NF),
        lowest_N=torch.minimum(searches.lowest_N, top_N.masked_fill(found_N | over_N, 0)),
    )


def score(totals_NW: Tensor, covered_NW: Tensor, n: int, settings: BeamSettings) -> Tensor:
    """s(Y) of hypotheses of n tokens."""
    return totals_NW / float(settings.penalty(torch.tensor([n]), totals_NW.dtype)) + covered_NW


def covered(searches: Searches, settings: BeamSettings) -> Tensor:
    """cp(X, Y) of the live prefixes."""
    if searches.attended_NWS is None:
        return torch.zeros_like(searches.totals_NW)
    return settings.coverage * coverage_penalty(searches.attended_NWS).to(searches.totals_NW.dtype)


def candidates(
    totals_NX: Tensor,
    searches: Searches,
    V: int,
    ends: Tensor,
    settings: BeamSettings,
    tokens_NX: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The best continuations among all prefixes and tokens (X = W V), best first, and which of them live on.

    With groups, the later pay for the tokens that the earlier have taken at this step (Vijayakumar et al.
    2018, with Hamming diversity). The price steers the choice and is not part of the score; fairseq adds it
    up.
    """
    if settings.groups == 1:
        return pick(totals_NX, V, ends, settings.width, tokens_NX)
    W = searches.totals_NW.shape[1]
    taken_BV = torch.zeros(int(searches.sentences_N.max()) + 1, V, device=totals_NX.device)
    picked: list[tuple[Tensor, Tensor]] = []
    members = [(searches.groups_N == g).nonzero()[:, 0] for g in range(settings.groups)]
    for mine in members:
        sentences = searches.sentences_N[mine]
        price_MV = settings.diversity * taken_BV[sentences].to(totals_NX.dtype)
        keys_MX = totals_NX[mine] - price_MV.repeat(1, W)
        at_MC, alive_MA = pick(keys_MX, V, ends, settings.width)
        picked.append((at_MC, alive_MA))
        at_MA = at_MC.gather(1, alive_MA)
        real_MA = (keys_MX.gather(1, at_MA) > NEVER).to(taken_BV.dtype)
        taken_BV.index_put_((sentences[:, None].expand_as(at_MA), at_MA % V), real_MA, accumulate=True)
    order = torch.cat(members).argsort()
    at_NC, alive_NA = (torch.cat(parts)[order] for parts in zip(*picked, strict=True))
    return at_NC, alive_NA


def tokens_at(at_NC: Tensor, V: int, tokens_NX: Tensor | None) -> Tensor:
    """Which token each place among W V is."""
    return at_NC % V if tokens_NX is None else tokens_NX.gather(1, at_NC)


def count(ends: Tensor, width: int) -> int:
    """How many candidates are enough that `width` remain even if every prefix ends."""
    return (1 + max(1, len(ends))) * width


def pick(
    keys_NX: Tensor, V: int, ends: Tensor, width: int, tokens_NX: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The candidates, and those of them that remain."""
    C = min(count(ends, width), keys_NX.shape[1])
    keys_NC, at_NC = keys_NX.topk(C)
    alive_NC = keys_NC.masked_fill(torch.isin(tokens_at(at_NC, V, tokens_NX), ends), NEVER)
    return at_NC, alive_NC.topk(min(width, C)).indices


def is_over(searches: Searches, n: int, settings: BeamSettings) -> Tensor:
    """Which searches are: by the rule, at the greatest length, or with nothing left alive."""
    totals_NW = searches.totals_NW
    best_length_N = searches.limits_N if settings.alpha > 0 else torch.full_like(searches.limits_N, n)
    standing = Standing(
        totals_NW,
        score(totals_NW, covered(searches, settings), n, settings),
        searches.scores_NF[:, -1],
        settings.penalty(best_length_N, totals_NW.dtype),
    )
    dead_N = totals_NW.amax(-1) == NEVER
    return STOPPING[settings.stopping](standing) | (searches.limits_N == n) | dead_N
