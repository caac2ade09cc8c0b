"""Translate: read a sentence, write another. The target is shifted right: each word is predicted from those before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..corpora import phrasebook
from ..data.batch import Tensors
from ..data.conllu import MOST_WORDS
from ..data.files import Report, hash_of, not_in_vain, read_parallel, read_table
from ..data.packing import Fitted
from ..data.plan import BucketPlan, RowPlan, shares
from ..data.store import Store, write_store
from ..data.trees import Parsed, read_parsed, words_of_pieces
from ..data.vocab import Vocab, groups, read_vocab, train_vocab
from ..decode.greedy import greedy_translation
from ..errors import BadInput
from ..files import inside, one_line, present, write_text
from ..interop.hf.tokenizer import TARGET_TOKENIZER, TOKENIZER
from ..interop.run.adapters import FROM
from ..models.base.shells import EncoderDecoder, WithTrees
from ..models.base.skeleton import skeleton
from ..models.mixture_transformer import MixtureTransformerConfig
from ..models.transformer import TransformerConfig
from ..parts.experts import auxiliary
from ..parts.places import IN_ORDER, At, Lengths, Packed, Places, Source
from ..parts.positions.base import Tree
from ..parts.view import right_padded
from ..train.loss import NOTHING, Loss, scores_of, sequence_loss, with_aux
from . import before
from .evaluation import Asked, Measured, by_length
from .long import experts_of
from .metrics import BY_FREQUENCY, ENOUGH, bleu, exact_match, interval, translation_scores, unigram_entropy
from .origin import TRANSLATORS, Origin, begin, find_origin, special_of, target_vocabulary, vocabulary
from .recipe.settings import DataSettings, Recipe
from .task import Job, chunks, data_told, pad
from .tuning import start_told, tuning_of


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
    """Rows of several sentence pairs, which do not see each other: pair n of a source row belongs to pair n of the target."""

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
    trees: Sequence[Grown] = (),
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


@dataclass(frozen=True)
class Grown:
    """A tree over the tokens of a sentence: the word of each, and the head of each word (-1 is the root)."""

    words: Sequence[int] | np.ndarray
    heads: Sequence[int] | np.ndarray


def stack_trees(trees: Sequence[Grown]) -> tuple[Tensor, ...]:
    """Trees as (heads, words) of a batch; padding hangs on nothing. None are none."""
    if not trees:
        return ()
    return tuple(pad([np.asarray(getattr(tree, name)) for tree in trees], -1) for name in ("heads", "words"))


def trees_of(vocab: Vocabs, sources: Sequence[str]) -> list[Grown]:
    """The trees of parsed texts, whose tokens inherit the places of their words; none of plain texts."""
    texts = [source for source in sources if isinstance(source, Parsed)]
    if len(texts) < len(sources):
        return []
    places = sides(vocab)[0].places([str(text) for text in texts])
    return [Grown(words_of_pieces(t, at), t.heads) for t, at in zip(texts, places, strict=True)]


def loss_of(model: EncoderDecoder, batch: PairBatch | PackedPairs, smoothing: float = 0.0) -> Loss:
    """The loss of a batch. Padding of the target lies in the future of every real token: no mask is needed for it."""
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


def config_of(recipe: Recipe, vocab: int, target_vocab: int | None = None) -> TransformerConfig:
    """The Transformer of a recipe: one vocabulary for both sides, one matrix for all three of its uses.

    With a vocabulary for each side, the source has a matrix of its own; the target's serves the output as well.
    """
    m = recipe.model
    if m.architecture in before.CONFIGS:
        return before.config_of(recipe, vocab, target_vocab)  # type: ignore[return-value]
    mixture = m.architecture == "mixture"
    kind, more = (MixtureTransformerConfig, experts_of(m)) if mixture else (TransformerConfig, {})
    return kind(
        vocab=vocab,
        target_vocab=vocab if target_vocab is None else target_vocab,
        shared=target_vocab is None,
        layers=m.layers,
        decoder_layers=m.layers,
        width=m.width,
        heads=m.heads,
        decoder_heads=m.heads,
        hidden=m.hidden,
        decoder_hidden=m.hidden,
        activation=m.activation,
        norm=m.norm,
        positions=m.positions,
        clip=m.clip,
        scope=m.scope,
        dropout=m.dropout,
        attention_dropout=0.0,
        **more,
    )


# The files of architectures that are not the Transformer itself.
FILES = {"mixture": "mixture_transformer", **{name: name for name in before.CONFIGS}}


# One vocabulary for both sides, or one for each.


class Separate:
    """Two vocabularies: a text is read by that of the source and written by that of the target."""

    def __init__(self, source: Vocab, target: Vocab) -> None:
        self.source, self.target = source, target
        self.kind, self.size = source.kind, source.size
        self.pad, self.bos, self.eos, self.cls, self.sep = (  # the same numbers in every vocabulary
            source.pad, source.bos, source.eos, source.cls, source.sep
        )  # fmt: skip

    @property
    def hash(self) -> str:
        """That of tokenizer.json."""
        return self.source.hash

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return self.source.encode_batch(texts)

    def decode(self, ids: Iterable[int]) -> str:
        return self.target.decode(ids)


Vocabs = Vocab | Separate


def sides(vocab: Vocabs) -> tuple[Vocab, Vocab]:
    """The vocabulary of the source and that of the target."""
    return (vocab.source, vocab.target) if isinstance(vocab, Separate) else (vocab, vocab)


def encoded(vocab: Vocabs, pairs: Sequence[Text]) -> tuple[list[list[int]], list[list[int]]]:
    """Token numbers of the sources and of the targets."""
    source, target = sides(vocab)
    return source.encode_batch([a for a, _ in pairs]), target.encode_batch([b for _, b in pairs])


def read_vocabs(folder: Path, joint: bool) -> Vocabs:
    """What a run has learned: tokenizer.json for both sides, or for the source with target_tokenizer.json beside it."""
    vocab = read_vocab(folder / TOKENIZER)
    return vocab if joint else Separate(vocab, read_vocab(folder / TARGET_TOKENIZER))


def vocabs_of(run: Path, recipe: Recipe) -> Vocabs:
    """What a run reads and writes by, whether it learned that or took it over."""
    if not recipe.train.from_folder:
        return read_vocabs(run, recipe.data.joint)
    inside(run, FROM)  # missing, it would be made again, and a run is not to be changed
    return taken_vocabs(run, find_origin(recipe.train.from_folder, run, TRANSLATORS))


def taken_vocabs(run: Path, origin: Origin) -> Vocabs:
    """The vocabularies of the model to start from. What begins and ends a translation is as its config says."""
    source, target = vocabulary(run, origin, reads=True), target_vocabulary(run, origin)
    if isinstance(source, Vocab):
        return source if target is None else Separate(source, target)  # type: ignore[arg-type]
    made = Separate(source, target or vocabulary(run, origin))  # type: ignore[arg-type]
    start, end = (origin.special.get(name) for name in ("decoder_start", "eos"))
    if start is None or end is None:
        raise BadInput(
            one_line(f"{origin.folder} does not say by which tokens a translation begins and ends: its config.json lacks "
                     f"decoder_start_token_id or eos_token_id")
        )  # fmt: skip
    made.bos, made.eos = start, end
    return made


def places_of(model: Any) -> int:
    """The longest row that both sides of a model have places for."""
    tables = [side.inputs.position.longest for side in (model.encoder, model.decoder)]
    return min((table for table in tables if table is not None), default=LONGEST)


def learn_vocabs(recipe: Recipe, folder: Path) -> Vocabs:
    """Learned from the training pairs and kept in the run's folder."""
    d = recipe.data

    def learn(name: str, sides: tuple[int, ...]) -> Vocab:
        report = Report(d.bad_lines)
        pairs = not_in_vain(pairs_of(recipe, "train", report), where(d, "train"), report)
        texts = (pair[side] for pair in pairs for side in sides)
        vocab = train_vocab(d.vocab, texts, d.vocab_size, d.lower)
        write_text(folder / name, vocab.to_json())
        return vocab

    if d.joint:
        return learn(TOKENIZER, (0, 1))
    return Separate(learn(TOKENIZER, (0,)), learn(TARGET_TOKENIZER, (1,)))


