"""Summarize: choose what to read of an article, then write its lead (Liu et al. 2018).

T-ED reads the article by an encoder (`EncoderDecoderForm`). T-D and T-DMCA are decoders (`DecoderForm`):
article, separator and summary are one row, w = (m_1 ... m_n, delta, y_1 ... y_eta), and every token of it is
predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..corpora import facts
from ..data.articles import Example, read_articles
from ..data.extract import read_by, text_of
from ..data.lines import hash_of
from ..data.plan import BucketPlan, shares
from ..data.report import Report
from ..data.store import Store, write_store
from ..data.vocab import Vocab, groups, read_vocab, train_vocab
from ..decode.greedy import greedy
from ..errors import BadInput
from ..files import one_line, write_text
from ..interop.hf.tokenizer import TOKENIZER
from ..models.base.settings import Range
from .evaluation import EvaluationRequest, Measured, by_length, with_lines
from .metrics import BY_FREQUENCY, interval
from .recipe.settings import Recipe, SmoothedTraining, TableSettings
from .rouge import SIGNATURE, mean_interval, rouges
from .summary_forms import Form, Row, device_of, form_of, in_one_row
from .task import (
    Corpus,
    DataSize,
    Job,
    Task,
    WrittenSample,
    chunks,
    describe_data,
    not_empty,
    sample_count,
    shortened,
)
from .translate import TASK as TRANSLATE
from .translate import by_frequency

ROWS = 64  # read or written at once while a model trains


# Data


@dataclass(frozen=True)
class SummaryData(TableSettings):
    """Articles with summaries."""

    table: Annotated[str, "JSON lines with article and summary, and a title if there is one"] = ""
    max_length: Annotated[int, Range(1, 1_000_000), "tokens that are read of an article, at most"] = 512
    source_column: Annotated[str, 'key of the article; "" is article, source, document or text'] = ""
    target_column: Annotated[str, 'key of the summary; "" is summary, target or highlights'] = ""
    title_column: Annotated[str, 'key of the title, if there is one; "" leaves it out'] = "title"
    extract: Annotated[
        Literal["first", "tf-idf"], "paragraphs as they stand, or the likest to the title first"
    ] = "first"
    max_summary_length: Annotated[int, Range(1, 1_000_000), "tokens of a summary, at most"] = 128
    sources: Annotated[int, Range(1, 10_000), "corpus facts: sources of each article"] = 4


@dataclass(frozen=True)
class SummaryTraining(SmoothedTraining):
    lm_loss_weight: Annotated[
        float, Range(0, 1000), "decoders: weight of the loss on the article's own tokens"
    ] = 1.0


def concerns(key: str, architecture: str) -> bool:
    """Whether a setting concerns an architecture: only a decoder reads article and summary as one row."""
    return key != "train.lm_loss_weight" or in_one_row(architecture)


def check(recipe: Recipe) -> None:
    """Refuse settings that an article, a file or an architecture has no use for."""
    given = recipe.given or ()
    if recipe.data.corpus != "facts" and recipe.data.sources != SummaryData.sources:
        raise BadInput("data.sources is of the built-in corpus facts: give --corpus facts, or leave it out")
    if "train.lm_loss_weight" in given and not concerns("train.lm_loss_weight", recipe.model.architecture):
        raise BadInput(
            f"train.lm_loss_weight is for decoders, which read article and summary as one row, and "
            f"{recipe.model.architecture} is none: leave it out, or set model.architecture=dmca"
        )
    if "model.context" in given:
        raise BadInput(
            "model.context follows from the data in summarize: set data.max_length and "
            "data.max_summary_length"
        )
    if recipe.model.sizes.get("positions", "").startswith("structural"):
        raise BadInput("structural positions come from the trees of sentences, which articles have none of")


def examples_of(recipe: Recipe, split: str, report: Report) -> Iterator[Example]:
    """The articles of a split with their summaries, one by one."""
    d = recipe.data
    table = d.table if split == "train" else d.valid_table
    if d.corpus == "facts":
        yield from ((article, (lead,)) for article, lead in facts.split(split, d.sources))
    elif table:
        yield from read_articles(table, d.source_column, d.target_column, d.title_column, report)
    elif split == "train":
        raise BadInput("give --data and --valid-data, articles as JSON lines, or --corpus facts")
    else:
        raise BadInput("give --valid-data too: held-out articles to judge the model by")


def articles_of(recipe: Recipe, split: str, report: Report) -> Iterator[Example]:
    """The same; if there are none, the file is named, and what was dropped of it."""
    where = recipe.data.table if split == "train" else recipe.data.valid_table
    examples = examples_of(recipe, split, report)
    return not_empty(examples, lambda: f"there is no article in {where} ({report.sentence()})")


def rows_of(vocab: Vocab, examples: Sequence[Example], d: SummaryData) -> Iterator[dict[str, list[int]]]:
    """Token numbers of articles, as far as they are read, each with every one of its summaries."""
    sources = read_by(vocab, [article for article, _ in examples], d.extract, d.max_length)
    for source, (_, summaries) in zip(sources, examples, strict=True):
        for target in vocab.encode_batch(list(summaries)):
            yield {"source": source, "target": target}


def prepare(recipe: Recipe, folder: Path) -> tuple[Vocab, Store, Report]:
    """The vocabulary and the tokenized articles, made once and kept in the run's folder."""
    d, report, data = recipe.data, Report(recipe.data.bad_lines), folder / "data"
    if data.is_dir() and (folder / TOKENIZER).is_file():
        vocab = read_vocab(folder / TOKENIZER)
        return vocab, Store.open(data, vocab.hash), report
    vocab = learn_vocab(recipe, folder)
    about: dict[str, Any] = {"vocab": vocab.hash, "corpus": d.corpus, "table": d.table, "left_out": 0}

    def rows() -> Iterator[dict[str, list[int]]]:
        examples = examples_of(recipe, "train", report)
        for chunk in groups(examples, lambda example: len(example[0]) + sum(map(len, example[1]))):
            for row in rows_of(vocab, chunk, d):
                fits = row["source"] and len(row["target"]) <= d.max_summary_length
                about["left_out"] += not fits
                if fits:
                    yield row

    fields = {"source": "articles, as far as they are read", "target": "their summaries"}
    return vocab, write_store(data, fields, rows(), vocab.size, about), report


