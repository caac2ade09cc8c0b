"""RL: raise the reward of a model's own responses, by GRPO or PPO (GPT-3.5's last step).

    prompt x  ->  responses y ~ pi( . | x)  ->  rewards r(x, y)  ->  advantages  ->  a clipped step

The model starts from one that follows instructions, which stays as the reference: leaving it costs beta per
nat. Rewards are known to a program, or predicted by a reward model (https://arxiv.org/abs/2203.02155).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

from ..corpora import instructions
from ..data.conversations import read_prompts
from ..data.lines import hash_of
from ..data.report import Report
from ..data.store import Tokens
from ..errors import BadInput
from ..files import inside, one_line, present, read_json, write_json
from ..interop.hf.chat_files import OF_RUN
from ..models.base.settings import Count, Part, Range
from ..models.base.shells import Decoder, WithValue, lasting
from ..models.xl import XLConfig
from ..train.loop import seed_for
from .configs import started_config
from .evaluation import SHOWN, EvaluationRequest, Measured
from .instruct import INSTRUCTIONS, ResponseEvaluator, by_kind, last, room_of
from .instruct_data import (
    CORPUS,
    InstructData,
    ResponseRow,
    ResponseTokens,
    TurnTemplate,
    rows_of,
    template_of,
    tokenized,
)
from .metrics import interval
from .origin import DECODERS, Origin, begin, find_origin, special_of, starting_from, vocab_of, vocabulary
from .policy_gradients import GRPO, PPO
from .recipe.choices import DataSize
from .recipe.settings import LearningRate, Recipe, Schedule, StartedTraining, Steps, WarmupSteps
from .reference import reference_model
from .rewards import PROGRAMS, check_reward, reward_facts, rewards_of
from .rollouts import (
    Algorithm,
    ResponseWriter,
    Rollouts,
    RoundPlan,
    UpdateBatch,
    blank_round,
    exact_kl,
    lent,
    unadapted,
)
from .rouge import mean_interval
from .task import Corpus, Job, Starts, Task, not_empty, sample_count
from .tuning import describe_start, tuning_of


@dataclass(frozen=True)
class RLTraining(StartedTraining):
    """Rounds of responses, and what is learned from each."""

    algorithm: Annotated[
        Literal["grpo", "ppo"], "grpo: responses to a prompt compared with each other; ppo: with a value"
    ] = "grpo"
    reward: Annotated[
        str, f"what is raised: {', '.join(PROGRAMS)}, known to a program; or the folder of a reward model"
    ] = "judge"
    prompts: Annotated[Count, "prompts in a round"] = 32
    responses: Annotated[int, Range(2, 10_000), "responses to each prompt of a round"] = 8
    passes: Annotated[Count, "passes over the responses of a round"] = 1
    updates: Annotated[Count, "updates in a pass"] = 2
    batch_tokens: Annotated[int, Range(1, 1_000_000_000), "tokens written or scored at once, about"] = 32768
    temperature: Annotated[float, Range(0, 100, "(]"), "of what is written in a round"] = 1.0
    beta: Annotated[float, Range(0, 1000), "what leaving the reference costs, per nat"] = 0.01
    clip: Annotated[Part, "how far a token's probability may move in a round and still be rewarded"] = 0.2
    discount: Annotated[float, Range(0, 1), "ppo: of the reward, for each token until it comes"] = 1.0
    gae_lambda: Annotated[float, Range(0, 1), "ppo: 0 trusts values, 1 trusts rewards"] = 0.95
    value_loss_weight: Annotated[float, Range(0, 1000), "ppo: of the loss of values"] = 0.1
    steps: Steps = 500
    learning_rate: LearningRate = 1e-5
    warmup_steps: WarmupSteps = 10
    schedule: Annotated[Schedule, "learning rate after the warm-up"] = "constant"
    weight_decay: Annotated[float, Range(0, 10), "decoupled weight decay"] = 0.0


OF_PPO = ("train.discount", "train.gae_lambda", "train.value_loss_weight")

Asked = tuple[ResponseRow, ResponseTokens]


@dataclass(frozen=True)
class PromptExamples:
    """What was read: prompts as tokens, held-out ones, and the model to start from."""

    vocab: Any
    template: TurnTemplate
    train: list[Asked]
    held_out: list[Asked]  # those that are tried each time
    there: int  # how many are held out
    origin: Origin
    folder: Path  # of the run

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.train), sum(len(tokens.prompt) for _, tokens in self.train), "prompts")


def prompts_of(recipe: Recipe, split: str, report: Report) -> Iterator[ResponseRow]:
    """The prompts of a split, with the right response where it is known."""
    d = recipe.data
    if d.corpus:
        yield from rows_of(recipe, split, report)
        return
    path = d.table if split == "train" else d.valid_table
    if not path:
        raise BadInput(f"give --data and --valid-data, files of prompts, or --corpus {CORPUS}")
    found = read_prompts(path, d.prompt_column, d.response_column, report)
    rows = (ResponseRow(before, response) for before, response in found)
    yield from not_empty(rows, lambda: f"there is no prompt in {path} ({report.sentence()})")


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> PromptExamples:
    """Read or generate the prompts, write them down by the chat template, and tokenize."""
    if origin is None:
        raise BadInput(
            "rl starts from a model that follows instructions: give --from RUN (heedful train instruct)"
        )
    if isinstance(origin.config, XLConfig):
        raise BadInput(
            one_line(f"{origin.folder} remembers what it has read (xl): it cannot be started from")
        )
    check_reward(recipe)
    template, report = template_of(folder), Report(recipe.data.bad_lines)
    vocab = vocabulary(folder, origin)
    train = list(tokenized(vocab, template, prompts_of(recipe, "train", report), report, recipe.data.table))
    rows = prompts_of(recipe, "valid", report)
    tried = list(islice(rows, recipe.evaluate.rows))
    there = len(tried) + sum(1 for _ in rows)
    held_out = list(tokenized(vocab, template, tried, report, recipe.data.valid_table))
    if report.counts:
        say(report.sentence())
    if not held_out or not train:
        raise BadInput(f"the chat template refuses every prompt ({report.sentence()})")
    return PromptExamples(vocab, template, train, held_out, there, origin, folder)


BASELINE = "baseline.json"  # in a run's folder: what the model to start from scores


def precompute(
    recipe: Recipe, examples: PromptExamples, device: torch.device, say: Callable[[str], None]
) -> None:
    """The scores of the model to start from, found once and kept in the run's folder."""
    if present(examples.folder / BASELINE):
        return
    model = reference_model(examples.origin, device).eval()
    writer, length = writer_of(recipe, examples.vocab), length_of(recipe, examples.origin.config)
    judged = PolicyEvaluator(recipe, examples.vocab, examples.held_out, length, writer, lent(lambda d: model))
    with torch.no_grad():
        write_json(examples.folder / BASELINE, judged.evaluate(model))