# From a recipe to a job.


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read or generate the pairs, learn a vocabulary, tokenize, and plan the batches."""
    t = recipe.train
    origin = find_origin(t.from_folder, folder, TRANSLATORS) if t.from_folder else None
    if origin is not None:
        recipe = within(recipe, origin)
    d = recipe.data
    check_asked(d)
    check_trees(recipe)
    vocab, train, report = prepare(recipe, folder, origin)
    looked_at, there = held_out_pairs(recipe, report)
    held_out = short_enough(vocab, looked_at, d.longest)
    if report.counts:
        say(report.sentence())
    lengths = [train.lengths("source"), train.lengths("target") + 1]
    rows = PackedRows if d.packed else PaddedRows
    planned = rows(train, vocab, lengths, recipe)
    own = vocab.target if isinstance(vocab, Separate) and present(folder / TARGET_TOKENIZER) else None
    config = origin.config if origin else config_of(recipe, vocab.size, None if own is None else own.size)
    valid = [numbers(vocab, chunk) for chunk in chunks(held_out, 64)]

    def batches(step: int, rank: int = 0, world: int = 1) -> list[PairBatch | PackedPairs]:
        parts = shares(planned.plan.batch(step), recipe.train.accumulate, rank, world)
        return [planned.batch(part) for part in parts]

    return Job(
        task="translate",
        architecture=origin.architecture if origin else FILES.get(recipe.model.architecture, "transformer"),
        config=config,
        vocab=vocab,
        batches=batches,
        steps_per_epoch=planned.plan.batches,
        loss=lambda model, batch: loss_of(model, batch, recipe.train.smoothing),
        evaluate=lambda model: evaluate(model, vocab, held_out, valid, d.lower),
        show=lambda model: show(model, vocab, held_out[: recipe.evaluate.examples]),
        held_out=len(held_out),
        baselines={
            "exact": ("exact match, copying the source", exact_match(*zip(*held_out, strict=True))),
            "loss": (BY_FREQUENCY, by_frequency(train, valid, vocab)),
        },
        plan=[
            data_told(f"{len(train):,} pairs", len(held_out), there, planned.padding()),
            *left_out(planned.left_out, len(looked_at) - len(held_out), d.longest),
            f"{told(vocab)} of {vocab.kind}, {unknown(vocab, held_out):.2%} unknown in held-out text",
            *([start_told(recipe, False)] if origin else []),
        ],
        begin=partial(begin, origin=origin) if origin else None,
        tuning=tuning_of(recipe, origin),
        special=special_of(sides(vocab)[0]),
        facts={
            "data": train.hash,
            "held-out data": hash_of(held_out),
            **({"held-out trees": hash_of(heads_of(held_out))} if needs_trees(recipe) else {}),
            **({} if own is None else {"target_vocab": own.hash}),
            **(origin.facts if origin else {}),
        },
        steady=d.packed and recipe.model.architecture == "transformer" and origin is None,
    )


def within(recipe: Recipe, origin: Origin) -> Recipe:
    """The recipe for a model that is there, which may have places for fewer tokens than asked for."""
    model = skeleton(origin.architecture, origin.config)
    if model.encoder.needs_tree:
        raise BadInput(
            one_line(f"{origin.folder} reads sentences with their trees: it cannot be started from yet")
        )
    if recipe.data.packed and origin.architecture not in ("transformer", "mixture_transformer"):
        raise BadInput(f"a {origin.architecture} cannot keep packed pairs apart: leave out data.packed")
    longest = min(recipe.data.longest, places_of(model))
    return replace(recipe, data=replace(recipe.data, longest=longest))


# Two ways to make rows of pairs.


class PaddedRows:
    """A pair a row, and pairs of like length in a batch."""

    def __init__(self, train: Store, vocab: Vocabs, lengths: list[np.ndarray], recipe: Recipe) -> None:
        self.train, self.vocab = train, vocab
        self.plan = BucketPlan(lengths, recipe.train.batch_tokens, recipe.train.seed, recipe.data.longest)
        self.left_out = self.plan.left_out

    def padding(self) -> float:
        return self.plan.padding()

    def batch(self, ids: np.ndarray) -> PairBatch:
        return batch_of(self.train, self.vocab, ids)


class PackedRows:
    """Pairs side by side in rows of one length."""

    def __init__(self, train: Store, vocab: Vocabs, lengths: list[np.ndarray], recipe: Recipe) -> None:
        self.train, self.vocab, longest = train, vocab, recipe.data.longest
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


def told(vocab: Vocabs) -> str:
    if isinstance(vocab, Separate):
        return f"vocabularies: {vocab.source.size:,} for the source and {vocab.target.size:,} for the target"
    return f"vocabulary: {vocab.size:,}"


Text = tuple[str, str]
FIELDS = {"source": "sentences to read", "target": "their translations"}
TREES = {
    "words": "the word of each token of the source",
    "heads": "the head of each word, or 0",
}  # where needed


def pairs_of(recipe: Recipe, split: str, report: Report) -> Iterator[Text]:
    """The sentence pairs of a split, one by one."""
    d = recipe.data
    if d.corpus == "phrasebook":
        yield from ((from_phrasebook(pair, recipe), pair.target) for pair in phrasebook.split(split))
    elif d.corpus:
        raise BadInput(f'translate has no built-in corpus "{d.corpus}"; it has phrasebook')
    elif split == "train" and d.source and d.target and d.trees:
        yield from read_parsed(d.source, d.target, d.trees, report)
    elif split != "train" and d.valid_source and d.valid_target and d.valid_trees:
        yield from read_parsed(d.valid_source, d.valid_target, d.valid_trees, report)
    elif split == "train" and d.source and d.target:
        yield from read_parallel(d.source, d.target, report=report)
    elif split != "train" and d.valid_source and d.valid_target:
        yield from read_parallel(d.valid_source, d.valid_target, report=report)
    elif table := d.table if split == "train" else d.valid_table:
        rows = read_table(table, [d.source_column, d.target_column], report=report)
        yield from ((source, target) for source, target in rows)
    elif split == "train":
        raise BadInput(
            "give --source and --target, files with one sentence a line, or --data, a table, or --corpus phrasebook"
        )
    else:
        given = "--valid-data" if d.table else "--valid-source and --valid-target"
        raise BadInput(f"give {given} too: held-out pairs to judge the model by")


def check_asked(d: DataSettings) -> None:
    """Pairs come from one place."""
    for files, table, told in (
        (d.source or d.target, d.table, "--source and --target, or --data"),
        (
            d.valid_source or d.valid_target,
            d.valid_table,
            "--valid-source and --valid-target, or --valid-data",
        ),
    ):
        if files and table:
            raise BadInput(f"give {told}, not both: {one_line(files)} or {one_line(table)}")


def from_phrasebook(pair: phrasebook.Pair, recipe: Recipe) -> str:
    """A sentence, with the tree that its grammar gave it if the model reads trees."""
    if not needs_trees(recipe):
        return pair.source
    return Parsed(pair.source, phrasebook.words(pair.source), pair.heads)


def needs_trees(recipe: Recipe) -> bool:
    """Whether the encoder's positions come from syntax."""
    return recipe.model.positions.startswith("structural")


