"""DPO: prefer what people prefer, directly from pairs and without a reward model (Rafailov et al. 2023).

    reward     r(x, y) = beta log(pi(y | x) / ref(y | x))      that the model itself implies
    loss       -log sigmoid(r(x, y+) - r(x, y-))               Bradley and Terry's

pi is the model that learns and ref the one that it starts from (equation 7 of
https://arxiv.org/abs/2305.18290). Both are the same at first, so the first loss is ln 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

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
from .origin import DECODERS, Origin, begin, find_origin, special_of, starting_from, vocab_of
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
from .recipe.choices import Choice, steps_for
from .recipe.settings import BatchTokens, FineTuning, LearningRate, Recipe, WarmupSteps
from .reference import (
    ROWS,
    compute,
    logprobs_of,
    read_reference,
    reference_model,
    response_logprobs,
)
from .summary_forms import device_of
from .task import Corpus, Job, Starts, Task, chunks, sample_count, spread
from .tuning import tuning_of


@dataclass(frozen=True)
class DpoTraining(FineTuning):
    batch_tokens: BatchTokens = 8192
    learning_rate: LearningRate = 1e-6
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
    d, origin = recipe.data, started(examples)
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


NO_ORIGIN = "dpo goes on from a model that responds already: give --from FOLDER, such as a run of instruct"


def started(examples: PairExamples) -> Origin:
    if examples.origin is None:
        raise BadInput(
            "dpo goes on from a model that responds already: give --from FOLDER, a run of instruct"
        )
    return examples.origin


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> PairExamples:
    """Read or generate the pairs, write them down by the chat template, and tokenize."""
    if origin is None:
        raise BadInput(
            "dpo goes on from a model that responds already: give --from FOLDER, a run of instruct"
        )
    return read_pairs(recipe, folder, origin, say)


def precompute(
    recipe: Recipe, examples: PairExamples, device: torch.device, say: Callable[[str], None]
) -> None:
    """The log-probabilities of all pairs by the model to start from."""
    rows = laid_out(recipe, examples)
    compute(examples.folder, started(examples), rows.learned, rows.tried, device, say)


def job(recipe: Recipe, examples: PairExamples) -> Job:
    """Pack the pairs, and put together what a run needs."""
    d, t, vocab, origin = recipe.data, recipe.train, examples.vocab, started(examples)
    rows = laid_out(recipe, examples)
    reference = read_reference(examples.folder, origin, rows.learned, rows.tried)
    plan = rows.learned.plan(t.batch_tokens, t.seed)
    judged = DpoEvaluator(vocab, rows.held_out, rows.tried, d.max_response_length)

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
        self, vocab: Any, held_out: Sequence[tuple[PairRow, PairTokens]], rows: PairRows, longest: int
    ) -> None:
        """longest: tokens of a response."""
        self.pairs, self.rows = [row for row, _ in held_out], rows
        right = [(row.right, ResponseTokens(tokens.prompt, tokens.chosen)) for row, tokens in held_out]
        self.written = ResponseEvaluator(vocab, right, rows.longest, longest, rows.packed)

    def evaluate(self, model: Decoder, reference: np.ndarray, beta: float) -> dict[str, float]:
        """The mean scores of held-out pairs and of greedy responses. reference: log-probabilities [2, P]."""
        found = logprobs_of(model, self.rows, chunks(range(self.rows.apart.rows), ROWS))
        pairs = implicit_scores(found, reference, beta)
        return {**means(self.responses(model)), **means(pairs)}

    def responses(self, model: Decoder) -> dict[str, np.ndarray]:
        """Whether each greedy response is right, and its reward, where there is a judge."""
        some = range(len(self.pairs) if self.judged else 0)
        return self.written.scores(self.written.write(model, some)) if some else {}

    @property
    def judged(self) -> bool:
        return self.pairs[0].instruction is not None


def implicit_scores(found: np.ndarray, reference: np.ndarray, beta: float) -> dict[str, np.ndarray]:
    """The scores of each pair; "chosen" is the implicit reward of its chosen response, which may fall."""
    rewards = beta * (found.astype(np.float64) - reference)
    return {**pair_scores(rewards[0] - rewards[1]), "chosen": rewards[0]}


def measure(model: Decoder, asked: EvaluationRequest) -> Measured:
    """Implicit rewards of all held-out pairs; for the built-in corpus, also rewards of greedy responses."""
    recipe, d = asked.recipe, asked.recipe.data
    judged, report = evaluator(model, asked, Report(d.bad_lines), None)
    origin = find_origin(recipe.train.from_, asked.run, DECODERS)
    reference = reference_model(origin, device_of(model))
    parts = list(chunks(range(judged.rows.apart.rows), max(1, asked.rows // 4)))
    before = logprobs_of(reference, judged.rows, asked.track(parts, "reading by the reference"))
    after = logprobs_of(model, judged.rows, asked.track(parts, "reading"))
    pairs = implicit_scores(after, before, recipe.train.beta)
    lines, written = responses_of(model, judged, asked)
    kinds = [row.instruction.kind for row in judged.pairs if row.instruction is not None]
    return Measured(
        examples=len(judged.pairs),
        unit="pairs",
        per="pair",
        metrics={**means(written), **means(pairs)},
        intervals=intervals({**written, **pairs}),
        baselines=baselines_of(asked.run, judged.rows.tokens),
        signature={"loss": f"of implicit rewards|beta:{recipe.train.beta:g}"},
        details={**({"kinds": by_group(kinds, written)} if kinds else {}), **by_flaw(judged.pairs, pairs)},
        report=report,
        lines=lines,
    )


def responses_of(
    model: Decoder, judged: DpoEvaluator, asked: EvaluationRequest
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Greedy responses to all prompts, and what they are worth; none where there is no judge."""
    if not judged.judged:
        return [], {}
    prompts, found = judged.written.prompts, [""] * len(judged.pairs)
    for some in asked.track(by_length([len(prompt) for prompt in prompts], asked.rows), "responding"):
        for i, text in zip(some, judged.written.write_group(model, some), strict=True):
            found[i] = text
    return found, judged.written.scores(found)


