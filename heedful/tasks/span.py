"""Span: where in a text the answer to a question stands, by a vector S for its start and E for its end.

    [CLS] question [SEP] context [SEP]      P(start at i) = softmax(S . h_i),  P(end at j) = softmax(E . h_j)

The softmax is over the tokens of the context and [CLS], which stands for "not here". A context that is too
long is read in windows that overlap; a window without the whole answer is answered by [CLS]. The answer is
the span i <= j of at most data.max_answer_length tokens with the greatest S . h_i + E . h_j, in any of the
windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from ..corpora import quiz
from ..data.lines import hash_of
from ..data.plan import BucketPlan, shares
from ..data.questions import Question, read_questions
from ..data.report import Report
from ..data.store import Store, write_store
from ..data.vocab import groups
from ..decode.turns import Turns, finish
from ..errors import BadInput
from ..files import one_line
from ..interop.run.read import describe_run
from ..models.base.settings import Range
from ..models.base.shells import WithHeads
from ..parts.places import Lengths
from ..train.loss import Loss
from .classify import Layout, encoder_row, row_of
from .configs import config_of, started_config
from .evaluation import EvaluationRequest, Measured, by_length
from .metrics import interval, squad_exact, squad_f1
from .origin import ENCODERS, Origin, begin, starting_from, vocab_of, vocabulary, with_head
from .recipe.choices import DataSize
from .recipe.settings import FACTS, ReadingTraining, Recipe, TableSettings
from .span_windows import (
    SpanBatch,
    TokenizedQuestion,
    Window,
    WindowLayout,
    collate,
    tokenize_questions,
    trimmed,
    window_layout,
    windows_of,
)
from .task import (
    Corpus,
    Job,
    Starts,
    Task,
    VocabLike,
    check_tables,
    chunks,
    describe_data,
    own_vocabulary,
    read_held_out,
    shortened,
    spread,
)
from .tuning import describe_start, tuning_of

SHOWN = 80  # characters of a context that is shown
ANYWHERE = "every place of a window alike"


# From questions to windows


# Loss


def scores_of(model: WithHeads, batch: SpanBatch) -> tuple[Tensor, Tensor]:
    """Scores [B, T] for starting and for ending at each token; minus infinity where no answer may."""
    hidden_BTD = model.encoder(batch.tokens_BT, Lengths(batch.lengths_B), batch.segments_BT)
    scores_BT2 = model.heads["span"](hidden_BTD, model.encoder.inputs).float()
    start_BT, end_BT = scores_BT2.masked_fill(~batch.open_BT[..., None], float("-inf")).unbind(-1)
    return start_BT, end_BT


def loss_of(model: WithHeads, batch: SpanBatch, smoothing: float = 0.0) -> Loss:
    """The mean negative log-likelihood of the right start and of the right end, summed over windows."""
    sides = zip(scores_of(model, batch), (batch.starts_B, batch.ends_B), strict=True)
    totals, nlls = zip(*(side_loss(s, right, batch, smoothing) for s, right in sides), strict=True)
    return Loss(sum(totals) / 2, sum(nlls) / 2, batch.count)


def side_loss(
    scores_BT: Tensor, right_B: Tensor, batch: SpanBatch, smoothing: float
) -> tuple[Tensor, Tensor]:
    log_BT = scores_BT.log_softmax(-1)
    right = -log_BT.gather(1, right_B[:, None]).sum()
    mean_B = -log_BT.masked_fill(~batch.open_BT, 0).sum(1) / batch.open_BT.sum(1)
    return (1 - smoothing) * right + smoothing * mean_B.sum(), right


def best_span(start_T: Tensor, end_T: Tensor, longest: int) -> tuple[float, int, int]:
    """(score, i, j): the span i <= j of at most `longest` tokens with the greatest start_i + end_j."""
    T = len(start_T)
    both_TT = start_T[:, None] + end_T[None, :]
    here = torch.arange(T, device=start_T.device)
    gap_TT = here[None, :] - here[:, None]
    possible = (gap_TT >= 0) & (gap_TT < longest) & (here[:, None] > 0)
    both_TT = both_TT.masked_fill(~possible, float("-inf"))
    place = int(both_TT.argmax())
    return float(both_TT.flatten()[place]), place // T, place % T


# The task.


@dataclass(frozen=True)
class SpanData(TableSettings):
    """Questions whose answers stand in a text."""

    table: Annotated[str, 'JSON lines with question, context and answers, a list of {"text", "start"}'] = ""
    window_overlap: Annotated[int, Range(0, 1_000_000), "tokens that windows of a long text share"] = 64
    max_answer_length: Annotated[int, Range(1, 1_000_000), "tokens of an answer, at most"] = 30


@dataclass(frozen=True)
class SpanExamples:
    """What was read: questions to learn from and held-out ones, and the model to start from."""

    vocab: Any
    train: Store
    held_out: list[Question]
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        tokens = int((self.train.lengths("question") + self.train.lengths("context")).sum())
        return DataSize(len(self.train), tokens, "questions")


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> SpanExamples:
    """Read the questions, learn or take over a vocabulary, and tokenize."""
    d = recipe.data
    check_tables(d, "span", "questions and answers")
    report = Report(d.bad_lines)
    vocab: Any = vocabulary(folder, origin) if origin else own_vocabulary(recipe, folder, texts_of(d))
    train = tokenized(recipe, folder / "data", vocab, report)
    held_out = held_out_rows(d, "valid", report)
    if report.counts:
        say(report.sentence())
    return SpanExamples(vocab, train, held_out, origin)


def job(recipe: Recipe, examples: SpanExamples) -> Job:
    """Cut windows, plan the batches, and put together what a run needs."""
    d, t, vocab, origin, train = (
        recipe.data,
        recipe.train,
        examples.vocab,
        examples.origin,
        examples.train,
    )
    config, layout = model_of(recipe, vocab, origin)
    rooms = window_layout(d, config.context, vocab)
    held_out = spread(examples.held_out, recipe.evaluate.rows)
    windows = windows_of(train, rooms)
    plan = BucketPlan(windows[:, 2], t.batch_tokens, t.seed, int(windows[:, 2].max(initial=1)))
    make = partial(collate, vocab, layout, rooms)
    reader = SpanReader(vocab, layout, rooms, d.max_answer_length)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[SpanBatch]:
        parts = shares(plan.batch(step), t.accumulation_steps, rank, world)
        return [
            make([(stored(train, int(windows[i, 0])), int(windows[i, 1])) for i in part], part.tolist())
            for part in parts
        ]

    return Job(
        task="span",
        architecture=origin.architecture if origin else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(loss_of, smoothing=t.label_smoothing),
        evaluate=lambda model: evaluate(model, reader, held_out),
        show=lambda model: show(model, reader, held_out[: recipe.evaluate.examples]),
        held_out=len(held_out),
        baselines={"loss": (f"loss ({ANYWHERE}), nats per window", anywhere(reader, held_out))},
        plan=[
            describe_data(f"{len(train):,} questions", len(held_out), len(examples.held_out), plan.padding()),
            f"windows: {len(windows):,} of at most {rooms.longest} tokens, which overlap by {rooms.overlap}",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
            *([describe_start(recipe, True)] if origin else []),
        ],
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        facts={"data": train.hash, "held-out data": hash_of(held_out), **(origin.facts if origin else {})},
    )


def model_of(recipe: Recipe, vocab: VocabLike, origin: Origin | None) -> tuple[Any, Layout]:
    """The config and how rows are made: an encoder of the recipe's sizes, or what the run starts from."""
    if origin is None:
        return config_of(recipe, vocab=vocab.size, prediction_heads=("span",)), encoder_row
    return started_config(recipe, with_head(origin, "span")), row_of(origin.config)


