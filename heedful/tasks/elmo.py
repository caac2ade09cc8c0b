"""ELMo: a language model in each direction: one predicts the next word, the other the word before.

    [CLS] The cat sleeps . [SEP]      a row; a line of the text is a sentence
          The cat sleeps . [SEP]      what the left one is to say
    [CLS] The cat sleeps .            what the right one is to say

The loss is the mean of both, in nats per word, and perplexity is that of the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..corpora import phrasebook
from ..data.batch import Tensors
from ..data.letters import SpelledVocab, as_read
from ..data.plan import BucketPlan, shares
from ..data.report import Report
from ..data.store import Store, write_store
from ..data.vocab import LONGEST, Vocab, groups, read_vocab, train_vocab
from ..errors import BadInput
from ..files import one_line, write_text
from ..interop.hf.tokenizer import TOKENIZER
from ..models.base.settings import Part
from ..models.base.shells import WithHeads
from ..models.elmo import ElmoConfig
from ..parts.before.characters import numbers_of
from ..parts.places import Lengths
from ..train.loss import NOTHING, Loss, Scores, sequence_loss
from .configs import config_of
from .evaluation import EvaluationRequest, Measured, by_length
from .lm_data import TextSource, files_of
from .recipe.choices import DataSize
from .recipe.settings import STORIES, LearningRate, Recipe, RunningText, SmoothedTraining
from .spelling import id_limit, keep_unknown, vocab_as_read, with_unknown
from .task import Corpus, Job, Task, chunks, describe_data, pad

Vocabulary = Vocab | SpelledVocab
ENDS = 2  # [CLS] and [SEP]
PER = "loss (word frequencies), nats per word"


@dataclass(frozen=True)
class SentenceBatch(Tensors):
    """Some sentences, padded at the end."""

    tokens_BT: Tensor  # or, of words that are spelled out, [B, T, 1 + letters]
    lengths_B: Tensor
    count: int  # words to be predicted, in both directions
    ids: tuple[int, ...] = ()


def collate(
    vocab: Vocabulary, rows: Sequence[np.ndarray | list[int]], ids: Sequence[int] = ()
) -> SentenceBatch:
    """Sentences to a batch."""
    whole = [np.concatenate(([vocab.cls], row, [vocab.sep])).astype(np.int64) for row in rows]
    lengths = [len(row) for row in whole]
    count = 2 * sum(length - 1 for length in lengths)
    return SentenceBatch(
        as_read(vocab, pad(whole, vocab.pad)), torch.tensor(lengths), count, tuple(map(int, ids))
    )


# Loss


def both_losses(model: WithHeads, batch: SentenceBatch, smoothing: float = 0.0) -> tuple[Loss, Loss]:
    """Of every next word by what stands to its left, and of every word before by what stands to its right."""
    head: Any = model.heads["neighbors"]
    from_left_BTD, from_right_BTD = head.top(model.encoder(batch.tokens_BT, Lengths(batch.lengths_B)))
    numbers_BT = numbers_of(batch.tokens_BT)
    slots_U = torch.arange(1, numbers_BT.shape[1], device=numbers_BT.device)
    beyond_BU = slots_U >= batch.lengths_B[:, None]
    after_BU, before_BU = (
        some.masked_fill(beyond_BU, NOTHING) for some in (numbers_BT[:, 1:], numbers_BT[:, :-1])
    )
    score, half = Scores(head.words, None), batch.count // 2  # type: ignore[arg-type]
    return (
        sequence_loss(score, from_left_BTD[:, :-1], after_BU, half, smoothing),
        sequence_loss(score, from_right_BTD[:, 1:], before_BU, half, smoothing),
    )


def loss_of(model: WithHeads, batch: SentenceBatch, smoothing: float = 0.0) -> Loss:
    """Both together."""
    left, right = both_losses(model, batch, smoothing)
    return Loss(left.total + right.total, left.nll + right.nll, batch.count)


# From a recipe to a job.


@dataclass(frozen=True)
class ElmoData(RunningText):
    """Sentences, one a line."""

    tokenizer: Annotated[
        Literal["bpe", "wordpiece", "char", "word", "spaced"], "kind of vocabulary to learn"
    ] = "word"


@dataclass(frozen=True)
class ElmoTraining(SmoothedTraining):
    learning_rate: LearningRate = 4e-3
    label_smoothing: Annotated[Part, "share of the target spread over all words"] = 0.0


@dataclass(frozen=True)
class ElmoExamples:
    """What was read: words of sentences to learn from, and held-out ones."""

    vocab: Any
    train: Store
    valid: Store

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.train), len(self.train.stream("text")), "sentences")


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> ElmoExamples:
    """Read the sentences, learn a vocabulary, and tokenize."""
    vocab, train, valid, report = prepare(recipe, folder)
    if report.counts:
        say(report.sentence())
    if not len(train) or not len(valid):
        raise BadInput(
            one_line(
                f"{files_of(recipe)} has {len(train)} lines to learn from and {len(valid)} held out: both "
                "need one"
            )
        )
    return ElmoExamples(vocab, train, valid)


def job(recipe: Recipe, examples: ElmoExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    t, vocab, train, valid = recipe.train, examples.vocab, examples.train, examples.valid
    config = config_of(recipe, vocab=vocab.size)
    plan = BucketPlan(train.lengths("text") + ENDS, t.batch_tokens, t.seed, config.context)
    held_out = [valid.row("text", int(i)) for i in spread(len(valid), recipe.evaluate.rows)]
    tried = [collate(vocab, some) for some in chunks(held_out, 64)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[SentenceBatch]:
        parts = shares(plan.batch(step), t.accumulation_steps, rank, world)
        return [collate(vocab, [train.row("text", int(i)) for i in part], part.tolist()) for part in parts]

    known = share_known(valid, vocab)
    return Job(
        task="elmo",
        architecture="elmo",
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=partial(loss_of, smoothing=t.label_smoothing),
        evaluate=lambda model: evaluate(model, tried),
        show=lambda model: show(model, vocab, held_out[: recipe.evaluate.examples]),
        baselines={"loss": (PER, by_frequency(train, valid.stream("text"), len(valid), vocab))},
        plan=[
            describe_data(f"{len(train):,} sentences", len(held_out), len(valid), plan.padding()),
            f"vocabulary: {vocab.size:,} of {vocab.kind}, which have {known:.1%} of the held-out words",
            f"input: {describe_input(config)}",
        ],
        facts={"data": train.hash, "held-out data": valid.hash},
    )


def describe_input(c: ElmoConfig) -> str:
    """How a word is read."""
    if c.input == "pieces":
        return "each token by a vector of its own"
    by = f"{sum(c.filters):,} filters of {len(c.filters)} widths"
    return f"at most {c.max_characters} letters of a word, by {by}"


def spread(rows: int, most: int) -> np.ndarray:
    """Numbers of all rows, or of so many from all over."""
    return np.arange(rows) if rows <= most else np.linspace(0, rows - 1, most).astype(int)


# Text


def sentences(text: TextSource, split: str) -> Iterator[str]:
    """The lines of a split that say something; of the phrasebook, the English sentences."""
    if text.data.corpus == "phrasebook":
        return (pair.source for pair in phrasebook.split(split))
    return (line for document in text.documents(split) for line in lines_of(document) if line.strip())


def lines_of(pieces: Iterable[str]) -> Iterator[str]:
    """Lines of a text that comes in pieces; an endless one is cut."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from whole
        if len(rest) >= LONGEST // 2:
            yield rest
            rest = ""
    yield rest


