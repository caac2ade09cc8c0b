"""Translate: read a sentence, write another. The target is shifted right: each word is predicted from those before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..decode.greedy import greedy_translation
from ..errors import BadInput
from ..models.shells import EncoderDecoder
from ..models.transformer import TransformerConfig
from ..parts.masks import right_padded
from ..recipe import Recipe
from ..text import phrasebook
from ..text.files import Report, read_parallel
from ..text.plan import BucketPlan, share
from ..text.store import Store, write_store
from ..text.vocab import Vocab, train_vocab
from ..train.files import write_text
from ..train.loss import NOTHING, Loss, sequence_loss
from .job import Job
from .metrics import bleu, exact_match


@dataclass(frozen=True)
class PairBatch:
    """Some sentence pairs, padded at the end."""

    source_BS: Tensor
    source_lengths_B: Tensor
    target_BT: Tensor  # begins with bos
    answers_BT: Tensor  # ends with eos; NOTHING in the padding
    count: int  # target tokens, eos included
    ids: tuple[int, ...] = ()

    def to(self, device: torch.device) -> PairBatch:
        if device.type == "cpu":
            return self
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        moved = {n: t.to(device, non_blocking=True) for n, t in tensors.items() if isinstance(t, Tensor)}
        return replace(self, **moved)  # type: ignore[arg-type]


def pad(rows: Sequence[np.ndarray | list[int]], filler: int) -> Tensor:
    """Rows of unequal length as one tensor."""
    longest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), max(1, longest)), filler, dtype=np.int64)
    for out, row in zip(table, rows, strict=True):
        out[: len(row)] = row
    return torch.from_numpy(table)


def collate(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    bos: int,
    eos: int,
    padding: int,
    ids: Sequence[int] = (),
) -> PairBatch:
    """Token ids of sentence pairs to a batch."""
    lengths = torch.tensor([len(row) for row in sources])
    inputs = [np.concatenate(([bos], row)) for row in targets]
    answers = [np.concatenate((row, [eos])) for row in targets]
    count = sum(map(len, answers))
    return PairBatch(
        pad(sources, padding),
        lengths,
        pad(inputs, padding),
        pad(answers, NOTHING),
        count,
        tuple(map(int, ids)),
    )


def loss_of(model: EncoderDecoder, batch: PairBatch, smoothing: float = 0.0) -> Loss:
    """The loss of a batch. Padding of the target lies in the future of every real token: no mask is needed for it."""
    memory_BSD = model.encoder(batch.source_BS, batch.source_lengths_B)
    decoder = model.decoder
    positions = right_padded(batch.source_lengths_B, memory_BSD.shape[1])
    hidden_BTD = decoder.hidden(batch.target_BT, source_BSD=memory_BSD, source_positions=positions)
    return sequence_loss(
        lambda x: decoder.head(x, decoder.inputs.tokens), hidden_BTD, batch.answers_BT, batch.count, smoothing
    )


def config_of(recipe: Recipe, vocab: int) -> TransformerConfig:
    """The Transformer of a recipe: one vocabulary for both sides, one matrix for all three of its uses."""
    m = recipe.model
    return TransformerConfig(
        vocab=vocab,
        target_vocab=vocab,
        layers=m.layers,
        decoder_layers=m.layers,
        width=m.width,
        heads=m.heads,
        decoder_heads=m.heads,
        hidden=m.hidden,
        decoder_hidden=m.hidden,
        activation=m.activation,
        norm=m.norm,
        dropout=m.dropout,
        attention_dropout=0.0,
    )


# From a recipe to a job.


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read or generate the pairs, learn a vocabulary, tokenise, and plan the batches."""
    d = recipe.data
    vocab, train, report = prepare(recipe, folder)
    held_out = [pair for pair in pairs_of(recipe, "valid", report)][: recipe.evaluate.rows]
    if report.counts:
        say(report.sentence())
    lengths = [train.lengths("source"), train.lengths("target") + 1]
    plan = BucketPlan(lengths, recipe.train.batch_tokens, recipe.train.seed, d.longest)
    config = config_of(recipe, vocab.size)
    valid = [numbers(vocab, chunk) for chunk in chunks(held_out, 64)]

    def batches(step: int) -> list[PairBatch]:
        ids = plan.batch(step)
        micros = recipe.train.accumulate
        parts = [share(ids, 0, 1, micro, micros) for micro in range(micros)]
        return [batch_of(train, vocab, part) for part in parts if len(part)]

    return Job(
        architecture="transformer",
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: loss_of(model, batch, recipe.train.smoothing),
        evaluate=lambda model: evaluate(model, vocab, held_out, valid, d.lower),
        show=lambda model: show(model, vocab, held_out[: recipe.evaluate.examples]),
        baselines={"exact match, copying the source": exact_match(*zip(*held_out, strict=True))},
        plan=[
            f"data: {len(train):,} pairs, {len(held_out)} held out, {plan.padding():.0%} of a batch is padding",
            f"vocabulary: {vocab.size:,} of {vocab.kind}, {unknown(vocab, held_out):.2%} unknown in held-out text",
        ],
    )