def rows_of(d: SpanData, split: str, report: Report) -> Iterator[Question]:
    """The questions of a split, one by one."""
    if d.corpus:
        return quiz.questions(split)
    return read_questions(d.table if split == "train" else d.valid_table, report)


def texts_of(d: SpanData) -> Iterator[str]:
    """What a vocabulary is learned from."""
    for row in rows_of(d, "train", Report(d.bad_lines)):
        yield from (row.question, row.context)


def held_out_rows(d: SpanData, split: str, report: Report) -> list[Question]:
    return read_held_out(rows_of(d, split, report), d, "question", report)


FIELDS = {
    "question": "questions",
    "context": "texts that hold their answers",
    "place": "the first token of the answer, and how many it has",
}
LARGEST = 1 << 20  # tokens of a context


def tokenized(recipe: Recipe, folder: Path, vocab: VocabLike, report: Report) -> Store:
    """The training questions as numbers, made once and kept in the run's folder."""
    if folder.is_dir():
        return Store.open(folder, vocab.hash)

    def rows() -> Iterator[dict[str, list[int]]]:
        found = rows_of(recipe.data, "train", report)
        for some in groups(found, lambda row: len(row.question) + len(row.context)):
            for one in tokenize_questions(vocab, some):
                place = [one.first, one.last - one.first + 1]
                yield {"question": list(one.question), "context": list(one.context), "place": place}

    about = {"vocab": vocab.hash, "corpus": recipe.data.corpus, "table": recipe.data.table}
    made = write_store(folder, FIELDS, rows(), max(vocab.size, LARGEST), about)
    if not len(made):
        raise BadInput(one_line(f"{recipe.data.table} has no question to learn from ({report.sentence()})"))
    return made


