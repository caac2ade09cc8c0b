"""Speculative decoding: a small model guesses some tokens ahead, the large one checks them all at once.

A guess x drawn from the draft's distribution q is accepted with probability min(1, p(x) / q(x)), p being the
target's; at the first refusal the token is drawn from what q left of p, max(0, p - q) normalized; if all are
accepted there is one more from p for free (Leviathan et al. 2023; Chen et al. 2023a). What comes out has the
target's distribution exactly, whatever the draft. Greedy is the case where all probability lies on the
most likely token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput, NotFinite
from .filters import Context, Filter, left_padded
from .prompts import Ends, checked
from .sampling import Dice, draw, row_seeds
from .scores import NEVER, apply, check_choice, precise
from .step import Step
from .streaming import Hypothesis, Stop, Token, alternatives, hypotheses

Distribution = Callable[[Tensor], Tensor]  # scores [B, V], to probabilities


def all_on_the_argmax(scores_BV: Tensor) -> Tensor:
    """The distribution of greedy decoding."""
    argmax_B1 = scores_BV.argmax(-1, keepdim=True)
    return torch.zeros_like(scores_BV, dtype=torch.float64).scatter_(1, argmax_B1, 1)


def softmax(scores_BV: Tensor) -> Tensor:
    """The distribution of sampling."""
    return scores_BV.double().softmax(-1)


def speculative_greedy(
    step: Step,
    draft: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    longest: int | Sequence[int],
    eos: Ends = None,
    ahead: int = 4,
    filters: Sequence[Filter] = (),
) -> list[Hypothesis]:
    """What `greedy` gives, with fewer calls of the large model where the draft guesses well.

    Args:
        step: The large model, as `step_of` makes it ready.
        draft: A smaller model with the same vocabulary.
        prompts_BT: As in `greedy`.
        lengths_B: As in `greedy`.
        longest: As in `greedy`.
        eos: As in `greedy`.
        ahead: Tokens that the draft proposes at a time.
        filters: As in `greedy`.

    Returns:
        A `Hypothesis` for each prompt.

    Example:
        >>> from heedful.decode.greedy import greedy
        >>> from heedful.decode.step import step_of
        >>> model, small = heedful.load("runs/lm").model, heedful.load("runs/small").model
        >>> prompt = torch.tensor([[5, 7]])
        >>> (found,) = speculative_greedy(step_of(model), step_of(small), prompt, longest=4)
        >>> (plain,) = greedy(step_of(model), prompt, longest=4)
        >>> found.tokens == plain.tokens
        True
    """
    distribution = FilteredDistribution(all_on_the_argmax, filters)
    words = speculate(
        step, draft, prompts_BT, lengths_B, distribution=distribution, longest=longest, eos=eos, ahead=ahead
    )
    return hypotheses(words, len(prompts_BT))


def speculative_sample(
    step: Step,
    draft: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    longest: int | Sequence[int],
    eos: Ends = None,
    ahead: int = 4,
    seed: int | Sequence[int] = 0,
    filters: Sequence[Filter] = (),
) -> list[Hypothesis]:
    """A random continuation of each prompt, distributed as `sample`'s (but not equal for the same seed).

    Args:
        step: The large model, as `step_of` makes it ready.
        draft: A smaller model with the same vocabulary.
        prompts_BT: As in `greedy`.
        lengths_B: As in `greedy`.
        longest: As in `greedy`.
        eos: As in `greedy`.
        ahead: Tokens that the draft proposes at a time.
        seed: As in `sample`.
        filters: As in `greedy`.

    Returns:
        A `Hypothesis` for each prompt.

    Example:
        >>> from heedful.decode.step import step_of
        >>> model, small = heedful.load("runs/lm").model, heedful.load("runs/small").model
        >>> (found,) = speculative_sample(step_of(model), step_of(small), torch.tensor([[5, 7]]), longest=4)
        >>> len(found.tokens)
        4
    """
    distribution = FilteredDistribution(softmax, filters)
    words = speculate(
        step,
        draft,
        prompts_BT,
        lengths_B,
        distribution=distribution,
        longest=longest,
        eos=eos,
        ahead=ahead,
        seed=seed,
    )
    return hypotheses(words, len(prompts_BT))


@dataclass(frozen=True)
class DraftedText:
    """What stands in each row, padded at its end. The target has been fed all of it but the newest token.

    Guesses are written past the end; they count once `lengths` says so.
    """

    tokens_BT: Tensor
    lengths_B: Tensor
    drafted_B: Tensor  # how many tokens the draft has been fed
    prompts_B: Tensor  # how many were the prompt
    rows_B: Tensor  # the row of the original batch
    batch: int

    def select(self, which: Tensor) -> DraftedText:
        """Only some of the rows."""
        whole = {field.name: getattr(self, field.name) for field in fields(self)}
        kept: dict[str, Any] = {name: x[which] if isinstance(x, Tensor) else x for name, x in whole.items()}
        return DraftedText(**kept)

    def read(self, start_B: Tensor, T: int) -> Tensor:
        """T tokens of each row, from a place of its own on; past the end, anything."""
        at_BT = start_B[:, None] + torch.arange(T, device=start_B.device)
        return self.tokens_BT.gather(1, at_BT.clamp(max=self.tokens_BT.shape[1] - 1))

    def put(self, at_B: Tensor, tokens_B: Tensor) -> DraftedText:
        """The same with one token of each row written, at a place of its own."""
        B, T = self.tokens_BT.shape
        room = self.tokens_BT.new_zeros(B, max(0, int(at_B.max()) + 1 - T))
        tokens_BT = torch.cat([self.tokens_BT, room], 1).scatter(1, at_B[:, None], tokens_B[:, None])
        return replace(self, tokens_BT=tokens_BT)

    def context(self, guesses: int) -> Context:
        """What filters read if so many guesses are believed."""
        lengths_B = (self.lengths_B + guesses).clamp(max=self.tokens_BT.shape[1])
        tokens_BT = left_padded(self.tokens_BT, lengths_B)
        return Context(tokens_BT, lengths_B - self.prompts_B, self.rows_B, self.batch)


@dataclass(frozen=True)
class FilteredDistribution:
    """From scores to the probabilities that tokens are drawn with."""

    distribution: Distribution
    filters: Sequence[Filter] = ()

    def __call__(self, scores_BV: Tensor, text: DraftedText, guesses: int) -> Tensor:
        """After so many guesses; all 0 where everything is forbidden, NaN where scores are."""
        context = text.context(guesses) if self.filters else None
        allowed_BV = apply(self.filters, scores_BV, context)
        best_B1 = allowed_BV.amax(-1, keepdim=True)
        p_BV = self.distribution(allowed_BV).masked_fill(best_B1 == NEVER, 0)
        return p_BV.masked_fill(best_B1.isnan(), math.nan)


@torch.no_grad()
def speculate(
    step: Step,
    draft: Step,
    prompts_BT: Tensor,
    lengths_B: Tensor | None = None,
    *,
    distribution: FilteredDistribution,
    longest: int | Sequence[int],
    eos: Ends = None,
    ahead: int = 4,
    seed: int | Sequence[int] = 0,
    stop: Stop | None = None,
    top: int = 0,
) -> Iterator[list[Token]]:
    """After each round, the new tokens of every row that still writes: from one to `ahead` + 1 of them.

    Both steps must be fresh, and know the same vocabulary. stop: says of each token whether its row is over.
    top: how many of the most likely tokens to report with each.
    """
    if ahead < 1:
        raise BadInput(f"to guess {ahead} tokens ahead is no speculation: ahead must be at least 1")
    (B, T), device = prompts_BT.shape, prompts_BT.device
    lengths_B, limits, ends = checked(prompts_BT, lengths_B, longest, eos)
    ends_E = torch.tensor(ends, dtype=torch.long, device=device)
    limits_B = torch.tensor(limits, device=device)
    lengths_B = torch.full((B,), T, device=device) if lengths_B is None else lengths_B
    text = DraftedText(prompts_BT, lengths_B, lengths_B - 1, lengths_B, torch.arange(B, device=device), B)
    if T > 1:
        for reader in (step, draft):
            reader.last(prompts_BT[:, :-1], lengths_B - 1)
    dice = Dice(row_seeds(seed, B), device, each=2 * ahead + 1)
    while len(text.rows_B):
        limits_R, uniform_RU = limits_B[text.rows_B], dice.roll()[text.rows_B]
        text, written = one_round(step, draft, text, limits_R, ends_E, ahead, distribution, uniform_RU, top)
        written = written if stop is None else until_stop(written, stop)
        yield written
        over = {token.row for token in written if token.last}
        text = go_on(text, [row not in over for row in text.rows_B.tolist()], step, draft)


def until_stop(written: list[Token], stop: Stop) -> list[Token]:
    """The tokens of every row up to the one that stops it."""
    found: list[Token] = []
    over: set[int] = set()
    for token in written:
        if token.row not in over:
            stopped = stop(token.row, token.token)
            over |= {token.row} if stopped else set()
            found.append(token._replace(last=token.last or stopped))
    return found


def one_round(
    step: Step,
    draft: Step,
    text: DraftedText,
    limits_B: Tensor,
    ends: Tensor,
    ahead: int,
    distribution: FilteredDistribution,
    uniform_BU: Tensor,
    top: int = 0,
) -> tuple[DraftedText, list[Token]]:
    """Guess and check once; the tokens that were right, and one of the target's own, are written."""
    room_B = limits_B - (text.lengths_B - text.prompts_B)
    ahead_B = (room_B - 1).clamp(max=ahead)
    text, q = guess(draft, text, ahead_B, distribution, uniform_BU)
    text, right_B, scores_BTV = check(step, text, ahead_B, q, distribution, uniform_BU[:, ahead:])
    log_p_BTV = precise(scores_BTV).log_softmax(-1)
    new_BT, places_T = text.read(text.lengths_B, len(q) + 1), torch.arange(len(q) + 1, device=ends.device)
    ended_BT = torch.isin(new_BT, ends) & (places_T <= right_B[:, None])
    count_B = torch.where(ended_BT.any(1), ended_BT.int().argmax(1), right_B) + 1
    over_B1 = (ended_BT.any(1) | (count_B >= room_B))[:, None]
    last_BT, real_BT = over_B1 & (places_T == count_B[:, None] - 1), places_T < count_B[:, None]
    rows_BT = text.rows_B[:, None].expand_as(new_BT)
    log_p_BT = log_p_BTV.gather(-1, new_BT[..., None])[..., 0]
    columns = (x[real_BT].tolist() for x in (rows_BT, new_BT, log_p_BT, last_BT, ended_BT))
    written = [Token(*row) for row in zip(*columns, strict=True)]
    if top:
        best = log_p_BTV[real_BT].topk(min(top, log_p_BTV.shape[-1]))
        tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        written = [one._replace(top=alternatives(*pair)) for one, pair in zip(written, tops, strict=True)]
    return replace(text, lengths_B=text.lengths_B + count_B), written


