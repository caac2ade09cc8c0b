"""Translate: read a sentence, write another. Each word is predicted from the source and the words before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.packing import Fitted
from ..data.plan import BucketPlan, RowPlan, shares
from ..data.report import Report
from ..data.store import Store
from ..data.trees import Parsed
from ..decode.greedy import greedy_translation
from ..errors import BadInput
from ..files import one_line
from ..models.base.shells import EncoderDecoder, WithTrees, needs_tree
from ..models.base.skeleton import skeleton
from ..parts.experts import auxiliary
from ..parts.places import IN_ORDER, At, Lengths, Packed, Places, Source
from ..parts.positions.base import Tree
from ..parts.view import right_padded
from ..train.loss import NOTHING, Loss, scores_of, sequence_loss, with_aux
from .configs import TRANSLATOR_FILES, translator_config
from .evaluation import EvaluationRequest, Measured, by_length, with_lines
from .metrics import BY_FREQUENCY, ENOUGH, bleu, exact_match, interval, translation_scores, unigram_entropy
from .origin import TRANSLATORS, Origin, begin, find_origin, special_of
from .recipe.settings import Recipe
from .task import Job, chunks, pad
from .translate_data import (
    TextPair,
    TokenTree,
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
from .tuning import describe_start, tuning_of


@dataclass(frozen=True)
class PairBatch(Tensors):
    """Some sentence pairs, padded at the end."""

    source_BS: Tensor
    source_lengths_B: Tensor
    target_BT: Tensor  # begins with bos
    answers_BT: Tensor  # ends with eos; NOTHING in the padding
    count: int  # target tokens, eos included
    ids: tuple[int, ...] = ()
    heads_BW: Tensor | None = None  # of the source's words, where positions come from syntax; -1 is the root
    words_BS: Tensor | None = None  # the word that each token of the source belongs to

    @property
    def source_places(self) -> Places:
        """Where the tokens of the source stand: in rows of so many, or in a tree."""
        if self.heads_BW is None:
            return Lengths(self.source_lengths_B)
        index_BS = right_padded(self.source_lengths_B, self.source_BS.shape[1])
        return At(Tree(index_BS, self.heads_BW, self.words_BS))


@dataclass(frozen=True)
class PackedPairs(Tensors):
    """Rows of sentence pairs that do not see each other: pair n of a source row is pair n of the target's."""

    source_BS: Tensor
    source_documents_BS: Tensor  # which pair; -1 in the padding
    target_BT: Tensor
    target_documents_BT: Tensor
    answers_BT: Tensor
    count: int
    ids: tuple[int, ...] = ()


def collate(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    bos: int,
    eos: int,
    padding: int,
    ids: Sequence[int] = (),
    trees: Sequence[TokenTree] = (),
) -> PairBatch:
    """Token ids of sentence pairs, and the trees of the sources if they are needed, to a batch."""
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
        *stack_trees(trees),
    )


def side_by_side(
    rows: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]],
    length: int,
    bos: int,
    eos: int,
    padding: int,
    ids: Sequence[int] = (),
) -> PackedPairs:
    """Rows of (source, target) tokens to a batch, whose rows all have `length` places."""
    shape = len(rows), length
    source, target, answers = np.full(shape, padding), np.full(shape, padding), np.full(shape, NOTHING)
    of_source, of_target = np.full(shape, -1), np.full(shape, -1)
    for b, row in enumerate(rows):
        s = t = 0
        for n, (read, written) in enumerate(row):
            here, there = slice(s, s + len(read)), slice(t, t + len(written) + 1)
            source[b, here], of_source[b, here] = read, n
            target[b, there], of_target[b, there] = np.concatenate(([bos], written)), n
            answers[b, there] = np.concatenate((written, [eos]))
            s, t = here.stop, there.stop
    count = int((of_target >= 0).sum())
    made = [torch.from_numpy(table) for table in (source, of_source, target, of_target, answers)]
    return PackedPairs(made[0], made[1], made[2], made[3], made[4], count, tuple(map(int, ids)))


def stack_trees(trees: Sequence[TokenTree]) -> tuple[Tensor, ...]:
    """Trees as (heads, words) of a batch; padding hangs on nothing. None are none."""
    if not trees:
        return ()
    return tuple(pad([np.asarray(getattr(tree, name)) for tree in trees], -1) for name in ("heads", "words"))


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


