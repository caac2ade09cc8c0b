"""Language model: predict every next token of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.packing import Packing
from ..data.plan import RowPlan, WindowPlan, shares
from ..data.report import Report
from ..data.shards import Stream, rows_at
from ..data.vocab import Vocab
from ..decode.greedy import greedy_continuation
from ..errors import BadInput
from ..files import one_line
from ..models.base.settings import Part
from ..models.base.shells import Decoder
from ..models.xl import XLConfig
from ..parts.experts import auxiliary
from ..parts.places import Packed
from ..train.loss import NOTHING, Loss, scores_of, sequence_loss, with_aux
from .configs import config_of, started_config
from .evaluation import EvaluationRequest, Measured, Track, silently
from .lm_data import (
    DELIMITER,
    TextExamples,
    TextSource,
    files_of,
    frequencies,
    held_out_text,
    least_characters,
    prepare,
    sampled,
)
from .long import Recurrent, Segments, recurrent_losses
from .metrics import BY_FREQUENCY, share_of, unigram_entropy
from .origin import DECODERS, Origin, begin, special_of, starting_from, vocab_of
from .recipe.choices import Choice, DataSize, dropout_by_epochs, steps_for, with_batch
from .recipe.settings import (
    PHRASEBOOK,
    STORIES,
    BatchTokens,
    EmaDecay,
    FineTuning,
    LearningRate,
    Optimizer,
    Recipe,
    TextInRows,
    WarmupSteps,
    WeightDecay,
)
from .task import Corpus, Job, Starts, Task, WrittenSample, sample_count
from .tuning import describe_start, tuning_of

# Architectures whose steps may be recorded, since they never wait for the device.
STEADY = ("gpt2", "llama", "modern")
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

    def __init__(self, stream: Stream, context: int, lengths: np.ndarray) -> None:
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

    def __str__(self) -> str:
        return f"windows of {self.context}"


class Documents:
    """Documents packed into rows, each of them alone in the attention, and none predicted from another."""

    unit = "rows"

    def __init__(self, stream: Stream, context: int, lengths: np.ndarray) -> None:
        self.stream, self.packing = stream, Packing(lengths, context)
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

    def __str__(self) -> str:
        packing = self.packing
        return f"{packing.documents:,} documents in rows of {packing.length}, {packing.filled:.1%} full"


ROWS: dict[str, type[Windows | Documents]] = {"stream": Windows, "documents": Documents}


def rows_for(recipe: Recipe) -> type[Windows | Documents | Segments]:
    """How rows are made; a model with a memory reads segments that follow each other."""
    return Segments if recipe.model.architecture == "xl" else ROWS[recipe.data.pack]


# The task.


@dataclass(frozen=True)
class LmData(TextInRows):
    """Running text."""

    pack: Annotated[
        Literal["stream", "documents"], "one long text, or documents in rows that do not see each other"
    ] = "stream"


@dataclass(frozen=True)
class LmTraining(FineTuning):
    batch_tokens: BatchTokens = 8192
    optimizer: Optimizer = "muon"
    learning_rate: LearningRate = 1e-2
    warmup_steps: WarmupSteps = 100
    ema_decay: EmaDecay = 0.999
    weight_decay: WeightDecay = 0.1
    label_smoothing: Annotated[Part, "share of the target spread over all tokens"] = 0.0


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> TextExamples:
    """Read the text, learn a vocabulary, and tokenize."""
    if origin is not None and isinstance(origin.config, XLConfig):
        raise BadInput(
            one_line(f"{origin.folder} remembers what it has read (xl): it cannot be started from yet")
        )
    if origin is not None and not getattr(origin.config, "causal", True):
        fault = f"{origin.folder} lets tokens see those after them (is_causal: false)"
        raise BadInput(one_line(f"{fault}: it cannot learn to predict the next token; use classify"))
    vocab, train, valid = prepare(recipe, folder, origin, say)
    return TextExamples(vocab, train, valid, files_of(recipe), origin)


def job(recipe: Recipe, examples: TextExamples) -> Job:
    """Plan the rows, and put together what a run needs."""
    vocab, origin = examples.vocab, examples.origin
    config = started_config(recipe, origin.config) if origin else config_of(recipe, vocab=vocab.size)
    context = min(recipe.data.max_length or config.context, config.context)
    stream, held_out = examples.train.stream("text"), examples.valid.stream("text")
    kind = rows_for(recipe)
    stores = examples.train, examples.valid
    learned, tried = (kind(one.stream("text"), context, one.lengths("text")) for one in stores)
    if not learned.enough or not tried.enough or (kind is not Documents and len(stream) <= context):
        raise BadInput(
            f"{examples.files} has {len(stream):,} tokens to learn from and {len(held_out):,} held out: "
            f"a context of {context} needs more"
        )
    plan: Any = learned.plan(max(1, recipe.train.batch_tokens // context), recipe.train.seed)
    bytes_per_token = examples.valid.about["bytes"] / tried.tokens
    micros = recipe.train.accumulation_steps

    def batches(step: int, rank: int = 0, world: int = 1) -> list[Any]:
        if isinstance(learned, Segments):
            return learned.batches(plan, step, micros, rank, world)
        return [learned.batch(part) for part in shares(plan.batch(step), micros, rank, world)]

    smoothing = recipe.train.label_smoothing
    carried = Recurrent(config.memory_length, smoothing) if isinstance(config, XLConfig) else None
    return Job(
        task="lm",
        architecture=origin.architecture if origin else recipe.model.architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=carried or (lambda model, batch: loss_of(model, batch, smoothing)),
        carried=carried,
        evaluate=lambda model: evaluate(model, tried, bytes_per_token, recipe.evaluate.rows),
        samples=lambda model: [
            continued(model, vocab, text, recipe, context)
            for text in openings(held_out, vocab.eos, sample_count(recipe.evaluate.examples), context)
        ],
        baselines={"loss": (BY_FREQUENCY, unigram_entropy(stream, held_out, vocab.size))},
        plan=[
            f"data: {len(stream):,} tokens, {len(held_out):,} held out, {learned}",
            (
                f"vocabulary: {vocab.size:,} of {vocab.kind}, {bytes_per_token:.2f} bytes per token"
                f"{sampled(examples.train.about.get('every', 1))}"
            ),
            *([describe_start(recipe, False)] if origin else []),
        ],
        facts={
            "data": examples.train.hash,
            "held-out data": examples.valid.hash,
            **(origin.facts if origin else {}),
        },
        steady=isinstance(learned, Windows) and steady(recipe) and origin is None,
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=special_of(vocab),
    )


def steady(recipe: Recipe) -> bool:
    """Whether nothing in a step of such a model asks the host."""
    return recipe.model.architecture in (STEADY if recipe.train.compile else (*STEADY, *UNCOMPILED))


CHARACTERS = 2_000_000  # a shorter text is best read character by character
PIECES_PER_CHARACTER = 1e-3  # of a vocabulary, about
LEAST_PIECES, MOST_PIECES = 2000, 8000
EPOCHS, MOST_STEPS = 40, 10_000


def foresee(recipe: Recipe) -> Iterator[Choice]:
    """A vocabulary that fits the length of the text: pieces that occur a few times teach nothing."""
    d = recipe.data
    if (
        d.corpus
        or recipe.train.from_
        or {"data.tokenizer", "data.vocab_size"} & (recipe.given or frozenset())
    ):
        return
    if least_characters(d.text) * PIECES_PER_CHARACTER >= MOST_PIECES:  # nothing need be read to say so
        yield Choice("data.vocab_size", MOST_PIECES, "the text is long")
        return
    long = TextSource(recipe, Report(d.bad_lines)).characters
    if long < CHARACTERS:
        yield Choice("data.tokenizer", "char", f"the text has {long:,} characters")
    else:
        pieces = int(min(max(PIECES_PER_CHARACTER * long, LEAST_PIECES), MOST_PIECES))
        yield Choice("data.vocab_size", pieces, f"the text has {long:,} characters")


def choose(recipe: Recipe, examples: TextExamples, device: str) -> Iterator[Choice]:
    """How many steps: small ones on a CPU."""
    if device == "cpu":
        yield Choice("train.batch_tokens", 2048, "many small steps learn most on a CPU")
        recipe = with_batch(recipe, 2048)
    yield from steps_for(recipe, examples.size, EPOCHS, MOST_STEPS)


def settle(recipe: Recipe, size: DataSize) -> Iterator[Choice]:
    """Dropout by how often the text is read."""
    if not recipe.train.from_:
        yield from dropout_by_epochs(recipe, size, less=0.05)


def check(recipe: Recipe) -> None:
    """Refuse documents for a model that remembers one long text."""
    if recipe.model.architecture == "xl" and recipe.data.pack == "documents":
        raise BadInput("xl remembers one long text: data.pack is stream for it, not documents")


def windows(stream: Stream, starts: np.ndarray, context: int) -> WindowBatch:
    """Windows of one token more than the context, as the plan placed them."""
    return WindowBatch(torch.from_numpy(rows_at(stream, starts, context + 1)), tuple(starts.tolist()))


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
    vocab = vocab_of(asked.run, asked.recipe)
    text = held_out_text(asked, vocab, 2)
    stream, size = text.stream, text.bytes
    context = context_of(model, asked.recipe, stream)
    held_out = rows_for(asked.recipe)(stream, context, text.lengths)
    scores = evaluate(model, held_out, size / held_out.tokens, None, asked.rows, asked.track)
    how = {"windows": "windows:apart", "rows": "documents:packed", "segments": f"segments:{asked.rows} rows"}
    return Measured(
        examples=len(held_out.apart()),
        unit=held_out.unit,
        metrics={**scores, "unknown": share_of(stream, vocab.unk)},
        baselines=frequencies(asked, stream, vocab),
        signature={"loss": f"{how[held_out.unit]}|context:{context}|vocab:{vocab.kind}|size:{vocab.size}"},
        counts={"tokens": len(stream), "bytes": size},
        report=text.report,
    )


def context_of(model: Decoder, recipe: Recipe, stream: Stream) -> int:
    """Tokens of a window: the recipe's, or as many as the text or the model to start from has places for."""
    table = recipe.model.sizes.get("context") or model.inputs.position.longest or len(stream)
    return min(recipe.data.max_length or table, table, len(stream) - 1)


