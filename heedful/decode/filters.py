"""Filters: what may be chosen. Each is a pure function from scores to scores; what it forbids gets -inf.

    filters = [repetition_penalty(1.2), temperature(0.7), top_p(0.9)]

They apply in the order given, which for options is that of transformers' logits processors: what was written
before, what must or must not be written, then temperature, then what cuts off the tail. A filter sees the
scores of the next token and the context before it, the prompt included.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from .options import BAN, DecodingOptions, decoding_options
from .prompts import Ends, ends_of
from .scores import NEVER, running_sum

LIKELY = 512  # tokens that hold nearly every share of a trained model's probability
SHARED = 256  # settings for which rows share one filter, so that they can be filtered together


@dataclass(frozen=True)
class Context:
    """The prompt of each row and the tokens after it. Padding (-1) comes first, so all rows end together."""

    tokens_BT: Tensor
    counts_B: Tensor  # how many of the tokens are new, the others being the prompt
    rows_B: Tensor  # the row of the original batch that each row belongs to
    batch: int  # rows in the original batch

    @classmethod
    def prompts(cls, prompts_BT: Tensor, lengths_B: Tensor | None) -> Context:
        """Before the first token; lengths: None if all rows are full."""
        (B, T), device = prompts_BT.shape, prompts_BT.device
        lengths_B = torch.full((B,), T, device=device) if lengths_B is None else lengths_B
        counts_B = torch.zeros(B, dtype=torch.long, device=device)
        return cls(left_padded(prompts_BT, lengths_B), counts_B, torch.arange(B, device=device), B)

    def then(self, tokens_B: Tensor) -> Context:
        """One token more in every row."""
        tokens_BT = torch.cat([self.tokens_BT, tokens_B[:, None]], -1)
        return Context(tokens_BT, self.counts_B + 1, self.rows_B, self.batch)

    def select(self, rows: Tensor) -> Context:
        """Row b becomes what row rows[b] was."""
        return Context(self.tokens_BT[rows], self.counts_B[rows], self.rows_B[rows], self.batch)


def left_padded(tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """Rows padded at the end, padded (with -1) at the beginning instead."""
    T = tokens_BT.shape[1]
    from_BT = torch.arange(T, device=tokens_BT.device) - (T - lengths_B[:, None])
    return torch.where(from_BT >= 0, tokens_BT.gather(1, from_BT.clamp(min=0)), -1)


Filter = Callable[[Tensor, Context], Tensor]


def make_filters(how: DecodingOptions, tokens: Mapping[str, Any], eos: Ends) -> list[Filter]:
    """The filters of all options that differ from their defaults, in the order of the fields.

    tokens: values that stand for those of `how`: words and prefixes as tokens, a minimum for each row.
    """
    made = []
    for name, option in decoding_options().items():
        value = tokens.get(name, getattr(how, name))
        if option.use.filter and value != option.default and value not in ([], {}):
            make = globals()[option.use.filter]
            value = value if option.use.read is None else option.use.read(value)
            made.append(make(value, eos) if "eos" in signature(make).parameters else make(value))
    return made


# Temperature, and how many of the most likely: these look at the scores only.


@dataclass(frozen=True)
class Temperature:
    """softmax(z / tau): below 1 more of the most likely, above 1 more of the rest."""

    tau: float

    def __call__(self, scores_BV: Tensor, context: Context) -> Tensor:
        return scores_BV / self.tau


def temperature(tau: float) -> Filter:
    """Divide the scores by tau: below 1, likely tokens become more likely.

    Args:
        tau: The divisor.

    Returns:
        A filter.

    Example:
        >>> temperature(0.5)(torch.tensor([[1.0, 2.0]]), None)
        tensor([[2., 4.]])
    """
    if not 0 < tau < math.inf:
        raise BadInput(
            f"temperature {tau:g} is not a positive number: to always take the most likely token, use greedy"
        )
    return Temperature(tau)


@dataclass(frozen=True)
class TopK:
    """Only the k most likely; of equals at the border, those with the lower number, so that k are k."""

    k: int

    def __call__(self, scores_BV: Tensor, context: Context) -> Tensor:
        border_B1 = scores_BV.topk(min(self.k, scores_BV.shape[-1])).values[:, -1:]
        return largest_only(scores_BV, border_B1, self.k)


def largest_only(scores_BV: Tensor, border_B1: Tensor, counts: Tensor | int) -> Tensor:
    """So many of the largest scores, of which the border is the smallest; of equals, the first."""
    above_BV, equal_BV = scores_BV > border_B1, scores_BV == border_B1
    places_B1 = counts - above_BV.sum(-1, keepdim=True)
    return scores_BV.masked_fill(~(above_BV | equal_BV & (running_sum(equal_BV.int()) <= places_B1)), NEVER)


def top_k(k: int) -> Filter:
    """Only the k most likely.

    Args:
        k: How many; of equals at the border, those with the lower number.

    Returns:
        A filter.

    Example:
        >>> top_k(1)(torch.tensor([[1.0, 2.0]]), None).softmax(-1)
        tensor([[0., 1.]])
    """
    if k < 1:
        raise BadInput(f"top-k {k} leaves nothing to choose from: k must be at least 1")
    return TopK(k)


@dataclass(frozen=True)
class TopP:
    """The smallest set of most likely tokens with at least probability p (nucleus; Holtzman 2020).

    Of equals at the border, those with the lower number; always at least one token.
    """

    p: float

    def __call__(self, scores_BV: Tensor, context: Context) -> Tensor:
        if self.p == 1:  # a rounded sum could reach 1 before the last token
            return scores_BV
        if scores_BV.device.type == "cpu" and scores_BV.shape[1] > 2 * LIKELY:
            return self.among_likely(scores_BV)
        return self.among_all(scores_BV)

    def among_likely(self, scores_BV: Tensor) -> Tensor:
        """The same without sorting all tokens, in rows where a few hold the share: 10 times as fast."""
        likely_BK = scores_BV.topk(LIKELY).values
        share_BK = (likely_BK.double() - scores_BV.double().logsumexp(-1, keepdim=True)).exp()
        counts_B1 = (running_sum(share_BK) - share_BK < self.p).sum(-1, keepdim=True)
        flat = (counts_B1[:, 0] == LIKELY) | share_BK.isnan().any(-1)
        counts_B1 = counts_B1.clamp(min=1)
        kept_BV = largest_only(scores_BV, likely_BK.gather(1, counts_B1 - 1), counts_B1)
        if bool(flat.any()):
            kept_BV[flat] = self.among_all(scores_BV[flat])
        return kept_BV

    def among_all(self, scores_BV: Tensor) -> Tensor:
        sorted_BV, order_BV = scores_BV.sort(dim=-1, descending=True, stable=True)
        share_BV = sorted_BV.double().softmax(-1)
        before_BV = running_sum(share_BV) - share_BV
        cut_BV = before_BV >= self.p
        cut_BV[:, 0] = False
        return scores_BV.masked_fill(cut_BV.scatter(-1, order_BV, cut_BV), NEVER)


def top_p(p: float) -> Filter:
    """Only the most likely tokens that together hold a share p of the probability (Holtzman et al. 2020).

    Args:
        p: The share; at least one token remains.

    Returns:
        A filter.

    Example:
        >>> top_p(0.5)(torch.tensor([[0.0, 1.0, 3.0]]), None).softmax(-1)
        tensor([[0., 0., 1.]])
    """
    if not 0 <= p <= 1:
        raise BadInput(f"top-p {p:g} is not a share: it must lie between 0 and 1")
    return TopP(p)


@dataclass(frozen=True)
class MinP:
    """Only tokens at least m times as likely as the most likely."""

    m: float

    def __call__(self, scores_BV: Tensor, context: Context) -> Tensor:
        ratio_BV = (scores_BV - scores_BV.amax(-1, keepdim=True)).exp()
        return scores_BV.masked_fill(ratio_BV < self.m, NEVER)


def min_p(m: float) -> Filter:
    """Only tokens at least m times as likely as the most likely.

    Args:
        m: The factor.

    Returns:
        A filter.

    Example:
        >>> min_p(0.5)(torch.tensor([[0.0, 3.0]]), None).softmax(-1)
        tensor([[0., 1.]])
    """
    if not 0 <= m <= 1:
        raise BadInput(f"min-p {m:g} is not a share: it must lie between 0 and 1")
    return MinP(m)


# What was written before, and what must or must not be: these look at the context too.


@lru_cache(SHARED)
def repetition_penalty(penalty: float) -> Filter:
    """Make every token that was written before, prompt included, less likely (Keskar et al. 2019).

    Positive scores are divided by the penalty, negative ones multiplied.
    """
    if not 0 < penalty < math.inf:
        raise BadInput(
            f"a repetition penalty of {penalty:g} means nothing: 1 changes nothing, more discourages"
        )

    def penalize(scores_BV: Tensor, context: Context) -> Tensor:
        seen_BV = named(context.tokens_BT, context.tokens_BT >= 0, scores_BV.shape[-1])
        lower_BV = torch.where(scores_BV < 0, scores_BV * penalty, scores_BV / penalty)
        return torch.where(seen_BV, lower_BV, scores_BV)

    return penalize


Penalty = float | tuple[float, Sequence[Sequence[int]]]  # or with tokens that each row has written before


def presence(penalty: Penalty) -> Filter:
    """Subtract the penalty from every token that was written, the prompt not included (OpenAI's)."""
    return lowered(penalty, lambda counts_BV: (counts_BV > 0).to(counts_BV))


def frequency(penalty: Penalty) -> Filter:
    """Subtract the penalty from every token as often as it was written (OpenAI's)."""
    return lowered(penalty, lambda counts_BV: counts_BV)


def lowered(penalty: Penalty, weight: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Context], Tensor]:
    """Scores less the penalty times a weight, which follows from how often a token was written."""
    alpha, earlier = penalty if isinstance(penalty, tuple) else (penalty, ())
    if not math.isfinite(alpha):
        raise BadInput(f"a penalty of {alpha:g} cannot be subtracted: give a finite number")

    @cache
    def earlier_counts(device: torch.device, V: int) -> Tensor:
        counts = [torch.bincount(torch.tensor(row, dtype=torch.long), minlength=V) for row in earlier]
        return torch.stack(counts).to(device)

    def lower(scores_BV: Tensor, context: Context) -> Tensor:
        V = scores_BV.shape[-1]
        counts_BV = written_counts(context, V)
        if any(earlier):
            counts_BV = counts_BV + earlier_counts(scores_BV.device, V)[context.rows_B]
        return scores_BV - alpha * weight(counts_BV.to(scores_BV.dtype))

    return lower