def heads_of(pairs: Sequence[Text]) -> list[object]:
    return [source.heads if isinstance(source, Parsed) else None for source, _ in pairs]


def check_trees(recipe: Recipe) -> None:
    """Trees are there where they are needed, and nowhere else."""
    d, positions = recipe.data, recipe.model.positions
    if not needs_trees(recipe):
        if given := d.trees or d.valid_trees:
            told = f"{given} has trees, which positions {positions} do not read"
            raise BadInput(one_line(f"{told}: give --set model.positions=structural too, or leave it out"))
    elif not d.corpus and not (d.source and d.trees and d.valid_source and d.valid_trees):
        raise BadInput(
            f"positions {positions} come from the trees of the sources: give --trees and --valid-trees, CoNLL-U files, beside "
            f"--source and --valid-source (`heedful parse` writes such files), or --corpus phrasebook"
        )


def where(d: DataSettings, split: str) -> str:
    """What a split is read from, in words."""
    files = (d.source, d.target) if split == "train" else (d.valid_source, d.valid_target)
    return " and ".join(files) if all(files) else d.table if split == "train" else d.valid_table


def held_out_pairs(recipe: Recipe, report: Report) -> tuple[list[Text], int]:
    """The first pairs to judge the model by, and how many there are: the others are only looked at."""
    d, pairs = recipe.data, pairs_of(recipe, "valid", report)
    held_out: list[Text] = []
    there = 0
    for pair in not_in_vain(pairs, where(d, "valid"), report):
        there += 1
        if len(held_out) < recipe.evaluate.rows:
            held_out.append(pair)
    return held_out, there


