"""Choose: the right one of several ways to go on from a text. Each is read with the text, and gets one score.

encoder    [CLS] text [SEP] choice [SEP]
decoder    [BOS] text [SEP] choice [EOS]      with the language-model loss beside (GPT-1)

The softmax is over the choices, which may be more in one row than in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..corpora import quiz
from ..data.batch import Tensors
from ..data.lines import hash_of
from ..data.plan import BucketPlan, shares
from ..data.questions import MultipleChoice, read_choices
from ..data.report import Report
from ..data.store import Store, write_store
from ..data.vocab import groups
from ..errors import BadInput
from ..files import one_line
from ..models.base.settings import Range
from ..models.base.shells import DecoderClassifier, WithHeads
from ..parts.places import Lengths
from ..train.loss import Loss
from .classify import Layout, decoder_row, encoder_row, fit, marked, row_of, special_tokens, text_losses
from .configs import config_of, head_dropout, started_config
from .evaluation import EvaluationRequest, Measured, by_length
from .metrics import accuracy, interval
from .origin import (
    READERS,
    Origin,
    begin,
    find_origin,
    kind_of,
    starting_from,
    vocab_of,
    vocabulary,
    with_head,
)
from .recipe.choices import DataSize
from .recipe.settings import FACTS, ReadingTraining, Recipe, TableSettings
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
    pad,
    read_held_out,
    shortened,
    spread,
)
from .tuning import describe_start, tuning_of

SHOWN = 80  # characters of a text that is shown
BY_PLACE = "every place at its frequency"


@dataclass(frozen=True)
class ChoiceBatch(Tensors):
    """Some texts with their choices: a row for each choice, padded at the end."""

    tokens_NT: Tensor
    segments_NT: Tensor
    lengths_N: Tensor
    rows_BK: Tensor  # the rows of each text's choices; -1 where it has fewer than others
    labels_B: Tensor
    ids: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.labels_B)


Numbers = tuple[list[int], list[list[int]], int]  # a text's tokens, its choices' and which is right


def collate(
    vocab: VocabLike, layout: Layout, room: int, items: Sequence[Numbers], ids: Sequence[int] = ()
) -> ChoiceBatch:
    """Token ids of texts and their choices to a batch."""
    rows = [layout(vocab, *fit(text, choice, room)) for text, choices, _ in items for choice in choices]
    ends = np.cumsum([0, *(len(choices) for _, choices, _ in items)])
    numbered = [np.arange(a, b) for a, b in pairwise(ends.tolist())]
    return ChoiceBatch(
        pad([tokens for tokens, _ in rows], vocab.pad),
        pad([segments for _, segments in rows], 0),
        torch.tensor([len(tokens) for tokens, _ in rows]),
        pad(numbered, -1),
        torch.tensor([answer for _, _, answer in items]),
        tuple(map(int, ids)),
    )


# Two kinds of model


def by_text(scores_N: Tensor, rows_BK: Tensor) -> Tensor:
    """Scores [B, K] of each text's choices; minus infinity where there is none."""
    return scores_N[rows_BK.clamp(min=0)].float().masked_fill(rows_BK < 0, float("-inf"))


def encoder_scores(model: WithHeads, batch: ChoiceBatch) -> Tensor:
    hidden_NTD = model.encoder(batch.tokens_NT, Lengths(batch.lengths_N), batch.segments_NT)
    return by_text(model.heads["classify"](hidden_NTD, model.encoder.inputs)[:, 0], batch.rows_BK)


def decoder_scores(model: DecoderClassifier, batch: ChoiceBatch) -> Tensor:
    return by_text(model(batch.tokens_NT, Lengths(batch.lengths_N))[:, 0], batch.rows_BK)


def choice_losses(scores_BK: Tensor, batch: ChoiceBatch, smoothing: float) -> tuple[Tensor, Tensor]:
    """(with label smoothing, without): the negative log-likelihood of the right choices."""
    log_BK, there_BK = scores_BK.log_softmax(-1), batch.rows_BK >= 0
    right_B = -log_BK.gather(1, batch.labels_B[:, None])[:, 0]
    mean_B = -log_BK.masked_fill(~there_BK, 0).sum(1) / there_BK.sum(1)
    return ((1 - smoothing) * right_B + smoothing * mean_B).sum(), right_B.sum()


def encoder_loss(model: WithHeads, batch: ChoiceBatch, smoothing: float = 0.0) -> Loss:
    return Loss(*choice_losses(encoder_scores(model, batch), batch, smoothing), batch.count)


