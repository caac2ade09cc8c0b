"""DPO: prefer what people prefer, directly from pairs and without a reward model (Rafailov et al. 2023).

    reward     r(x, y) = beta log(pi(y | x) / ref(y | x))      that the model itself implies
    loss       -log sigmoid(r(x, y+) - r(x, y-))               Bradley and Terry's

pi is the model that learns and ref the one that it starts from (equation 7 of
https://arxiv.org/abs/2305.18290). Both are the same at first, so the first loss is ln 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..data.plan import shares
from ..data.report import Report
from ..errors import BadInput
from ..files import inside
from ..interop.hf.chat_files import OF_RUN
from ..models.base.settings import Range
from ..models.base.shells import Decoder, keeps_packed_rows
from ..models.base.skeleton import skeleton
from ..parts.experts import auxiliary
from ..train.loss import Loss, with_aux
from ..train.preference import implicit_reward
from .configs import started_config
from .evaluation import EvaluationRequest, Measured, by_length
from .instruct import ResponseEvaluator, room_of
from .instruct_data import CORPUS, ResponseTokens, template_of
from .origin import DECODERS, Origin, begin, find_origin, special_of, starting_from, vocab_of, vocabulary
from .own_responses import is_kept, keep, kept, with_own
from .own_responses import responses_of as own_responses
from .preference_data import (
    PairExamples,
    PairRow,
    PairRows,
    PairTokens,
    PreferenceBatch,
    PreferenceData,
    StoredPairs,
    WrongPairs,
    by_pair,
    check_fits,
    pair_losses,
    rows_of,
    tokenized,
)
from .preference_data import read as read_pairs
from .preference_scores import (
    NO_PREFERENCE,
    baselines_of,
    by_flaw,
    by_group,
    describe_pairs,
    facts_of,
    fitting,
    intervals,
    job_baselines,
    means,
    pair_scores,
    reported,
)
from .recipe.choices import Choice, DataSize, steps_for
from .recipe.settings import BatchTokens, FineTuning, LearningRate, Recipe, WarmupSteps
from .reference import (
    ROWS,
    compute,
    logprobs_of,
    read_reference,
    reference_model,
    response_logprobs,
    spoken,
)
from .summary_forms import device_of
from .task import Corpus, Job, Starts, Task, chunks, sample_count, spread
from .tuning import tuning_of


@dataclass(frozen=True)
class DpoTraining(FineTuning):
    batch_tokens: BatchTokens = 8192
    learning_rate: LearningRate = 1e-5
    warmup_steps: WarmupSteps = 100
    label_smoothing: WrongPairs = 0.0
    beta: Annotated[float, Range(0, 100, "(]"), "what a nat away from the reference costs (DPO's beta)"] = 0.1


def loss_of(
    model: Decoder, batch: PreferenceBatch, reference_N: Tensor, beta: float, smoothing: float = 0.0
) -> Loss:
    """-log sigmoid of how much more implicit reward the chosen responses have, summed over pairs."""
    aux = auxiliary(model)
    rewards_N = implicit_reward(response_logprobs(model, batch, aux), reference_N, beta)
    return with_aux(Loss(*pair_losses(*by_pair(rewards_N), smoothing), batch.count), aux)


# What a run reads


@dataclass(frozen=True)
class DpoData(PreferenceData):
    """The same, or the model's own responses as those that people do not prefer."""

    rejected: Annotated[
        Literal["given", "own"],
        "rejected responses: those given, or what the model to start from says wrongly",
    ] = "given"


