"""Language model: predict every next token of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..corpora import phrasebook, pylib
from ..data.batch import Tensors
from ..data.encode import Encoder
from ..data.files import Report, joined, not_in_vain, read_documents
from ..data.packing import Packing
from ..data.plan import RowPlan, WindowPlan, shares
from ..data.store import Store, write_store
from ..data.vocab import Vocab, read_vocab, train_vocab
from ..decode.greedy import greedy_continuation
from ..errors import BadInput
from ..files import one_line, write_text
from ..models.base.shells import Decoder
from ..models.gpt2 import GPT2Config
from ..models.gru import GRUConfig
from ..models.lstm import LSTMConfig
from ..models.mixture import MixtureConfig
from ..models.modern import ModernConfig
from ..models.rnn import RNNConfig
from ..models.xl import XLConfig
from ..parts.experts import auxiliary
from ..train.loss import NOTHING, Loss, scores_of, sequence_loss, with_aux
from .evaluation import Asked, Measured, Track, silently
from .job import Job
from .long import CONFIGS, Recurrent, Segments, experts_of, recurrent_losses
from .origin import DECODERS, Origin, begin, find_origin, special_of, vocab_of, vocabulary
from .recipe import Recipe
from .tuning import start_told, tuning_of

ENOUGH = 10_000_000  # tokens to count frequencies by
BY_FREQUENCY = "nats a token, every token at its frequency"
STEADY = ("gpt2", "modern")  # architectures whose steps may be recorded: they never wait for the device
UNCOMPILED = ("sparse", "dmca", "linear")  # those of which that is known where they are not compiled


@dataclass(frozen=True)
class WindowBatch(Tensors):
    """Windows of a text, each one token longer than what the model reads."""

    tokens_BT: Tensor
    ids: tuple[int, ...] = ()  # where the windows start

    @property
    def count(self) -> int:
        return len(self.tokens_BT) * (self.tokens_BT.shape[1] - 1)


@dataclass(frozen=True)
class PackedBatch(Tensors):
    """Rows of several documents, which do not see each other."""

    tokens_BT: Tensor
    answers_BT: Tensor  # the next token of the same document; NOTHING in the padding
    documents_BT: Tensor
    count: int
    ids: tuple[int, ...] = ()  # the numbers of the rows


def loss_of(model: Decoder, batch: WindowBatch | PackedBatch, smoothing: float = 0.0) -> Loss:
    """Every token but the first, of a window or of a document, is predicted from those before it."""
    aux = auxiliary(model)
    if isinstance(batch, PackedBatch):
        hidden_BTD = model.hidden(batch.tokens_BT, documents_BT=batch.documents_BT, aux=aux)
        answers_BT = batch.answers_BT
    else:
        hidden_BTD = model.hidden(batch.tokens_BT[:, :-1], aux=aux)
        answers_BT = batch.tokens_BT[:, 1:]
    loss = sequence_loss(scores_of(model), hidden_BTD, answers_BT, batch.count, smoothing)
    return with_aux(loss, aux)


RECURRENT: dict[str, type[RNNConfig | GRUConfig | LSTMConfig]] = {
    "rnn": RNNConfig,
    "gru": GRUConfig,
    "lstm": LSTMConfig,
}


def config_of(recipe: Recipe, vocab: int, origin: Origin | None = None) -> GPT2Config | ModernConfig:
    """The architecture at the recipe's sizes, or that of the model to start from."""
    if origin is not None:
        if isinstance(origin.config, XLConfig):
            raise BadInput(
                one_line(f"{origin.folder} remembers what it has read (xl): it cannot be started from yet")
            )
        return origin.config
    m = recipe.model
    if m.architecture in RECURRENT:
        return RECURRENT[m.architecture](vocab, m.context, m.layers, m.width, m.dropout)  # type: ignore[return-value]
    if m.architecture in CONFIGS:
        return CONFIGS[m.architecture](vocab, m)  # type: ignore[return-value]
    if m.architecture == "modern":
        return ModernConfig(vocab, m.context, m.layers, m.width, m.heads, m.hidden, m.dropout)
    mixture = m.architecture == "mixture"
    kind, more = (MixtureConfig, experts_of(m)) if mixture else (GPT2Config, {})
    return kind(
        vocab=vocab,
        context=m.context,
        layers=m.layers,
        width=m.width,
        heads=m.heads,
        hidden=m.hidden,
        activation=m.activation,
        dropout=m.dropout,
        attention_dropout=m.dropout,
        **more,
    )


# Two ways to make rows of a text.