def learn_vocab(recipe: Recipe, folder: Path) -> Vocab:
    """Learned from articles, as far as anybody may read them, and summaries."""
    d, report = recipe.data, Report(recipe.data.bad_lines)
    examples = articles_of(recipe, "train", report)
    texts = (text for article, summaries in examples for text in (text_of(article, "first"), *summaries))
    vocab = train_vocab(d.tokenizer, texts, d.vocab_size, d.lowercase)
    write_text(folder / TOKENIZER, vocab.to_json())
    return vocab


# From a recipe to a job.


@dataclass(frozen=True)
class SummaryExamples:
    """What was read: articles and summaries as tokens, and held-out ones as text."""

    vocab: Vocab
    train: Store
    held_out: list[Example]  # those that are tried each time
    there: int  # how many are held out
    in_one_row: bool

    @property
    def size(self) -> DataSize:
        """The tokens of the longer side, or of both where they are one row: what a step is planned by."""
        sources, targets = self.train.lengths("source"), self.train.lengths("target") + 1
        lengths = sources + targets if self.in_one_row else np.maximum(sources, targets)
        return DataSize(len(self.train), int(lengths.sum()), "articles")


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> SummaryExamples:
    """Read or generate the articles, learn a vocabulary, choose what is read of each, and tokenize."""
    d = recipe.data
    vocab, train, report = prepare(recipe, folder)
    tried, there = held_out_examples(recipe, report)
    if report.counts:
        say(report.sentence())
    if not len(train):
        raise BadInput(
            f"no summary is left to learn from: all are over data.max_summary_length, "
            f"{d.max_summary_length} tokens"
        )
    return SummaryExamples(vocab, train, tried, there, in_one_row(recipe.model.architecture))