def decoder_loss(
    model: DecoderClassifier, batch: ChoiceBatch, smoothing: float = 0.0, lm_weight: float = 0.5
) -> Loss:
    """The same, and lm_weight times the loss of the rows' own tokens, averaged over the choices."""
    hidden_NTD = model.decoder.hidden(batch.tokens_NT, Lengths(batch.lengths_N))
    scores_BK = by_text(model.scores(hidden_NTD, batch.lengths_N)[:, 0], batch.rows_BK)
    total, nll = choice_losses(scores_BK, batch, smoothing)
    if lm_weight:
        losses_N = text_losses(model.decoder, hidden_NTD, batch.tokens_NT, batch.lengths_N)
        there_BK = batch.rows_BK >= 0
        losses_BK = losses_N[batch.rows_BK.clamp(min=0)].masked_fill(~there_BK, 0)
        total = total + lm_weight * (losses_BK.sum(1) / there_BK.sum(1)).sum()
    return Loss(total, nll, batch.count)


@dataclass(frozen=True)
class ChooserKind:
    """How a kind of model reads texts and is judged."""

    layout: Layout
    scores: Callable[[Any, ChoiceBatch], Tensor]
    loss: Callable[[Any, ChoiceBatch], Loss]


def model_of(recipe: Recipe, vocab: VocabLike, origin: Origin | None) -> tuple[Any, ChooserKind]:
    """The config and the kind: an encoder of the recipe's sizes, or what the run starts from."""
    t = recipe.train
    encoder = ChooserKind(encoder_row, encoder_scores, partial(encoder_loss, smoothing=t.label_smoothing))
    if origin is None:
        heads = ("pooled", "classify")
        return config_of(recipe, vocab=vocab.size, prediction_heads=heads, labels=1), encoder
    if kind_of(origin) is not WithHeads:
        loss = partial(decoder_loss, smoothing=t.label_smoothing, lm_weight=t.lm_loss_weight)
        return marked(recipe, vocab, origin), ChooserKind(decoder_row, decoder_scores, loss)
    config = started_config(recipe, with_head(origin, "classify", 1))
    return config, replace(encoder, layout=row_of(origin.config))


# The task.


@dataclass(frozen=True)
class ChooseData(TableSettings):
    """Texts, each with ways to go on."""

    table: Annotated[str, "JSON lines with context, choices (a list) and answer (which is right, from 0)"] = (
        ""
    )


@dataclass(frozen=True)
class ChooseTraining(ReadingTraining):
    lm_loss_weight: Annotated[
        float, Range(0, 1000), "weight of the auxiliary language-modeling loss, from a decoder (GPT-1)"
    ] = 0.5


@dataclass(frozen=True)
class ChoiceExamples:
    """What was read: texts with choices to learn from and held-out ones, and the model to start from."""

    vocab: VocabLike
    train: Store
    held_out: list[MultipleChoice]
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        tokens = int((self.train.lengths("context") + self.train.lengths("choices")).sum())
        return DataSize(len(self.train), tokens, "texts")


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> ChoiceExamples:
    """Read the texts, learn or take over a vocabulary, and tokenize."""
    d = recipe.data
    check_tables(d, "choose", "texts and choices")
    report = Report(d.bad_lines)
    vocab = vocabulary(folder, origin) if origin else own_vocabulary(recipe, folder, texts_of(d))
    train = tokenized(recipe, folder / "data", vocab, report)
    held_out = held_out_rows(d, "valid", report)
    if report.counts:
        say(report.sentence())
    return ChoiceExamples(vocab, train, held_out, origin)


