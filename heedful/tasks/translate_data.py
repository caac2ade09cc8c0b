"""The data of translation: sentence pairs, their vocabularies and trees, and their tokens on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..corpora import phrasebook
from ..data.conllu import MOST_WORDS
from ..data.lines import hash_of, read_parallel
from ..data.report import Report, not_in_vain
from ..data.store import Store, write_store
from ..data.tables import read_table
from ..data.trees import Parsed, read_parsed, words_of_pieces
from ..data.vocab import Vocab, groups, read_vocab, train_vocab
from ..errors import BadInput
from ..files import inside, one_line, present, write_text
from ..interop.hf.tokenizer import TARGET_TOKENIZER, TOKENIZER
from ..interop.run.read import FROM
from .origin import TRANSLATORS, Origin, find_origin, target_vocabulary, vocabulary
from .recipe.settings import Recipe, TableSettings
from .task import describe_data


@dataclass(frozen=True)
class TranslateData(TableSettings):
    """Sentence pairs."""

    table: Annotated[str, "table with the columns source and target, tab-separated or JSON lines"] = ""
    source: Annotated[str, "sentences to read, one per line, plain or gzip"] = ""
    target: Annotated[str, "their translations, line by line"] = ""
    valid_source: Annotated[str, "held-out sentences"] = ""
    valid_target: Annotated[str, "their translations"] = ""
    source_column: Annotated[str, "column of a table to read"] = "source"
    target_column: Annotated[str, "column of its translation"] = "target"
    trees: Annotated[str, "dependency trees of the sources, CoNLL-U"] = ""
    valid_trees: Annotated[str, "the same, held out"] = ""
    joint: Annotated[bool, "one vocabulary and one embedding matrix for both sides"] = True
    packed: Annotated[bool, "several pairs in a row of max_length tokens, which do not see each other"] = (
        False
    )


@dataclass(frozen=True)
class TokenTree:
    """A tree over the tokens of a sentence: the word of each, and the head of each word (-1 is the root)."""

    words: Sequence[int] | np.ndarray
    heads: Sequence[int] | np.ndarray


def trees_of(vocab: Vocabs, sources: Sequence[str]) -> list[TokenTree]:
    """The trees of parsed texts, whose tokens inherit the places of their words; none of plain texts."""
    texts = [source for source in sources if isinstance(source, Parsed)]
    if len(texts) < len(sources):
        return []
    places = sides(vocab)[0].places([str(text) for text in texts])
    return [TokenTree(words_of_pieces(t, at), t.heads) for t, at in zip(texts, places, strict=True)]


class SeparateVocabs:
    """Two vocabularies: a text is read by that of the source and written by that of the target."""

    def __init__(self, source: Vocab, target: Vocab) -> None:
        self.source, self.target = source, target
        self.kind, self.size = source.kind, source.size
        self.pad, self.bos, self.eos, self.cls, self.sep = (  # the same numbers in every vocabulary
            source.pad,
            source.bos,
            source.eos,
            source.cls,
            source.sep,
        )

    @property
    def hash(self) -> str:
        """That of tokenizer.json."""
        return self.source.hash

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return self.source.encode_batch(texts)

    def decode(self, ids: Iterable[int]) -> str:
        return self.target.decode(ids)


Vocabs = Vocab | SeparateVocabs


def sides(vocab: Vocabs) -> tuple[Vocab, Vocab]:
    """The vocabulary of the source and that of the target."""
    return (vocab.source, vocab.target) if isinstance(vocab, SeparateVocabs) else (vocab, vocab)


def encoded(vocab: Vocabs, pairs: Sequence[TextPair]) -> tuple[list[list[int]], list[list[int]]]:
    """Token numbers of the sources and of the targets."""
    source, target = sides(vocab)
    return source.encode_batch([a for a, _ in pairs]), target.encode_batch([b for _, b in pairs])


def read_vocabs(folder: Path, joint: bool) -> Vocabs:
    """A run's vocabulary for both sides (tokenizer.json), or one for each (and target_tokenizer.json)."""
    vocab = read_vocab(folder / TOKENIZER)
    return vocab if joint else SeparateVocabs(vocab, read_vocab(folder / TARGET_TOKENIZER))


def vocabs_of(run: Path, recipe: Recipe) -> Vocabs:
    """What a run reads and writes by, whether it learned that or took it over."""
    if not recipe.train.from_:
        return read_vocabs(run, recipe.data.joint)
    inside(run, FROM)  # missing, it would be made again, and a run is not to be changed
    return origin_vocabs(run, find_origin(recipe.train.from_, run, TRANSLATORS))


