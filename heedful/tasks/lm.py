"""Language model: predict every next token of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.packing import Packing
from ..data.plan import RowPlan, WindowPlan, shares
from ..data.store import Store
from ..data.vocab import Vocab
from ..decode.greedy import greedy_continuation
from ..errors import BadInput
from ..models.base.shells import Decoder
from ..models.xl import XLConfig
from ..parts.experts import auxiliary
from ..parts.places import Packed
from ..train.loss import NOTHING, Loss, scores_of, sequence_loss, with_aux
from . import elmo
from .configs import decoder_config
from .evaluation import EvaluationRequest, Measured, Track, silently
from .lm_data import DELIMITER, files_of, frequencies, held_out_text, prepare
from .long import Recurrent, Segments, recurrent_losses
from .metrics import BY_FREQUENCY, unigram_entropy
from .origin import DECODERS, begin, find_origin, special_of, vocab_of
from .recipe.settings import Recipe
from .task import Job
from .tuning import describe_start, tuning_of

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
        hidden_BTD = model.hidden(batch.tokens_BT, Packed(batch.documents_BT), aux=aux)
        answers_BT = batch.answers_BT
    else:
        hidden_BTD = model.hidden(batch.tokens_BT[:, :-1], aux=aux)
        answers_BT = batch.tokens_BT[:, 1:]
    loss = sequence_loss(scores_of(model), hidden_BTD, answers_BT, batch.count, smoothing)
    return with_aux(loss, aux)


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
    """Read the text, learn a vocabulary, tokenize, and plan the rows. ELMo has a job of its own."""
    if recipe.model.architecture == "elmo":
        return elmo.make_job(recipe, folder, say)
    t = recipe.train
    origin = find_origin(t.from_, folder, DECODERS) if t.from_ else None
    vocab, train, valid, report = prepare(recipe, folder, origin)
    config = decoder_config(recipe, vocab.size, origin)
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
            return learned.batches(plan, step, recipe.train.accumulation_steps, rank, world)
        return [
            learned.batch(part)
            for part in shares(plan.batch(step), recipe.train.accumulation_steps, rank, world)
        ]

    carried = (
        Recurrent(config.memory_length, recipe.train.label_smoothing)
        if isinstance(config, XLConfig)
        else None
    )
    return Job(
        task="lm",
        architecture=origin.architecture if origin else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=carried or (lambda model, batch: loss_of(model, batch, recipe.train.label_smoothing)),
        carried=carried,
        evaluate=lambda model: evaluate(model, tried, bytes_per_token, recipe.evaluate.rows),
        show=lambda model: (
            show(model, vocab, prompt_of(tried.first(), vocab, recipe), context)
            if recipe.evaluate.examples
            else []
        ),
        baselines={"loss": (BY_FREQUENCY, unigram_entropy(stream, held_out, vocab.size))},
        plan=[
            f"data: {len(stream):,} tokens, {len(held_out):,} held out, {learned}",
            (
                f"vocabulary: {vocab.size:,} of {vocab.kind}, {bytes_per_token:.2f} bytes a "
                f"token{sampled(train)}"
            ),
            *([describe_start(recipe, False)] if origin else []),
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


def sampled(train: Store) -> str:
    """What to say of a vocabulary that was learned from a part of the text."""
    every = train.about.get("every", 1)
    return f", learned from one piece of the text in {every}" if every > 1 else ""


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
    """Held-out loss over rows that do not overlap (all, or `most` spread evenly), `rows` at a time."""
    if isinstance(held_out, Segments):
        segments = track(held_out.held_out(most, rows), "reading the text")
        return metrics_of(list(recurrent_losses(model, segments)), bytes_per_token)
    ids = held_out.apart()
    if most and len(ids) > most:
        ids = ids[np.linspace(0, len(ids) - 1, most).astype(int)]
    device = model.inputs.tokens.weight.device
    losses = [
        loss_of(model, held_out.batch(part).to(device))
        for part in track(np.split(ids, range(rows, len(ids), rows)), "reading the text")
    ]
    return metrics_of(losses, bytes_per_token)


def metrics_of(losses: Sequence[Loss], bytes_per_token: float) -> dict[str, float]:
    """What is told of the losses of all batches."""
    loss = sum(float(one.nll) for one in losses) / sum(one.count for one in losses)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700)),
        "bits_per_byte": loss / math.log(2) / bytes_per_token,
    }


def measure(model: Decoder, asked: EvaluationRequest) -> Measured:
    """Loss, perplexity and bits a byte over all of the held-out text, less a last window that is not full."""
    if asked.recipe.model.architecture == "elmo":
        return elmo.measure(model, asked)  # type: ignore[arg-type]
    vocab = vocab_of(asked.run, asked.recipe)
    text = held_out_text(asked, vocab, 2)
    stream, size = text.stream, text.bytes
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
        report=text.report,
    )


def context_of(model: Decoder, recipe: Recipe, stream: np.ndarray) -> int:
    """Tokens of a window: the recipe's, or as many as the text or the model to start from has places for."""
    asked = recipe.model.context
    table = model.inputs.position.longest if recipe.train.from_ else None
    return min(asked, len(stream) - 1, table or asked)


def prompt_of(text: np.ndarray, vocab: Vocab, recipe: Recipe) -> np.ndarray:
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
