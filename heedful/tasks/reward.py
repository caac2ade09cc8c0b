"""Reward: how good a response is, as one number, learned from pairs (InstructGPT's second step).

    tokens     User: Count the words: a b c   Assistant:   3    [EOS]
    reward                                                      r(x, y)

A decoder is read at the end token of the response, which alone has seen all of it. The loss is Bradley and
Terry's, -log sigmoid(r(x, y+) - r(x, y-)) (https://arxiv.org/abs/2203.02155). Only differences count, so the
head has no bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ..data.plan import shares
from ..data.report import Report
from ..files import inside
from ..interop.hf.chat_files import OF_RUN
from ..models.base.shells import DecoderClassifier, keeps_packed_rows
from ..models.base.skeleton import skeleton
from ..parts.experts import auxiliary
from ..parts.places import Packed
from ..train.loss import Loss, with_aux
from .configs import config_of, head_dropout, started_config
from .evaluation import EvaluationRequest, Measured
from .instruct import check, room_of
from .instruct_data import CORPUS, template_of
from .origin import DECODERS, begin, special_of, starting_from, vocab_of
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
    read,
    rows_of,
    tokenized,
)
from .preference_scores import (
    NO_PREFERENCE,
    baselines_of,
    by_flaw,
    describe_pairs,
    facts_of,
    fitting,
    intervals,
    job_baselines,
    means,
    pair_line,
    pair_scores,
    reported,
)
from .recipe.choices import Choice, DataSize, dropout_by_epochs, steps_for
from .recipe.settings import (
    SMALL_CORPUS,
    BatchTokens,
    FineTuning,
    LearningRate,
    Recipe,
    WarmupSteps,
)
from .task import Corpus, Job, Starts, Task, VocabLike, chunks, spread
from .tuning import tuning_of

ROWS = 16  # rows of held-out pairs that are read at once while a model trains


@dataclass(frozen=True)
class RewardTraining(FineTuning):
    batch_tokens: BatchTokens = 8192
    learning_rate: LearningRate = 3e-4
    warmup_steps: WarmupSteps = 100
    label_smoothing: WrongPairs = 0.0


def rewards_of(model: DecoderClassifier, hidden_BTD: Tensor, batch: PreferenceBatch) -> Tensor:
    """r(x, y) [N] of every response, from the vectors at their ends."""
    return model.judge(hidden_BTD.flatten(0, 1)[batch.ends_N])[:, 0]


def loss_of(model: DecoderClassifier, batch: PreferenceBatch, smoothing: float = 0.0) -> Loss:
    """-log sigmoid of how much more reward the chosen responses get, summed over pairs."""
    aux = auxiliary(model)
    hidden_BTD = model.decoder.hidden(batch.tokens_BT, Packed(batch.documents_BT), aux=aux)
    rewards_N = rewards_of(model, hidden_BTD, batch)
    rewards_N = rewards_N if rewards_N.dtype == torch.float64 else rewards_N.float()
    return with_aux(Loss(*pair_losses(*by_pair(rewards_N), smoothing), batch.count), aux)


def job(recipe: Recipe, examples: PairExamples) -> Job:
    """Pack the pairs, and put together what a run needs."""
    d, vocab, origin = recipe.data, examples.vocab, examples.origin
    config = started_config(recipe, origin.config) if origin else config_of(recipe, vocab=vocab.size)
    architecture = origin.architecture if origin else recipe.model.architecture
    length = min(d.max_length or config.context, config.context)
    kept = StoredPairs(examples.train, length, d.max_response_length)
    held_out = fitting(examples.held_out, length, d.max_response_length)
    for pairs, split in ((kept, "training"), (held_out, "held-out")):
        check_fits(pairs, d, length, split)
    packed = keeps_packed_rows(skeleton(architecture, config))
    learned = PairRows(kept, length, packed)
    plan = learned.plan(recipe.train.batch_tokens, recipe.train.seed)
    judged = RewardEvaluator(spread(held_out, recipe.evaluate.rows), length, packed)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[PreferenceBatch]:
        parts = shares(plan.batch(step), recipe.train.accumulation_steps, rank, world)
        return [learned.batch(part) for part in parts]

    return Job(
        task="reward",
        architecture=architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(loss_of, smoothing=recipe.train.label_smoothing),
        evaluate=judged.evaluate,
        show=lambda model: judged.show(model, recipe.evaluate.examples),
        held_out=len(judged.held_out),
        baselines=job_baselines(examples.train, judged.tokens),
        plan=describe_pairs(recipe, examples, learned, kept.left_out, len(judged.held_out), len(held_out)),
        labels=1,
        head_bias=False,
        head_dropout=head_dropout(recipe, usual=0.0),
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=end_of(vocab),
        facts=facts_of(examples, judged.held_out),
    )


def end_of(vocab: VocabLike) -> dict[str, int]:
    """The tokens of a vocabulary that came along. Padding that is the end token too is none here, since
    Hugging Face's classifiers read the last token that is no padding."""
    special = special_of(vocab)
    return {name: n for name, n in special.items() if name != "pad" or n != vocab.eos}


# Evaluation