@dataclass(frozen=True)
class DpoExamples:
    """The model to start from, and pairs, which may have to wait for its own responses."""

    recipe: Recipe
    folder: Path
    origin: Origin
    say: Callable[[str], None]

    @cached_property
    def pairs(self) -> PairExamples:
        """The pairs as tokens."""
        return read_pairs(self.recipe, self.folder, self.origin, self.say, self.rows)

    def rows(self, recipe: Recipe, split: str, report: Report) -> Iterator[PairRow]:
        """The pairs of a split."""
        given = rows_of(recipe, split, report)
        if recipe.data.rejected == "given":
            return given
        rows = list(given)
        return with_own(rows, kept(self.folder, split, len(rows)))

    def prompts(self, length: int) -> list[tuple[PairRow, PairTokens]]:
        """What is responded to at an evaluation: held-out rows that fit, whatever the model says itself."""
        d, pairs = self.recipe.data, self.pairs
        rows = rows_of(self.recipe, "valid", Report())
        found = tokenized(pairs.vocab, pairs.template, rows, Report(), d.valid_table)
        return fitting(found, length, d.max_response_length)

    @property
    def size(self) -> DataSize:
        return self.pairs.size


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> DpoExamples:
    """The model to start from; the pairs are read when they are first asked for."""
    if origin is None:
        raise BadInput(NO_ORIGIN)
    return DpoExamples(recipe, folder, origin, say)


def precompute(
    recipe: Recipe, examples: DpoExamples, device: torch.device, say: Callable[[str], None]
) -> None:
    """The model's own responses where they are asked for, and log-probabilities of all pairs by it."""
    if recipe.data.rejected == "own" and not is_kept(examples.folder):
        draw_own(recipe, examples, device, say)
    rows = laid_out(recipe, examples.pairs)
    compute(examples.folder, examples.origin, rows.learned, rows.tried, device, say)


def draw_own(recipe: Recipe, examples: DpoExamples, device: torch.device, say: Callable[[str], None]) -> None:
    """A response of the model to start from to every prompt, kept in the run's folder."""
    model = reference_model(examples.origin, device)
    template = template_of(examples.folder)
    vocab = vocabulary(examples.folder, examples.origin)
    context = examples.origin.config.context
    room = min(recipe.data.max_length or context, context), recipe.data.max_response_length
    for split in ("train", "valid"):
        rows = list(rows_of(recipe, split, Report(recipe.data.bad_lines)))
        track = partial(spoken, say, f"own responses ({split})")
        keep(
            examples.folder,
            split,
            own_responses(model, vocab, template, rows, room, recipe.train.seed, track),
        )


NO_ORIGIN = "dpo goes on from a model that responds already: give --from FOLDER, such as a run of instruct"


# The task


@dataclass(frozen=True)
class LaidOut:
    """The pairs in rows, for a model and its context."""

    config: Any
    kept: StoredPairs
    learned: PairRows
    there: int  # held-out pairs that fit
    held_out: list[tuple[PairRow, PairTokens]]  # those that are tried each time
    tried: PairRows
    length: int
    packed: bool


def laid_out(recipe: Recipe, examples: PairExamples) -> LaidOut:
    """What fits the model to start from."""
    d, origin = recipe.data, examples.origin
    assert origin is not None
    config = started_config(recipe, origin.config)
    length = min(d.max_length or config.context, config.context)
    kept = StoredPairs(examples.train, length, d.max_response_length)
    fit = fitting(examples.held_out, length, d.max_response_length)
    for pairs, split in ((kept, "training"), (fit, "held-out")):
        check_fits(pairs, d, length, split)
    packed = keeps_packed_rows(skeleton(origin.architecture, config))
    held_out = spread(fit, recipe.evaluate.rows)
    tried = PairRows([tokens for _, tokens in held_out], length, packed)
    return LaidOut(config, kept, PairRows(kept, length, packed), len(fit), held_out, tried, length, packed)


def job(recipe: Recipe, found: DpoExamples) -> Job:
    """Pack the pairs, and put together what a run needs."""
    examples, origin = found.pairs, found.origin
    d, t, vocab = recipe.data, recipe.train, examples.vocab
    rows = laid_out(recipe, examples)
    reference = read_reference(examples.folder, origin, rows.learned, rows.tried)
    plan = rows.learned.plan(t.batch_tokens, t.seed)
    prompts = (
        spread(found.prompts(rows.length), recipe.evaluate.rows) if d.rejected == "own" else rows.held_out
    )
    judged = DpoEvaluator(vocab, prompts, rows.tried, d.max_response_length)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[PreferenceBatch]:
        parts = shares(plan.batch(step), t.accumulation_steps, rank, world)
        return [rows.learned.batch(part) for part in parts]

    def loss(model: Decoder, batch: PreferenceBatch) -> Loss:
        return loss_of(model, batch, reference.of(batch), t.beta, t.label_smoothing)

    return Job(
        task="dpo",
        architecture=origin.architecture,
        config=rows.config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=loss,
        evaluate=lambda model: judged.evaluate(model, reference.held_out, t.beta),
        samples=lambda model: judged.written.samples(model, sample_count(recipe.evaluate.examples)),
        held_out=len(rows.held_out),
        baselines=job_baselines(examples.train, rows.tried.tokens),
        plan=describe_pairs(
            recipe, examples, rows.learned, rows.kept.left_out, len(rows.held_out), rows.there
        ),
        facts=facts_of(examples, rows.held_out),
        begin=partial(begin, origin=origin),
        tuning=tuning_of(recipe, origin),
        special=special_of(vocab),
    )


