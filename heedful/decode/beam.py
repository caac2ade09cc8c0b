"""Beam search: keep the W most likely prefixes, extend each by every token, keep the W most likely again.

A finished hypothesis Y of the source X scores

    s(Y) = log P(Y|X) / lp(Y) + cp(X, Y)

with lp the length penalty (a longer sentence has more factors below 1) and cp the coverage penalty (every
word of the source should be attended to once). |Y| counts the end of sentence. Prefixes still alive are
ranked by log P(Y|X) alone.

Where others differ. Of the 2 W candidates of a step, an end of sentence counts only among the best W (fairseq
and Hugging Face; T2T takes all of them). A prefix that reaches the greatest length counts as it stands
(Hugging Face; fairseq makes it end, T2T takes it only where nothing else ended). Filters lower
log-probabilities and do not normalize them anew (fairseq, Hugging Face).

Besides the usual letters: N searches (a sentence, or a group of a sentence, each) of W prefixes, R = N W rows
of the step, C candidates, F finished hypotheses kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from .beam_fates import Expansion, Listener, Ruled, lives_on
from .beam_settings import STOPPING, BeamSettings, Standing, coverage_penalty
from .filters import Context, Filter
from .prefix_tree import PrefixTree
from .prompts import Ends, checked
from .scores import NEVER, apply_to_log_probabilities, check_choice, top_tokens
from .step import Step, read_prompts
from .streaming import HostCopy, Hypothesis, to_device
from .turns import Turns, finish


def beam_search(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    longest: int | Sequence[int],
    eos: Ends,
    settings: BeamSettings | None = None,
    filters: Sequence[Filter] = (),
    heard: Listener | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each prompt, best first, all different.

    Args:
        step: As in `greedy`; it must be fresh.
        prompts_BT: As in `greedy`.
        lengths_B: As in `greedy`.
        longest: As in `greedy`.
        eos: The token that ends a text, or several.
        settings: Width, penalties and stopping; None: those of Vaswani et al. 2017.
        filters: As in `greedy`.
        heard: Is told of every candidate and its fate.

    Returns:
        For each prompt, `settings.n_best` of `Hypothesis`.

    Example:
        >>> from heedful.decode.step import step_of
        >>> step = step_of(heedful.load("runs/demo").model, torch.tensor([[5, 7, 9]]))
        >>> settings = BeamSettings(width=3, n_best=2)
        >>> ((best, second),) = beam_search(step, torch.tensor([[1]]), longest=5, eos=2, settings=settings)
        >>> best.score >= second.score
        True
    """
    given = {"longest": longest, "eos": eos, "settings": settings, "filters": filters, "heard": heard}
    return finish(beam_steps(step, prompts_BT, lengths_B, **given))  # type: ignore[arg-type]


@torch.no_grad()
def beam_steps(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    longest: int | Sequence[int],
    eos: Ends,
    settings: BeamSettings | None = None,
    filters: Sequence[Filter] = (),
    prefill: int | None = None,
    heard: Listener | None = None,
) -> Turns[list[list[Hypothesis]]]:
    """The same search in turns: after each step, others may have theirs.

    prefill: tokens of prompts that are read in a turn; None: all of them.
    """
    settings, device = settings or BeamSettings(), prompts_BT.device
    lengths_B, limits, ends = checked(prompts_BT, lengths_B, longest, eos)
    if not limits:
        return []
    ends_E = to_device(torch.tensor(ends, dtype=torch.long), device)
    rules = Rules(settings, tuple(ends), ends_E, max(limits), filters, heard)
    context = Context.prompts(prompts_BT, lengths_B) if filters else None
    scores_RV = yield from read_prompts(step, prompts_BT, lengths_B, prefill)
    searches = begin(limits, settings, torch.promote_types(scores_RV.dtype, torch.float32), device)
    if settings.beam_groups > 1:
        step.reorder(searches.sentences_N)
        scores_RV = scores_RV[searches.sentences_N]
        context = None if context is None else context.select(searches.sentences_N)
    tree = PrefixTree()
    searches = extend_by_one(searches, scores_RV, step, tree, rules, 1, context)
    found = yield from search(searches, step, tree, rules, limits, context)
    return [best_different(some, settings.n_best) for some in hypotheses_of(found, tree, rules)]


Found = list[list[tuple[float, int]]]  # of every sentence, scores and nodes of finished hypotheses


def search(
    searches: Searches, step: Step, tree: PrefixTree, rules: Rules, limits: list[int], context: Context | None
) -> Turns[Found]:
    """Go on from prefixes of one token until every search is over.

    Where looking means waiting for a device, several tokens are added before the host looks which searches
    are over. While the host looks, the device adds the first few of the next ones.
    """
    found: Found = [[] for _ in limits]
    sentences = [sentence for sentence in range(len(limits)) for _ in range(rules.settings.beam_groups)]
    n = 1
    while True:
        yield
        copy, room = HostCopy(what_to_see(searches)), min(limits[sentence] for sentence in sentences) - n
        lead = step.head_start(step.chunk, room, bool(rules.ends))
        searches, context = extend_run(searches, step, tree, rules, n, lead, context)
        (seen_NX,) = copy.wait()
        going = collect(seen_NX, sentences, found)
        if not going:
            return found
        if len(going) < len(sentences):
            searches = searches.select(to_device(torch.tensor(going), searches.over_N.device))
            sentences = [sentences[i] for i in going]
        run = min(step.chunk, min(limits[sentence] for sentence in sentences) - n)
        rest = max(step.fitting(run - lead), 0 if lead else 1)
        searches, context = extend_run(searches, step, tree, rules, n + lead, rest, context)
        n += lead + rest