def job(recipe: Recipe, examples: SummaryExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    vocab, train, tried = examples.vocab, examples.train, examples.held_out
    form = form_of(recipe)
    lengths = form.lengths(train)
    plan = BucketPlan(
        lengths, recipe.train.batch_tokens, recipe.train.seed, int(max(side.max() for side in lengths))
    )
    judge = SummaryEvaluator(recipe, form, vocab, tried)

    def batches(step: int, rank: int = 0, world: int = 1) -> list[Any]:
        parts = shares(plan.batch(step), recipe.train.accumulation_steps, rank, world)
        return [batch_of(train, form, vocab, part) for part in parts]

    return Job(
        task="summarize",
        architecture=recipe.model.architecture,
        config=form.config(recipe, vocab.size),
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: form.loss(model, batch, recipe.train.label_smoothing),
        evaluate=judge.evaluate,
        samples=lambda model: judge.samples(model, sample_count(recipe.evaluate.examples)),
        held_out=len(tried),
        baselines={
            **{
                name: (f"{told} of {FIRST}", score)
                for name, (told, score) in judge.first_paragraphs().items()
            },
            "loss": (BY_FREQUENCY, judge.by_frequency(train)),
        },
        plan=[
            describe_data(f"{len(train):,} articles", len(tried), examples.there, plan.padding()),
            describe_articles(train, recipe.data),
            f"vocabulary: {vocab.size:,} of {vocab.kind}, {judge.unknown:.2%} unknown in held-out text",
        ],
        facts={"data": train.hash, "held-out data": hash_of([(a.heading, a, s) for a, s in tried])},
    )


def batch_of(store: Store, form: Form, vocab: Vocab, ids: np.ndarray) -> Any:
    sources, targets = ([store.row(name, int(i)) for i in ids] for name in ("source", "target"))
    return form.batch(vocab, sources, targets, ids.tolist())


def describe_articles(train: Store, d: SummaryData) -> str:
    """What is read of the articles, in words."""
    lengths = train.lengths("source")
    order = "as they stand" if d.extract == "first" else "best first by tf-idf with the title"
    told = (
        f"articles: {lengths.mean():.0f} tokens are read of each on average, at most {d.max_length}, "
        "paragraphs "
        f"{order}"
    )
    left = train.about.get("left_out", 0)
    return told + (
        f"; {left:,} left out, whose summary is over {d.max_summary_length} tokens" if left else ""
    )


def held_out_examples(recipe: Recipe, report: Report) -> tuple[list[Example], int]:
    """The first articles to judge the model by, and how many there are: the others are only looked at."""
    examples = articles_of(recipe, "valid", report)
    tried = list(islice(examples, recipe.evaluate.rows))
    return tried, len(tried) + sum(1 for _ in examples)


# Evaluation

FIRST = "the first paragraph"
SCORED = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}


