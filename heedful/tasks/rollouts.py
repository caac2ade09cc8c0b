"""Rollouts: what a model writes while it learns from rewards, and the loss of having written it.

    round     the model answers P prompts, N times each, and every response gets a reward
    update    one step of the optimizer, on a part of a round's responses

What is written in a round follows from the weights at its beginning and from (seed, round). A round is kept
until its last update. Until then it is part of the state that is saved, so a run that is interrupted within a
round goes on with the same responses.

R rows are responses behind their prompts, and T is the length of the longest. Every array says at a place
what is known of the token after it, and only tokens of responses count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..data.batch import Seen, Tensors
from ..data.plan import RowPlan, keyed, permuted_array, shares
from ..data.store import Tokens
from ..decode.filters import temperature
from ..decode.sampling import sample
from ..decode.step import Step, step_of
from ..decode.streaming import Hypothesis
from ..fast.decoding import for_decoding
from ..models.base.shells import Decoder, lasting
from ..parts.lora import adapters, merge, without_adapters
from ..parts.places import Lengths
from ..train.loop import seed_for
from ..train.loss import NOTHING, Loss
from ..train.preference import kl_of_samples, token_logprobs
from .evaluation import by_length
from .summary_forms import padded
from .task import pad

# Writing and scoring


@dataclass(frozen=True)
class ResponseWriter:
    """Draws responses from a model: the model's own distribution, at a temperature."""

    eos: int
    pad: int
    longest: int  # tokens of a response
    most: int  # tokens of all rows that are written or scored at once, padding included
    tau: float = 1.0

    def groups(self, prompts: Sequence[Tokens]) -> list[list[int]]:
        """Rows of like length, which are written together."""
        lengths = [len(prompt) + self.longest for prompt in prompts]
        return by_length(lengths, len(prompts), self.most)

    @torch.no_grad()
    def write(self, policy: Decoder, prompts: Sequence[Tokens], seeds: Sequence[int]) -> list[Hypothesis]:
        """A response to each prompt. Each row has its own seed, so no row depends on those beside it."""
        filters = [temperature(self.tau)] if self.tau != 1 else []
        device = policy.inputs.tokens.weight.device
        fast = for_writing(policy)
        found: dict[int, Hypothesis] = {}
        for group in self.groups(prompts):
            prompts_BT, lengths_B = padded([prompts[i] for i in group], self.pad, device)
            written = sample(
                fast.step(room=prompts_BT.shape[1] + self.longest),
                prompts_BT,
                lengths_B,
                longest=self.longest,
                eos=self.eos,
                seed=[seeds[i] for i in group],
                filters=filters,
            )
            found.update(zip(group, written, strict=True))
        return [found[i] for i in range(len(prompts))]


def for_writing(policy: Decoder) -> Any:
    """The fast model with the weights of now. Adapters are added to a copy, which is thrown away.

    On a GPU a graph would have to be recorded anew in every round, which takes longer than it saves.
    """
    if policy.inputs.tokens.weight.device.type != "cpu":
        return PlainWriting(policy)
    return for_decoding(merge(deepcopy(policy)) if adapters(policy) else policy)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PlainWriting:
    """A model that writes by its plain step."""

    policy: Decoder

    def step(self, room: int = 0) -> Step:
        return step_of(self.policy)


def response_scores(policy: Decoder, part: Round, tau: float) -> tuple[Tensor, Tensor]:
    """(log-probabilities of the answers, in order of the rows [N]; the vectors [R, T, D] before the scores).

    tau: the temperature at which they were written, which is a part of the policy.

    Only places that have an answer are scored: scores of all words are the largest tensor of a small model.
    """
    hidden_RTD, real_RT = policy.hidden(part.tokens_RT, Lengths(part.lengths_R)), part.real_RT
    scores_NV = policy.head(hidden_RTD[real_RT], policy.inputs.tokens).float() / tau
    return token_logprobs(scores_NV[None], part.answers_RT[real_RT][None])[0], hidden_RTD


def response_logprobs(policy: Decoder, part: Round, tau: float) -> Tensor:
    """log pi(y_t | x, y_<t) [R, T], 0 outside of responses."""
    logprobs_N, _ = response_scores(policy, part, tau)
    return placed(logprobs_N, part.real_RT)


def placed(values_N: Tensor, real_RT: Tensor) -> Tensor:
    """Values of the tokens of responses at their places; 0 elsewhere."""
    return torch.zeros_like(real_RT, dtype=values_N.dtype).masked_scatter(real_RT, values_N)


# Rounds