def what_to_see(searches: Searches) -> Tensor:
    """Which searches are over, whether they are sound, and what they have found: [N, 2 + 2 F]."""
    columns = (searches.over_N[:, None], searches.lowest_N[:, None], searches.scores_NF, searches.finished_NF)
    return torch.cat([column.double() for column in columns], 1)


def collect(seen_NX: Tensor, sentences: list[int], found: Found) -> list[int]:
    """Keep what searches that are over have found, by sentence; the indices of the others come back."""
    over, lowest = seen_NX[:, :2].T.tolist()
    check_choice(lowest, sentences)
    for i, sentence in enumerate(sentences):
        if over[i]:
            scores, nodes = seen_NX[i, 2:].view(2, -1).tolist()
            found[sentence] += [(s, int(node)) for s, node in zip(scores, nodes, strict=True) if s > NEVER]
    return [i for i, is_over in enumerate(over) if not is_over]


def extend_run(
    searches: Searches,
    step: Step,
    tree: PrefixTree,
    rules: Rules,
    n: int,
    run: int,
    context: Context | None,
) -> tuple[Searches, Context | None]:
    """Feed every prefix of n tokens its newest and give it one more, `run` times."""
    if not run:
        return searches, context
    plainly = bool(rules.filters) or rules.heard is not None
    quick = None if plainly else step.extend_searches(searches, tree, rules, n, run)
    if quick is not None:
        return quick, context
    for length in range(n + 1, n + run + 1):
        rows_R, tokens_R = searches.rows_NW.flatten(), searches.tokens_NW.flatten()
        step.reorder(rows_R, searches.siblings)
        context = None if context is None else context.select(rows_R).then(tokens_R)
        searches = extend_by_one(searches, step.last(tokens_R[:, None]), step, tree, rules, length, context)
    return searches, context


def hypotheses_of(found: Found, tree: PrefixTree, rules: Rules) -> list[list[Hypothesis]]:
    """The hypotheses of every sentence, best first. Of one group, no two are alike: the n best are enough."""
    most = rules.settings.n_best if rules.settings.beam_groups == 1 else None
    ranked = [sorted(some, key=lambda pair: -pair[0])[:most] for some in found]
    texts = iter(tree.read([node for some in ranked for _, node in some]))
    return [
        [
            Hypothesis(tokens, score, log_p, tokens[-1] in rules.ends)
            for (score, _), (tokens, log_p) in zip(some, texts, strict=False)
        ]
        for some in ranked
    ]


def best_different(some: list[Hypothesis], n_best: int) -> list[Hypothesis]:
    """The n best of those that come best first; what two groups found is one."""
    kept: dict[tuple[int, ...], Hypothesis] = {}
    for one in some:
        kept.setdefault(tuple(one.tokens), one)
    return list(kept.values())[:n_best]


# The state of a search.


@dataclass(frozen=True)
class Rules:
    """What all searches of a call have in common."""

    settings: BeamSettings
    ends: tuple[int, ...]  # tokens that end a sentence
    ends_E: Tensor  # the same, where the scores are
    longest: int  # tokens of any hypothesis
    filters: Sequence[Filter]
    heard: Listener | None = None


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
    B, G, F = len(limits), settings.beam_groups, settings.width
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


# One step: extend every prefix by every token, keep the best, and see which searches are over.


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
    ruled = ruled_out(searches, scores_RV, rules, n, context) if rules.heard and filters else None
    if rules.settings.beam_groups > 1:
        log_p_RV, changed_RV = apply_to_log_probabilities(filters, scores_RV, context)
        searches = extend(searches, log_p_RV, changed_RV, tree, rules, n, ruled=ruled)
    else:  # only the best tokens of each prefix can be among the best of all
        most = min(count(rules.ends_E, rules.settings.width), scores_RV.shape[1])
        log_p_RX, changed_RX, tokens_RX = top_tokens(scores_RV, most, filters, context)
        searches = extend(searches, log_p_RX, changed_RX, tree, rules, n, tokens_RX, ruled)
    return replace(searches, over_N=searches.over_N | is_over(searches, n, rules.settings))