# Evaluation


class DpoEvaluator:
    """Held-out pairs and what a model's implicit rewards of them are worth; of the built-in corpus, also what
    the model's own responses are worth."""

    def __init__(
        self, vocab: Any, prompts: Sequence[tuple[PairRow, PairTokens]], rows: PairRows, longest: int
    ) -> None:
        """prompts: what is responded to, where pairs may be fewer. longest: tokens of a response."""
        self.prompts, self.rows = [row for row, _ in prompts], rows
        right = [(row.right, ResponseTokens(tokens.prompt, tokens.chosen)) for row, tokens in prompts]
        self.written = ResponseEvaluator(vocab, right, rows.longest, longest, rows.packed)

    def evaluate(self, model: Decoder, reference: np.ndarray, beta: float) -> dict[str, float]:
        """The mean scores of held-out pairs and of greedy responses. reference: log-probabilities [2, P]."""
        found = logprobs_of(model, self.rows, chunks(range(self.rows.apart.rows), ROWS))
        pairs = implicit_scores(found, reference, beta)
        return {**means(self.responses(model)), **means(pairs)}

    def responses(self, model: Decoder) -> dict[str, np.ndarray]:
        """Whether each greedy response is right, and its reward, where there is a judge."""
        some = range(len(self.prompts) if self.judged else 0)
        return self.written.scores(self.written.write(model, some)) if some else {}

    @property
    def judged(self) -> bool:
        return self.prompts[0].instruction is not None


def implicit_scores(found: np.ndarray, reference: np.ndarray, beta: float) -> dict[str, np.ndarray]:
    """The scores of each pair; "chosen" is the implicit reward of its chosen response, which may fall."""
    rewards = beta * (found.astype(np.float64) - reference)
    return {**pair_scores(rewards[0] - rewards[1]), "chosen": rewards[0]}


