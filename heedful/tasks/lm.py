"""Language model: predict every next token of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..decode.greedy import greedy_continuation
from ..errors import BadInput
from ..models.gpt2 import GPT2Config
from ..models.shells import Decoder
from ..recipe import Recipe
from ..text import pylib
from ..text.files import Report, read_texts
from ..text.plan import WindowPlan, share
from ..text.store import Store, write_store
from ..text.vocab import Vocab, train_vocab
from ..train.files import write_text
from ..train.loss import Loss, sequence_loss
from .job import Job


@dataclass(frozen=True)
class WindowBatch:
    """Windows of a text, each one token longer than what the model reads."""

    tokens_BT: Tensor
    ids: tuple[int, ...] = ()  # where the windows start

    @property
    def count(self) -> int:
        return len(self.tokens_BT) * (self.tokens_BT.shape[1] - 1)

    def to(self, device: torch.device) -> WindowBatch:
        return (
            self
            if device.type == "cpu"
            else WindowBatch(self.tokens_BT.to(device, non_blocking=True), self.ids)
        )


def loss_of(model: Decoder, batch: WindowBatch, smoothing: float = 0.0) -> Loss:
    """Every token but the first is predicted from those before it."""
    hidden_BTD = model.hidden(batch.tokens_BT[:, :-1])
    answers_BT = batch.tokens_BT[:, 1:]
    return sequence_loss(
        lambda x: model.head(x, model.inputs.tokens), hidden_BTD, answers_BT, batch.count, smoothing
    )


def config_of(recipe: Recipe, vocab: int) -> GPT2Config:
    """GPT-2's architecture at the recipe's sizes."""
    m = recipe.model
    return GPT2Config(
        vocab=vocab,
        context=m.context,
        layers=m.layers,
        width=m.width,
        heads=m.heads,
        hidden=m.hidden,
        activation=m.activation,
        dropout=m.dropout,
        attention_dropout=m.dropout,
    )


# From a recipe to a job.


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read the text, learn a vocabulary, tokenise, and plan the windows."""
    context = recipe.model.context
    vocab, train, valid, report = prepare(recipe, folder)
    if report.counts:
        say(report.sentence())
    stream, held_out = train.stream("text"), valid.stream("text")
    if len(stream) <= context or len(held_out) <= 1:
        raise BadInput(
            f"the text has {len(stream):,} tokens to learn from and {len(held_out):,} held out: "
            f"a context of {context} needs more"
        )
    rows = max(1, recipe.train.batch_tokens // context)
    plan = WindowPlan(len(stream), context, rows, recipe.train.seed)
    bytes_per_token = valid.about["bytes"] / len(held_out)

    def batches(step: int) -> list[WindowBatch]:
        starts, micros = plan.batch(step), recipe.train.accumulate
        parts = [share(starts, 0, 1, micro, micros) for micro in range(micros)]
        return [windows(stream, part, context) for part in parts if len(part)]

    return Job(
        architecture="gpt2",
        config=config_of(recipe, vocab.size),
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: loss_of(model, batch, recipe.train.smoothing),
        evaluate=lambda model: evaluate(model, held_out, context, bytes_per_token, recipe.evaluate.rows),
        show=lambda model: show(model, vocab, held_out, context) if recipe.evaluate.examples else [],
        baselines={
            "nats a token, every token at its frequency": unigram_entropy(stream, held_out, vocab.size)
        },
        plan=[
            f"data: {len(stream):,} tokens, {len(held_out):,} held out, windows of {context}",
            f"vocabulary: {vocab.size:,} of {vocab.kind}, {bytes_per_token:.2f} bytes a token",
        ],
    )


def pieces_of(recipe: Recipe, split: str, report: Report) -> Iterator[str]:
    """The text of a split in pieces of bounded size; without a held-out text, its last tenth is held out."""
    d = recipe.data
    if d.corpus == "pylib":
        yield from (text for name, text in pylib.documents() if pylib.split(name) == split)
    elif d.corpus:
        raise BadInput(f'lm has no built-in corpus "{d.corpus}"; it has pylib')
    elif not d.text:
        raise BadInput("give --text, a file or folder to learn from, or --corpus pylib")
    elif d.valid_text:
        yield from read_texts(d.text if split == "train" else d.valid_text, report=report)
    else:
        total = sum(len(piece) for piece in read_texts(d.text, report=Report(d.bad_lines)))
        yield from part_of(read_texts(d.text, report=report), int(0.9 * total), split == "train")


def part_of(pieces: Iterator[str], cut: int, before: bool) -> Iterator[str]:
    """What lies before the character `cut`, or from it on."""
    at = 0
    for piece in pieces:
        here = min(max(cut - at, 0), len(piece))
        part = piece[:here] if before else piece[here:]
        at += len(piece)
        if part:
            yield part


def prepare(recipe: Recipe, folder: Path) -> tuple[Vocab, Store, Store, Report]:
    """The vocabulary and the tokenised text, made once and kept in the run's folder."""
    report = Report(recipe.data.bad_lines)
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():
        vocab = Vocab.from_json(tokenizer.read_text(encoding="utf-8"))
    else:
        texts = pieces_of(recipe, "train", Report(recipe.data.bad_lines))
        vocab = train_vocab(recipe.data.vocab, texts, recipe.data.vocab_size, recipe.data.lower)
        write_text(tokenizer, vocab.to_json())
    stores = [tokenised(recipe, folder / split, split, vocab, report) for split in ("train", "valid")]
    return vocab, stores[0], stores[1], report


def tokenised(recipe: Recipe, folder: Path, split: str, vocab: Vocab, report: Report) -> Store:
    """The tokens of a split, on disk."""
    if folder.is_dir():
        return Store.open(folder)
    size = sum(len(piece.encode()) for piece in pieces_of(recipe, split, Report(recipe.data.bad_lines)))
    about = {"vocab": vocab.hash, "bytes": size}
    rows = ({"text": vocab.encode_batch([piece])[0]} for piece in pieces_of(recipe, split, report))
    return write_store(folder, {"text": "every token of the text"}, rows, vocab.size, about)


def windows(stream: np.ndarray, starts: np.ndarray, context: int) -> WindowBatch:
    """Windows of one token more than the context, as the plan placed them."""
    at = starts[:, None] + np.arange(context + 1)
    return WindowBatch(torch.from_numpy(stream[at].astype(np.int64)), tuple(starts.tolist()))


def evaluate(
    model: Decoder, stream: np.ndarray, context: int, bytes_per_token: float, most: int | None = None
) -> dict[str, float]:
    """Held-out loss over non-overlapping windows (all of them, or `most` spread evenly)."""
    context = min(context, len(stream) - 1)
    starts = np.arange(0, len(stream) - context, context)
    if most and len(starts) > most:
        starts = starts[np.linspace(0, len(starts) - 1, most).astype(int)]
    device = model.inputs.tokens.weight.device
    losses = [
        loss_of(model, windows(stream, part, context).to(device))
        for part in np.split(starts, range(32, len(starts), 32))
    ]
    loss = sum(float(one.surprise) for one in losses) / sum(one.count for one in losses)
    return {
        "loss": loss,
        "perplexity": math.exp(min(loss, 700)),
        "bits_per_byte": loss / math.log(2) / bytes_per_token,
    }


def unigram_entropy(stream: np.ndarray, held_out: np.ndarray, vocab: int) -> float:
    """The loss of guessing every token by how often it occurred (one is added to every count)."""
    counts = np.bincount(stream[:10_000_000], minlength=vocab) + 1.0
    return float(-np.log(counts / counts.sum())[held_out[:10_000_000]].mean())


def show(model: Decoder, vocab: Vocab, stream: np.ndarray, context: int) -> list[str]:
    """How the model goes on from the start of the held-out text."""
    prompt = torch.from_numpy(stream[: min(context // 2, 32)].astype(np.int64)).to(
        model.inputs.tokens.weight.device
    )
    written = greedy_continuation(model, prompt, 60, context)
    return [f"    {vocab.decode(prompt.tolist())!r} → {vocab.decode(written)!r}"]