def written_counts(context: Context, V: int) -> Tensor:
    """[B, V]: how often each token of the vocabulary was written in a row, after its prompt."""
    tokens_BT, spare = context.tokens_BT, V
    T = tokens_BT.shape[1]
    new_BT = torch.arange(T, device=tokens_BT.device) >= T - context.counts_B[:, None]
    counts_BX = torch.zeros(len(tokens_BT), V + 1, dtype=torch.long, device=tokens_BT.device)
    return counts_BX.scatter_add_(1, torch.where(new_BT, tokens_BT, spare), new_BT.long())[:, :V]


def biased(bias: Mapping[int, float]) -> Filter:
    """Add to the scores of some tokens. -100 forbids a token, 100 forbids all others (OpenAI's)."""
    never = [token for token, value in bias.items() if value <= -BAN]
    forced = [token for token, value in bias.items() if value >= BAN]
    largest = max(bias, default=-1)

    @cache
    def table(device: torch.device, V: int) -> Tensor:
        added_V = torch.full((V,), NEVER if forced else 0.0, dtype=torch.double)
        if not forced:
            added_V[list(bias)] = torch.tensor(list(bias.values()), dtype=torch.double)
        added_V[forced], added_V[never] = 0.0, NEVER
        return added_V.to(device)

    def add(scores_BV: Tensor, context: Context) -> Tensor:
        V = scores_BV.shape[-1]
        check_known(largest, V)
        return scores_BV + table(scores_BV.device, V).to(scores_BV.dtype)

    return add