# From a recipe to a job.


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read or generate the pairs, learn a vocabulary, tokenize, and plan the batches."""
    t = recipe.train
    origin = find_origin(t.from_, folder, TRANSLATORS) if t.from_ else None
    if origin is not None:
        recipe = within(recipe, origin)
    data = read_data(recipe, folder, origin, say)
    d, vocab, train, held_out = recipe.data, data.vocab, data.train, data.held_out
    lengths = [train.lengths("source"), train.lengths("target") + 1]
    rows = PackedRows if d.packed else PaddedRows
    planned = rows(train, vocab, lengths, recipe)
    config = origin.config if origin else translator_config(recipe, vocab.size, data.target_vocab_size)
    valid = [numbers(vocab, chunk) for chunk in chunks(held_out, 64)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[PairBatch | PackedPairs]:
        parts = shares(planned.plan.batch(step), recipe.train.accumulation_steps, rank, world)
        return [planned.batch(part) for part in parts]

    return Job(
        task="translate",
        architecture=origin.architecture
        if origin
        else TRANSLATOR_FILES.get(recipe.model.architecture, "transformer"),
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=planned.plan.batches,
        loss=lambda model, batch: loss_of(model, batch, recipe.train.label_smoothing),
        evaluate=lambda model: evaluate(model, vocab, held_out, valid, d.lowercase),
        show=lambda model: show(model, vocab, held_out[: recipe.evaluate.examples]),
        held_out=len(held_out),
        baselines={
            "exact": ("exact match, copying the source", exact_match(*zip(*held_out, strict=True))),
            "loss": (BY_FREQUENCY, by_frequency(train, valid, vocab)),
        },
        plan=[
            *data.describe(planned.left_out, planned.padding(), d.max_length),
            *([describe_start(recipe, False)] if origin else []),
        ],
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=special_of(sides(vocab)[0]),
        facts=data.facts | (origin.facts if origin else {}),
        steady=d.packed and recipe.model.architecture == "transformer" and origin is None,
    )


def within(recipe: Recipe, origin: Origin) -> Recipe:
    """The recipe for a model that is there, which may have places for fewer tokens than asked for."""
    model = skeleton(origin.architecture, origin.config)
    if needs_tree(model):
        raise BadInput(
            one_line(f"{origin.folder} reads sentences with their trees: it cannot be started from yet")
        )
    if recipe.data.packed and origin.architecture not in ("transformer", "mixture_transformer"):
        raise BadInput(f"a {origin.architecture} cannot keep packed pairs apart: leave out data.packed")
    longest = min(recipe.data.max_length, places_of(model))
    return replace(recipe, data=replace(recipe.data, max_length=longest))


# Two ways to make rows of pairs.


class PaddedRows:
    """A pair a row, and pairs of like length in a batch."""

    def __init__(self, train: Store, vocab: Vocabs, lengths: list[np.ndarray], recipe: Recipe) -> None:
        self.train, self.vocab = train, vocab
        self.plan = BucketPlan(lengths, recipe.train.batch_tokens, recipe.train.seed, recipe.data.max_length)
        self.left_out = self.plan.left_out

    def padding(self) -> float:
        return self.plan.padding()

    def batch(self, ids: np.ndarray) -> PairBatch:
        return batch_of(self.train, self.vocab, ids)


class PackedRows:
    """Pairs side by side in rows of one length."""

    def __init__(self, train: Store, vocab: Vocabs, lengths: list[np.ndarray], recipe: Recipe) -> None:
        self.train, self.vocab, longest = train, vocab, recipe.data.max_length
        sizes = np.maximum(*lengths)
        self.kept = np.flatnonzero(sizes <= longest)
        self.left_out = len(sizes) - len(self.kept)
        if not len(self.kept):
            raise BadInput(
                f"no pair is left to train on: {len(sizes)} of {len(sizes)} are over {longest} tokens"
            )
        self.fitted = Fitted(sizes[self.kept], longest)
        self.real = sum(int(side[self.kept].sum()) for side in lengths)
        self.plan = RowPlan(self.fitted.rows, max(1, recipe.train.batch_tokens // longest), recipe.train.seed)

    def padding(self) -> float:
        return 1 - self.real / (2 * self.fitted.rows * self.fitted.length)

    def batch(self, rows: np.ndarray) -> PackedPairs:
        pairs = [self.kept[self.fitted.pieces(row)].tolist() for row in rows.tolist()]
        store, v = self.train, self.vocab
        texts = [[(store.row("source", i), store.row("target", i)) for i in some] for some in pairs]
        every = [i for some in pairs for i in some]
        return side_by_side(texts, self.fitted.length, v.bos, v.eos, v.pad, every)


def by_frequency(train: Store, tried: Sequence[PairBatch], vocab: Vocabs) -> float:
    """The loss of guessing every token of the target, its end included, by how often it was learned from."""
    lengths, stream = train.lengths("target"), train.stream("target")
    rows = max(1, int(np.searchsorted(np.cumsum(lengths + 1), ENOUGH)))
    learned = np.concatenate([stream[: int(lengths[:rows].sum())], np.full(rows, vocab.eos, stream.dtype)])
    answers = np.concatenate([batch.answers_BT[batch.answers_BT >= 0].numpy() for batch in tried])
    return unigram_entropy(learned, answers, sides(vocab)[1].size)


def batch_of(store: Store, vocab: Vocabs, ids: np.ndarray) -> PairBatch:
    rows = {name: [store.row(name, int(i)) for i in ids] for name in ("source", "target")}
    trees = [
        TokenTree(store.row("words", int(i)), store.row("heads", int(i)).astype(np.int64) - 1)
        for i in (ids if "heads" in store.fields else ())
    ]
    return collate(rows["source"], rows["target"], vocab.bos, vocab.eos, vocab.pad, ids.tolist(), trees)


def numbers(vocab: Vocabs, pairs: list[TextPair]) -> PairBatch:
    """Sentence pairs as a batch."""
    sources, targets = encoded(vocab, pairs)
    return collate(
        [np.array(s) for s in sources],
        [np.array(t) for t in targets],
        vocab.bos,
        vocab.eos,
        vocab.pad,
        trees=trees_of(vocab, [source for source, _ in pairs]),
    )


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
    """Held-out loss (nats a token), exact match and BLEU of greedy translations."""
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


def show(model: EncoderDecoder, vocab: Vocabs, pairs: list[TextPair]) -> list[str]:
    """A few translations beside what was expected."""
    found = translate(model, vocab, [s for s, _ in pairs])
    lines = []
    for (source, target), mine in zip(pairs, found, strict=True):
        expected = "" if mine == target else f"    (expected: {target})"
        lines.append(f"    {source}\n  → {mine}{expected}")
    return lines