def short_enough(vocab: Vocabs, pairs: list[Text], longest: int) -> list[Text]:
    """The pairs of at most so many tokens, as in training: one long line would make a whole batch as wide."""
    ids = zip(*encoded(vocab, pairs), strict=True)
    kept = [pair for pair, (s, t) in zip(pairs, ids, strict=True) if max(len(s), len(t) + 1) <= longest]
    if not kept:
        raise BadInput(f"all {len(pairs)} held-out pairs are over data.longest, {longest} tokens: raise it")
    return kept


def left_out(train: int, valid: int, longest: int) -> list[str]:
    """A sentence about what is too long, if anything is."""
    told = f"left out: {train:,} pairs and {valid:,} held-out ones over data.longest, {longest} tokens"
    return [told] if train or valid else []


def prepare(recipe: Recipe, folder: Path, origin: Origin | None = None) -> tuple[Vocabs, Store, Report]:
    """The vocabulary and the tokenized pairs, made once and kept in the run's folder."""
    d, report, data = recipe.data, Report(recipe.data.bad_lines), folder / "data"
    kept = [folder / TOKENIZER, *([] if d.joint else [folder / TARGET_TOKENIZER])]
    there = None if origin is None else taken_vocabs(folder, origin)
    if data.is_dir() and (there is not None or all(path.is_file() for path in kept)):
        vocab = there or read_vocabs(folder, d.joint)
        store = Store.open(data, vocab.hash)
        if store.about.get("target_vocab", vocab.hash) != sides(vocab)[1].hash:
            raise BadInput(one_line(f"{data} was made with another {TARGET_TOKENIZER}: put the old one back"))
        return vocab, store, report
    vocab = there or learn_vocabs(recipe, folder)
    more = TREES if needs_trees(recipe) else {}

    def rows() -> Iterator[dict[str, list[int]]]:
        for chunk in groups(pairs_of(recipe, "train", report), lambda pair: len(pair[0]) + len(pair[1])):
            made = [{"source": s, "target": t} for s, t in zip(*encoded(vocab, chunk), strict=True)]
            trees = trees_of(vocab, [source for source, _ in chunk])
            for row, tree in zip(made, trees, strict=bool(more)):
                row |= {"words": list(tree.words), "heads": [head + 1 for head in tree.heads]}
            yield from made

    about = {"vocab": vocab.hash, "corpus": d.corpus, "source": d.source, "target": d.target}
    about |= {"table": d.table} if d.table else {}
    about |= {"target_vocab": sides(vocab)[1].hash} if isinstance(vocab, Separate) else {}
    about |= {"trees": d.trees} if d.trees else {}
    size = max(MOST_WORDS + 1 if more else 0, *(side.size for side in sides(vocab)))
    return vocab, write_store(data, FIELDS | more, rows(), size, about), report


