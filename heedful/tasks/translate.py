"""Translate: read a sentence, write another. Each word is predicted from the source and the words before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.plan import shares
from ..data.report import Report
from ..data.store import Store
from ..data.trees import Parsed
from ..decode.greedy import greedy_translation
from ..errors import BadInput
from ..files import one_line
from ..models.base.shells import EncoderDecoder, WithTrees, keeps_packed_rows, needs_tree
from ..models.base.skeleton import skeleton
from ..parts.experts import auxiliary
from ..parts.places import IN_ORDER, Lengths, Packed, Places, Source
from ..train.loss import NOTHING, Loss, scores_of, sequence_loss, with_aux
from .configs import config_of, started_config
from .evaluation import EvaluationRequest, Measured, by_length, with_lines
from .metrics import BY_FREQUENCY, ENOUGH, bleu, exact_match, interval, translation_scores, unigram_entropy
from .origin import TRANSLATORS, Origin, begin, special_of, starting_from
from .recipe.choices import Choice, DataSize, dropout_by_epochs, steps_for, with_batch
from .recipe.settings import (
    PHRASEBOOK,
    BatchTokens,
    EmaDecay,
    FineTuning,
    LearningRate,
    Optimizer,
    Recipe,
)
from .task import Corpus, Job, Starts, Task, WrittenSample, chunks, pad, sample_count
from .translate_data import (
    TextPair,
    TokenTree,
    TranslateData,
    TranslationData,
    Vocabs,
    encoded,
    needs_trees,
    pairs_of,
    read_data,
    sides,
    source_name,
    trees_of,
    unknown,
    vocabs_of,
)
from .translate_rows import PackedPairs, PackedRows, PaddedRows, PairBatch, numbers, stack_trees
from .tuning import describe_start, tuning_of


def loss_of(model: EncoderDecoder, batch: PairBatch | PackedPairs, smoothing: float = 0.0) -> Loss:
    """The loss of a batch. No mask hides the target's padding: it lies in the future of every real token."""
    aux = auxiliary(model)
    heard: dict[str, Any] = {} if aux is None else {"aux": aux}
    decoder = model.decoder
    source_places: Places
    places: Places
    if isinstance(batch, PackedPairs):
        source_places, places = Packed(batch.source_documents_BS), Packed(batch.target_documents_BT)
    else:
        source_places, places = batch.source_places, IN_ORDER
        if aux is not None:  # experts must not see padding
            places = Lengths((batch.answers_BT != NOTHING).sum(1))
    source = Source(model.encoder(batch.source_BS, source_places, **heard), source_places)
    hidden_BTD = decoder.hidden(batch.target_BT, places, source=source, **heard)
    loss = sequence_loss(scores_of(decoder), hidden_BTD, batch.answers_BT, batch.count, smoothing)
    return with_aux(loss, aux)


# One vocabulary for both sides, or one for each.


def places_of(model: Any) -> int:
    """The longest row that both sides of a model have places for."""
    tables = [side.inputs.position.longest for side in (model.encoder, model.decoder)]
    return min((table for table in tables if table is not None), default=LONGEST)


# The task.


@dataclass(frozen=True)
class TranslateTraining(FineTuning):
    batch_tokens: BatchTokens = 8192
    optimizer: Optimizer = "muon"
    learning_rate: LearningRate = 4e-3
    ema_decay: EmaDecay = 0.999


@dataclass(frozen=True)
class TranslationExamples:
    """What was read: pairs as tokens, held-out pairs as text, and the model to start from, or None."""

    data: TranslationData
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        train = self.data.train
        return DataSize(len(train), int(train.lengths("target").sum()) + len(train), "pairs")


def read(
    recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]
) -> TranslationExamples:
    """Read or generate the pairs, learn a vocabulary, and tokenize."""
    if origin is not None:
        recipe = within(recipe, origin)
    return TranslationExamples(read_data(recipe, folder, origin, say), origin)