def baselines_of(folder: Path) -> dict[str, tuple[str, float]]:
    """What the model to start from scores, once it is known."""
    if not present(folder / BASELINE):
        return {}
    found = read_json(inside(folder, BASELINE))
    return {
        name: (f"{SHOWN[name][0]} (the model to start from)", float(found[name]))
        for name in ("exact", "reward", "score", "loss")
        if isinstance(found.get(name), float)
    }


def writer_of(recipe: Recipe, vocab: Any) -> ResponseWriter:
    """What writes responses as the recipe says."""
    d, t = recipe.data, recipe.train
    return ResponseWriter(vocab.eos, vocab.pad, d.max_response_length, t.batch_tokens, t.temperature)


def length_of(recipe: Recipe, config: Any) -> int:
    """Tokens of a prompt and its response."""
    return min(recipe.data.max_length or config.context, config.context)


def job(recipe: Recipe, examples: PromptExamples) -> Job:
    """Plan the rounds, and put together what a run needs."""
    d, t, vocab, origin = recipe.data, recipe.train, examples.vocab, examples.origin
    config = started_config(recipe, origin.config)
    length, writer = length_of(recipe, config), writer_of(recipe, vocab)
    kept = fitting(examples.train, length - d.max_response_length)
    longest = max(len(tokens.prompt) for _, tokens in kept) + d.max_response_length
    asked = min(t.prompts, len(kept))
    plan = RoundPlan(len(kept), asked, t.responses, longest, t.passes, t.updates, t.seed)
    tuning = tuning_of(recipe, origin)
    reference = lent(partial(reference_model, origin)) if tuning is None or tuning.lora is None else unadapted
    rollouts = Rollouts(
        [tokens.prompt for _, tokens in kept],
        plan,
        writer,
        vocab.decode,
        rewards_of(recipe, [row for row, _ in kept]),
        algorithm_of(recipe, plan.responses),
        reference,
    )
    judged = PolicyEvaluator(recipe, vocab, examples.held_out, length, writer, reference)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[UpdateBatch]:
        if world > 1:
            raise BadInput("rl writes its responses in one process: start it without torchrun")
        return plan.batches(step, t.accumulation_steps)

    left = len(examples.train) - len(kept)
    return Job(
        task="rl",
        architecture=origin.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.plan.batches * plan.updates,
        loss=rollouts,
        carried=rollouts,
        figures=rollouts.figures,
        around=(lambda model: WithValue(model, config.width))
        if t.algorithm == "ppo"
        else lambda model: model,
        evaluate=judged.evaluate,
        samples=lambda model: judged.samples(model, sample_count(recipe.evaluate.examples)),
        held_out=len(judged.rows),
        baselines=baselines_of(examples.folder),
        plan=[
            f"data: {len(kept):,} prompts, {examples.there:,} held out"
            + (
                f" ({len(judged.rows):,} of them tried each time)"
                if len(judged.rows) < examples.there
                else ""
            )
            + (f"; {left:,} left out, which are too long" if left else ""),
            f"vocabulary: {vocab.size:,} of {vocab.kind}; chat template: {examples.template.name}",
            f"rewards: {t.reward}; {t.algorithm}, beta {t.beta:g}",
            f"rounds: {plan.asked} prompts, {plan.responses} responses to each, {plan.updates} updates",
            describe_start(recipe, False),
        ],
        facts={
            "data": hash_of([(row.before, row.response) for row, _ in kept]),
            "held-out data": hash_of([(row.before, row.response) for row in judged.rows]),
            **origin.facts,
            **reward_facts(recipe),
        },
        begin=lambda model: begin(lasting(model), origin),
        tuning=tuning,
        special=special_of(vocab),
    )