WRITTEN = 60  # tokens of a continuation
PROMPT = 32  # tokens at most of what is continued


def openings(stream: Stream, end: int, count: int, context: int) -> list[np.ndarray]:
    """Texts of at most `context` tokens from all over a stream: beginnings of documents where one is near."""
    found: dict[int, np.ndarray] = {}
    for start in (len(stream) * i // count for i in range(count)):
        ends = np.flatnonzero(stream[start : start + context] == end)
        if start and len(ends):
            start += int(ends[0]) + 1
        text = stream[start : start + context]
        text = text[: int(np.argmax(np.append(text == end, True)))]
        if len(text) > 1:
            found[start] = text
    return list(found.values())


def prompt_of(text: np.ndarray, vocab: Vocab, recipe: Recipe, context: int) -> tuple[list[int], str]:
    """What may be continued, and how it goes on: of a sentence and its translation, after the delimiter."""
    mark = DELIMITER.rstrip()
    source, found, target = vocab.decode(text.tolist()).partition(mark)
    if recipe.data.corpus == "phrasebook" and found:
        return vocab.encode_batch([source + mark])[0], target.strip()
    size = max(1, min(context // 2, PROMPT, len(text) // 2))
    return text[:size].tolist(), vocab.decode(text[size : size + WRITTEN].tolist())


def continued(model: Decoder, vocab: Vocab, text: np.ndarray, recipe: Recipe, context: int) -> WrittenSample:
    """How the model goes on from the start of a held-out text, until it ends it."""
    ids, reference = prompt_of(text, vocab, recipe, context)
    prompt = torch.tensor(ids, device=model.inputs.tokens.weight.device)
    written = greedy_continuation(model, prompt, WRITTEN, context)
    written = written[: written.index(vocab.eos)] if vocab.eos in written else written
    source, output = vocab.decode(ids), vocab.decode(written)
    return WrittenSample(source, output, reference, f"    {source!r} → {output!r}")


RECURRENT = {"layers": 2}

TASK = Task(
    name="lm",
    data=LmData,
    train=LmTraining,
    architectures={
        "gpt2": {},
        "llama": {"qk_norm": True},
        "modern": {},
        "gpt1": {},
        "gpt3": {},
        "mixture": {},
        "rnn": RECURRENT,
        "gru": RECURRENT,
        "lstm": RECURRENT,
        "xl": {"activation": "gelu_tanh"},
        "sparse": {},
        "dmca": {"norm": "pre", "activation": "gelu_tanh"},
        "mixture_dmca": {"norm": "pre", "activation": "gelu_tanh", "layers": 5, "moe_every": 5},
        "linear": {"activation": "gelu_tanh"},
    },
    corpora={
        "pylib": Corpus(("valid",), {"data.vocab_size": 4000}),
        "stories": Corpus(("valid", "test"), STORIES),
        "phrasebook": Corpus(("valid", "test", "combinations", "long"), PHRASEBOOK),
    },
    starts=Starts(
        find=starting_from(DECODERS),
        published={"train.optimizer": "adamw", "train.learning_rate": 5e-5, "data.max_length": 256},
        own={"data.max_length": 256},
    ),
    foresee=foresee,
    choose=choose,
    settle=settle,
    chosen={
        "train.steps": f"{EPOCHS} passes over the text, at most {MOST_STEPS:,} steps",
        "train.batch_tokens": "{default}; 2048 on a CPU",
        "data.tokenizer": f"char for a text of less than {CHARACTERS:,} characters, {{default}} for others",
        "data.vocab_size": f"{LEAST_PIECES} to {MOST_PIECES}, by the length of the text",
        "model.dropout": "0 to 0.4, by the number of passes over the text",
    },
    read=read,
    job=job,
    measure=measure,
    metric="loss",
    own_data=({"text": ("data.valid_text", "data.text")},),
    columns=("text",),
    next=('generate {path} "once upon a time"',),
    check=check,
)