class RewardEvaluator:
    """Held-out pairs, and what a model's rewards of them are worth."""

    def __init__(self, held_out: Sequence[tuple[PairRow, PairTokens]], length: int, packed: bool) -> None:
        self.held_out, self.length, self.packed = held_out, length, packed
        self.tokens = [tokens for _, tokens in held_out]
        self.rows = PairRows(self.tokens, length, packed)

    def evaluate(self, model: DecoderClassifier) -> dict[str, float]:
        """Held-out loss (nats per pair), accuracy and mean margin."""
        chosen_P, rejected_P = self.rewards(model, chunks(range(self.rows.apart.rows), ROWS))
        return means(pair_scores(chosen_P - rejected_P))

    def rewards(self, model: DecoderClassifier, parts: Iterator[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """The rewards of the chosen and of the rejected responses, in the order of the pairs."""
        found = np.zeros((2, len(self.held_out)))
        for part in parts:
            batch = self.rows.batch(part)
            here = batch.to(model.linear.weight.device)
            hidden_BTD = model.decoder.hidden(here.tokens_BT, Packed(here.documents_BT))
            sides = by_pair(rewards_of(model, hidden_BTD, here).double().cpu())
            found[:, list(batch.ids)] = torch.stack(sides).numpy()
        return found[0], found[1]

    def show(self, model: DecoderClassifier, count: int) -> list[str]:
        """A few pairs with their rewards."""
        some = self.held_out[:count]
        if not some:
            return []
        few = RewardEvaluator(some, self.length, self.packed)
        rewards = few.rewards(model, chunks(range(few.rows.apart.rows), ROWS))
        return [pair_line(row, *both) for (row, _), *both in zip(some, *rewards, strict=True)]


def measure(model: DecoderClassifier, asked: EvaluationRequest) -> Measured:
    """Accuracy, loss and margin on all held-out pairs."""
    recipe, d = asked.recipe, asked.recipe.data
    inside(asked.run, OF_RUN)  # missing, it would be made again, and a run is not to be changed
    vocab, template, report = vocab_of(asked.run, recipe), template_of(asked.run), Report(d.bad_lines)
    rows = tokenized(vocab, template, rows_of(recipe, asked.split, report), report, d.valid_table)
    length = room_of(asked.run, recipe)
    held_out = list(reported(rows, length, d.max_response_length, report, d.valid_table))
    judged = RewardEvaluator(held_out, length, keeps_packed_rows(model))
    parts = chunks(range(judged.rows.apart.rows), max(1, asked.rows // 2))
    chosen_P, rejected_P = judged.rewards(model, asked.track(list(parts), "judging"))
    scores = pair_scores(chosen_P - rejected_P)
    return Measured(
        examples=len(held_out),
        unit="pairs",
        per="pair",
        metrics=means(scores),
        intervals=intervals(scores),
        baselines=baselines_of(asked.run, judged.tokens),
        details=by_flaw([row for row, _ in held_out], scores),
        report=report,
    )


def held_out_loss(model: DecoderClassifier, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss of a few held-out pairs, and that of giving both responses the same reward."""
    recipe, report = asked.recipe, Report(asked.recipe.data.bad_lines)
    vocab, template = vocab_of(asked.run, recipe), template_of(asked.run)
    length, longest = room_of(asked.run, recipe), recipe.data.max_response_length
    found = tokenized(vocab, template, islice(rows_of(recipe, asked.split, report), rows), report, "")
    judged = RewardEvaluator(fitting(found, length, longest), length, keeps_packed_rows(model))
    return judged.evaluate(model)["loss"], NO_PREFERENCE


# The task

EPOCHS, MOST_STEPS = 3, 10_000


def choose(recipe: Recipe, examples: PairExamples, device: str) -> Iterator[Choice]:
    """A few passes over the pairs."""
    yield from steps_for(recipe, examples.size, EPOCHS, MOST_STEPS)


def settle(recipe: Recipe, size: DataSize) -> Iterator[Choice]:
    """Dropout by how often a pair is read."""
    if not recipe.train.from_:
        yield from dropout_by_epochs(recipe, size, less=0.05)


PAIRS = SMALL_CORPUS | {
    "data.max_length": 128,
    "data.max_response_length": 32,
    "train.batch_tokens": 4096,
    "train.warmup_steps": 100,
    "train.steps": 600,
    "evaluate.rows": 500,
}

TASK = Task(
    name="reward",
    data=PreferenceData,
    train=RewardTraining,
    architectures={"llama": {}, "gpt2": {}, "gpt1": {}, "gpt3": {}, "modern": {}, "mixture": {}},
    corpora={CORPUS: Corpus(("valid", "test", "combinations"), PAIRS)},
    starts=Starts(
        find=starting_from(DECODERS),
        published={
            "train.optimizer": "adamw",
            "train.learning_rate": 1e-5,
            "data.max_length": 512,
            "evaluate.rows": 200,
        },
        own={"train.learning_rate": 1e-3},
    ),
    choose=choose,
    settle=settle,
    chosen={
        "train.steps": f"{EPOCHS} passes over the pairs, at most {MOST_STEPS:,} steps",
        "model.dropout": "0 to 0.4, by the number of passes over the pairs",
    },
    read=read,
    job=job,
    measure=measure,
    metric="accuracy",
    own_data=({"data": ("data.valid_table",)},),
    columns=("prompt", "chosen", "rejected"),
    next=(r"classify {path} $'your own instruction\ta response'",),
    check=check,
)