def job(recipe: Recipe, examples: TranslationExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    data, origin = examples.data, examples.origin
    d, vocab, train, held_out = recipe.data, data.vocab, data.train, data.held_out
    if origin is None:
        sizes = {"vocab": vocab.size, "target_vocab": data.target_vocab_size or vocab.size}
        config = config_of(recipe, **sizes, share_embeddings=data.target_vocab_size is None)
    else:
        config = started_config(recipe, origin.config)
    architecture = origin.architecture if origin else recipe.model.architecture
    longest = min(d.max_length, places_of(skeleton(architecture, config)))
    lengths = [train.lengths("source"), train.lengths("target") + 1]
    rows = PackedRows if d.packed else PaddedRows
    planned = rows(train, vocab, lengths, longest, recipe.train)
    valid = [numbers(vocab, chunk) for chunk in chunks(held_out, 64)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[PairBatch | PackedPairs]:
        parts = shares(planned.plan.batch(step), recipe.train.accumulation_steps, rank, world)
        return [planned.batch(part) for part in parts]

    return Job(
        task="translate",
        architecture=architecture,
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=planned.plan.batches,
        loss=lambda model, batch: loss_of(model, batch, recipe.train.label_smoothing),
        evaluate=lambda model: evaluate(model, vocab, held_out, valid, d.lowercase),
        samples=lambda model: samples(model, vocab, held_out[: sample_count(recipe.evaluate.examples)]),
        held_out=len(held_out),
        baselines={
            "exact": ("exact match (copying the source)", exact_match(*zip(*held_out, strict=True))),
            "loss": (BY_FREQUENCY, by_frequency(train, valid, vocab)),
        },
        plan=[
            *data.describe(planned.left_out, planned.padding(), longest),
            *([describe_start(recipe, False)] if origin else []),
        ],
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=special_of(sides(vocab)[0]),
        facts=data.facts | (origin.facts if origin else {}),
        steady=d.packed and architecture == "transformer" and origin is None,
    )


def within(recipe: Recipe, origin: Origin) -> Recipe:
    """The recipe for a model that is there, which may have places for fewer tokens than asked for."""
    model = skeleton(origin.architecture, origin.config)
    if needs_tree(model):
        raise BadInput(
            one_line(f"{origin.folder} reads sentences with their trees: it cannot be started from yet")
        )
    if recipe.data.packed and not keeps_packed_rows(model):
        raise BadInput(f"a {origin.architecture} cannot keep packed pairs apart: leave out data.packed")
    longest = min(recipe.data.max_length, places_of(model))
    return replace(recipe, data=replace(recipe.data, max_length=longest))


ROWS = (64, 128, 256)  # tokens in a row of packed pairs: the first that holds nearly all pairs
NEARLY_ALL = 0.999
EPOCHS, MOST_STEPS = 50, 10_000


def choose(recipe: Recipe, examples: TranslationExamples, device: str) -> Iterator[Choice]:
    """Rows, and how many steps: small steps on a CPU, packed rows where the model keeps pairs apart."""
    origin = examples.origin
    if device == "cpu":
        yield Choice("train.batch_tokens", 1024, "many small steps learn most on a CPU")
        yield Choice("train.warmup_steps", 100)
        recipe = with_batch(recipe, 1024)
    if origin is None and can_pack(recipe):
        train = examples.data.train
        lengths = np.maximum(train.lengths("source"), train.lengths("target") + 1)
        rows = next((row for row in ROWS if (lengths <= row).mean() >= NEARLY_ALL), recipe.data.max_length)
        yield Choice(
            "data.packed", True, f"pairs stand side by side in rows of {rows} tokens, without padding"
        )
        yield Choice("data.max_length", rows, follows="" if recipe.data.packed else "data.packed")
    yield from steps_for(recipe, examples.size, EPOCHS, MOST_STEPS)


def settle(recipe: Recipe, size: DataSize) -> Iterator[Choice]:
    """Dropout by how often each pair is seen."""
    if not recipe.train.from_:
        yield from dropout_by_epochs(
            recipe, size, less=0.05 if recipe.model.sizes.get("width", 256) < 256 else 0
        )


def can_pack(recipe: Recipe) -> bool:
    """Whether a model keeps packed pairs apart. Trees belong to whole rows."""
    if needs_trees(recipe):
        return False
    return keeps_packed_rows(skeleton(recipe.model.architecture, config_of(recipe)))


def check(recipe: Recipe) -> None:
    """Refuse packed pairs where a model cannot keep them apart."""
    m = recipe.model
    if recipe.data.packed and m.architecture and not can_pack(recipe):
        what = f"{m.positions} positions" if needs_trees(recipe) else m.architecture
        raise BadInput(f"{what} cannot keep packed pairs apart: leave out data.packed")


def by_frequency(train: Store, tried: Sequence[PairBatch], vocab: Vocabs) -> float:
    """The loss of guessing every token of the target, its end included, by how often it was learned from."""
    lengths, stream = train.lengths("target"), train.stream("target")
    rows = max(1, int(np.searchsorted(np.cumsum(lengths + 1), ENOUGH)))
    learned = np.concatenate([stream[: int(lengths[:rows].sum())], np.full(rows, vocab.eos, stream.dtype)])
    answers = np.concatenate([batch.answers_BT[batch.answers_BT >= 0].numpy() for batch in tried])
    return unigram_entropy(learned, answers, sides(vocab)[1].size)


def translate(model: EncoderDecoder, vocab: Vocabs, sources: list[str], longest: int = 200) -> list[str]:
    """Greedy translations, in order; sentences of like length are done together."""
    device = model.encoder.inputs.tokens.weight.device
    ids, trees = vocab.encode_batch(sources), trees_of(vocab, sources)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = [""] * len(ids)
    for some in chunks(order, 64):
        rows = [np.array(ids[i], dtype=np.int64) for i in some]
        lengths = torch.tensor([len(row) for row in rows], device=device)
        most = [min(longest, 2 * len(row) + 20) for row in rows]  # its own: who is beside it must not matter
        reader = with_trees(model, [trees[i] for i in some] if trees else [])
        written = greedy_translation(
            reader, pad(rows, vocab.pad).to(device), lengths, vocab.bos, vocab.eos, max(most)
        )
        for i, row, limit in zip(some, written, most, strict=True):
            found[i] = vocab.decode(row[:limit])
    return found


def with_trees(model: EncoderDecoder, trees: Sequence[TokenTree]) -> EncoderDecoder:
    """The same model, told the trees of the rows that it is about to read, if there are any."""
    if not trees:
        return model
    device = model.decoder.inputs.tokens.weight.device
    heads_BW, words_BS = (tensor.to(device) for tensor in stack_trees(trees))
    encoder: Any = WithTrees(model.encoder, heads_BW, words_BS)
    return EncoderDecoder(encoder, model.decoder)


def evaluate(
    model: EncoderDecoder, vocab: Vocabs, pairs: list[TextPair], batches: list[PairBatch], lower: bool = False
) -> dict[str, float]:
    """Held-out loss (nats per token), exact match and BLEU of greedy translations."""
    device = model.encoder.inputs.tokens.weight.device
    losses = [loss_of(model, batch.to(device)) for batch in batches]
    nll = sum(float(loss.nll) for loss in losses) / max(1, sum(loss.count for loss in losses))
    found, expected = (
        translate(model, vocab, [s for s, _ in pairs]),
        [t.lower() if lower else t for _, t in pairs],
    )
    return {"loss": nll, "exact": exact_match(found, expected), "bleu": bleu(found, expected, lower)}


LONGEST = 10_000  # tokens of a translation; twice its source and twenty is the nearer limit


def measure(model: EncoderDecoder, asked: EvaluationRequest) -> Measured:
    """BLEU, exact match and loss of translations of all held-out pairs."""
    d, report = asked.recipe.data, Report(asked.recipe.data.bad_lines)
    vocab, most = vocabs_of(asked.run, asked.recipe), min(LONGEST, places_of(model) - 1)
    pairs, places = with_lines(pairs_of(asked.recipe, asked.split, report), report)
    if not pairs:
        none = f"no pair of sentences to judge the model by: {report.sentence()}"
        raise BadInput(one_line(f"{source_name(d, asked.split)} has {none}"))
    if needs_trees(asked.recipe) and not isinstance(pairs[0][0], Parsed):
        raise BadInput(
            one_line(f"{asked.run} reads sentences with their trees: give --trees FILE, CoNLL-U, too")
        )
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    expected = [target.lower() if d.lowercase else target for target in targets]
    device = model.encoder.inputs.tokens.weight.device
    lengths = [max(map(len, ids)) for ids in zip(*encoded(vocab, pairs), strict=True)]
    write = asked.write or partial(translate, model, vocab, longest=most)
    found, nll, count = [""] * len(pairs), 0.0, 0
    for some in asked.track(by_length(lengths, asked.rows), "translating"):
        loss = loss_of(model, numbers(vocab, [pairs[i] for i in some]).to(device))
        nll, count = nll + float(loss.nll), count + loss.count
        for i, text in zip(some, write([sources[i] for i in some]), strict=True):
            found[i] = text
    scores, signature = translation_scores(found, expected, d.lowercase)
    exact, nats = exact_match(found, expected), nll / count
    written = dict(zip(places, found, strict=True))
    return Measured(
        examples=len(pairs),
        unit="sentence pairs",
        metrics={
            **scores,
            "exact": exact,
            "loss": nats,
            "perplexity": math.exp(min(nats, 700)),
            "unknown": unknown(vocab, pairs),
        },
        intervals={"exact": interval(exact, len(pairs))},
        baselines={
            "bleu": ("copying the source", bleu(sources, expected, d.lowercase)),
            "exact": ("copying the source", exact_match(sources, expected)),
        },
        signature={
            **signature,
            "decoding": asked.decoding,
            "loss": f"vocab:{vocab.kind}|size:{sides(vocab)[1].size}",
        },
        counts={"tokens": count},
        report=report,
        lines=[written.get(line, "") for line in range(len(pairs) + report.counts.total())],
    )


def samples(model: EncoderDecoder, vocab: Vocabs, pairs: list[TextPair]) -> list[WrittenSample]:
    """A few translations beside what was expected."""
    found = []
    for (source, target), mine in zip(pairs, translate(model, vocab, [s for s, _ in pairs]), strict=True):
        expected = "" if mine == target else f"    (expected: {target})"
        found.append(WrittenSample(str(source), mine, target, f"    {source}\n  → {mine}{expected}"))
    return found


TRANSFORMER = {"context": 1024, "norm": "pre", "attention_dropout": 0.0}

TASK = Task(
    name="translate",
    data=TranslateData,
    train=TranslateTraining,
    architectures={
        "transformer": TRANSFORMER,
        "mixture_transformer": TRANSFORMER | {"router": "switch"},  # noise slows short runs
        "bart": {},
        "t5": {},
        "seq2seq": {"layers": 2},
        "bahdanau": {"layers": 1},
        "luong": {"layers": 2},
        "convs2s": {"layers": 4},
    },
    corpora={
        "phrasebook": Corpus(("valid", "test", "combinations", "long"), PHRASEBOOK | {"data.packed": False})
    },
    starts=Starts(
        find=starting_from(TRANSLATORS),
        published={"train.optimizer": "adamw", "train.learning_rate": 5e-5, "train.batch_tokens": 4096},
    ),
    read=read,
    job=job,
    measure=measure,
    metric="bleu",
    own_data=(
        {"source": ("data.valid_source",), "target": ("data.valid_target",)},
        {"data": ("data.valid_table",)},
    ),
    columns=("source", "target"),
    writes=True,
    choose=choose,
    settle=settle,
    chosen={
        "train.steps": f"{EPOCHS} passes over the data, at most {MOST_STEPS:,} steps",
        "train.batch_tokens": "{default}; 1024 on a CPU",
        "train.warmup_steps": "{default} (100 on a CPU), or a quarter of all steps where that is less",
        "data.packed": "true where the architecture keeps pairs apart",
        "data.max_length": "{default}; if packed, the least row that nearly all pairs fit",
        "model.dropout": "0 to 0.4, by the number of passes over the data",
    },
    next=('translate {path} "your own sentence"',),
    check=check,
)