@dataclass(frozen=True)
class Round(Tensors):
    """All responses of a round, and what their loss is made of."""

    tokens_RT: Tensor
    lengths_R: Tensor
    answers_RT: Tensor
    old_RT: Tensor  # log-probabilities as they were written
    reference_RT: Tensor  # those of the model that the run started from
    rewards_R: Tensor
    advantages: Tensor  # [R, T], or [R, 1] where all tokens of a response share one
    told_F: Tensor  # figures for the log
    values_RT: Tensor | None = None  # as they were then, for algorithms that have values
    returns_RT: Tensor | None = None  # what values learn from

    @property
    def real_RT(self) -> Tensor:
        """Which places have an answer."""
        return self.answers_RT != NOTHING

    def rows(self, some: Tensor) -> Round:
        """Some of the responses, without the padding that no row of theirs needs."""
        found = self.with_each(lambda tensor: tensor if tensor is self.told_F else tensor[some])
        T, longest = self.tokens_RT.shape[1], int(found.lengths_R.max())
        return found.with_each(lambda t: t[:, :longest] if t.ndim == 2 and t.shape[1] == T else t)


@dataclass(frozen=True)
class UpdateBatch:
    """A part of a round's responses: what one update, or one micro-batch of it, learns from."""

    round: int
    prompts: tuple[int, ...]  # of the whole round
    rows: tuple[int, ...]  # responses of this part, by their place in the round
    longest: int  # tokens of a prompt and a response together, at most
    ids: tuple[int, ...] = ()  # numbers of their prompts

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def seen(self) -> Seen:
        return Seen(len(self.rows), "responses")

    def to(self, device: torch.device) -> UpdateBatch:
        return self