def prepare(recipe: Recipe, folder: Path) -> tuple[Vocabulary, Store, Store, Report]:
    """The vocabulary and the tokenized sentences, made once and kept in the run's folder."""
    d, report = recipe.data, Report(recipe.data.bad_lines)
    text = TextSource(recipe, report)
    if not (folder / TOKENIZER).is_file():
        some = islice(sentences(text, "train"), 0, None, text.every)
        write_text(folder / TOKENIZER, train_vocab(d.tokenizer, some, d.vocab_size, d.lowercase).to_json())
    plain = read_vocab(folder / TOKENIZER)
    config = config_of(recipe, vocab=plain.size)
    vocab = vocab_as_read(plain, config)
    if (folder / "train").is_dir():
        vocab = with_unknown(vocab, folder)
    train, valid = (tokenized(text, folder, split, vocab, config) for split in ("train", "valid"))
    return vocab, train, valid, report


def tokenized(text: TextSource, folder: Path, split: str, vocab: Vocabulary, config: ElmoConfig) -> Store:
    """The sentences of a split as numbers, on disk."""
    if (folder / split).is_dir():
        return Store.open(folder / split, vocab.hash)

    def rows() -> Iterator[dict[str, list[int]]]:
        for row in rows_of(sentences(text, split), vocab, config.context):
            yield {"text": row}
        keep_unknown(vocab, folder)

    about = {"vocab": vocab.hash}
    return write_store(
        folder / split, {"text": "words of sentences"}, rows(), id_limit(vocab, vocab.size), about
    )