def stored(store: Store, i: int) -> TokenizedQuestion:
    first, size = map(int, store.row("place", i))
    return TokenizedQuestion(
        store.row("question", i).tolist(), store.row("context", i).tolist(), first, first + size - 1
    )


# Answering


@dataclass(frozen=True)
class SpanAnswer:
    """An answer in a context: its text, its place in characters, and its score."""

    text: str
    start: int
    end: int
    score: float
    probability: float  # of its start times that of its end, in its window


@dataclass(frozen=True)
class SpanReader:
    """How a model reads questions."""

    vocab: Any
    layout: Layout
    rooms: WindowLayout
    longest: int  # tokens of an answer

    def windows(self, items: Sequence[TokenizedQuestion]) -> list[tuple[int, Window]]:
        """(which question, window) of every window."""
        return [
            (n, (item, start))
            for n, item in enumerate(items)
            for start in self.rooms.starts(len(item.question), len(item.context))
        ]

    def batches(
        self, items: Sequence[TokenizedQuestion], size: int
    ) -> Iterator[tuple[list[tuple[int, Window]], SpanBatch]]:
        """Windows of like length together."""
        windows = self.windows(items)
        lengths = [
            min(len(item.context) - start, self.rooms.room(len(item.question)))
            + min(len(item.question), self.rooms.asked)
            for _, (item, start) in windows
        ]
        for some in by_length(lengths, size):
            here = [windows[i] for i in some]
            yield here, collate(self.vocab, self.layout, self.rooms, [window for _, window in here])


def read_answers(
    model: WithHeads, reader: SpanReader, rows: Sequence[Question], size: int = 32
) -> tuple[list[SpanAnswer], float, int]:
    """(answers, loss, windows): the loss is summed over windows, of questions whose answers are known."""
    contexts = [row.context for row in rows]
    items, places = tokenize_questions(reader.vocab, rows), reader.vocab.places(contexts)
    return read_tokenized(model, reader, items, list(zip(contexts, places, strict=True)), size)


def read_tokenized(
    model: WithHeads,
    reader: SpanReader,
    items: Sequence[TokenizedQuestion],
    contexts: Sequence[tuple[str, Sequence[tuple[int, int]]]],
    size: int,
) -> tuple[list[SpanAnswer], float, int]:
    """The same of questions in numbers; contexts: their texts, and where each token stands."""
    return finish(read_in_turns(model, reader, items, contexts, size))


def read_in_turns(
    model: WithHeads,
    reader: SpanReader,
    items: Sequence[TokenizedQuestion],
    contexts: Sequence[tuple[str, Sequence[tuple[int, int]]]],
    size: int,
) -> Turns[tuple[list[SpanAnswer], float, int]]:
    """The same in turns: after each batch of windows, others may have theirs."""
    best: dict[int, tuple[float, int, int, float]] = {}
    nll, count = 0.0, 0
    device = next(model.parameters()).device
    for windows, made in reader.batches(items, size):
        batch = made.to(device)
        start_BT, end_BT = scores_of(model, batch)
        nll += sum(
            float(side_loss(s, right, batch, 0.0)[1]) / 2
            for s, right in ((start_BT, batch.starts_B), (end_BT, batch.ends_B))
        )
        count += batch.count
        shares_BT = start_BT.softmax(-1), end_BT.softmax(-1)
        for b, (n, (item, begins)) in enumerate(windows):
            if not len(item.context):
                continue
            score, i, j = best_span(start_BT[b], end_BT[b], reader.longest)
            before = (
                int(batch.lengths_B[b])
                - 1
                - min(len(item.context) - begins, reader.rooms.room(len(item.question)))
            )
            share = float(shares_BT[0][b, i] * shares_BT[1][b, j])
            if n not in best or score > best[n][0]:
                best[n] = score, begins + i - before, begins + j - before, share
        yield
    return [found_in(*context, best.get(n)) for n, context in enumerate(contexts)], nll, count


def found_in(
    context: str, places: Sequence[tuple[int, int]], best: tuple[float, int, int, float] | None
) -> SpanAnswer:
    """An answer as text."""
    if best is None:
        return SpanAnswer("", 0, 0, float("-inf"), 0.0)
    score, i, j, share = best
    (start, _), (_, end) = trimmed(context, [places[i], places[j]])
    return SpanAnswer(context[start:end], start, end, score, share)