def fitting(asked: Sequence[Asked], room: int) -> list[Asked]:
    """Prompts that leave room for a response."""
    kept = [(row, tokens) for row, tokens in asked if len(tokens.prompt) <= room]
    if not kept:
        raise BadInput(
            f"every prompt is over {room} tokens, which data.max_length leaves beside a response of "
            "data.max_response_length"
        )
    return kept


def algorithm_of(recipe: Recipe, responses: int) -> Algorithm:
    t = recipe.train
    if t.algorithm == "grpo":
        return GRPO(responses, t.clip, t.beta, t.temperature)
    return PPO(t.clip, t.beta, t.temperature, t.discount, t.gae_lambda, t.value_loss_weight, ROWS)


ROWS = 64  # responses scored at once

# Evaluation


class PolicyEvaluator:
    """Held-out prompts: what a model's greedy responses are worth, and how far it has left the reference."""

    def __init__(
        self,
        recipe: Recipe,
        vocab: Any,
        held_out: Sequence[Asked],
        length: int,
        writer: ResponseWriter,
        reference: Any,
    ) -> None:
        longest = recipe.data.max_response_length
        packed = False  # nothing is learned from these rows
        self.judged = ResponseEvaluator(vocab, held_out, length, longest, packed)
        self.rows, self.writer, self.reference = self.judged.rows, writer, reference
        self.prompts: list[Tokens] = [last(tokens.prompt, length - longest + 1) for _, tokens in held_out]
        self.beta, self.seed = recipe.train.beta, recipe.train.seed
        self.raised = {"judge": "reward", "exact": "exact"}.get(recipe.train.reward, "score")
        self.rewards = rewards_of(recipe, self.rows)

    def evaluate(self, model: Any) -> dict[str, float]:
        """The loss is minus what is raised: the reward, less beta times the KL divergence."""
        policy = lasting(model)
        scores = self.scores(self.judged.write(policy, range(len(self.rows))))  # type: ignore[arg-type]
        kl = float(np.mean(self.divergence(policy)))
        told = {name: float(score.mean()) for name, score in scores.items()}
        return {"loss": self.beta * kl - told[self.raised], **told, "kl": kl}

    def scores(self, found: Sequence[str]) -> dict[str, np.ndarray]:
        """Exact matches, where the right responses are known; the judge's rewards of the built-in corpus; and
        what is raised, if that is something else ("score")."""
        known = self.judged.scores(found) if all(row.response for row in self.rows) else {}
        if self.raised in known:
            return known
        return {**known, "score": np.array(self.rewards(range(len(found)), found, [True] * len(found)))}

    def divergence(self, policy: Any) -> list[float]:
        """KL(pi || ref) of one response to each prompt, in nats."""
        seeds = [seed_for(self.seed, "held out", number) for number in range(len(self.prompts))]
        written = self.writer.write(policy, self.prompts, seeds)
        blank = blank_round(
            self.prompts, [one.tokens for one in written], [0.0] * len(written), self.writer.pad
        )
        device = policy.inputs.tokens.weight.device
        with torch.no_grad():
            return list(exact_kl(policy, self.reference, blank.to(device), ROWS, self.writer.tau))

    def samples(self, model: Any, count: int) -> Any:
        """A few responses beside what was expected."""
        return self.judged.samples(lasting(model), count)  # type: ignore[arg-type]