@lru_cache(SHARED)
def no_repeat_ngram(n: int) -> Filter:
    """No n tokens in a row twice, prompt included."""
    if n < 1:
        raise BadInput(f"n-grams of {n} tokens do not exist: n must be at least 1")

    def forbid(scores_BV: Tensor, context: Context) -> Tensor:
        tokens_BT = context.tokens_BT
        T = tokens_BT.shape[1]
        if T < n:
            return scores_BV
        ngrams_BXN = tokens_BT.unfold(1, n, 1)
        ending_BM = tokens_BT[:, T - n + 1 :]
        again_BX = (ngrams_BXN[..., :-1] == ending_BM[:, None]).all(-1) & (ngrams_BXN >= 0).all(-1)
        return scores_BV.masked_fill(named(ngrams_BXN[..., -1], again_BX, scores_BV.shape[-1]), NEVER)

    return forbid


def no_repeat_source_ngram(rows: tuple[int, Sequence[Sequence[int]]]) -> Filter:
    """No n tokens in a row that stand so in the source. rows: n, and the source of each row of the batch."""
    n, sources = rows
    longest = max((len(source) for source in sources), default=0)

    @cache
    def ngrams(device: torch.device) -> Tensor:
        padded = [[*source, *[-1] * (max(longest, n) - len(source))] for source in sources]
        return torch.tensor(padded, device=device).unfold(1, n, 1)

    def forbid(scores_BV: Tensor, context: Context) -> Tensor:
        T = context.tokens_BT.shape[1]
        if T < n - 1:
            return scores_BV
        ngrams_BXN = ngrams(scores_BV.device)[context.rows_B]
        ending_BM = context.tokens_BT[:, T - n + 1 :]
        again_BX = (ngrams_BXN[..., :-1] == ending_BM[:, None]).all(-1) & (ngrams_BXN >= 0).all(-1)
        return scores_BV.masked_fill(named(ngrams_BXN[..., -1], again_BX, scores_BV.shape[-1]), NEVER)

    return forbid