class Windows:
    """One stream, cut wherever a window ends."""

    unit = "windows"

    def __init__(self, stream: np.ndarray, context: int, end: int) -> None:
        self.stream, self.context = stream, context
        self.tokens = len(stream)  # of text
        self.enough = len(stream) > 1

    def plan(self, rows: int, seed: int) -> WindowPlan:
        return WindowPlan(len(self.stream), self.context, rows, seed)

    def apart(self) -> np.ndarray:
        """Windows that do not overlap; a text that is shorter than one is one."""
        return np.arange(0, len(self.stream) - self.length, self.length)

    @property
    def length(self) -> int:
        return min(self.context, len(self.stream) - 1)

    def batch(self, starts: np.ndarray) -> WindowBatch:
        return windows(self.stream, starts, self.length)

    def first(self) -> np.ndarray:
        """What may be continued."""
        return self.stream

    def __str__(self) -> str:
        return f"windows of {self.context}"


class Documents:
    """Documents packed into rows, each of them alone in the attention, and none predicted from another."""

    unit = "rows"

    def __init__(self, stream: np.ndarray, context: int, end: int) -> None:
        self.stream, self.end, self.packing = stream, end, Packing(stream, end, context)
        self.tokens = self.packing.tokens
        self.enough = self.packing.rows > 0

    def plan(self, rows: int, seed: int) -> RowPlan:
        return RowPlan(self.packing.rows, rows, seed)

    def apart(self) -> np.ndarray:
        return np.arange(self.packing.rows)

    def batch(self, rows: np.ndarray) -> PackedBatch:
        shape = len(rows), self.packing.length
        tokens, answers = np.zeros(shape, np.int64), np.full(shape, NOTHING)
        documents = np.full(shape, -1)
        for row, number in enumerate(rows.tolist()):
            at = 0
            for document, (start, size) in enumerate(self.packing.row(number)):
                here = row, slice(at, at + size)
                tokens[here] = self.stream[start : start + size]
                answers[here] = self.stream[start + 1 : start + size + 1]
                documents[here] = document
                at += size
        count = int((documents >= 0).sum())
        tokens_BT, answers_BT, documents_BT = map(torch.from_numpy, (tokens, answers, documents))
        return PackedBatch(tokens_BT, answers_BT, documents_BT, count, tuple(rows.tolist()))

    def first(self) -> np.ndarray:
        head = self.stream[: self.packing.length]
        return head[: int(np.argmax(np.append(head == self.end, True)))]

    def __str__(self) -> str:
        packing = self.packing
        return f"{packing.documents:,} documents in rows of {packing.length}, {packing.filled:.1%} full"


ROWS: dict[str, type[Windows | Documents]] = {"stream": Windows, "documents": Documents}


def rows_for(recipe: Recipe) -> type[Windows | Documents | Segments]:
    """How rows are made; a model with a memory reads segments that follow each other."""
    return Segments if recipe.model.architecture == "xl" else ROWS[recipe.data.pack]


