"""Words with labels, for tagging and parsing: sentences of a treebank become rows of pieces and answers.

    [CLS] The  unb  eliev  able  cat [SEP]        pieces, which the encoder reads
      0    1    2                 5               of each word, the first piece speaks for it; [CLS] is the
      root

A word is cut into pieces by itself, so that what a vocabulary makes of it does not depend on its neighbors.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ..corpora import phrasebook
from ..data.batch import Tensors
from ..data.conllu import Sentence, read_sentences
from ..data.letters import SpelledVocab, as_read
from ..data.plan import BucketPlan
from ..data.report import Report
from ..data.store import Store, write_store
from ..data.vocab import Vocab, groups, read_vocab, train_vocab
from ..errors import BadInput
from ..files import inside, one_line, present, read_json, write_json, write_text
from ..interop.hf.tokenizer import TOKENIZER
from ..interop.run.read import describe_run
from ..interop.run_folder import LABELS
from ..models.base.settings import Part, Range
from ..models.base.shells import WithHeads
from ..models.elmo_reader import ElmoReaderConfig
from ..models.syntax import SyntaxConfig
from ..parts.places import Lengths
from ..train.loss import NOTHING
from .configs import config_of
from .origin import FROM, NO_TOKEN, find_origin, vocabulary
from .recipe.settings import (
    LearningRate,
    Optimizer,
    Recipe,
    SmoothedTraining,
    Steps,
    TableSettings,
    WarmupSteps,
    WeightDecay,
)
from .spelling import id_limit, keep_unknown, vocab_as_read
from .task import not_empty, pad, read_held_out

Vocabulary = Vocab | SpelledVocab
RELATIONS, USUAL = "relations.json", "usual.json"  # beside labels.json, which has the tags
MOST_PIECES = 32  # of a word: an address on the web says enough by then
MOST_FORMS = 1_000_000  # words whose usual tag is remembered
LIMIT = 1 << 26  # bytes of these files
UNSAID = "_"
FIELDS = {
    "pieces": "pieces of the words",
    "sizes": "how many each word has",
    "tags": "numbers of their tags",
    "heads": "numbers of their heads, from 1; 0 is the root",
    "relations": "numbers of their relations",
}
LARGEST = 1 << 16  # of a number in the store, unless the vocabulary has more


@dataclass(frozen=True)
class WordBatch(Tensors):
    """Some sentences, padded at the end. A word without an answer, or with one never learned, has NOTHING."""

    tokens_BT: Tensor  # or, of words that are spelled out, [B, T, 1 + letters]
    lengths_B: Tensor
    firsts_BW: Tensor  # the first piece of each word
    words_B: Tensor  # how many there are
    tags_BW: Tensor
    heads_BW: Tensor  # from 1; 0 is the root
    relations_BW: Tensor
    count: int  # words
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class WordRow:
    """A sentence in numbers."""

    pieces: Sequence[int] | np.ndarray
    sizes: Sequence[int] | np.ndarray  # pieces of each word
    tags: Sequence[int] | np.ndarray
    heads: Sequence[int] | np.ndarray
    relations: Sequence[int] | np.ndarray

    @property
    def length(self) -> int:
        """Tokens, with [CLS] and [SEP]."""
        return len(self.pieces) + 2


def collate(vocab: Vocabulary, rows: Sequence[WordRow], ids: Sequence[int] = ()) -> WordBatch:
    """Rows to a batch."""
    tokens = [np.concatenate(([vocab.cls], row.pieces, [vocab.sep])).astype(np.int64) for row in rows]
    firsts = [np.cumsum([1, *row.sizes[:-1]]) for row in rows]  # [CLS] stands before them
    tags, heads, relations = (
        pad([np.asarray(getattr(row, name), np.int64) for row in rows], NOTHING) for name in ANSWERS
    )
    return WordBatch(
        as_read(vocab, pad(tokens, vocab.pad)),
        torch.tensor([row.length for row in rows]),
        pad(firsts, 0),
        torch.tensor([len(row.sizes) for row in rows]),
        tags,
        heads,
        relations,
        sum(len(row.sizes) for row in rows),
        tuple(map(int, ids)),
    )


ANSWERS = ("tags", "heads", "relations")


# From sentences to numbers


@dataclass(frozen=True)
class Labels:
    """The tags and relations of words, with the count of each; empty where none are learned."""

    tags: dict[str, int]
    relations: dict[str, int]

    def numbers(self, what: str, names: Sequence[str]) -> list[int]:
        """Numbers of tags or relations; NOTHING for one that training does not know."""
        known = {name: i for i, name in enumerate(getattr(self, what))}
        return [known.get(name, NOTHING) for name in names]


def pieces_of(vocab: Vocabulary, forms: Iterable[str]) -> list[list[int]]:
    """The pieces of each word, at least one."""
    space = "" if vocab.kind == "char" else " "  # words inside a text are learned with the space before them
    return [cut_pieces(vocab, ids) for ids in vocab.encode_batch([f"{space}{form}" for form in forms])]


def cut_pieces(vocab: Vocabulary, ids: list[int]) -> list[int]:
    """The first pieces of a word; a word without any is unknown."""
    return ids[:MOST_PIECES] or [vocab.sep if vocab.unk == NO_TOKEN else vocab.unk]


def rows_of(vocab: Vocabulary, labels: Labels, sentences: Sequence[Sentence]) -> list[WordRow]:
    """Sentences in numbers."""
    forms = sorted({form for sentence in sentences for form in sentence.forms})
    pieces = dict(zip(forms, pieces_of(vocab, forms), strict=True))
    return [row_of(labels, sentence, [pieces[form] for form in sentence.forms]) for sentence in sentences]


def row_of(labels: Labels, sentence: Sentence, pieces: Sequence[Sequence[int]]) -> WordRow:
    return WordRow(
        [piece for some in pieces for piece in some],
        [len(some) for some in pieces],
        labels.numbers("tags", sentence.tags or [UNSAID] * len(pieces)),
        [head + 1 for head in sentence.heads] if sentence.heads else [NOTHING] * len(pieces),
        labels.numbers("relations", sentence.relations or [UNSAID] * len(pieces)),
    )


# Files


@dataclass(frozen=True)
class TreebankData(TableSettings):
    """A treebank, CoNLL-U."""

    table: Annotated[str, "treebank, CoNLL-U"] = ""
    bad_lines: Annotated[Literal["drop", "refuse"], "what to do with lines that cannot be used"] = "refuse"
    vocab_size: Annotated[int, Range(8, 1_000_000), "tokens in the vocabulary, at most"] = 4000


@dataclass(frozen=True)
class TreebankTraining(SmoothedTraining):
    """A treebank is small: much is hidden and dropped."""

    steps: Steps = 4000
    optimizer: Optimizer = "muon"
    learning_rate: LearningRate = 6e-3
    warmup_steps: WarmupSteps = 200
    weight_decay: WeightDecay = 0.1
    label_smoothing: Annotated[Part, "share of the target spread over all labels"] = 0.05
    word_dropout: Annotated[Part, "share of the pieces of words that is hidden in each step"] = 0.2


SYNTAX = {"activation": "gelu", "norm": "pre", "dropout": 0.2}


def check_sources(d: TreebankData) -> None:
    """Refuse data unless there are treebanks to learn from and to evaluate by, or a built-in corpus."""
    if not d.corpus and not (d.table and d.valid_table):
        files = "--data and --valid-data: treebanks (CoNLL-U) to learn from and to judge by"
        raise BadInput(f"give {files}; or --corpus phrasebook")


def sentences_of(recipe: Recipe, split: str, report: Report, need: Sequence[str]) -> Iterator[Sentence]:
    """The sentences of a split, one by one. The phrasebook's grammar gives heads, but no relations.

    need: what every word must have. Of the phrasebook, tags are told only where they are needed: a parser
    learns heads alone.
    """
    d = recipe.data
    if d.corpus == "phrasebook":
        for pair in phrasebook.split(split):
            tags = pair.tags if "tags" in need else ()
            yield Sentence(tuple(phrasebook.words(pair.source)), tags, pair.heads, text=pair.source)
    else:
        yield from read_sentences(d.table if split == "train" else d.valid_table, need=need, report=report)


def held_out_sentences(recipe: Recipe, split: str, report: Report, need: Sequence[str]) -> list[Sentence]:
    """All held-out sentences of a split."""
    return read_held_out(sentences_of(recipe, split, report, need), recipe.data, "sentence", report)


def learn(
    recipe: Recipe, folder: Path, need: Sequence[str], there: Vocab | None = None
) -> tuple[Vocab, Labels, dict[str, str]]:
    """The vocabulary, the labels, and each form's usual tag; made once and kept in the run's folder.

    there: a vocabulary that was taken over, instead of one that is learned.
    """
    if all((folder / name).is_file() for name in (TOKENIZER, RELATIONS, USUAL)):
        tags = read_json(inside(folder, LABELS), LIMIT) if present(folder / LABELS) else {}
        labels = Labels(tags, read_json(inside(folder, RELATIONS), LIMIT))
        return there or read_vocab(folder / TOKENIZER), labels, read_json(inside(folder, USUAL), LIMIT)
    d, tags, relations = recipe.data, Counter[str](), Counter[str]()
    forms: dict[str, Counter[str]] = {}

    def texts() -> Iterator[str]:
        for sentence in sentences_of(recipe, "train", Report(d.bad_lines), need):
            tags.update(sentence.tags or [UNSAID])
            relations.update(sentence.relations or [UNSAID])
            for form, tag in zip(sentence.forms, sentence.tags, strict=False):
                if form in forms or len(forms) < MOST_FORMS:
                    forms.setdefault(form, Counter())[tag] += 1
            yield " ".join(("", *sentence.forms))

    found = not_empty(texts(), lambda: f"{d.table} has no sentence to learn from")
    if there is None:
        vocab = train_vocab(d.tokenizer, found, d.vocab_size, d.lowercase)
    else:
        vocab = there
        deque(found, maxlen=0)  # read for the labels alone
    labels = Labels(*({} if UNSAID in some else dict(sorted(some.items())) for some in (tags, relations)))
    usual = {form: max(sorted(some), key=some.__getitem__) for form, some in forms.items()}
    usual = usual if labels.tags else {}
    if there is None:
        write_text(folder / TOKENIZER, vocab.to_json())
    if labels.tags:
        write_json(folder / LABELS, labels.tags)
    write_json(folder / USUAL, usual)
    write_json(folder / RELATIONS, labels.relations)
    return vocab, labels, usual


def read_labels(folder: Path, config: SyntaxConfig | ElmoReaderConfig) -> Labels:
    """What a run was taught, if it fits its model."""
    tags, relations = (
        taught(folder / name, count) if head in config.prediction_heads else {}
        for head, name, count in (
            ("tag", LABELS, config.labels),
            ("relations", RELATIONS, getattr(config, "relations", 0)),
        )
    )
    return Labels(tags, relations)


def taught(path: Path, count: int) -> dict[str, int]:
    """The labels in a file of a run, as many as its model tells apart."""
    found = read_json(inside(path.parent, path.name), LIMIT)
    if len(found) != count:
        fault = f"{path} names {len(found)} {path.stem}, and the model has {count}"
        raise BadInput(one_line(f"{fault}: restore the file of this run"))
    return found


def labels_in(run: Path) -> Labels:
    """The same of a run that is evaluated."""
    return read_labels(run, describe_run(run)[1])


def vocab_in(run: Path) -> Vocabulary:
    """The vocabulary of a run, as its model reads it."""
    if present(run / FROM):
        return vocabulary(run, find_origin("", run))  # type: ignore[return-value]
    return vocab_as_read(read_vocab(run / TOKENIZER), describe_run(run)[1])


def tokenized(
    recipe: Recipe, folder: Path, vocab: Vocabulary, labels: Labels, report: Report, need: Sequence[str]
) -> Store:
    """The training sentences as numbers, made once and kept in the run's folder."""
    if folder.is_dir():
        return Store.open(folder, vocab.hash)

    def rows() -> Iterator[dict[str, Any]]:
        sentences = sentences_of(recipe, "train", report, need)
        for some in groups(sentences, lambda sentence: sum(map(len, sentence.forms))):
            for row in rows_of(vocab, labels, some):
                yield {name: stored(getattr(row, name)) for name in FIELDS}
        keep_unknown(vocab, folder.parent)

    about = {"vocab": vocab.hash, "corpus": recipe.data.corpus, "table": recipe.data.table}
    size = id_limit(vocab, max(vocab.size, LARGEST))
    return write_store(folder, FIELDS, rows(), size, about)


