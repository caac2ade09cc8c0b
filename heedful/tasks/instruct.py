"""Instruct: follow instructions, by supervised tuning on responses (InstructGPT's first step).

tokens     User: Count the words: a b c   Assistant:   3    [EOS]
answers                                   3      [EOS]              of the prompt, none is learned

The loss is the negative log-likelihood of responses and their ends, given what was said before
(https://arxiv.org/abs/2203.02155). Several conversations share a row, and do not see each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..corpora.instructions.judge import judge
from ..data.lines import hash_of
from ..data.plan import RowPlan, shares
from ..data.report import Report
from ..data.store import Store, Tokens
from ..decode.greedy import greedy
from ..decode.step import step_of
from ..errors import BadInput
from ..files import inside, one_line
from ..interop.hf.chat_files import OF_RUN
from ..interop.run.read import describe_run
from ..models.base.settings import Part
from ..models.base.shells import Decoder, keeps_packed_rows
from ..models.base.skeleton import skeleton
from ..models.xl import XLConfig
from ..train.loss import Loss
from .configs import config_of, started_config
from .evaluation import EvaluationRequest, Measured, by_length
from .instruct_data import (
    CORPUS,
    InstructData,
    ResponseRow,
    ResponseRows,
    ResponseTokens,
    StoredTokens,
    TurnTemplate,
    check_fits,
    prepare,
    rows_of,
    template_of,
    tokenized,
)
from .lm import PackedBatch, loss_of
from .metrics import BY_FREQUENCY, interval, unigram_entropy
from .origin import DECODERS, Origin, begin, special_of, starting_from, vocab_of
from .recipe.choices import Choice, DataSize, dropout_by_epochs, steps_for
from .recipe.settings import (
    SMALL_CORPUS,
    BatchTokens,
    FineTuning,
    LearningRate,
    Recipe,
    WarmupSteps,
)
from .rouge import mean_interval
from .summary_forms import device_of, padded
from .task import Corpus, Job, Starts, Task, WrittenSample, chunks, describe_data, sample_count, shortened
from .tuning import describe_start, tuning_of

ROWS = 64  # responses read or written at once while a model trains


@dataclass(frozen=True)
class InstructTraining(FineTuning):
    batch_tokens: BatchTokens = 8192
    learning_rate: LearningRate = 1e-3
    warmup_steps: WarmupSteps = 100
    label_smoothing: Annotated[Part, "share of the target spread over all tokens"] = 0.0


@dataclass(frozen=True)
class InstructExamples:
    """What was read: responses as tokens, held-out ones, and the model to start from, if there is one."""

    vocab: Any
    template: TurnTemplate
    train: Store
    held_out: list[tuple[ResponseRow, ResponseTokens]]  # those that are tried each time
    there: int  # how many are held out
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        tokens = self.train.tokens("prompt") + self.train.tokens("response") - len(self.train)
        return DataSize(len(self.train), tokens, "responses")


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> InstructExamples:
    """Read or generate the conversations, write them down by the chat template, and tokenize."""
    if origin is not None and isinstance(origin.config, XLConfig):
        raise BadInput(
            one_line(f"{origin.folder} remembers what it has read (xl): it cannot be started from yet")
        )
    vocab, template, train, report = prepare(recipe, folder, origin)
    rows = rows_of(recipe, "valid", report)
    tried = list(islice(rows, recipe.evaluate.rows))
    there = len(tried) + sum(1 for _ in rows)
    held_out = list(tokenized(vocab, template, tried, report, recipe.data.valid_table))
    if report.counts:
        say(report.sentence())
    if not held_out or not len(train):
        raise BadInput(f"the chat template refuses every conversation ({report.sentence()})")
    return InstructExamples(vocab, template, train, held_out, there, origin)


def job(recipe: Recipe, examples: InstructExamples) -> Job:
    """Pack the rows, and put together what a run needs."""
    d, vocab, origin = recipe.data, examples.vocab, examples.origin
    config = started_config(recipe, origin.config) if origin else config_of(recipe, vocab=vocab.size)
    architecture = origin.architecture if origin else recipe.model.architecture
    length = min(d.max_length or config.context, config.context)
    kept = StoredTokens(examples.train, length, d.max_response_length)
    check_fits(kept, d, length)
    packed = keeps_packed_rows(skeleton(architecture, config))
    learned = ResponseRows(kept, length, packed)
    plan = RowPlan(
        learned.apart.rows,
        max(1, recipe.train.batch_tokens // learned.apart.length),
        recipe.train.seed,
    )
    judged = ResponseEvaluator(vocab, examples.held_out, length, d.max_response_length, packed)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[PackedBatch]:
        parts = shares(plan.batch(step), recipe.train.accumulation_steps, rank, world)
        return [learned.batch(part) for part in parts]

    told = describe_data(f"{len(kept):,} responses", len(judged.rows), examples.there, 1 - learned.filled)
    left = f"; {kept.left_out:,} left out, which are too long" if kept.left_out else ""
    return Job(
        task="instruct",
        architecture=architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: loss_of(model, batch, recipe.train.label_smoothing),
        evaluate=judged.evaluate,
        samples=lambda model: judged.samples(model, sample_count(recipe.evaluate.examples)),
        held_out=len(judged.rows),
        baselines={
            "exact": (
                "exact match (always the most frequent response)",
                judged.most_frequent(examples.train),
            ),
            "loss": (BY_FREQUENCY, judged.by_frequency(examples.train)),
        },
        plan=[
            f"{told}{left}",
            f"vocabulary: {vocab.size:,} of {vocab.kind}; chat template: {examples.template.name}",
            *([describe_start(recipe, False)] if origin else []),
        ],
        facts={
            "data": examples.train.hash,
            "held-out data": hash_of([(row.before, row.response) for row in judged.rows]),
            **(origin.facts if origin else {}),
        },
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=special_of(vocab),
    )


# Evaluation


class ResponseEvaluator:
    """Held-out responses, and what a model's own are worth."""

    def __init__(
        self,
        vocab: Any,
        held_out: Sequence[tuple[ResponseRow, ResponseTokens]],
        length: int,
        longest: int,
        packed: bool,
    ) -> None:
        """length: tokens that a model reads at once. longest: tokens of a response."""
        self.vocab, self.longest = vocab, min(longest, length)
        self.rows = [row for row, _ in held_out]
        self.prompts = [last(tokens.prompt, length - self.longest + 1) for _, tokens in held_out]
        cut = [replace(tokens, response=tokens.response[: self.longest]) for _, tokens in held_out]
        self.tokens = [replace(one, prompt=last(one.prompt, length + 1 - len(one.response))) for one in cut]
        self.batches = ResponseRows(self.tokens, length, packed)

    def evaluate(self, model: Decoder) -> dict[str, float]:
        """Held-out loss (nats per token of a response), exact match and rewards of greedy responses."""
        loss, _ = self.loss(model, chunks(range(self.batches.apart.rows), ROWS // 2))
        scores = self.scores(self.write(model, range(len(self.rows))))
        return {"loss": loss, **{name: float(score.mean()) for name, score in scores.items()}}

    def loss(self, model: Decoder, parts: Iterator[list[int]]) -> tuple[float, int]:
        """(nats per token, tokens) of the responses in some rows."""
        losses: list[Loss] = [loss_of(model, self.batches.batch(part).to(device_of(model))) for part in parts]
        count = sum(loss.count for loss in losses)
        return sum(float(loss.nll) for loss in losses) / count, count

    def write(self, model: Decoder, some: Sequence[int]) -> list[str]:
        """Greedy responses to some prompts; those of like length are written together."""
        found: dict[int, str] = {}
        for group in by_length([len(self.prompts[i]) for i in some], ROWS):
            found.update(zip(group, self.write_group(model, [some[i] for i in group]), strict=True))
        return [found[place] for place in range(len(some))]

    def write_group(self, model: Decoder, some: Sequence[int]) -> list[str]:
        """The same, all at once."""
        prompts = padded([self.prompts[i] for i in some], self.vocab.pad, device_of(model))
        written = greedy(step_of(model), *prompts, longest=self.longest, eos=self.vocab.eos)
        return [self.vocab.decode(one.words).strip() for one in written]

    def scores(self, found: Sequence[str]) -> dict[str, np.ndarray]:
        """Of every response whether it is right; in the built-in corpus, also its reward."""
        expected = [self.expected(row) for row in self.rows]
        right = [mine.split() == theirs.split() for mine, theirs in zip(found, expected, strict=True)]
        scores = {"exact": np.array(right, float)}
        if self.rows[0].instruction is not None:
            pairs = zip(self.rows, found, strict=True)
            scores["reward"] = np.array([judge(row.instruction, mine) for row, mine in pairs])  # type: ignore[arg-type]
        return scores

    def expected(self, row: ResponseRow) -> str:
        return row.response.lower() if self.vocab.lower else row.response

    def samples(self, model: Decoder, count: int) -> list[WrittenSample]:
        """A few responses beside what was expected."""
        some = range(min(count, len(self.rows)))
        found = []
        for row, mine in zip(self.rows, self.write(model, some), strict=False):
            right = " ".join(self.expected(row).split())
            expected = "" if mine == right else f"    (expected: {shortened(right, SHOWN)})"
            line = f"    {shortened(row.asked, SHOWN)} → {shortened(mine, SHOWN)}{expected}"
            found.append(WrittenSample(row.asked, mine, right, line))
        return found

    def most_frequent(self, train: Store) -> float:
        """The share of responses that are the one which is learned most often."""
        counts = Counter(train.row("response", i).tobytes() for i in range(min(len(train), ENOUGH)))
        ((most, _),) = counts.most_common(1)
        kind = train.stream("response").dtype
        return float(np.mean([np.array(one.response, kind).tobytes() == most for one in self.tokens]))

    def by_frequency(self, train: Store) -> float:
        tried = np.concatenate([np.asarray(one.response) for one in self.tokens])
        return unigram_entropy(train.stream("response"), tried, self.vocab.size)

    @property
    def unknown(self) -> float:
        """The share of unknown tokens in prompts and responses."""
        ids = np.concatenate([np.asarray([*one.prompt, *one.response]) for one in self.tokens])
        return float((ids == self.vocab.unk).mean())


SHOWN = 160  # characters of a text that is shown
ENOUGH = 100_000  # responses to find the most frequent one of


def last(ids: Tokens, most: int) -> Tokens:
    """The last tokens of a prompt that the context has no room for, at least one."""
    return ids[-max(1, most) :]


def measure(model: Decoder, asked: EvaluationRequest) -> Measured:
    """Exact match, rewards, loss and perplexity on all held-out conversations."""
    recipe, d = asked.recipe, asked.recipe.data
    inside(asked.run, OF_RUN)  # missing, it would be made again, and a run is not to be changed
    vocab, template, report = vocab_of(asked.run, recipe), template_of(asked.run), Report(d.bad_lines)
    rows = rows_of(recipe, asked.split, report)
    held_out = list(tokenized(vocab, template, rows, report, d.valid_table))
    if not held_out:
        raise BadInput(f"the chat template refuses every conversation ({report.sentence()})")
    judged = ResponseEvaluator(
        vocab, held_out, room_of(asked.run, recipe), d.max_response_length, packs(model)
    )
    nats, count = judged.loss(model, chunks(range(judged.batches.apart.rows), asked.rows))
    found = [""] * len(held_out)
    for some in asked.track(by_length([len(prompt) for prompt in judged.prompts], asked.rows), "responding"):
        for i, text in zip(some, judged.write_group(model, some), strict=True):
            found[i] = text
    scores = judged.scores(found)
    kept = Store.mapped(asked.run / "data") if (asked.run / "data").is_dir() else None
    return Measured(
        examples=len(held_out),
        unit="responses",
        metrics={
            **{name: float(score.mean()) for name, score in scores.items()},
            "loss": nats,
            "perplexity": math.exp(min(nats, 700)),
            "unknown": judged.unknown,
        },
        intervals={
            name: interval(float(score.mean()), len(score)) if name == "exact" else mean_interval(score)
            for name, score in scores.items()
        },
        baselines={}
        if kept is None
        else {
            "exact": ("always the most frequent response", judged.most_frequent(kept)),
            "loss": ("every token at its frequency", judged.by_frequency(kept)),
        },
        signature={
            "decoding": f"{asked.decoding}|max_new_tokens:{d.max_response_length}",
            "loss": f"of responses|vocab:{vocab.kind}|size:{vocab.size}",
        },
        details={"kinds": by_kind(judged.rows, scores)} if "reward" in scores else {},
        counts={"tokens": count},
        report=report,
        lines=found,
    )


def by_kind(rows: Sequence[ResponseRow], scores: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """{kind of instruction: its scores, and how many there are}."""
    kinds = np.array([row.instruction.kind for row in rows if row.instruction is not None])
    found = {}
    for kind in dict.fromkeys(kinds.tolist()):
        means = {name: float(score[kinds == kind].mean()) for name, score in scores.items()}
        found[kind] = {**means, "count": int((kinds == kind).sum())}
    return found


def packs(model: Decoder) -> bool:
    return keeps_packed_rows(model)


def room_of(run: Path, recipe: Recipe) -> int:
    """Tokens that the model of a run reads at once."""
    _, config = describe_run(run)
    return min(recipe.data.max_length or config.context, config.context)


def held_out_loss(model: Decoder, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss of a few held-out responses, and that of guessing them by frequency."""
    recipe, report = asked.recipe, Report(asked.recipe.data.bad_lines)
    vocab, template = vocab_of(asked.run, recipe), template_of(asked.run)
    some = list(islice(rows_of(recipe, asked.split, report), rows))
    held_out = list(tokenized(vocab, template, some, report, recipe.data.valid_table))
    longest = recipe.data.max_response_length
    judged = ResponseEvaluator(vocab, held_out, room_of(asked.run, recipe), longest, packs(model))
    loss, _ = judged.loss(model, chunks(range(judged.batches.apart.rows), rows))
    return loss, judged.by_frequency(Store.mapped(asked.run / "data"))


# The task

EPOCHS, MOST_STEPS = 3, 10_000


def choose(recipe: Recipe, examples: InstructExamples, device: str) -> Iterator[Choice]:
    """A few passes over the responses."""
    yield from steps_for(recipe, examples.size, EPOCHS, MOST_STEPS)


def settle(recipe: Recipe, size: DataSize) -> Iterator[Choice]:
    """Dropout by how often a response is read."""
    if not recipe.train.from_:
        yield from dropout_by_epochs(recipe, size, less=0.05)


def check(recipe: Recipe) -> None:
    """Refuse what conversations have no use for."""
    d = recipe.data
    if d.corpus and d.lowercase:
        raise BadInput("the corpus instructions is judged by capitals too: leave out data.lowercase")
    if recipe.model.architecture == "xl":
        raise BadInput("xl remembers one long text, and conversations are apart: take another architecture")


INSTRUCTIONS = SMALL_CORPUS | {
    "data.max_length": 128,
    "data.max_response_length": 32,
    "train.batch_tokens": 2048,
    "train.warmup_steps": 100,
    "train.steps": 600,
    "evaluate.rows": 200,
}

TASK = Task(
    name="instruct",
    data=InstructData,
    train=InstructTraining,
    architectures={"llama": {}, "gpt2": {}, "gpt1": {}, "gpt3": {}, "modern": {}, "mixture": {}},
    corpora={CORPUS: Corpus(("valid", "test", "combinations"), INSTRUCTIONS)},
    starts=Starts(
        find=starting_from(DECODERS),
        published={
            "train.optimizer": "adamw",
            "train.learning_rate": 2e-5,
            "data.max_length": 512,
            "evaluate.rows": 50,
        },
        own={"train.learning_rate": 1e-3},
    ),
    choose=choose,
    settle=settle,
    chosen={
        "train.steps": f"{EPOCHS} passes over the responses, at most {MOST_STEPS:,} steps",
        "model.dropout": "0 to 0.4, by the number of passes over the responses",
    },
    read=read,
    job=job,
    measure=measure,
    metric="exact",
    own_data=({"data": ("data.valid_table",)},),
    columns=("prompt", "response"),
    writes=True,
    next=("chat {path}", 'generate {path} --chat "your own instruction"'),
    check=check,
)