Text = tuple[str, str]
FIELDS = {"source": "sentences to read", "target": "their translations"}


def pairs_of(recipe: Recipe, split: str, report: Report) -> Iterator[Text]:
    """The sentence pairs of a split, one by one."""
    d = recipe.data
    if d.corpus == "phrasebook":
        yield from ((pair.source, pair.target) for pair in phrasebook.split(split))
    elif d.corpus:
        raise BadInput(f'translate has no built-in corpus "{d.corpus}"; it has phrasebook')
    elif not (d.source and d.target):
        raise BadInput("give --source and --target, files with one sentence a line, or --corpus phrasebook")
    elif split == "train":
        yield from read_parallel(d.source, d.target, report=report)
    elif d.valid_source and d.valid_target:
        yield from read_parallel(d.valid_source, d.valid_target, report=report)
    else:
        raise BadInput("give --valid-source and --valid-target too: held-out pairs to judge the model by")


def prepare(recipe: Recipe, folder: Path) -> tuple[Vocab, Store, Report]:
    """The vocabulary and the tokenised pairs, made once and kept in the run's folder."""
    report = Report(recipe.data.bad_lines)
    tokenizer, data = folder / "tokenizer.json", folder / "data"
    if data.is_dir() and tokenizer.is_file():
        return Vocab.from_json(tokenizer.read_text(encoding="utf-8")), Store.open(data), report
    texts = (text for pair in pairs_of(recipe, "train", Report(recipe.data.bad_lines)) for text in pair)
    vocab = train_vocab(recipe.data.vocab, texts, recipe.data.vocab_size, recipe.data.lower)
    write_text(tokenizer, vocab.to_json())

    def rows() -> Iterator[dict[str, list[int]]]:
        for chunk in chunks(pairs_of(recipe, "train", report), 1000):
            sources, targets = (vocab.encode_batch(list(side)) for side in zip(*chunk, strict=True))
            yield from ({"source": s, "target": t} for s, t in zip(sources, targets, strict=True))

    about = {
        "vocab": vocab.hash,
        "corpus": recipe.data.corpus,
        "source": recipe.data.source,
        "target": recipe.data.target,
    }
    return vocab, write_store(data, FIELDS, rows(), vocab.size, about), report


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of at most `size` items."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def batch_of(store: Store, vocab: Vocab, ids: np.ndarray) -> PairBatch:
    rows = {name: [store.row(name, int(i)) for i in ids] for name in ("source", "target")}
    return collate(rows["source"], rows["target"], vocab.bos, vocab.eos, vocab.pad, ids.tolist())


def numbers(vocab: Vocab, pairs: list[Text]) -> PairBatch:
    """Sentence pairs as a batch."""
    sources, targets = (vocab.encode_batch(list(side)) for side in zip(*pairs, strict=True))
    return collate(
        [np.array(s) for s in sources], [np.array(t) for t in targets], vocab.bos, vocab.eos, vocab.pad
    )


def unknown(vocab: Vocab, pairs: list[Text]) -> float:
    return vocab.unknown_rate(text for pair in pairs for text in pair)


def translate(model: EncoderDecoder, vocab: Vocab, sources: list[str], longest: int = 200) -> list[str]:
    """Greedy translations, in order; sentences of like length are done together."""
    device = model.encoder.inputs.tokens.weight.device
    ids = vocab.encode_batch(sources)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = [""] * len(ids)
    for some in chunks(order, 64):
        rows = [np.array(ids[i], dtype=np.int64) for i in some]
        lengths = torch.tensor([len(row) for row in rows], device=device)
        most = min(longest, 2 * max(map(len, rows)) + 20)
        written = greedy_translation(
            model, pad(rows, vocab.pad).to(device), lengths, vocab.bos, vocab.eos, most
        )
        for i, row in zip(some, written, strict=True):
            found[i] = vocab.decode(row)
    return found


def evaluate(
    model: EncoderDecoder, vocab: Vocab, pairs: list[Text], batches: list[PairBatch], lower: bool = False
) -> dict[str, float]:
    """Held-out loss (nats a token), exact match and BLEU of greedy translations."""
    device = model.encoder.inputs.tokens.weight.device
    losses = [loss_of(model, batch.to(device)) for batch in batches]
    surprise = sum(float(loss.surprise) for loss in losses) / max(1, sum(loss.count for loss in losses))
    found, expected = (
        translate(model, vocab, [s for s, _ in pairs]),
        [t.lower() if lower else t for _, t in pairs],
    )
    return {"loss": surprise, "exact": exact_match(found, expected), "bleu": bleu(found, expected, lower)}


def show(model: EncoderDecoder, vocab: Vocab, pairs: list[Text]) -> list[str]:
    """A few translations beside what was expected."""
    found = translate(model, vocab, [s for s, _ in pairs])
    lines = []
    for (source, target), mine in zip(pairs, found, strict=True):
        lines += [f"    {source}", f"  → {mine}" + ("" if mine == target else f"    (expected: {target})")]
    return lines