# From a recipe to a job.


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read the text, learn a vocabulary, tokenize, and plan the rows; a model of both directions is another matter."""
    if recipe.model.architecture == "elmo":
        from . import elmo

        return elmo.make_job(recipe, folder, say)
    t = recipe.train
    origin = find_origin(t.from_folder, folder, DECODERS) if t.from_folder else None
    vocab, train, valid, report = prepare(recipe, folder, origin)
    config = config_of(recipe, vocab.size, origin)
    context = min(recipe.model.context, config.context)
    if report.counts:
        say(report.sentence())
    stream, held_out = train.stream("text"), valid.stream("text")
    kind = rows_for(recipe)
    learned, tried = (kind(tokens, context, vocab.eos) for tokens in (stream, held_out))
    if not learned.enough or not tried.enough or (kind is not Documents and len(stream) <= context):
        raise BadInput(
            f"{files_of(recipe)} has {len(stream):,} tokens to learn from and {len(held_out):,} held out: "
            f"a context of {context} needs more"
        )
    plan: Any = learned.plan(max(1, recipe.train.batch_tokens // context), recipe.train.seed)
    bytes_per_token = valid.about["bytes"] / tried.tokens

    def batches(step: int, rank: int = 0, world: int = 1) -> list[Any]:
        if isinstance(learned, Segments):
            return learned.batches(plan, step, recipe.train.accumulate, rank, world)
        return [
            learned.batch(part) for part in shares(plan.batch(step), recipe.train.accumulate, rank, world)
        ]

    carried = Recurrent(config.memory, recipe.train.smoothing) if isinstance(config, XLConfig) else None
    return Job(
        task="lm",
        architecture=origin.architecture if origin else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=carried or (lambda model, batch: loss_of(model, batch, recipe.train.smoothing)),
        carried=carried,
        evaluate=lambda model: evaluate(model, tried, bytes_per_token, recipe.evaluate.rows),
        show=lambda model: (
            show(model, vocab, asked_of(tried.first(), vocab, recipe), context)
            if recipe.evaluate.examples
            else []
        ),
        baselines={"loss": (BY_FREQUENCY, unigram_entropy(stream, held_out, vocab.size))},
        plan=[
            f"data: {len(stream):,} tokens, {len(held_out):,} held out, {learned}",
            f"vocabulary: {vocab.size:,} of {vocab.kind}, {bytes_per_token:.2f} bytes a token{sampled(train)}",
            *([start_told(recipe, False)] if origin else []),
        ],
        facts={"data": train.hash, "held-out data": valid.hash, **(origin.facts if origin else {})},
        steady=isinstance(learned, Windows) and steady(recipe) and origin is None,
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=special_of(vocab),
    )


def steady(recipe: Recipe) -> bool:
    """Whether nothing in a step of such a model asks the host."""
    return recipe.model.architecture in (STEADY if recipe.train.compile else (*STEADY, *UNCOMPILED))


def files_of(recipe: Recipe) -> str:
    """What a person calls the text."""
    d = recipe.data
    return one_line(" with ".join(path for path in (d.text, d.valid_text) if path) or d.corpus)


def sampled(train: Store) -> str:
    """What to say of a vocabulary that was learned from a part of the text."""
    every = train.about.get("every", 1)
    return f", learned from one piece of the text in {every}" if every > 1 else ""


SAMPLE = 100_000_000  # characters that a vocabulary is learned from, about


DELIMITER = " → "  # a sentence and its translation as one text, for a decoder alone (Liu et al. 2018)


class Text:
    """The text that a recipe names, and how long it is: read once for that, when bad lines are told."""

    def __init__(self, recipe: Recipe, report: Report) -> None:
        self.data, self.report = recipe.data, report
        d = self.data
        if d.corpus not in ("", "pylib", "phrasebook"):
            raise BadInput(f'lm has no built-in corpus "{d.corpus}"; it has pylib and phrasebook')
        if not d.corpus and not d.text:
            raise BadInput("give --text, a file or folder to learn from, or --corpus pylib")

    def documents(self, split: str) -> Iterator[Iterator[str]]:
        """The documents of a split, each in pieces; without a held-out text, the last tenth is held out."""
        d, again = self.data, Report(self.data.bad_lines)
        if d.corpus == "phrasebook":
            return (iter([f"{pair.source}{DELIMITER}{pair.target}\n"]) for pair in phrasebook.split(split))
        if d.corpus:
            return (iter([text]) for name, text in pylib.documents() if pylib.split(name) == split)
        if split == "valid" and d.valid_text:
            return self.read(d.valid_text, self.report)
        whole = self.read(d.text, again)
        return whole if d.valid_text else part_of(whole, int(0.9 * self.characters), split == "train")

    def read(self, path: str, report: Report) -> Iterator[Iterator[str]]:
        return read_documents(path, column=self.data.text_column or "text", report=report)

    @cached_property
    def characters(self) -> int:
        """Of what is learned from, and of the held-out tenth."""
        d = self.data
        if d.corpus:
            return sum(len(piece) for piece in joined(self.documents("train")))
        pieces = (piece for document in self.read(d.text, self.report) for piece in document)
        return sum(len(piece) for piece in not_in_vain(pieces, d.text, self.report))

    @property
    def every(self) -> int:
        """A vocabulary is learned from every nth piece, which together are about as much as `SAMPLE`."""
        return max(1, -(-self.characters // SAMPLE))


def part_of(documents: Iterable[Iterator[str]], cut: int, before: bool) -> Iterator[Iterator[str]]:
    """What lies before the character `cut`, or from it on; a document that it goes through becomes two."""
    at = 0

    def part(document: Iterator[str]) -> Iterator[str]:
        nonlocal at
        for piece in document:
            here = min(max(cut - at, 0), len(piece))
            at += len(piece)
            if found := piece[:here] if before else piece[here:]:
                yield found

    for document in documents:
        if before and at >= cut:
            return
        yield part(document)


def prepare(recipe: Recipe, folder: Path, origin: Origin | None = None) -> tuple[Vocab, Store, Store, Report]:
    """The vocabulary and the tokenized text, made once and kept in the run's folder; or the vocabulary of the model to
    start from."""
    d, report = recipe.data, Report(recipe.data.bad_lines)
    tokenizer, text = folder / "tokenizer.json", Text(recipe, report)
    if origin is not None:
        vocab: Any = vocabulary(folder, origin)
    elif tokenizer.is_file():
        vocab = read_vocab(tokenizer)
    else:
        texts = islice(joined(text.documents("train")), 0, None, text.every)
        vocab = train_vocab(d.vocab, texts, d.vocab_size, d.lower)
        write_text(tokenizer, vocab.to_json())
    train, valid = (tokenized(text, folder / split, split, vocab) for split in ("train", "valid"))
    return vocab, train, valid, report


def tokenized(text: Text, folder: Path, split: str, vocab: Vocab) -> Store:
    """The tokens of a split, on disk."""
    if folder.is_dir():
        return Store.open(folder, vocab.hash)
    about = {"vocab": vocab.hash, "bytes": 0} | ({"every": text.every} if split == "train" else {})
    rows = rows_of(text, split, vocab, about)
    return write_store(folder, {"text": "every token of the text"}, rows, vocab.size, about)


def rows_of(text: Text, split: str, vocab: Vocab, about: dict[str, Any]) -> Iterator[dict[str, np.ndarray]]:
    """The tokens of a split, piece by piece, and the end of each document if they are to be kept apart.

    about["bytes"] grows as they are read: it is complete when they are.
    """
    encode = Encoder(vocab) if isinstance(vocab, Vocab) else Whole(vocab)
    apart = text.data.pack == "documents"
    documents = text.documents(split)
    for document in documents if apart else [joined(documents)]:
        said = False
        for piece in document:
            about["bytes"] += len(piece.encode())
            tokens = encode(piece)
            said = said or len(tokens) > 0
            yield {"text": tokens}
        if apart and said:
            yield {"text": np.array([vocab.eos], encode.dtype)}


class Whole:
    """`Encoder` for a vocabulary that came with another model: nobody knows where it would cut a text."""

    def __init__(self, vocab: Any) -> None:
        self._vocab = vocab
        self.dtype = np.dtype("<u2" if vocab.size <= 1 << 16 else "<u4")

    def __call__(self, text: str) -> np.ndarray:
        return np.array(self._vocab.encode_batch([text])[0], self.dtype)


def windows(stream: np.ndarray, starts: np.ndarray, context: int) -> WindowBatch:
    """Windows of one token more than the context, as the plan placed them."""
    at = starts[:, None] + np.arange(context + 1)
    return WindowBatch(torch.from_numpy(stream[at].astype(np.int64)), tuple(starts.tolist()))


def evaluate(
    model: Decoder,
    held_out: Windows | Documents | Segments,
    bytes_per_token: float,
    most: int | None = None,
    rows: int = 32,
    track: Track = silently,
) -> dict[str, float]:
    """Held-out loss over rows that do not overlap (all of them, or `most` spread evenly), so many rows at a time."""
    if isinstance(held_out, Segments):
        segments = track(held_out.held_out(most, rows), "reading the text")
        return scores_of_losses(list(recurrent_losses(model, segments)), bytes_per_token)
    ids = held_out.apart()
    if most and len(ids) > most:
        ids = ids[np.linspace(0, len(ids) - 1, most).astype(int)]
    device = model.inputs.tokens.weight.device
    losses = [
        loss_of(model, held_out.batch(part).to(device))
        for part in track(np.split(ids, range(rows, len(ids), rows)), "reading the text")
    ]
    return scores_of_losses(losses, bytes_per_token)


def scores_of_losses(losses: Sequence[Loss], bytes_per_token: float) -> dict[str, float]:
    """What is told of the losses of all batches."""
    loss = sum(float(one.surprise) for one in losses) / sum(one.count for one in losses)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700)),
        "bits_per_byte": loss / math.log(2) / bytes_per_token,
    }


def measure(model: Decoder, asked: Asked) -> Measured:
    """Loss, perplexity and bits a byte over all of the held-out text, less a last window that is not full."""
    if asked.recipe.model.architecture == "elmo":
        from . import elmo

        return elmo.measure(model, asked)  # type: ignore[arg-type]
    vocab = vocab_of(asked.run, asked.recipe)
    stream, size, report = held_out_text(asked, vocab, 2)
    context = context_of(model, asked.recipe, stream)
    held_out = rows_for(asked.recipe)(stream, context, vocab.eos)
    scores = evaluate(model, held_out, size / held_out.tokens, None, asked.rows, asked.track)
    how = {"windows": "windows:apart", "rows": "documents:packed", "segments": f"segments:{asked.rows} rows"}
    return Measured(
        examples=len(held_out.apart()),
        unit=held_out.unit,
        metrics={**scores, "unknown": float((stream == vocab.unk).mean())},
        baselines=frequencies(asked, stream, vocab),
        signature={"loss": f"{how[held_out.unit]}|context:{context}|vocab:{vocab.kind}|size:{vocab.size}"},
        counts={"tokens": len(stream), "bytes": size},
        report=report,
    )


def context_of(model: Decoder, recipe: Recipe, stream: np.ndarray) -> int:
    """Tokens of a window: the recipe's, or as many as the text or the model to start from has places for."""
    asked = recipe.model.context
    table = model.inputs.position.longest if recipe.train.from_folder else None
    return min(asked, len(stream) - 1, table or asked)