def origin_vocabs(run: Path, origin: Origin) -> Vocabs:
    """The vocabularies of the model to start from. Its config names the first and last token."""
    source, target = vocabulary(run, origin, reads=True), target_vocabulary(run, origin)
    if isinstance(source, Vocab):
        return source if target is None else SeparateVocabs(source, target)  # type: ignore[arg-type]
    made = SeparateVocabs(source, target or vocabulary(run, origin))  # type: ignore[arg-type]
    start, end = (origin.special.get(name) for name in ("decoder_start", "eos"))
    if start is None or end is None:
        raise BadInput(
            one_line(
                f"{origin.folder} does not say by which tokens a translation begins and ends: its "
                "config.json lacks "
                f"decoder_start_token_id or eos_token_id"
            )
        )
    made.bos, made.eos = start, end
    return made


def learn_vocabs(recipe: Recipe, folder: Path) -> Vocabs:
    """Learned from the training pairs and kept in the run's folder."""
    d = recipe.data

    def learn(name: str, sides: tuple[int, ...]) -> Vocab:
        report = Report(d.bad_lines)
        pairs = not_in_vain(pairs_of(recipe, "train", report), source_name(d, "train"), report)
        texts = (pair[side] for pair in pairs for side in sides)
        vocab = train_vocab(d.tokenizer, texts, d.vocab_size, d.lowercase)
        write_text(folder / name, vocab.to_json())
        return vocab

    if d.joint:
        return learn(TOKENIZER, (0, 1))
    return SeparateVocabs(learn(TOKENIZER, (0,)), learn(TARGET_TOKENIZER, (1,)))


def describe_vocab(vocab: Vocabs) -> str:
    if isinstance(vocab, SeparateVocabs):
        return f"vocabularies: {vocab.source.size:,} for the source and {vocab.target.size:,} for the target"
    return f"vocabulary: {vocab.size:,}"


TextPair = tuple[str, str]
FIELDS = {"source": "sentences to read", "target": "their translations"}
TREES = {
    "words": "the word of each token of the source",
    "heads": "the head of each word, or 0",
}  # where needed


def pairs_of(recipe: Recipe, split: str, report: Report) -> Iterator[TextPair]:
    """The sentence pairs of a split, one by one."""
    d = recipe.data
    if d.corpus == "phrasebook":
        yield from ((from_phrasebook(pair, recipe), pair.target) for pair in phrasebook.split(split))
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
            "give --source and --target, files with one sentence a line, or --data, a table, or --corpus "
            "phrasebook"
        )
    else:
        given = "--valid-data" if d.table else "--valid-source and --valid-target"
        raise BadInput(f"give {given} too: held-out pairs to judge the model by")


def check_sources(d: TranslateData) -> None:
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
    return str(recipe.model.sizes.get("positions", "")).startswith("structural")


def heads_of(pairs: Sequence[TextPair]) -> list[object]:
    return [source.heads if isinstance(source, Parsed) else None for source, _ in pairs]


def check_trees(recipe: Recipe) -> None:
    """Trees are there where they are needed, and nowhere else."""
    d, positions = recipe.data, recipe.model.sizes.get("positions", "")
    if not needs_trees(recipe):
        if given := d.trees or d.valid_trees:
            told = f"{given} has trees, which positions {positions} do not read"
            raise BadInput(one_line(f"{told}: give --set model.positions=structural too, or leave it out"))
    elif not d.corpus and not (d.source and d.trees and d.valid_source and d.valid_trees):
        raise BadInput(
            f"positions {positions} come from the trees of the sources: give --trees and --valid-trees, "
            "CoNLL-U files, beside "
            f"--source and --valid-source (`heedful parse` writes such files), or --corpus phrasebook"
        )


def source_name(d: TranslateData, split: str) -> str:
    """What a split is read from, in words."""
    files = (d.source, d.target) if split == "train" else (d.valid_source, d.valid_target)
    return " and ".join(files) if all(files) else d.table if split == "train" else d.valid_table


def held_out_pairs(recipe: Recipe, report: Report) -> tuple[list[TextPair], int]:
    """The first pairs to judge the model by, and how many there are: the others are only looked at."""
    d, pairs = recipe.data, pairs_of(recipe, "valid", report)
    held_out: list[TextPair] = []
    there = 0
    for pair in not_in_vain(pairs, source_name(d, "valid"), report):
        there += 1
        if len(held_out) < recipe.evaluate.rows:
            held_out.append(pair)
    return held_out, there