def job(recipe: Recipe, examples: ChoiceExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    t, vocab, train, origin = recipe.train, examples.vocab, examples.train, examples.origin
    config, kind = model_of(recipe, vocab, origin)
    room = room_of(recipe.data, config.context, vocab)
    held_out = spread(examples.held_out, recipe.evaluate.rows)
    lengths = lengths_of(train, room, special_tokens(True, vocab))
    plan = BucketPlan(lengths, t.batch_tokens, t.seed, int(lengths.max(initial=1)))
    make = partial(collate, vocab, kind.layout, room)
    valid = [make(numbers(vocab, some)) for some in chunks(held_out, 16)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[ChoiceBatch]:
        parts = shares(plan.batch(step), t.accumulation_steps, rank, world)
        return [make([stored(train, int(i)) for i in part], part.tolist()) for part in parts]

    places = Counter(int(train.row("answer", i)[0]) for i in range(len(train)))
    return Job(
        task="choose",
        architecture=origin.architecture if origin else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=kind.loss,
        evaluate=lambda model: evaluate(model, kind, valid),
        show=lambda model: show(model, kind, make, vocab, held_out[: recipe.evaluate.examples]),
        held_out=len(held_out),
        baselines={
            "accuracy": ("accuracy (always the most frequent place)", usual_place(places, held_out)),
            "loss": (f"loss ({BY_PLACE}), nats per text", by_place(places, held_out)),
        },
        plan=[
            describe_data(f"{len(train):,} texts", len(held_out), len(examples.held_out), plan.padding()),
            f"rows: at most {room} tokens of text and choice",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
            *([describe_start(recipe, True)] if origin else []),
        ],
        labels=1 if kind.layout is decoder_row else 0,
        head_dropout=head_dropout(recipe),
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        facts={"data": train.hash, "held-out data": hash_of(held_out), **(origin.facts if origin else {})},
    )


def rows_of(d: TableSettings, split: str, report: Report) -> Iterator[MultipleChoice]:
    """The texts of a split with their choices, one by one."""
    if d.corpus:
        return quiz.choices(split)
    return read_choices(d.table if split == "train" else d.valid_table, report)


def texts_of(d: TableSettings) -> Iterator[str]:
    """What a vocabulary is learned from."""
    for row in rows_of(d, "train", Report(d.bad_lines)):
        yield row.context
        yield from row.choices


def held_out_rows(d: TableSettings, split: str, report: Report) -> list[MultipleChoice]:
    return read_held_out(rows_of(d, split, report), d, "text", report)


def room_of(d: TableSettings, context: int, vocab: VocabLike) -> int:
    """Tokens of a text and a choice in a row, beside the special ones."""
    room = min(d.max_length, context) - special_tokens(True, vocab)
    if room < 2:
        raise BadInput(
            f"data.max_length is {d.max_length} and the context {context}: that leaves no room for text"
        )
    return room


FIELDS = {
    "context": "texts",
    "choices": "their choices, one after the other",
    "sizes": "tokens of each choice",
    "answer": "which is right, from 0",
}
LARGEST = 1 << 16


def tokenized(recipe: Recipe, folder: Path, vocab: VocabLike, report: Report) -> Store:
    """The training texts as numbers, made once and kept in the run's folder."""
    if folder.is_dir():
        return Store.open(folder, vocab.hash)

    def rows() -> Iterator[dict[str, list[int]]]:
        found = rows_of(recipe.data, "train", report)
        for some in groups(found, lambda row: len(row.context) + sum(map(len, row.choices))):
            for context, choices, answer in numbers(vocab, some):
                sizes = [min(len(choice), LARGEST - 1) for choice in choices]
                flat = [token for choice, size in zip(choices, sizes, strict=True) for token in choice[:size]]
                yield {"context": context, "choices": flat, "sizes": sizes, "answer": [answer]}

    about = {"vocab": vocab.hash, "corpus": recipe.data.corpus, "table": recipe.data.table}
    made = write_store(folder, FIELDS, rows(), max(vocab.size, LARGEST), about)
    if not len(made):
        raise BadInput(one_line(f"{recipe.data.table} has no text to learn from ({report.sentence()})"))
    return made


def numbers(vocab: VocabLike, rows: Sequence[MultipleChoice]) -> list[Numbers]:
    """Token ids of texts and their choices."""
    contexts = vocab.encode_batch([row.context for row in rows])
    choices = iter(vocab.encode_batch([choice for row in rows for choice in row.choices]))
    return [
        (context, [next(choices) for _ in row.choices], row.answer)
        for context, row in zip(contexts, rows, strict=True)
    ]


def stored(store: Store, i: int) -> Numbers:
    ends = np.cumsum(store.row("sizes", i).astype(np.int64))[:-1]
    choices = [part.tolist() for part in np.split(store.row("choices", i), ends)]
    return store.row("context", i).tolist(), choices, int(store.row("answer", i)[0])


def lengths_of(store: Store, room: int, special: int) -> np.ndarray:
    """Tokens of all rows of each text together."""
    contexts = store.lengths("context")
    return np.array(
        [
            int((np.minimum(contexts[i] + store.row("sizes", i).astype(np.int64), room) + special).sum())
            for i in range(len(store))
        ]
    )


# Evaluation


def predict_choices(
    model: nn.Module, kind: ChooserKind, batches: Iterable[ChoiceBatch]
) -> tuple[list[int], list[int], float]:
    """(choices made, right ones, loss): the loss is in nats per text."""
    found: list[int] = []
    right: list[int] = []
    nll = 0.0
    for batch in batches:
        here = batch.to(next(model.parameters()).device)
        scores_BK = kind.scores(model, here)
        nll += float(choice_losses(scores_BK, here, 0.0)[1])
        found += scores_BK.argmax(-1).tolist()
        right += batch.labels_B.tolist()
    return found, right, nll / max(1, len(right))


def evaluate(model: nn.Module, kind: ChooserKind, batches: list[ChoiceBatch]) -> dict[str, float]:
    """Held-out loss (nats per text) and the share of right choices."""
    found, right, loss = predict_choices(model, kind, batches)
    return {"loss": loss, "accuracy": accuracy(found, right)}


ChoiceReader = tuple[VocabLike, ChooserKind, Callable[..., ChoiceBatch]]


def reader(run: Path, recipe: Recipe) -> ChoiceReader:
    """How a run reads texts and their choices: its vocabulary, its kind, and what makes batches."""
    vocab = vocab_of(run, recipe)
    origin = find_origin(recipe.train.from_, run) if recipe.train.from_ else None
    config, kind = model_of(recipe, vocab, origin)
    return vocab, kind, partial(collate, vocab, kind.layout, room_of(recipe.data, config.context, vocab))


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """Accuracy and loss on all held-out texts."""
    d, report = asked.recipe.data, Report(asked.recipe.data.bad_lines)
    vocab, kind, make = reader(asked.run, asked.recipe)
    rows = held_out_rows(d, asked.split, report)
    items = numbers(vocab, rows)
    lengths = [sum(len(text) + len(choice) for choice in choices) for text, choices, _ in items]
    alike = by_length(lengths, asked.rows)
    batches = (make([items[i] for i in some]) for some in asked.track(alike, "choosing"))
    found, right, loss = predict_choices(model, kind, batches)
    share = accuracy(found, right)
    return Measured(
        examples=len(rows),
        unit="texts",
        per="text",
        metrics={"accuracy": share, "loss": loss},
        intervals={"accuracy": interval(share, len(rows))},
        baselines={"accuracy": ("any choice", float(np.mean([1 / len(row.choices) for row in rows])))},
        signature={"accuracy": "score:one a choice|softmax:over the choices"},
        report=report,
    )


def held_out_loss(model: nn.Module, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss on some held-out texts, and that of guessing."""
    vocab, kind, make = reader(asked.run, asked.recipe)
    some = spread(held_out_rows(asked.recipe.data, "valid", Report(asked.recipe.data.bad_lines)), rows)
    train = Store.mapped(asked.run / "data")
    places = Counter(int(train.row("answer", i)[0]) for i in range(len(train)))
    return predict_choices(model, kind, [make(numbers(vocab, some))])[2], by_place(places, some)


def by_place(places: Counter[int], rows: Sequence[MultipleChoice]) -> float:
    """The loss of guessing by how often each place is right in training; one is added to every count."""
    losses = []
    for row in rows:
        counts = np.array([1 + places[place] for place in range(len(row.choices))])
        losses.append(-np.log(counts[row.answer] / counts.sum()))
    return float(np.mean(losses))


def usual_place(places: Counter[int], rows: Sequence[MultipleChoice]) -> float:
    """How often the place that is right most often in training is right."""
    most = max(sorted(places), key=places.__getitem__)
    return float(np.mean([row.answer == most for row in rows]))


def show(
    model: nn.Module,
    kind: ChooserKind,
    make: Callable[..., ChoiceBatch],
    vocab: VocabLike,
    rows: Sequence[MultipleChoice],
) -> list[str]:
    """A few texts with the choice the model makes."""
    if not rows:
        return []
    found, _, _ = predict_choices(model, kind, [make(numbers(vocab, rows))])
    return [
        f"    {shortened(row.context, SHOWN)} → {shortened(row.choices[mine], SHOWN)}"
        + ("" if mine == row.answer else f"    (expected: {shortened(row.choices[row.answer], SHOWN)})")
        for row, mine in zip(rows, found, strict=True)
    ]


TASK = Task(
    name="choose",
    data=ChooseData,
    train=ChooseTraining,
    architectures={"bert": {}},
    corpora={"facts": Corpus(("valid", "test", "long"), FACTS)},
    starts=Starts(find=starting_from(READERS), published={"train.learning_rate": 5e-5}),
    read=read,
    job=job,
    measure=measure,
    metric="accuracy",
    own_data=({"data": ("data.valid_table",)},),
    next=("choose {path} 'your own text' 'one way to go on' 'another'",),
)