def guess(
    draft: Step, text: DraftedText, ahead_B: Tensor, distribution: FilteredDistribution, uniform_BU: Tensor
) -> tuple[DraftedText, list[Tensor]]:
    """Let the draft write ahead[b] guesses. Second, the probabilities of each draw, 0 where it made none."""
    missing_B, q = text.lengths_B - text.drafted_B, []  # a token more where all guesses were right last time
    fed_BT = text.read(text.drafted_B, int(missing_B.max()))
    for i in range(int(ahead_B.max())):
        fed_B = torch.where(i < ahead_B, missing_B, 0)
        scores_BV = draft.last(fed_BT, fed_B)
        text = replace(text, drafted_B=text.drafted_B + fed_B)
        q_BV = distribution(scores_BV, text, i)
        if bool(q_BV.isnan().any()):
            raise NotFinite("the draft's scores are not numbers: its weights or inputs are broken")
        q.append(q_BV.masked_fill((i >= ahead_B)[:, None], 0))
        tokens_B = draw(q[-1], uniform_BU[:, i]).clamp(max=q_BV.shape[1] - 1)
        text = text.put(text.lengths_B + i, tokens_B)
        fed_BT, missing_B = tokens_B[:, None], torch.ones_like(missing_B)
    return text, q


def check(
    step: Step,
    text: DraftedText,
    ahead_B: Tensor,
    q: list[Tensor],
    distribution: FilteredDistribution,
    uniform_BU: Tensor,
) -> tuple[DraftedText, Tensor, Tensor]:
    """The text with the target's token after the right guesses, their number, and the target's scores."""
    G, rows_B = len(q), torch.arange(len(ahead_B), device=ahead_B.device)
    fed_BT = text.read(text.lengths_B - 1, G + 1)
    scores_BTV = step(fed_BT, ahead_B + 1)
    if q and q[0].shape[-1] != scores_BTV.shape[-1]:
        raise BadInput(
            f"the draft knows {q[0].shape[-1]} tokens and the model {scores_BTV.shape[-1]}: "
            f"speculation needs one vocabulary"
        )
    p_BTV = torch.stack([distribution(scores_BTV[:, i], text, i) for i in range(G + 1)], 1)
    q_BTV = torch.stack([*q, torch.zeros_like(p_BTV[:, 0])], 1)
    right_B = accepted(p_BTV, q_BTV, fed_BT[:, 1:], uniform_BU)

    p_BV, q_BV = p_BTV[rows_B, right_B], q_BTV[rows_B, right_B]
    check_choice(p_BV.amax(-1).log().tolist(), text.rows_B.tolist())
    rest_BV = (p_BV - q_BV).clamp(min=0)
    rest_BV = torch.where(rest_BV.sum(-1, keepdim=True) > 0, rest_BV, p_BV)  # p = q but for rounding
    text = text.put(text.lengths_B + right_B, draw(rest_BV, uniform_BU[:, -1]))
    return text, right_B, scores_BTV