def rows_of(lines: Iterable[str], vocab: Vocabulary, context: int) -> Iterator[list[int]]:
    """Numbers of each line; a line too long for the context is several."""
    room = context - ENDS
    if room < 1:
        raise BadInput(f"model.context is {context}, which leaves no room for words beside [CLS] and [SEP]")
    for some in groups(lines):
        for row in vocab.encode_batch(some):
            yield from (row[at : at + room] for at in range(0, len(row), room))


def known_words(words: Any, vocab: Vocabulary) -> np.ndarray:
    """Numbers of words; unknown ones are all one."""
    words = np.asarray(words).astype(np.int64)
    return np.where(words < vocab.size, words, vocab.unk)


def share_known(store: Store, vocab: Vocabulary) -> float:
    return float((known_words(store.stream("text"), vocab) != vocab.unk).mean())


def by_frequency(train: Store, words: Any, sentences: int, vocab: Vocabulary) -> float:
    """The loss of guessing words and the ends of sentences by frequency (one is added to every count)."""
    counts = np.ones(vocab.size) + np.bincount(known_words(train.stream("text"), vocab), minlength=vocab.size)
    counts[vocab.sep] += len(train)
    costs, words = -np.log(counts / counts.sum()), known_words(words, vocab)
    total = float(costs[words].sum()) + sentences * float(costs[vocab.sep])
    return total / (len(words) + sentences)


# Evaluation


def evaluate(model: WithHeads, batches: Iterable[SentenceBatch]) -> dict[str, float]:
    """Held-out loss (nats per word) and perplexity of both directions together, and perplexity of each."""
    left = right = 0.0
    count = 0
    device = next(model.parameters()).device
    for batch in batches:
        losses = both_losses(model, batch.to(device))
        left, right = left + float(losses[0].nll), right + float(losses[1].nll)
        count += batch.count // 2
    count = max(1, count)
    loss = (left + right) / (2 * count)
    nats = {"perplexity": loss, "forward": left / count, "backward": right / count}
    return {"loss": loss} | {name: math.exp(min(value, 700)) for name, value in nats.items()}


def measure(model: WithHeads, asked: EvaluationRequest) -> Measured:
    """Loss and perplexities over all held-out sentences."""
    report = Report(asked.recipe.data.bad_lines)
    vocab, rows = held_out_rows(asked, report)
    alike = by_length([len(row) + ENDS for row in rows], asked.rows)
    batches = (collate(vocab, [rows[i] for i in some]) for some in asked.track(alike, "reading the text"))
    words = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return Measured(
        examples=len(rows),
        unit="sentences",
        per="word",
        metrics={
            **evaluate(model, batches),
            "unknown": float((known_words(words, vocab) == vocab.unk).mean()),
        },
        baselines=frequencies(asked, words, len(rows), vocab),
        signature={"loss": f"lines:apart|both directions|ends:counted|vocab:{vocab.kind}|size:{vocab.size}"},
        counts={"words": len(words)},
        report=report,
    )


