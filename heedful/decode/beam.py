"""Beam search: keep the W likeliest prefixes, extend each by every token, keep the W likeliest again.

A finished hypothesis Y of the source X scores

    s(Y) = log P(Y|X) / lp(Y) + cp(X, Y)

with lp the length penalty (a longer sentence has more factors below 1) and cp the coverage penalty (every
word of the source should be attended to once). |Y| counts the end of sentence. Prefixes still alive are
ranked by log P(Y|X) alone.

Where others differ. Of the 2 W candidates of a step, an end of sentence counts only among the best W (fairseq
and Hugging Face; T2T takes all of them). A prefix that reaches the greatest length counts as it stands
(Hugging Face; fairseq makes it end, T2T takes it only where nothing else ended). Filters lower
log-probabilities and do not normalize them anew (fairseq, Hugging Face).

Besides the usual letters: N searches (a sentence, or a group of a sentence, each), R = N W rows of the step,
C candidates, F finished hypotheses kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .beam_extend import extend_by_one
from .beam_settings import BeamSettings
from .beam_state import PrefixTree, Rules, Searches, begin
from .context import Context, context_of
from .filters import NEVER, Filter, check_choice
from .hypothesis import Hypothesis
from .prompts import Ends, checked_lengths, ends_of, limits_of
from .step import Step
from .streaming import fitting, head_start
from .transfer import HostCopy, to_device


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
    settings, device = settings or BeamSettings(), prompts_BT.device
    limits, ends = limits_of(longest, len(prompts_BT)), tuple(ends_of(eos))
    if not limits:
        return []
    lengths_B = checked_lengths(prompts_BT, lengths_B)
    ends_E = to_device(torch.tensor(ends, dtype=torch.long), device)
    rules = Rules(settings, ends, ends_E, max(limits), filters)
    context = context_of(filters, prompts_BT, lengths_B)
    scores_RV = step.last(prompts_BT, lengths_B)
    searches = begin(limits, settings, torch.promote_types(scores_RV.dtype, torch.float32), device)
    if settings.groups > 1:
        step.reorder(searches.sentences_N)
        scores_RV = scores_RV[searches.sentences_N]
        context = None if context is None else context.select(searches.sentences_N)
    tree = PrefixTree()
    searches = extend_by_one(searches, scores_RV, step, tree, rules, 1, context)
    found = search(searches, step, tree, rules, limits, context)
    return [best_different(some, settings.n_best) for some in hypotheses_of(found, tree, rules)]


Found = list[list[tuple[float, int]]]  # of every sentence, scores and nodes of finished hypotheses


def search(
    searches: Searches, step: Step, tree: PrefixTree, rules: Rules, limits: list[int], context: Context | None
) -> Found:
    """Go on from prefixes of one token until every search is over.

    Where looking means waiting for a device, several tokens are added before the host looks which searches
    are over. While the host looks, the device adds the first few of the next ones.
    """
    found: Found = [[] for _ in limits]
    sentences = [sentence for sentence in range(len(limits)) for _ in range(rules.settings.groups)]
    n = 1
    while True:
        copy, room = HostCopy(what_to_see(searches)), min(limits[sentence] for sentence in sentences) - n
        lead = head_start(step, step.chunk, room, rules.ends)
        searches, context = extend_run(searches, step, tree, rules, n, lead, context)
        (seen_NX,) = copy.wait()
        going = collect(seen_NX, sentences, found)
        if not going:
            return found
        if len(going) < len(sentences):
            searches = searches.select(to_device(torch.tensor(going), searches.over_N.device))
            sentences = [sentences[i] for i in going]
        run = min(step.chunk, min(limits[sentence] for sentence in sentences) - n)
        rest = max(fitting(step, run - lead), 0 if lead else 1)
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
    quick = None if rules.filters else step.extend_searches(searches, tree, rules, n, run)
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
    most = rules.settings.n_best if rules.settings.groups == 1 else None
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