class SummaryEvaluator:
    """Held-out articles, and what a model's summaries of them are worth."""

    def __init__(self, recipe: Recipe, form: Form, vocab: Vocab, examples: Sequence[Example]) -> None:
        self.form, self.vocab, self.data = form, vocab, recipe.data
        d = recipe.data
        self.examples = list(examples)
        self.references = [
            tuple(one.lower() if d.lowercase else one for one in summaries) for _, summaries in self.examples
        ]
        self.sources = read_by(vocab, [article for article, _ in self.examples], d.extract, d.max_length)
        targets = vocab.encode_batch([summaries[0] for _, summaries in self.examples])
        self.targets = [row[: d.max_summary_length] for row in targets]

    def evaluate(self, model: Any) -> dict[str, float]:
        """Held-out loss (nats per token of the first reference), and the scores of greedy summaries."""
        rows = list(range(len(self.examples)))
        nll = count = 0.0
        for some in chunks(rows, ROWS):
            loss = self.form.nll(model, self.batch(some).to(device_of(model)))
            nll, count = nll + float(loss.nll), count + loss.count
        scores = self.scores(self.write(model, rows))
        return {"loss": nll / count, **{name: float(score.mean()) for name, score in scores.items()}}

    def batch(self, some: Sequence[int]) -> Any:
        sources, targets = ([side[i] for i in some] for side in (self.sources, self.targets))
        return self.form.batch(self.vocab, sources, targets, some)

    def write(self, model: Any, some: Sequence[int]) -> list[str]:
        """Summaries of some articles; those of like length are written together."""
        found: dict[int, str] = {}
        for group in by_length([len(self.sources[i]) for i in some], ROWS):
            rows = [self.sources[some[i]] for i in group]
            texts = written(self.form, model, self.vocab, rows, self.data.max_summary_length)
            found.update(zip(group, texts, strict=True))
        return [found[place] for place in range(len(some))]

    def scores(self, found: Sequence[str]) -> dict[str, np.ndarray]:
        """Each metric of every summary; in the built-in corpus, also exact match and right facts."""
        scores = rouges(found, self.references)
        if self.data.corpus == "facts":
            pairs = [(mine, lead) for mine, (lead,) in zip(found, self.references, strict=True)]
            scores["exact"] = np.array([float(mine == lead) for mine, lead in pairs])
            scores["facts"] = np.array([facts.share_right(mine, lead) for mine, lead in pairs])
        return scores

    def first_paragraphs(self) -> dict[str, tuple[str, float]]:
        """What the article's first paragraph would score as its summary."""
        scores = rouges([article.paragraphs[0] for article, _ in self.examples], self.references)
        return {name: (SCORED[name], float(score.mean())) for name, score in scores.items()}

    def by_frequency(self, train: Store) -> float:
        tried = [
            Answers(torch.from_numpy(self.form.answers(self.batch([i])))) for i in range(len(self.examples))
        ]
        return by_frequency(train, tried, self.vocab)  # type: ignore[arg-type]

    @property
    def unknown(self) -> float:
        """The share of unknown tokens in the summaries and in what is read of the articles."""
        rows = [*self.sources, *self.targets]
        return sum(row.count(Vocab.unk) for row in rows) / max(1, sum(map(len, rows)))

    def samples(self, model: Any, count: int) -> list[WrittenSample]:
        """A few summaries beside what was expected."""
        found = []
        some = list(range(min(count, len(self.examples))))
        for i, mine in zip(some, self.write(model, some), strict=True):
            (article, _), right = self.examples[i], self.references[i]
            text = text_of(article, "first")
            expected = "" if mine in right else f"    (expected: {right[0]})"
            line = f"    {shortened(text, SHOWN)}\n  → {mine}{expected}"
            found.append(WrittenSample(text, mine, right[0], line))
        return found


@dataclass(frozen=True)
class Answers:
    """What frequencies are judged by."""

    answers_BT: Tensor


SHOWN = 160  # characters of an article


def written(form: Form, model: Any, vocab: Vocab, rows: Sequence[Row], longest: int) -> list[str]:
    """Greedy summaries of articles."""
    step, prompts_BT, lengths_B = form.prompt(model, vocab, rows)
    found = greedy(step, prompts_BT, lengths_B, longest=longest, eos=vocab.eos)
    return [vocab.decode(one.words) for one in found]