def short_enough(vocab: Vocabs, pairs: list[TextPair], longest: int) -> list[TextPair]:
    """The pairs of at most so many tokens, as in training: one long line would make a whole batch as wide."""
    ids = zip(*encoded(vocab, pairs), strict=True)
    kept = [pair for pair, (s, t) in zip(pairs, ids, strict=True) if max(len(s), len(t) + 1) <= longest]
    if not kept:
        raise BadInput(
            f"all {len(pairs)} held-out pairs are over data.max_length, {longest} tokens: raise it"
        )
    return kept


def describe_left_out(train: int, valid: int, longest: int) -> list[str]:
    """A sentence about what is too long, if anything is."""
    told = f"left out: {train:,} pairs and {valid:,} held-out ones over data.max_length, {longest} tokens"
    return [told] if train or valid else []


def prepare(recipe: Recipe, folder: Path, origin: Origin | None = None) -> tuple[Vocabs, Store, Report]:
    """The vocabulary and the tokenized pairs, made once and kept in the run's folder."""
    d, report, data = recipe.data, Report(recipe.data.bad_lines), folder / "data"
    kept = [folder / TOKENIZER, *([] if d.joint else [folder / TARGET_TOKENIZER])]
    there = None if origin is None else origin_vocabs(folder, origin)
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
    about |= {"target_vocab": sides(vocab)[1].hash} if isinstance(vocab, SeparateVocabs) else {}
    about |= {"trees": d.trees} if d.trees else {}
    size = max(MOST_WORDS + 1 if more else 0, *(side.size for side in sides(vocab)))
    return vocab, write_store(data, FIELDS | more, rows(), size, about), report


@dataclass(frozen=True)
class TranslationData:
    """All that a translator learns from and is evaluated by."""

    vocab: Vocabs
    train: Store
    held_out: list[TextPair]  # those that are tried each time
    left_out: int  # held-out pairs that are too long
    there: int  # held-out pairs in all
    trees: bool  # whether the sources come with trees
    target_vocab: Vocab | None  # the run's own vocabulary of the target, where it has one

    @property
    def target_vocab_size(self) -> int | None:
        return None if self.target_vocab is None else self.target_vocab.size

    def describe(self, left_out: int, padding: float, longest: int) -> list[str]:
        """Sentences for the plan. left_out: training pairs that are too long; padding: share of a batch."""
        unseen = unknown(self.vocab, self.held_out)
        return [
            describe_data(f"{len(self.train):,} pairs", len(self.held_out), self.there, padding),
            *describe_left_out(left_out, self.left_out, longest),
            f"{describe_vocab(self.vocab)} of {self.vocab.kind}, {unseen:.2%} unknown in held-out text",
        ]

    @property
    def facts(self) -> dict[str, Any]:
        """Hashes that say later whether the data are still the same."""
        trees = {"held-out trees": hash_of(heads_of(self.held_out))} if self.trees else {}
        target = {} if self.target_vocab is None else {"target_vocab": self.target_vocab.hash}
        return {"data": self.train.hash, "held-out data": hash_of(self.held_out), **trees, **target}


def read_data(
    recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]
) -> TranslationData:
    """Read or generate the pairs, learn a vocabulary or take one over, and tokenize."""
    check_sources(recipe.data)
    check_trees(recipe)
    vocab, train, report = prepare(recipe, folder, origin)
    looked_at, there = held_out_pairs(recipe, report)
    held_out = short_enough(vocab, looked_at, recipe.data.max_length)
    if report.counts:
        say(report.sentence())
    own = vocab.target if isinstance(vocab, SeparateVocabs) and present(folder / TARGET_TOKENIZER) else None
    left_out = len(looked_at) - len(held_out)
    return TranslationData(vocab, train, held_out, left_out, there, needs_trees(recipe), own)


def unknown(vocab: Vocabs, pairs: list[TextPair]) -> float:
    """The share of tokens, on both sides together, that stand for something unknown."""
    both = list(zip(sides(vocab), encoded(vocab, pairs), strict=True))
    count = sum(row.count(side.unk) for side, rows in both for row in rows)
    return count / max(1, sum(len(row) for _, rows in both for row in rows))
