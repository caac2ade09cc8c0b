"""Beam search: keep the W likeliest prefixes, extend each by every word, keep the W likeliest again.

A finished hypothesis Y of the source X scores

    s(Y) = log P(Y|X) / lp(Y) + cp(X, Y)

with lp the length penalty (a longer sentence has more factors below 1) and cp the coverage penalty (every word of
the source should be looked at once). |Y| counts the end of sentence. Prefixes still alive are ranked by
log P(Y|X) alone.

Where others differ. Of the 2 W candidates of a step, an end of sentence counts only among the best W (fairseq and
Hugging Face; T2T takes all of them). A prefix that reaches the greatest length counts as it stands (Hugging Face;
fairseq makes it end, T2T takes it only where nothing else ended). Filters lower log-probabilities and do not
normalise them anew (fairseq, Hugging Face).

Besides the usual letters: N searches (a sentence, or a group of a sentence, each), R = N W rows of the step,
C candidates, F finished hypotheses kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from .filters import NEVER, Filter, apply_to_log_probabilities, check_choice
from .step import Step
from .stream import begun
from .written import Ends, Hypothesis, Written, checked_lengths, ends_of, limits_of

# Length penalties.


def gnmt(length: Tensor, alpha: float) -> Tensor:
    """((5 + |Y|) / 6)^alpha (Wu et al. 2016)."""
    return ((5 + length) / 6) ** alpha


def power(length: Tensor, alpha: float) -> Tensor:
    """|Y|^alpha (fairseq, Hugging Face): 0 ranks by probability, 1 by the mean log-probability."""
    return length**alpha


LENGTH_PENALTIES: dict[str, Callable[[Tensor, float], Tensor]] = {"gnmt": gnmt, "power": power}


# Coverage penalty.


def coverage_penalty(looked_NWS: Tensor) -> Tensor:
    """sum over the source of log min(attention received, 1) (Wu et al. 2016): 0 once every word was looked at.

    What is negative is no word.
    """
    floor = torch.finfo(looked_NWS.dtype).tiny  # what rounds to 0 was looked at a little
    return torch.where(looked_NWS < 0, 1, looked_NWS).clamp(floor, 1).log().sum(-1)


# When to stop: a rule says which of N searches are over.


@dataclass(frozen=True)
class Standing:
    """What a rule may look at."""

    totals_NW: Tensor  # log P of the prefixes still alive
    now_NW: Tensor  # what each would score if it ended as it stands
    worst_N: Tensor  # the score of the worst of W finished hypotheses; -inf before there are W
    ideal_N: Tensor  # the penalty at the length that pays most


def first_B(s: Standing) -> Tensor:
    """As soon as W hypotheses have finished."""
    return s.worst_N > NEVER


def heuristic(s: Standing) -> Tensor:
    """When no live prefix, if it ended as it stands, would beat the worst of W finished ones."""
    return s.now_NW.amax(-1) <= s.worst_N


def exact(s: Standing) -> Tensor:
    """When nothing a live prefix can become would beat the worst of W finished ones.

    The best it can become loses no more probability, covers the whole source, and has the length that pays most.
    """
    return s.totals_NW.amax(-1) / s.ideal_N <= s.worst_N


STOPPING: dict[str, Callable[[Standing], Tensor]] = {
    "first_B": first_B,
    "heuristic": heuristic,
    "exact": exact,
}


@dataclass(frozen=True)
class BeamSettings:
    """How wide to search, and what to call good. The defaults are those of Vaswani et al. 2017."""

    width: int = 4  # prefixes kept alive, in each group
    n_best: int = 1  # hypotheses to return for each sentence
    length_penalty: str = "gnmt"  # or "power"
    alpha: float = 0.6  # its exponent; 0 for none
    coverage: float = 0.0  # the weight of the coverage penalty, beta
    stopping: str = "heuristic"  # or "first_B" or "exact"
    groups: int = 1  # groups of a sentence, each made to differ from those before it
    diversity: float = 0.0  # what a token costs for each time an earlier group took it at the same place

    def __post_init__(self) -> None:
        for name, table in (("length_penalty", LENGTH_PENALTIES), ("stopping", STOPPING)):
            if getattr(self, name) not in table:
                raise BadInput(f'{name} "{getattr(self, name)}" does not exist; there are {", ".join(table)}')
        for name in ("width", "n_best", "groups"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}: it must be at least 1")
        for name, least in (("alpha", -math.inf), ("coverage", 0), ("diversity", 0)):
            if not (least <= getattr(self, name) < math.inf and math.isfinite(getattr(self, name))):
                raise BadInput(
                    f"{name} is {getattr(self, name)}: it must be a finite number, at least {least}"
                )
        if self.n_best > self.width * self.groups:
            raise BadInput(
                f"a beam of {self.width * self.groups} cannot find {self.n_best} hypotheses: make it wider"
            )
        if (self.groups > 1) != (self.diversity > 0):
            raise BadInput("groups above 1 and diversity above 0 go together: either alone does nothing")

    def penalty(self, length_N: Tensor, dtype: torch.dtype) -> Tensor:
        """lp(Y)."""
        return LENGTH_PENALTIES[self.length_penalty](length_N.double(), self.alpha).to(dtype)


# The state of the search.


class Tree:
    """Every prefix ever considered: a node is a token, its log-probability, and the node before it (-1: none)."""

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

    def reader(self) -> Callable[[int], tuple[list[int], list[float]]]:
        """From a node, the tokens from the root to it, and their log-probabilities."""
        before, tokens, log_p = (torch.cat(column).tolist() for column in zip(*self.columns, strict=True))

        def read(node: int) -> tuple[list[int], list[float]]:
            nodes = []
            while node >= 0:
                nodes.append(node)
                node = before[node]
            return [tokens[i] for i in reversed(nodes)], [log_p[i] for i in reversed(nodes)]

        return read


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
    looked_NWS: Tensor | None  # attention that each word of the source has received
    scores_NF: Tensor  # of finished hypotheses, best first; -inf where there is none yet
    finished_NF: Tensor  # where they end in the tree

    def select(self, which_N: Tensor) -> Searches:
        """Only some of the searches."""
        whole = {field.name: getattr(self, field.name) for field in fields(self)}
        kept: dict[str, Any] = {name: None if x is None else x[which_N] for name, x in whole.items()}
        return Searches(**kept)


def begin(limits: list[int], settings: BeamSettings, dtype: torch.dtype, device: torch.device) -> Searches:
    """One empty prefix for each search."""
    B, G, F = len(limits), settings.groups, settings.width
    sentences_N = torch.arange(B, device=device).repeat_interleave(G)
    nobody_N1 = torch.full((B * G, 1), -1, device=device)
    return Searches(
        sentences_N,
        groups_N=torch.arange(G, device=device).repeat(B),
        limits_N=torch.tensor(limits, device=device)[sentences_N],
        totals_NW=torch.zeros(B * G, 1, dtype=dtype, device=device),
        nodes_NW=nobody_N1,
        tokens_NW=nobody_N1,
        rows_NW=torch.arange(B * G, device=device)[:, None],
        looked_NWS=None,
        scores_NF=torch.full((B * G, F), NEVER, dtype=dtype, device=device),
        finished_NF=nobody_N1.repeat(1, F),
    )


# The search.


@torch.no_grad()
def beam_search(
    step: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    longest: int | Sequence[int],
    eos: Ends,
    settings: BeamSettings | None = None,
    filters: Sequence[Filter] = (),
) -> list[list[Hypothesis]]:
    """The best hypotheses for each prompt, best first, all different.

    A hypothesis has at most `longest` tokens (one number for all, or one each). The step must be fresh.
    """
    settings, B, device = settings or BeamSettings(), len(prompts_BT), prompts_BT.device
    limits, ends = limits_of(longest, B), torch.tensor(ends_of(eos), dtype=torch.long, device=device)
    found: list[list[tuple[float, int]]] = [[] for _ in range(B)]
    if not B:
        return []
    lengths_B = checked_lengths(prompts_BT, lengths_B)
    written = begun(filters, prompts_BT, lengths_B)
    scores_RV, tree = step.last(prompts_BT, lengths_B), Tree()
    searches = begin(limits, settings, torch.promote_types(scores_RV.dtype, torch.float32), device)
    if settings.groups > 1:
        step.reorder(searches.sentences_N)
        scores_RV = scores_RV[searches.sentences_N]
        written = None if written is None else written.select(searches.sentences_N)
    n = 1
    none_over = torch.zeros_like(searches.limits_N, dtype=torch.bool)
    searches, totals = look_and_extend(
        searches, scores_RV, step, tree, ends, n, settings, filters, written, none_over
    )
    over = is_over(searches, n, settings)
    while True:
        check_choice(totals.tolist(), searches.sentences_N.tolist())
        collect(searches.select(over), found)
        if bool(over.all()):
            break
        siblings, searches = not bool(over.any()), searches.select(~over)
        # Where looking means waiting for a device, several tokens are added before it is seen which searches are over.
        run = min(step.ahead, int(searches.limits_N.min()) - n)
        quick = None if filters else step.extend(searches, tree, ends, n, run, settings, siblings)
        if quick is not None:
            searches, over, totals = quick
        else:
            searches, over, totals, written = several(
                searches, step, tree, ends, n, run, settings, filters, written, siblings
            )
        n += run
    read = tree.reader()
    return [best(some, read, ends_of(eos), settings.n_best) for some in found]


def several(
    searches: Searches,
    step: Step,
    tree: Tree,
    ends: Tensor,
    n: int,
    run: int,
    settings: BeamSettings,
    filters: Sequence[Filter],
    written: Written | None,
    siblings: bool,
) -> tuple[Searches, Tensor, Tensor, Written | None]:
    """Feed every prefix its newest token and give it one more, `run` times. siblings: all searches go on, so rows stay
    within their sentence."""
    over_N, totals = torch.zeros_like(searches.limits_N, dtype=torch.bool), []
    for length in range(n + 1, n + run + 1):
        rows_R, tokens_R = searches.rows_NW.flatten(), searches.tokens_NW.flatten()
        step.reorder(rows_R, siblings)
        written = None if written is None else written.select(rows_R).then(tokens_R)
        scores_RV = step.last(tokens_R[:, None])
        searches, best_N = look_and_extend(
            searches, scores_RV, step, tree, ends, length, settings, filters, written, over_N
        )
        totals.append(best_N)
        over_N, siblings = over_N | is_over(searches, length, settings), True
    return searches, over_N, torch.stack(totals, -1).amin(-1), written


def look_and_extend(
    searches: Searches,
    scores_RV: Tensor,
    step: Step,
    tree: Tree,
    ends: Tensor,
    n: int,
    settings: BeamSettings,
    filters: Sequence[Filter],
    written: Written | None,
    over_N: Tensor,
) -> tuple[Searches, Tensor]:
    """An n-th token for every prefix, from the scores after each."""
    searches = look(searches, step, settings)
    log_p_RV, changed_RV = apply_to_log_probabilities(filters, scores_RV, written)
    return extend(searches, log_p_RV, changed_RV, tree, ends, n, settings, over_N)


def look(searches: Searches, step: Step, settings: BeamSettings) -> Searches:
    """Count what the prefixes look at as they choose the next token; heads count equally."""
    if not settings.coverage:
        return searches
    if step.attention is None:
        raise BadInput("the coverage penalty needs the attention to the source: make the step watched=True")
    looked_NWS = step.attention.mean(1).unflatten(0, searches.totals_NW.shape)
    if searches.looked_NWS is not None:
        looked_NWS = looked_NWS + searches.looked_NWS
    return replace(searches, looked_NWS=looked_NWS)


def extend(
    searches: Searches,
    log_p_RV: Tensor,
    changed_RV: Tensor,
    tree: Tree,
    ends: Tensor,
    n: int,
    settings: BeamSettings,
    over_N: Tensor,
) -> tuple[Searches, Tensor]:
    """Give every prefix an n-th token: the W best live on, and those that end compete with those that have.

    Searches that are over find nothing more. Second, what to check: the best total of each search that needs one.
    """
    (N, W), V, F = searches.totals_NW.shape, log_p_RV.shape[-1], settings.width
    totals_NX = (searches.totals_NW[..., None] + changed_RV.view(N, W, V)).flatten(1)
    at_NC, alive_NA = candidates(totals_NX, searches, V, ends, settings)
    totals_NC, parents_NC, tokens_NC = totals_NX.gather(1, at_NC), at_NC // V, at_NC % V
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
    looked = searches.looked_NWS
    top_N = totals_NC.amax(-1)
    found_N = (searches.scores_NF[:, 0] > NEVER) & ~top_N.isnan()  # then it may have nowhere to go
    further = replace(
        searches,
        totals_NW=totals_NC.masked_fill(ended_NC, NEVER).gather(1, alive_NA),
        nodes_NW=nodes_NC.gather(1, alive_NA),
        tokens_NW=tokens_NC.gather(1, alive_NA),
        rows_NW=first_row_N1 + parents_NA,
        looked_NWS=None if looked is None else looked.take_along_dim(parents_NA[..., None], 1),
        scores_NF=scores_NF,
        finished_NF=torch.cat([searches.finished_NF, nodes_NC], 1).gather(1, order_NF),
    )
    return further, top_N.masked_fill(found_N | over_N, 0)


def score(totals_NW: Tensor, covered_NW: Tensor, n: int, settings: BeamSettings) -> Tensor:
    """s(Y) of hypotheses of n tokens."""
    length_1 = torch.tensor([n], device=totals_NW.device)
    return totals_NW / settings.penalty(length_1, totals_NW.dtype) + covered_NW


def covered(searches: Searches, settings: BeamSettings) -> Tensor:
    """cp(X, Y) of the live prefixes."""
    if searches.looked_NWS is None:
        return torch.zeros_like(searches.totals_NW)
    return settings.coverage * coverage_penalty(searches.looked_NWS).to(searches.totals_NW.dtype)


def candidates(
    totals_NX: Tensor, searches: Searches, V: int, ends: Tensor, settings: BeamSettings
) -> tuple[Tensor, Tensor]:
    """The best continuations among all prefixes and words (X = W V), best first, and which of them live on.

    With groups, the later pay for the tokens that the earlier have taken at this step (Vijayakumar et al. 2018, with
    Hamming diversity). The price steers the choice and is not part of the score; fairseq adds it up.
    """
    if settings.groups == 1:
        return pick(totals_NX, V, ends, settings.width)
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


def pick(keys_NX: Tensor, V: int, ends: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The candidates: enough that `width` remain even if every prefix ends; and those that remain."""
    C = min((1 + max(1, len(ends))) * width, keys_NX.shape[1])
    keys_NC, at_NC = keys_NX.topk(C)
    alive_NC = keys_NC.masked_fill(torch.isin(at_NC % V, ends), NEVER)
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


def collect(searches: Searches, found: list[list[tuple[float, int]]]) -> None:
    """Keep what these searches have found, under its sentence."""
    columns = (searches.sentences_N, searches.scores_NF, searches.finished_NF)
    for sentence, scores, nodes in zip(*(column.tolist() for column in columns), strict=True):
        found[sentence] += [(s, node) for s, node in zip(scores, nodes, strict=True) if s > NEVER]


def best(
    some: list[tuple[float, int]],
    read: Callable[[int], tuple[list[int], list[float]]],
    ends: list[int],
    n_best: int,
) -> list[Hypothesis]:
    """The n best of a sentence; what two groups found is one."""
    kept: dict[tuple[int, ...], Hypothesis] = {}
    for total, node in sorted(some, key=lambda pair: -pair[0]):
        tokens, log_p = read(node)
        kept.setdefault(tuple(tokens), Hypothesis(tokens, total, log_p, tokens[-1] in ends))
        if len(kept) == n_best:
            break
    return list(kept.values())