def measure(model: Decoder, asked: EvaluationRequest) -> Measured:
    """Rewards, exact match and the divergence from the reference on all held-out prompts."""
    recipe = asked.recipe
    judged, report = evaluator(model, asked)
    found = [""] * len(judged.rows)
    for some in asked.track(judged.writer.groups(judged.prompts), "responding"):
        for i, text in zip(some, judged.judged.write_group(model, some), strict=True):
            found[i] = text
    scores, kl = judged.scores(found), np.array(judged.divergence(model))
    told = {name: float(score.mean()) for name, score in scores.items()}
    return Measured(
        examples=len(found),
        unit="responses",
        metrics={
            **told,
            "kl": float(kl.mean()),
            "loss": recipe.train.beta * float(kl.mean()) - told[judged.raised],
        },
        per="response",
        intervals={
            name: interval(float(score.mean()), len(score)) if name == "exact" else mean_interval(score)
            for name, score in {**scores, "kl": kl}.items()
        },
        signature={
            "decoding": f"{asked.decoding}|max_new_tokens:{recipe.data.max_response_length}",
            "raised": recipe.train.reward,
            "kl": f"sampled responses|reference:{Path(recipe.train.from_).name}",
        },
        details={"kinds": by_kind(judged.rows, scores)} if "reward" in scores else {},
        report=report,
        lines=found,
    )


def evaluator(
    model: Decoder, asked: EvaluationRequest, most: int | None = None
) -> tuple[PolicyEvaluator, Report]:
    """What judges a finished model by all held-out prompts or the first ones, and a report of bad lines."""
    recipe, d = asked.recipe, asked.recipe.data
    inside(asked.run, OF_RUN)
    vocab, template, report = vocab_of(asked.run, recipe), template_of(asked.run), Report(d.bad_lines)
    rows = islice(prompts_of(recipe, asked.split, report), most)
    held_out = list(tokenized(vocab, template, rows, report, d.valid_table))
    if not held_out:
        raise BadInput(f"the chat template refuses every prompt ({report.sentence()})")
    origin = find_origin(recipe.train.from_, asked.run)
    writer = writer_of(recipe, vocab)
    reference = lent(partial(reference_model, origin))
    return PolicyEvaluator(recipe, vocab, held_out, room_of(asked.run, recipe), writer, reference), report


def held_out_loss(model: Decoder, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss on a few held-out prompts, and that of the model that it started from."""
    judged, _ = evaluator(model, asked, rows)
    with judged.reference(model) as reference:
        return judged.evaluate(model)["loss"], judged.evaluate(reference)["loss"]


# The task


def check(recipe: Recipe) -> None:
    """Refuse settings that do not fit together."""
    t, given = recipe.train, recipe.given or frozenset()
    if t.algorithm == "grpo" and (vain := [key for key in OF_PPO if key in given]):
        raise BadInput(f"{vain[0]} is for train.algorithm=ppo, and this is grpo: leave it out")
    if t.prompts * t.responses < t.updates:
        raise BadInput(
            f"train.updates={t.updates} is more than the {t.prompts * t.responses} responses of a round"
        )


TASK = Task(
    name="rl",
    data=InstructData,
    train=RLTraining,
    architectures={"llama": {}, "gpt2": {}, "gpt1": {}, "gpt3": {}, "modern": {}, "mixture": {}},
    corpora={
        CORPUS: Corpus(
            tuple(name for name in instructions.SPLITS if name != "train"),
            {
                **{key: INSTRUCTIONS[key] for key in ("data.max_length", "data.max_response_length")},
                "train.temperature": 0.7,
                "train.ema_decay": 0.97,
                "evaluate.rows": 200,
            },
        )
    },
    starts=Starts(
        find=starting_from(DECODERS),
        published={"data.max_length": 512, "evaluate.rows": 50, "train.prompts": 16},
        own={"train.learning_rate": 2e-4, "train.prompts": 64, "train.steps": 200},
    ),
    read=read,
    precompute=precompute,
    job=job,
    measure=measure,
    metric="loss",
    own_data=({"data": ("data.valid_table",)},),
    columns=("prompt", "response"),
    writes=True,
    next=("chat {path}", 'generate {path} --chat "your own instruction"'),
    check=check,
)