def batch_of(store: Store, vocab: Vocabs, ids: np.ndarray) -> PairBatch:
    rows = {name: [store.row(name, int(i)) for i in ids] for name in ("source", "target")}
    trees = [
        Grown(store.row("words", int(i)), store.row("heads", int(i)).astype(np.int64) - 1)
        for i in (ids if "heads" in store.fields else ())
    ]
    return collate(rows["source"], rows["target"], vocab.bos, vocab.eos, vocab.pad, ids.tolist(), trees)


def numbers(vocab: Vocabs, pairs: list[Text]) -> PairBatch:
    """Sentence pairs as a batch."""
    sources, targets = encoded(vocab, pairs)
    return collate(
        [np.array(s) for s in sources], [np.array(t) for t in targets], vocab.bos, vocab.eos, vocab.pad,
        trees=trees_of(vocab, [source for source, _ in pairs]),
    )  # fmt: skip


def unknown(vocab: Vocabs, pairs: list[Text]) -> float:
    """The share of tokens, on both sides together, that stand for something unknown."""
    both = list(zip(sides(vocab), encoded(vocab, pairs), strict=True))
    count = sum(row.count(side.unk) for side, rows in both for row in rows)
    return count / max(1, sum(len(row) for _, rows in both for row in rows))


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


def with_trees(model: EncoderDecoder, trees: Sequence[Grown]) -> EncoderDecoder:
    """The same model, told the trees of the rows that it is about to read, if there are any."""
    if not trees:
        return model
    device = model.decoder.inputs.tokens.weight.device
    heads_BW, words_BS = (tensor.to(device) for tensor in stack_trees(trees))
    encoder: Any = WithTrees(model.encoder, heads_BW, words_BS)
    return EncoderDecoder(encoder, model.decoder)