def forbidden(sequences: Sequence[Sequence[int] | int]) -> Filter:
    """Tokens never to write, and sequences never to complete (those begun in the prompt included)."""
    by_length: dict[int, list[list[int]]] = defaultdict(list)
    for sequence in sequences:
        tokens = [sequence] if isinstance(sequence, int) else list(sequence)
        if not tokens or min(tokens) < 0:
            raise BadInput(f"{tokens} cannot be forbidden: give tokens by their numbers, at least one")
        by_length[len(tokens)].append(tokens)
    largest = max((token for group in by_length.values() for row in group for token in row), default=-1)

    @cache
    def tables(device: torch.device) -> dict[int, Tensor]:
        return {length: torch.tensor(group, device=device) for length, group in by_length.items()}

    def forbid(scores_BV: Tensor, context: Context) -> Tensor:
        (B, V), T = scores_BV.shape, context.tokens_BT.shape[1]
        check_known(largest, V)
        for length, table_NL in tables(scores_BV.device).items():
            if length == 1:
                scores_BV = scores_BV.index_fill(1, table_NL[:, 0], NEVER)
            elif length - 1 <= T:
                ending_BL = context.tokens_BT[:, T - length + 1 :]
                begun_BN = (ending_BL[:, None] == table_NL[:, :-1]).all(-1)
                last_BN = table_NL[:, -1].expand(B, -1)
                scores_BV = scores_BV.masked_fill(named(last_BN, begun_BN, V), NEVER)
        return scores_BV

    return forbid


def forced_prefix(prefixes: Sequence[Sequence[int]]) -> Filter:
    """Begin row b with prefixes[b] and go on freely; an empty one forces nothing."""
    largest = max((token for row in prefixes for token in row), default=-1)
    longest = max(map(len, prefixes), default=0)

    @cache
    def table(device: torch.device) -> Tensor:
        rows = [[*row, *[-1] * (longest + 1 - len(row))] for row in prefixes]
        return torch.tensor(rows, dtype=torch.long, device=device)

    def force(scores_BV: Tensor, context: Context) -> Tensor:
        check_known(largest, scores_BV.shape[-1])
        if len(prefixes) != context.batch:
            raise BadInput(
                f"there are {context.batch} prompts but {len(prefixes)} prefixes: give one for each"
            )
        wanted_B = table(scores_BV.device)[context.rows_B, context.counts_B.clamp(max=longest)]
        forced_BV = torch.arange(scores_BV.shape[-1], device=scores_BV.device) == wanted_B[:, None]
        return torch.where((wanted_B >= 0)[:, None], only(forced_BV, scores_BV), scores_BV)

    return force