def measure(model: Decoder, asked: EvaluationRequest) -> Measured:
    """Implicit rewards of all held-out pairs; for the built-in corpus, also rewards of greedy responses."""
    recipe = asked.recipe
    reference = reference_model(find_origin(recipe.train.from_, asked.run, DECODERS), device_of(model))
    report = Report(recipe.data.bad_lines)
    judged, rows = evaluator(model, reference, asked, report)
    parts = list(chunks(range(judged.rows.apart.rows), max(1, asked.rows // 4)))
    before = logprobs_of(reference, judged.rows, asked.track(parts, "reading by the reference"))
    after = logprobs_of(model, judged.rows, asked.track(parts, "reading"))
    pairs = implicit_scores(after, before, recipe.train.beta)
    lines, written = responses_of(model, judged, asked)
    kinds = [row.instruction.kind for row in judged.prompts if row.instruction is not None]
    by_kind = {"kinds": by_group(kinds, written)} if kinds else {}
    return Measured(
        examples=len(judged.prompts),
        unit="prompts",
        per="pair",
        metrics={**means(written), **means(pairs)},
        intervals=intervals({**written, **pairs}),
        baselines=baselines_of(asked.run, judged.rows.tokens),
        signature={"loss": f"of implicit rewards|beta:{recipe.train.beta:g}"},
        details={**by_kind, **(by_flaw(rows, pairs) if recipe.data.rejected == "given" else {})},
        counts={"pairs": len(rows)},
        report=report,
        lines=lines,
    )


def responses_of(
    model: Decoder, judged: DpoEvaluator, asked: EvaluationRequest
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Greedy responses to all prompts, and what they are worth; none where there is no judge."""
    if not judged.judged:
        return [], {}
    prompts, found = judged.written.prompts, [""] * len(judged.prompts)
    for some in asked.track(by_length([len(prompt) for prompt in prompts], asked.rows), "responding"):
        for i, text in zip(some, judged.written.write_group(model, some), strict=True):
            found[i] = text
    return found, judged.written.scores(found)


def evaluator(
    model: Decoder, reference: Decoder, asked: EvaluationRequest, report: Report, most: int | None = None
) -> tuple[DpoEvaluator, list[PairRow]]:
    """What judges a finished model by all held-out pairs or the first ones, and these pairs."""
    recipe, d = asked.recipe, asked.recipe.data
    inside(asked.run, OF_RUN)  # missing, it would be made again, and a run is not to be changed
    vocab, template = vocab_of(asked.run, recipe), template_of(asked.run)
    length, packed = room_of(asked.run, recipe), keeps_packed_rows(model)
    rows = list(islice(rows_of(recipe, asked.split, report), most))
    found = tokenized(vocab, template, rows, report, d.valid_table)
    prompts = held_out = list(reported(found, length, d.max_response_length, report, d.valid_table))
    if d.rejected == "own":
        room = length, d.max_response_length
        own = own_responses(reference, vocab, template, rows, room, recipe.train.seed)
        found = tokenized(vocab, template, with_own(rows, own), Report(), d.valid_table)
        held_out = list(reported(found, length, d.max_response_length, Report(), d.valid_table))
    pairs = PairRows([tokens for _, tokens in held_out], length, packed)
    return DpoEvaluator(vocab, prompts, pairs, d.max_response_length), [row for row, _ in held_out]


def held_out_loss(model: Decoder, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss of a few held-out pairs, and that of the model that it started from."""
    recipe = asked.recipe
    reference = reference_model(find_origin(recipe.train.from_, asked.run, DECODERS), device_of(model))
    judged, _ = evaluator(model, reference, asked, Report(recipe.data.bad_lines), rows)
    parts = list(chunks(range(judged.rows.apart.rows), ROWS))
    before, after = (logprobs_of(one, judged.rows, parts) for one in (reference, model))
    return float(implicit_scores(after, before, recipe.train.beta)["loss"].mean()), NO_PREFERENCE


# The task

EPOCHS, MOST_STEPS = 1, 10_000


def choose(recipe: Recipe, examples: DpoExamples, device: str) -> Iterator[Choice]:
    """One pass over the pairs: a second one mostly moves further away from the reference."""
    yield from steps_for(recipe, examples.size, EPOCHS, MOST_STEPS)


# The rejected responses of the corpus are mostly ones that a tuned model would not write. With them, or with
# a small beta, pairs are told apart better and better, and greedy responses become worse.
PAIRS = {
    "data.max_length": 128,
    "data.max_response_length": 32,
    "data.rejected": "own",
    "train.beta": 1.0,
    "train.learning_rate": 1e-4,
    "train.batch_tokens": 4096,
    "train.warmup_steps": 20,
    "train.steps": 200,
    "evaluate.rows": 500,
}

TASK = Task(
    name="dpo",
    data=DpoData,
    train=DpoTraining,
    architectures={"llama": {}, "gpt2": {}, "gpt1": {}, "gpt3": {}, "modern": {}, "mixture": {}},
    corpora={CORPUS: Corpus(("valid", "test", "combinations"), PAIRS, metric="reward")},
    starts=Starts(
        find=starting_from(DECODERS),
        published={
            "train.learning_rate": 1e-6,
            "data.max_length": 512,
            "evaluate.rows": 200,
            "model.dropout": 0.0,
        },
        own={"model.dropout": 0.0},
        lora={"train.learning_rate": 1e-5},
    ),
    choose=choose,
    chosen={"train.steps": f"one pass over the pairs, at most {MOST_STEPS:,} steps"},
    read=read,
    precompute=precompute,
    job=job,
    measure=measure,
    metric="accuracy",
    own_data=({"data": ("data.valid_table",)},),
    columns=("prompt", "chosen", "rejected"),
    writes=True,
    next=("chat {path}", 'generate {path} --chat "your own instruction"'),
)