def evaluate(
    model: EncoderDecoder, vocab: Vocabs, pairs: list[Text], batches: list[PairBatch], lower: bool = False
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


def measure(model: EncoderDecoder, asked: Asked) -> Measured:
    """BLEU, exact match and loss of greedy translations of all held-out pairs."""
    d, report = asked.recipe.data, Report(asked.recipe.data.bad_lines)
    vocab, most = vocabs_of(asked.run, asked.recipe), min(LONGEST, places_of(model) - 1)
    pairs, places = in_place(pairs_of(asked.recipe, asked.split, report), report)
    if not pairs:
        none = f"no pair of sentences to judge the model by: {report.sentence()}"
        raise BadInput(one_line(f"{where(d, asked.split)} has {none}"))
    if needs_trees(asked.recipe) and not isinstance(pairs[0][0], Parsed):
        raise BadInput(
            one_line(f"{asked.run} reads sentences with their trees: give --trees FILE, CoNLL-U, too")
        )
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    expected = [target.lower() if d.lower else target for target in targets]
    device = model.encoder.inputs.tokens.weight.device
    lengths = [max(map(len, ids)) for ids in zip(*encoded(vocab, pairs), strict=True)]
    found, nll, count = [""] * len(pairs), 0.0, 0
    for some in asked.track(by_length(lengths, asked.rows), "translating"):
        loss = loss_of(model, numbers(vocab, [pairs[i] for i in some]).to(device))
        nll, count = nll + float(loss.nll), count + loss.count
        for i, text in zip(some, translate(model, vocab, [sources[i] for i in some], most), strict=True):
            found[i] = text
    scores, signature = translation_scores(found, expected, d.lower)
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
            "bleu": ("copying the source", bleu(sources, expected, d.lower)),
            "exact": ("copying the source", exact_match(sources, expected)),
        },
        signature={
            **signature,
            "decoding": "greedy",
            "loss": f"vocab:{vocab.kind}|size:{sides(vocab)[1].size}",
        },
        counts={"tokens": count},
        report=report,
        lines=[written.get(line, "") for line in range(len(pairs) + report.counts.total())],
    )


def in_place(pairs: Iterable[Text], report: Report) -> tuple[list[Text], list[int]]:
    """Pairs, and the line of its file that each stands in, counted from 0 past the bad ones."""
    found: list[Text] = []
    places = []
    for pair in pairs:
        places.append(len(found) + report.counts.total())
        found.append(pair)
    return found, places


def show(model: EncoderDecoder, vocab: Vocabs, pairs: list[Text]) -> list[str]:
    """A few translations beside what was expected."""
    found = translate(model, vocab, [s for s, _ in pairs])
    lines = []
    for (source, target), mine in zip(pairs, found, strict=True):
        lines += [f"    {source}", f"  → {mine}" + ("" if mine == target else f"    (expected: {target})")]
    return lines