def stored(numbers: Sequence[int]) -> list[int]:
    """None of them where the answers are unknown."""
    return [] if NOTHING in numbers else list(numbers)


def batch_of(store: Store, vocab: Vocabulary, ids: np.ndarray) -> WordBatch:
    """Rows of a store as a batch."""
    return collate(vocab, [stored_row(store, int(i)) for i in ids], ids.tolist())


def stored_row(store: Store, i: int) -> WordRow:
    pieces, sizes, *answers = (store.row(name, i) for name in FIELDS)
    return WordRow(pieces, sizes, *(some if len(some) else np.full(len(sizes), NOTHING) for some in answers))


def plan_of(recipe: Recipe, train: Store, longest: int | None = None) -> BucketPlan:
    """longest: pieces of a sentence at most, if the model has places for fewer than the recipe asks for."""
    lengths = train.lengths("pieces") + 2
    if not len(lengths):
        raise BadInput(one_line(f"{recipe.data.table} has no sentence to learn from"))
    longest = min(recipe.data.max_length, longest or recipe.data.max_length)
    return BucketPlan(lengths, recipe.train.batch_tokens, recipe.train.seed, longest)


# The model


def syntax_config(recipe: Recipe, vocab: int, heads: tuple[str, ...], labels: Labels) -> SyntaxConfig:
    """An encoder of the recipe's sizes with these heads."""
    sizes = {"labels": max(1, len(labels.tags)), "relations": max(1, len(labels.relations))}
    return config_of(recipe, vocab=vocab, prediction_heads=heads, **sizes)