def accepted(p_BTV: Tensor, q_BTV: Tensor, guesses_BG: Tensor, uniform_BU: Tensor) -> Tensor:
    """How many guesses of a row are accepted before the first refusal, each with chance min(1, p / q)."""
    G, at_BG1 = guesses_BG.shape[1], guesses_BG[..., None]
    p_BG, q_BG = p_BTV[:, :G].gather(-1, at_BG1)[..., 0], q_BTV[:, :G].gather(-1, at_BG1)[..., 0]
    right_BG = (uniform_BU[:, :G] * q_BG < p_BG) & (q_BG > 0)  # 0: nothing was guessed there
    return right_BG.long().cumprod(1).sum(1)


def go_on(text: DraftedText, going: list[bool], step: Step, draft: Step) -> DraftedText:
    """Drop the rows that are over, and let both models forget the guesses that were wrong."""
    if not all(going):
        kept = torch.tensor(going, device=text.rows_B.device).nonzero()[:, 0]
        text = text.select(kept)
        if not len(kept):
            return text
        step.reorder(kept)
        draft.reorder(kept)
    text = replace(text, drafted_B=torch.minimum(text.drafted_B, text.lengths_B - 1))
    step.rewind(text.lengths_B - 1)
    draft.rewind(text.drafted_B)
    return text