def held_out_text(asked: Asked, vocab: Vocab, least: int) -> tuple[np.ndarray, int, Report]:
    """(tokens, bytes, bad lines): as training kept them in the run, or of the user's own text, tokenized now."""
    d, kept = asked.recipe.data, asked.run / "valid"
    report = Report(d.bad_lines)
    if kept.is_dir() and not asked.own:
        store = Store.open(kept)
        if store.about.get("vocab") != vocab.hash or type(store.about.get("bytes")) is not int:
            raise BadInput(
                one_line(f"{kept} was made with another vocabulary: give --text, a text to read instead")
            )
        return store.stream("text"), store.about["bytes"], report
    about = {"bytes": 0}
    rows = asked.track(rows_of(Text(asked.recipe, report), "valid", vocab, about), "tokenizing")
    stream = np.concatenate([np.empty(0, np.uint16), *(row["text"] for row in rows)])
    if len(stream) < least:
        text = d.valid_text or d.text or d.corpus
        why = f"{len(stream)} tokens to judge the model by: at least {least} are needed"
        raise BadInput(one_line(f"{text} has {why} ({report.sentence()})"))
    return stream, about["bytes"], report


def frequencies(asked: Asked, stream: np.ndarray, vocab: Vocab) -> dict[str, tuple[str, float]]:
    """What guessing by frequency costs, as long as the run has the text that it learned from."""
    if not (asked.run / "train").is_dir():
        return {}
    train = Store.mapped(asked.run / "train")  # to check all of a corpus would take long
    learned = train.stream("text")[:ENOUGH]
    if train.about.get("vocab") != vocab.hash or learned.max(initial=0) >= vocab.size:
        return {}
    return {"loss": ("every token at its frequency", unigram_entropy(learned, stream, vocab.size))}