def measure(model: Any, asked: EvaluationRequest) -> Measured:
    """ROUGE, loss and perplexity of summaries of all held-out articles."""
    recipe, d = asked.recipe, asked.recipe.data
    report, vocab, form = Report(d.bad_lines), asked.vocab(), form_of(asked.recipe)
    examples, places = with_lines(examples_of(recipe, asked.split, report), report)
    if not examples:
        raise BadInput(one_line(f"there is no article in {d.valid_table} ({report.sentence()})"))
    judge = SummaryEvaluator(recipe, form, vocab, examples)
    found, nll, count = [""] * len(examples), 0.0, 0
    lengths = [len(row) for row in judge.sources]
    for some in asked.track(by_length(lengths, asked.rows), "summarizing"):
        loss = form.nll(model, judge.batch(some).to(device_of(model)))
        nll, count = nll + float(loss.nll), count + loss.count
        articles = [examples[i][0] for i in some]
        texts = judge.write(model, some) if asked.write is None else asked.write(articles)
        for i, text in zip(some, texts, strict=True):
            found[i] = text
    scores, nats = judge.scores(found), nll / count
    told = dict(zip(places, found, strict=True))
    kept = asked.run / "data"
    guessing = {}
    if kept.is_dir():
        guessing["loss"] = "every token at its frequency", judge.by_frequency(Store.mapped(kept))
    return Measured(
        examples=len(examples),
        unit="articles",
        metrics={
            **{name: float(score.mean()) for name, score in scores.items()},
            "loss": nats,
            "perplexity": math.exp(min(nats, 700)),
            "unknown": judge.unknown,
        },
        intervals={
            name: interval(float(score.mean()), len(score)) if name == "exact" else mean_interval(score)
            for name, score in scores.items()
        },
        baselines={name: (FIRST, score) for name, (_, score) in judge.first_paragraphs().items()} | guessing,
        signature={
            "ROUGE": SIGNATURE,
            "decoding": f"{asked.decoding}|max_new_tokens:{d.max_summary_length}",
            "reading": f"{d.extract}|longest:{d.max_length}",
            "loss": f"of the first reference|vocab:{vocab.kind}|size:{vocab.size}",
        },
        counts={"tokens": count},
        report=report,
        lines=[told.get(line, "") for line in range(len(examples) + report.counts.total())],
    )


def held_out_loss(model: Any, asked: EvaluationRequest, rows: int) -> tuple[float, float]:
    """The loss of a few held-out summaries, and that of guessing them by frequency."""
    report = Report(asked.recipe.data.bad_lines)
    some = list(islice(examples_of(asked.recipe, asked.split, report), rows))
    if not some:
        raise BadInput("there is no article")
    judge = SummaryEvaluator(asked.recipe, form_of(asked.recipe), asked.vocab(), some)
    loss = judge.form.nll(model, judge.batch(range(len(some))).to(device_of(model)))
    return float(loss.nll) / loss.count, judge.by_frequency(Store.mapped(asked.run / "data"))


FACTS = {
    "data.tokenizer": "word",
    "data.vocab_size": 4000,
    "model.dropout": 0.0,
    "model.positions": "sinusoidal+rotary",
    "train.label_smoothing": 0.0,
    "train.optimizer": "muon",
    "train.learning_rate": 4e-3,
    "train.warmup_steps": 150,
    "train.batch_tokens": 1024,
    "train.steps": 3000,
    "evaluate.rows": 100,
}

TASK = Task(
    name="summarize",
    data=SummaryData,
    train=SummaryTraining,
    architectures={
        **TRANSLATE.architectures,
        "dmca": {"norm": "pre"},
        "mixture_dmca": {"norm": "pre", "layers": 5, "moe_every": 5, "experts": 8, "router": "switch"},
    },
    corpora={"facts": Corpus(("valid", "test", "long"), FACTS)},
    read=read,
    job=job,
    measure=measure,
    metric="rougeL",
    own_data=({"data": ("data.valid_table",)},),
    columns=("source", "target", "title"),
    writes=True,
    next=("summarize {path} < articles.jsonl",),
    check=check,
    concerns=concerns,
)