def anywhere(reader: SpanReader, rows: Sequence[Question]) -> float:
    """The loss of guessing: every token of a window alike, or [CLS] as often as it is right."""
    items = tokenize_questions(reader.vocab, rows)
    made = [batch for _, batch in reader.batches(items, 64)]
    places = np.concatenate([batch.open_BT.sum(1).numpy() - 1 for batch in made])
    absent = np.concatenate([(batch.starts_B == 0).numpy() for batch in made])
    share = np.clip(absent.mean(), 1e-9, 1 - 1e-9)
    losses = np.where(absent, -np.log(share), np.log(np.maximum(places, 1)) - np.log(1 - share))
    return float(losses.mean())


# Evaluation


def evaluate(model: WithHeads, reader: SpanReader, rows: Sequence[Question]) -> dict[str, float]:
    """Held-out loss (nats per window), exact match and F1 as SQuAD defines them."""
    found, nll, windows = read_answers(model, reader, rows)
    return {"loss": nll / max(1, windows), **squad_scores([one.text for one in found], rows)}


def squad_scores(found: Sequence[str], rows: Sequence[Question]) -> dict[str, float]:
    """Means over questions, of each the best of its answers."""
    pairs = list(zip(found, rows, strict=True))
    return {
        "exact": float(np.mean([max(squad_exact(mine, text) for text in row.texts) for mine, row in pairs])),
        "f1": float(np.mean([max(squad_f1(mine, text) for text in row.texts) for mine, row in pairs])),
    }


def reader_of(run: Path, recipe: Recipe) -> SpanReader:
    """How a run reads questions."""
    vocab, (_, config) = vocab_of(run, recipe), describe_run(run)
    rooms = window_layout(recipe.data, config.context, vocab)
    return SpanReader(vocab, row_of(config), rooms, recipe.data.max_answer_length)


def measure(model: WithHeads, asked: EvaluationRequest) -> Measured:
    """Exact match, F1 and loss on all held-out questions."""
    d, report = asked.recipe.data, Report(asked.recipe.data.bad_lines)
    reader = reader_of(asked.run, asked.recipe)
    rows = held_out_rows(d, asked.split, report)
    found: list[SpanAnswer] = []
    nll, windows = 0.0, 0
    for some in asked.track(list(chunks(rows, 8 * asked.rows)), "answering"):
        answers, loss, count = read_answers(model, reader, some, asked.rows)
        found += answers
        nll, windows = nll + loss, windows + count
    scores = squad_scores([one.text for one in found], rows)
    return Measured(
        examples=len(rows),
        unit="questions",
        per="window",
        metrics={**scores, "loss": nll / max(1, windows)},
        intervals={"exact": interval(scores["exact"], len(rows))},
        baselines={"f1": ("the whole context", squad_scores([row.context for row in rows], rows)["f1"])},
        signature={
            "exact": "SQuAD 1.1: lower case, no punctuation, no articles",
            "f1": "SQuAD 1.1: words in common",
        },
        counts={"windows": windows},
        report=report,
        lines=[one.text for one in found],
    )


def held_out_loss(model: WithHeads, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss on some held-out questions, and that of guessing."""
    reader = reader_of(asked.run, asked.recipe)
    some = spread(held_out_rows(asked.recipe.data, "valid", Report(asked.recipe.data.bad_lines)), rows)
    _, nll, windows = read_answers(model, reader, some)
    return nll / max(1, windows), anywhere(reader, some)


def show(model: WithHeads, reader: SpanReader, rows: Sequence[Question]) -> list[str]:
    """A few questions with the model's answers."""
    if not rows:
        return []
    found, _, _ = read_answers(model, reader, rows)
    return [
        f"    {row.question} → {shortened(one.text, SHOWN)}"
        + ("" if one.text in row.texts else f"    (expected: {shortened(row.texts[0], SHOWN)})")
        for row, one in zip(rows, found, strict=True)
    ]


TASK = Task(
    name="span",
    data=SpanData,
    train=ReadingTraining,
    architectures={"bert": {}},
    corpora={"facts": Corpus(("valid", "test", "long"), FACTS)},
    starts=Starts(find=starting_from(ENCODERS), published={"train.learning_rate": 5e-5}),
    read=read,
    job=job,
    measure=measure,
    metric="f1",
    own_data=({"data": ("data.valid_table",)},),
    writes=True,
    next=('answer {path} --context your-own.txt "your own question"',),
)