def unigram_entropy(stream: np.ndarray, held_out: np.ndarray, vocab: int) -> float:
    """The loss of guessing every token by how often it occurred (one is added to every count)."""
    counts = np.ones(vocab)
    for block in blocks_of(stream):
        counts += np.bincount(block, minlength=vocab)
    costs = -np.log(counts / counts.sum())
    return sum(float(costs[block].sum()) for block in blocks_of(held_out)) / min(len(held_out), ENOUGH)


def blocks_of(stream: np.ndarray, size: int = 1 << 18) -> Iterator[np.ndarray]:
    """The beginning of a stream, a few tokens at a time: numpy counts in numbers four times as large."""
    end = min(len(stream), ENOUGH)
    return (stream[at : min(at + size, end)] for at in range(0, end, size))


def asked_of(text: np.ndarray, vocab: Vocab, recipe: Recipe) -> np.ndarray:
    """What may be continued: of a sentence and its translation, the sentence and the delimiter."""
    mark = DELIMITER.rstrip()
    source, found, _ = vocab.decode(text[: recipe.model.context].tolist()).partition(mark)
    if recipe.data.corpus != "phrasebook" or not found:
        return text
    return np.array(vocab.encode_batch([source + mark])[0])


def show(model: Decoder, vocab: Vocab, text: np.ndarray, context: int) -> list[str]:
    """How the model goes on from the start of a held-out text, until it ends it."""
    prompt = torch.from_numpy(text[: min(context // 2, 32)].astype(np.int64)).to(
        model.inputs.tokens.weight.device
    )
    written = greedy_continuation(model, prompt, 60, context)
    written = written[: written.index(vocab.eos)] if vocab.eos in written else written
    return [f"    {vocab.decode(prompt.tolist())!r} → {vocab.decode(written)!r}"]