def hidden_pieces(tokens_BT: Tensor, share: float, mask: int = Vocab.mask) -> Tensor:
    """Tokens with some pieces hidden at random, so that a word is also known by the company it keeps."""
    hide_BT = torch.rand(tokens_BT.shape, device=tokens_BT.device) < share
    special_BT = tokens_BT <= max(Vocab.pad, Vocab.cls, Vocab.sep)
    return tokens_BT.masked_fill(hide_BT & ~special_BT, mask)


def words_of(model: WithHeads, batch: WordBatch, hide: float = 0.0) -> tuple[Tensor, Tensor]:
    """(vectors [B, W, D] of words, by their first pieces, and [B, 1, D] of the root). hide: in training."""
    read = hidden_pieces(batch.tokens_BT, hide) if hide and model.training else batch.tokens_BT
    hidden_BTD = model.encoder(read, Lengths(batch.lengths_B))
    return at(hidden_BTD, batch.firsts_BW), hidden_BTD[:, :1]


def at(x_BTD: Tensor, places_BW: Tensor) -> Tensor:
    """The vectors that stand at some places of each row."""
    return x_BTD.gather(1, places_BW[..., None].expand(*places_BW.shape, x_BTD.shape[-1]))


def tag_scores(model: WithHeads, words_BWD: Tensor) -> Tensor:
    return model.heads["tag"](words_BWD, model.encoder.inputs)


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def loss_by_frequency(counts: dict[str, int], found: Iterable[str]) -> float:
    """The mean loss of guessing each label by how often it was learned from; unknown ones are left out."""
    total = sum(counts.values())
    known = [counts[name] for name in found if name in counts]
    return float(-np.log(np.array(known) / total).mean()) if known else 0.0