def suppressed(tokens: Sequence[int]) -> Filter:
    """Tokens never to write."""
    return forbidden(list(tokens))


def suppressed_first(rows: tuple[Sequence[int], Sequence[int]]) -> Filter:
    """Tokens not to write at one place. rows: the tokens, and the place in each row of the batch, from 0."""
    tokens, places = rows

    def forbid(scores_BV: Tensor, context: Context) -> Tensor:
        check_known(max(tokens), scores_BV.shape[-1])
        here_B = context.counts_B == torch.tensor(places, device=scores_BV.device)[context.rows_B]
        return torch.where(here_B[:, None], scores_BV.index_fill(1, to(scores_BV, tokens), NEVER), scores_BV)

    return forbid


def forced_end(rows: tuple[Sequence[int], Sequence[int]]) -> Filter:
    """One of some tokens at the last place. rows: the tokens, and that place in each row of the batch."""
    tokens, places = rows

    def force(scores_BV: Tensor, context: Context) -> Tensor:
        check_known(max(tokens), scores_BV.shape[-1])
        here_B = context.counts_B == torch.tensor(places, device=scores_BV.device)[context.rows_B]
        forced_BV = torch.zeros_like(scores_BV, dtype=torch.bool).index_fill(1, to(scores_BV, tokens), True)
        return torch.where(here_B[:, None], only(forced_BV, scores_BV), scores_BV)

    return force


def to(scores_BV: Tensor, tokens: Sequence[int]) -> Tensor:
    """Tokens where the scores are."""
    return torch.tensor(tokens, dtype=torch.long, device=scores_BV.device)


def minimum_length(least: int | Sequence[int], eos: Ends) -> Filter:
    """No end of sentence before `least` other tokens are written. least: of all rows, or of each."""
    ends = ends_of(eos)
    if min([least] if isinstance(least, int) else least) < 0:
        raise BadInput(f"a minimum length of {least} tokens is not possible: it must be at least 0")
    if not ends:
        raise BadInput("`min_new_tokens` has no effect on a model without an end token: leave it out")

    @cache
    def leasts(device: torch.device) -> Tensor:
        return torch.tensor([least] if isinstance(least, int) else least, device=device)

    def forbid(scores_BV: Tensor, context: Context) -> Tensor:
        check_known(max(ends), scores_BV.shape[-1])
        scores_BV = scores_BV.clone()
        least_N = leasts(scores_BV.device)  # one for all rows, or one for each of the original batch
        least_B = least_N[context.rows_B if len(least_N) > 1 else torch.zeros_like(context.rows_B)]
        early_B1 = (context.counts_B < least_B)[:, None]
        scores_BV[:, ends] = scores_BV[:, ends].masked_fill(early_B1, NEVER)
        return scores_BV

    return forbid


def only(forced_BV: Tensor, scores_BV: Tensor) -> Tensor:
    """Scores that leave no choice: 0 for what is forced, so that it costs a hypothesis nothing."""
    scores_BV = scores_BV.masked_fill(~forced_BV, NEVER)
    return torch.where(forced_BV & ~scores_BV.isnan(), 0, scores_BV)


def named(tokens_BN: Tensor, counts_BN: Tensor, V: int) -> Tensor:
    """[B, V]: which tokens of the vocabulary occur in a row, at a place that counts."""
    spare = V  # where the others go
    found = torch.zeros(len(tokens_BN), V + 1, dtype=torch.bool, device=tokens_BN.device)
    return found.scatter_(1, torch.where(counts_BN, tokens_BN, spare), True)[:, :V]


def check_known(token: int, V: int) -> None:
    if token >= V:
        raise BadInput(f"token {token} does not exist in a vocabulary of {V}")