def evaluator(
    model: Decoder, asked: EvaluationRequest, report: Report, most: int | None
) -> tuple[DpoEvaluator, Report]:
    """What judges a finished model, by all held-out pairs or the first ones."""
    recipe, d = asked.recipe, asked.recipe.data
    inside(asked.run, OF_RUN)  # missing, it would be made again, and a run is not to be changed
    vocab, template = vocab_of(asked.run, recipe), template_of(asked.run)
    rows = islice(rows_of(recipe, asked.split, report), most)
    found = tokenized(vocab, template, rows, report, d.valid_table)
    length, packed = room_of(model, recipe), keeps_packed_rows(model)
    held_out = list(reported(found, length, d.max_response_length, report, d.valid_table))
    pairs = PairRows([tokens for _, tokens in held_out], length, packed)
    return DpoEvaluator(vocab, held_out, pairs, d.max_response_length), report


def held_out_loss(model: Decoder, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss of a few held-out pairs, and that of the model that it started from."""
    recipe = asked.recipe
    judged, _ = evaluator(model, asked, Report(recipe.data.bad_lines), rows)
    reference = reference_model(find_origin(recipe.train.from_, asked.run, DECODERS), device_of(model))
    parts = list(chunks(range(judged.rows.apart.rows), ROWS))
    before, after = (logprobs_of(one, judged.rows, parts) for one in (reference, model))
    return float(implicit_scores(after, before, recipe.train.beta)["loss"].mean()), NO_PREFERENCE


# The task

EPOCHS, MOST_STEPS = 1, 10_000


def choose(recipe: Recipe, examples: PairExamples, device: str) -> Iterator[Choice]:
    """One pass over the pairs: a second one mostly moves further away from the reference."""
    yield from steps_for(recipe, examples.size, EPOCHS, MOST_STEPS)


PAIRS = {
    "data.max_length": 128,
    "data.max_response_length": 32,
    "train.batch_tokens": 4096,
    "train.warmup_steps": 20,
    "train.steps": 300,
    "evaluate.rows": 200,
}

TASK = Task(
    name="dpo",
    data=PreferenceData,
    train=DpoTraining,
    architectures={"llama": {}, "gpt2": {}, "gpt1": {}, "gpt3": {}, "modern": {}, "mixture": {}},
    corpora={CORPUS: Corpus(("valid", "test", "combinations"), PAIRS, metric="reward")},
    starts=Starts(
        find=starting_from(DECODERS),
        published={"data.max_length": 512, "evaluate.rows": 200, "model.dropout": 0.0},
        own={"train.learning_rate": 1e-4, "model.dropout": 0.0},
        lora={"train.learning_rate": 5e-5},
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