def held_out_rows(asked: EvaluationRequest, report: Report) -> tuple[Vocabulary, list[Any]]:
    """(vocabulary, sentences): as training kept them in the run, or of another text, tokenized now."""
    recipe, plain, kept = asked.recipe, asked.vocab(), asked.run / "valid"
    config = config_of(recipe, vocab=plain.size)
    vocab = vocab_as_read(plain, config)
    if kept.is_dir() and not asked.own and asked.split == "valid":
        store = Store.open(kept, plain.hash)
        return with_unknown(vocab, asked.run), [store.row("text", i) for i in range(len(store))]
    lines = asked.track(sentences(TextSource(recipe, report), asked.split), "tokenizing")
    rows = list(rows_of(lines, vocab, config.context))
    if not rows:
        text = recipe.data.valid_text or recipe.data.text or recipe.data.corpus
        raise BadInput(one_line(f"{text} has no sentence to judge the model by ({report.sentence()})"))
    return vocab, rows


def held_out_loss(model: WithHeads, asked: EvaluationRequest, most: int = 64) -> tuple[float, float]:
    """The loss on some held-out sentences, and that of guessing."""
    vocab, rows = held_out_rows(asked, Report(asked.recipe.data.bad_lines))
    some = [rows[i] for i in spread(len(rows), most)]
    words = np.concatenate([np.asarray(row, np.int64) for row in some])
    guessing = frequencies(asked, words, len(some), vocab)
    if not guessing:
        raise BadInput("the text that was learned from is gone")
    return evaluate(model, [collate(vocab, some)])["loss"], guessing["loss"][1]


def frequencies(
    asked: EvaluationRequest, words: np.ndarray, sentences: int, vocab: Vocabulary
) -> dict[str, tuple[str, float]]:
    """What guessing by frequency costs, as long as the run has what it learned from."""
    if not (asked.run / "train").is_dir():
        return {}
    train = Store.mapped(asked.run / "train")  # to check all of a corpus would take long
    if train.about.get("vocab") != vocab.hash:
        return {}
    return {"loss": ("every word at its frequency", by_frequency(train, words, sentences, vocab))}


def show(model: WithHeads, vocab: Vocabulary, rows: Sequence[np.ndarray]) -> list[str]:
    """A few sentences, and what each direction would have said in the place of every word."""
    head: Any = model.heads["neighbors"]
    examples = []
    for row in rows:
        batch = collate(vocab, [row]).to(next(model.parameters()).device)
        next_1TV, before_1TV = head(model.encoder(batch.tokens_BT, Lengths(batch.lengths_B)), None).chunk(
            2, -1
        )
        guessed = next_1TV[0, :-2].argmax(-1).tolist(), before_1TV[0, 2:].argmax(-1).tolist()
        said = [
            f"    {told}{' '.join(word_of(vocab, number) for number in numbers)}"
            for told, numbers in zip(LABELS_SHOWN, (row.tolist(), *guessed), strict=True)
        ]
        examples.append("\n".join(said))
    return examples


LABELS_SHOWN = ("", "  from the left:  ", "  from the right: ")


def word_of(vocab: Vocabulary, number: int) -> str:
    """A word as one reads it; an unknown one by its letters, if they are known."""
    if isinstance(vocab, SpelledVocab) and number >= vocab.size:
        return list(vocab.unknown)[number - vocab.size]
    return vocab.decode([number]).strip() or NAMED.get(number, UNKNOWN)


UNKNOWN = "…"
NAMED = {Vocab.cls: "[CLS]", Vocab.sep: "[SEP]"}


TASK = Task(
    name="elmo",
    data=ElmoData,
    train=ElmoTraining,
    architectures={"elmo": {"layers": 2}},
    corpora={
        "pylib": Corpus(("valid",), {"data.vocab_size": 4000}),
        "stories": Corpus(("valid", "test"), STORIES),
        "phrasebook": Corpus(
            ("valid", "test", "combinations", "long"),
            {
                "data.vocab_size": 4000,
                "model.dropout": 0.0,
                "train.warmup_steps": 150,
                "train.batch_tokens": 1024,
                "train.steps": 3000,
                "evaluate.rows": 200,
            },
        ),
    },
    read=read,
    job=job,
    measure=measure,
    metric="loss",
    own_data=({"text": ("data.valid_text", "data.text")},),
    columns=("text",),
    next=(
        "train tag --data a.conllu --valid-data b.conllu --from {path}",
        "train classify --data a.tsv --valid-data b.tsv --from {path}",
    ),
)