def ruled_out(searches: Searches, scores_RV: Tensor, rules: Rules, n: int, context: Context | None) -> Ruled:
    """The best candidates if there were no filters, and which of them the filters forbid."""
    (N, W), V = searches.totals_NW.shape, scores_RV.shape[1]
    log_p_RV, changed_RV = apply_to_log_probabilities(rules.filters, scores_RV, context)
    totals_NX = (searches.totals_NW[..., None] + log_p_RV.view(N, W, V)).flatten(1)
    totals_NC, at_NC = totals_NX.topk(min(count(rules.ends_E, rules.settings.width), W * V))
    log_p_NC, changed_NC = (x.reshape(N, W * V).gather(1, at_NC) for x in (log_p_RV, changed_RV))
    covered_NC = covered(searches, rules.settings).gather(1, at_NC // V)
    scores_NC = score(totals_NC, covered_NC, n, rules.settings)
    forbidden_NC = (changed_NC == NEVER) & (totals_NC > NEVER)
    return Ruled(at_NC // V, at_NC % V, log_p_NC, totals_NC, scores_NC, forbidden_NC)


def add_attention(searches: Searches, step: Step, settings: BeamSettings) -> Searches:
    """Add up the attention of the prefixes to the source, averaged over heads."""
    if not settings.coverage_penalty:
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
    ruled: Ruled | None = None,
) -> Searches:
    """Give every prefix an n-th token: the W best live on, and those that end compete with those that have.

    Searches that are over find nothing more. tokens: which they are, if not the whole vocabulary in order.
    ruled: what the filters forbid, for a listener.
    """
    settings, ends, over_N = rules.settings, rules.ends_E, searches.over_N
    (N, W), V, F = searches.totals_NW.shape, log_p_RV.shape[-1], settings.width
    totals_NX = (searches.totals_NW[..., None] + changed_RV.view(N, W, V)).flatten(1)
    tokens_NX = None if tokens_RV is None else tokens_RV.view(N, W * V)
    at_NC, alive_NA = candidates(totals_NX, searches, V, ends, settings, tokens_NX)
    totals_NC, parents_NC, tokens_NC = totals_NX.gather(1, at_NC), at_NC // V, tokens_at(at_NC, V, tokens_NX)
    log_p_NC = log_p_RV.view(N, W * V).gather(1, at_NC)
    before_NC = searches.nodes_NW.gather(1, parents_NC)
    nodes_NC = tree.grow(before_NC, tokens_NC, log_p_NC)

    ended_NC = torch.isin(tokens_NC, ends)
    counts_NC = ended_NC | (searches.limits_N == n)[:, None]
    counts_NC = counts_NC & ~over_N[:, None]
    counts_NC[:, F:] = False
    scores_NC = score(totals_NC, covered(searches, settings).gather(1, parents_NC), n, settings)
    merged = torch.cat([searches.scores_NF, scores_NC.masked_fill(~counts_NC, NEVER)], 1)
    scores_NF, order_NF = merged.topk(F)
    finished_NF = torch.cat([searches.finished_NF, nodes_NC], 1).gather(1, order_NF)
    if rules.heard is not None:
        rules.heard(
            Expansion(
                n,
                searches.sentences_N,
                searches.groups_N,
                over_N,
                nodes_NC,
                before_NC,
                tokens_NC,
                log_p_NC,
                totals_NC,
                scores_NC,
                finished_NC=counts_NC,
                lives_NC=lives_on(alive_NA, totals_NC, ended_NC),
                best_NF=finished_NF.masked_fill(scores_NF == NEVER, -1),
                prefixes_NW=searches.nodes_NW,
                ruled=ruled,
            )
        )

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
        finished_NF=finished_NF,
        lowest_N=torch.minimum(searches.lowest_N, top_N.masked_fill(found_N | over_N, 0)),
    )


def score(totals_NW: Tensor, covered_NW: Tensor, n: int, settings: BeamSettings) -> Tensor:
    """s(Y) of hypotheses of n tokens."""
    return totals_NW / float(settings.penalty(torch.tensor([n]), totals_NW.dtype)) + covered_NW


def covered(searches: Searches, settings: BeamSettings) -> Tensor:
    """cp(X, Y) of the live prefixes."""
    if searches.attended_NWS is None:
        return torch.zeros_like(searches.totals_NW)
    return settings.coverage_penalty * coverage_penalty(searches.attended_NWS).to(searches.totals_NW.dtype)


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
    if settings.beam_groups == 1:
        return pick(totals_NX, V, ends, settings.width, tokens_NX)
    W = searches.totals_NW.shape[1]
    taken_BV = torch.zeros(int(searches.sentences_N.max()) + 1, V, device=totals_NX.device)
    picked: list[tuple[Tensor, Tensor]] = []
    members = [(searches.groups_N == g).nonzero()[:, 0] for g in range(settings.beam_groups)]
    for mine in members:
        sentences = searches.sentences_N[mine]
        price_MV = settings.diversity_penalty * taken_BV[sentences].to(totals_NX.dtype)
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
    best_length_N = searches.limits_N if settings.length_alpha > 0 else torch.full_like(searches.limits_N, n)
    standing = Standing(
        totals_NW,
        score(totals_NW, covered(searches, settings), n, settings),
        searches.scores_NF[:, -1],
        settings.penalty(best_length_N, totals_NW.dtype),
    )
    dead_N = totals_NW.amax(-1) == NEVER
    return STOPPING[settings.stopping](standing) | (searches.limits_N == n) | dead_N