@dataclass(frozen=True)
class RoundPlan:
    """Which prompts are answered in a round, and which responses each update learns from."""

    prompts: int  # how many there are to learn from
    asked: int  # in a round
    responses: int  # to each of them
    longest: int  # tokens of a prompt and a response together, at most
    passes: int  # over the responses of a round
    parts: int  # updates in a pass
    seed: int

    @property
    def updates(self) -> int:
        return self.passes * self.parts

    @property
    def plan(self) -> RowPlan:
        return RowPlan(self.prompts, self.asked, self.seed)

    def batches(self, step: int, micros: int) -> list[UpdateBatch]:
        """The micro-batches of a step. Every pass has an order of its own."""
        round_, update = divmod(step, self.updates)
        pass_, part = divmod(update, self.parts)
        plan = self.plan
        asked = tuple(plan.batch(round_).tolist())
        rows = len(asked) * self.responses
        order = permuted_array(torch.arange(rows).numpy(), rows, keyed(self.seed, round_, 1 + pass_))
        mine = shares(order, self.parts)[part] if self.parts > 1 else order
        return [
            UpdateBatch(
                round_,
                asked,
                tuple(some.tolist()),
                self.longest,
                tuple(asked[i // self.responses] for i in some),
            )
            for some in shares(mine, micros)
        ]


class Algorithm(Protocol):
    """How a model learns from the rewards of a round."""

    def judged(self, model: nn.Module, drawn: Round) -> Round:
        """The round with advantages."""

    def losses(self, model: nn.Module, part: Round) -> Tensor:
        """A loss for each response [R], which together have the gradient."""


class Rewards(Protocol):
    """What responses are worth."""

    def __call__(
        self, prompts: Sequence[int], responses: Sequence[str], ended: Sequence[bool]
    ) -> list[float]:
        """A reward for the response to each of these prompts."""


TOLD = ("reward", "kl", "length", "unfinished")  # figures of a round: means over its responses


class Rollouts:
    """The loss of responses that a model writes while it learns; rounds are drawn when they are due."""

    def __init__(
        self,
        prompts: Sequence[Tokens],
        plan: RoundPlan,
        writer: ResponseWriter,
        decode: Callable[[Sequence[int]], str],
        rewards: Rewards,
        algorithm: Algorithm,
        reference: Callable[[Decoder], AbstractContextManager[Decoder]],
    ) -> None:
        """reference: lends the model that a policy started from."""
        self.prompts, self.plan, self.writer, self.decode = prompts, plan, writer, decode
        self.rewards, self.algorithm, self.reference = rewards, algorithm, reference
        self.number, self.round = -1, None  # type: tuple[int, Round | None]

    def __call__(self, model: nn.Module, batch: UpdateBatch) -> Loss:
        model.eval()  # no dropout: the old log-probabilities are to be those of the same model
        if batch.round != self.number or self.round is None:
            self.number, self.round = batch.round, self.draw(model, batch)
        part = self.round.rows(torch.tensor(batch.rows, device=self.round.tokens_RT.device))
        total = self.algorithm.losses(model, part).sum()
        return Loss(total, total.detach(), batch.count)

    @torch.no_grad()
    def draw(self, model: nn.Module, batch: UpdateBatch) -> Round:
        """Write the responses of a round, judge them, and score them by the model and by the reference."""
        policy: Any = lasting(model)
        asked = [number for number in batch.prompts for _ in range(self.plan.responses)]
        prompts = [self.prompts[number] for number in asked]
        seeds = [seed_for(self.plan.seed, "rollout", batch.round, row) for row in range(len(asked))]
        written = self.writer.write(policy, prompts, seeds)
        texts = [self.decode(one.words).strip() for one in written]
        rewards = self.rewards(asked, texts, [one.ended for one in written])
        drawn = blank_round(prompts, [one.tokens for one in written], rewards, self.writer.pad)
        drawn = drawn.to(policy.inputs.tokens.weight.device)
        groups, tau = self.writer.groups(prompts), self.writer.tau
        old_RT = in_groups(policy, drawn, groups, tau)
        with self.reference(policy) as reference:
            reference_RT = in_groups(reference, drawn, groups, tau)
        kl = kl_of_samples(old_RT, reference_RT).where(drawn.real_RT, 0.0).sum() / len(asked)
        means = drawn.rewards_R.mean(), kl, drawn.real_RT.sum() / len(asked)
        unfinished = sum(not one.ended for one in written) / len(asked)
        told_F = torch.tensor([*map(float, means), unfinished], dtype=torch.float64)
        drawn = replace(drawn, old_RT=old_RT, reference_RT=reference_RT, told_F=told_F)
        return self.algorithm.judged(model, drawn)

    def figures(self) -> dict[str, float]:
        """What the log tells of the round."""
        return {} if self.round is None else dict(zip(TOLD, self.round.told_F.tolist(), strict=True))

    # For checkpoints.

    def tensors(self) -> dict[str, Tensor]:
        """The round that is under way."""
        return {} if self.round is None else self.round.tensors()

    def load(self, tensors: dict[str, Tensor], steps: int) -> None:
        """Go on after so many steps."""
        self.number = (steps - 1) // self.plan.updates
        self.round = Round(**tensors) if tensors else None


def blank_round(
    prompts: Sequence[Tokens], responses: Sequence[Sequence[int]], rewards: Sequence[float], filler: int
) -> Round:
    """A round before anything is scored."""
    rows = [[*prompt, *response[:-1]] for prompt, response in zip(prompts, responses, strict=True)]
    answers = [
        [NOTHING] * (len(prompt) - 1) + list(response)
        for prompt, response in zip(prompts, responses, strict=True)
    ]
    tokens_RT = pad(rows, filler)
    none_RT = torch.zeros(tokens_RT.shape)
    return Round(
        tokens_RT,
        torch.tensor([len(row) for row in rows]),
        pad(answers, NOTHING),
        none_RT,
        none_RT,
        torch.tensor(rewards),
        none_RT,
        torch.zeros(len(TOLD), dtype=torch.float64),
    )


def in_groups(policy: Decoder, drawn: Round, groups: Sequence[Sequence[int]], tau: float) -> Tensor:
    """The log-probabilities of all responses, of a few rows at a time."""
    found_RT = torch.zeros_like(drawn.old_RT)
    for group in groups:
        some = torch.tensor(group, device=found_RT.device)
        part = drawn.rows(some)
        found_RT[some, : part.tokens_RT.shape[1]] = response_logprobs(policy, part, tau)
    return found_RT


# The model that the run started from


def lent(frozen: Callable[[torch.device], Decoder]) -> Callable[[Decoder], AbstractContextManager[Decoder]]:
    """A reference of its own: a second model, made when it is first asked for, on the policy's device."""
    kept: list[Decoder] = []

    def lend(policy: Decoder) -> AbstractContextManager[Decoder]:
        if not kept:
            kept.append(frozen(policy.inputs.tokens.weight.device).eval().requires_grad_(False))
        return nullcontext(kept[0])

    return lend


@contextmanager
def unadapted(policy: Decoder) -> Iterator[Decoder]:
    """The reference of a model with adapters: the same model, while they do nothing."""
    with without_adapters(policy):
        yield policy


def exact_kl(
    policy: Decoder,
    reference: Callable[[Decoder], AbstractContextManager[Decoder]],
    drawn: Round,
    rows: int,
    tau: float = 1.0,
) -> Iterator[float]:
    """KL(pi || ref) of each response, in nats: summed over its tokens, each over all words.

    rows: responses that are scored at once. tau: the temperature of both.
    """
    real_RT = drawn.real_RT
    for some in torch.arange(len(real_RT), device=real_RT.device).split(rows):
        part = drawn.rows(some)
        mine_NV = word_logprobs(policy, part, tau)
        with reference(policy) as other:
            theirs_NV = word_logprobs(other, part, tau)
        each_N = (mine_NV.exp() * (mine_NV - theirs_NV)).sum(-1)
        yield from placed(each_N, part.real_RT).sum(-1).tolist()


def word_logprobs(policy: Decoder, part: Round, tau: float) -> Tensor:
    """Log-probabilities [N, V] of all words at places that have an answer."""
    hidden_RTD = policy.hidden(part.tokens_RT, Lengths(part.lengths_R))
    scores_NV = policy.head(hidden_RTD[part.real_RT], policy.inputs.tokens).float()
    return (scores_NV / tau).log_softmax(-1)
