"""The text of a language model: where it is read from, its vocabulary, and its tokens on disk."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..corpora import phrasebook, pylib, stories
from ..data.documents import joined, read_documents
from ..data.encode import CachedEncoder
from ..data.report import Report, not_in_vain
from ..data.store import Store, write_store
from ..data.vocab import Vocab, read_vocab, train_vocab
from ..errors import BadInput
from ..files import one_line, write_text
from .evaluation import EvaluationRequest
from .metrics import ENOUGH, unigram_entropy
from .origin import Origin, vocabulary
from .recipe.choices import DataSize
from .recipe.settings import Recipe


@dataclass(frozen=True)
class TextExamples:
    """What was read: tokens to learn from and held-out ones, and the model to start from, if there is one."""

    vocab: Any
    train: Store
    valid: Store
    files: str
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        tokens = len(self.train.stream("text"))
        return DataSize(tokens, tokens, "tokens")


def files_of(recipe: Recipe) -> str:
    """What a person calls the text."""
    d = recipe.data
    return one_line(" with ".join(path for path in (d.text, d.valid_text) if path) or d.corpus)


SAMPLE = 100_000_000  # characters that a vocabulary is learned from, about
DELIMITER = " → "  # a sentence and its translation as one text, for a decoder alone (Liu et al. 2018)


CORPORA = ("stories", "pylib", "phrasebook")


class TextSource:
    """The text that a recipe names, and how long it is: read once for that, when bad lines are told."""

    def __init__(self, recipe: Recipe, report: Report) -> None:
        self.data, self.report = recipe.data, report
        d = self.data
        if not d.corpus and not d.text:
            raise BadInput(f"give --text, a file or folder to learn from, or --corpus {' or '.join(CORPORA)}")

    def documents(self, split: str) -> Iterator[Iterator[str]]:
        """The documents of a split, each in pieces; without a held-out text, the last tenth is held out."""
        d, again = self.data, Report(self.data.bad_lines)
        if d.corpus == "phrasebook":
            return (iter([f"{pair.source}{DELIMITER}{pair.target}\n"]) for pair in phrasebook.split(split))
        if d.corpus == "stories":
            return (iter([story.text]) for story in stories.split(split))
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
    """The vocabulary and the tokenized text, made once and kept in the run's folder; or the vocabulary of the
    model to start from."""
    d, report = recipe.data, Report(recipe.data.bad_lines)
    tokenizer, text = folder / "tokenizer.json", TextSource(recipe, report)
    if origin is not None:
        vocab: Any = vocabulary(folder, origin)
    elif tokenizer.is_file():
        vocab = read_vocab(tokenizer)
    else:
        texts = islice(joined(text.documents("train")), 0, None, text.every)
        vocab = train_vocab(d.tokenizer, texts, d.vocab_size, d.lowercase)
        write_text(tokenizer, vocab.to_json())
    train, valid = (tokenized(text, folder / split, split, vocab) for split in ("train", "valid"))
    return vocab, train, valid, report


def tokenized(text: TextSource, folder: Path, split: str, vocab: Vocab) -> Store:
    """The tokens of a split, on disk."""
    if folder.is_dir():
        return Store.open(folder, vocab.hash)
    about = {"vocab": vocab.hash, "bytes": 0} | ({"every": text.every} if split == "train" else {})
    rows = rows_of(text, split, vocab, about)
    return write_store(folder, {"text": "every token of the text"}, rows, vocab.size, about)


def rows_of(
    text: TextSource, split: str, vocab: Vocab, about: dict[str, Any]
) -> Iterator[dict[str, np.ndarray]]:
    """The tokens of a split, piece by piece, and the end of each document if they are to be kept apart.

    For next-sentence prediction a piece is a line: a text is cut between lines, and documents are kept apart.
    about["bytes"] grows as they are read: it is complete when they are.
    """
    encode = CachedEncoder(vocab) if isinstance(vocab, Vocab) else WholeTextEncoder(vocab)
    by_line = getattr(text.data, "pairs", False)
    apart = by_line or getattr(text.data, "pack", "stream") == "documents"
    documents = text.documents(split)
    for document in documents if apart else [joined(documents)]:
        said = False
        for piece in lines_of(document) if by_line else document:
            about["bytes"] += len(piece.encode())
            tokens = encode(piece)
            said = said or len(tokens) > 0
            yield {"text": tokens}
        if apart and said:
            yield {"text": np.array([vocab.eos], encode.dtype)}


def lines_of(document: Iterable[str]) -> Iterator[str]:
    """The lines of a document that comes in pieces, with their ends."""
    return (line for piece in document for line in re.findall(r"[^\n]*\n|[^\n]+", piece))


class WholeTextEncoder:
    """A `CachedEncoder` for the vocabulary of another model, which may cut a text anywhere."""

    def __init__(self, vocab: Any) -> None:
        self._vocab = vocab
        self.dtype = np.dtype("<u2" if vocab.size <= 1 << 16 else "<u4")

    def __call__(self, text: str) -> np.ndarray:
        return np.array(self._vocab.encode_batch([text])[0], self.dtype)


@dataclass(frozen=True)
class HeldOutText:
    """A text to evaluate by."""

    stream: np.ndarray  # of tokens
    lengths: np.ndarray  # tokens of each piece; where pairs are made, of each line
    bytes: int
    report: Report  # of bad lines


def held_out_text(asked: EvaluationRequest, vocab: Vocab, least: int) -> HeldOutText:
    """The held-out text that training kept, or the user's own."""
    d, kept = asked.recipe.data, asked.run / "valid"
    report = Report(d.bad_lines)
    if kept.is_dir() and not asked.own and asked.split == "valid":
        store = Store.open(kept)
        if store.about.get("vocab") != vocab.hash or type(store.about.get("bytes")) is not int:
            raise BadInput(
                one_line(f"{kept} was made with another vocabulary: give --text, a text to read instead")
            )
        return HeldOutText(store.stream("text"), store.lengths("text"), store.about["bytes"], report)
    about = {"bytes": 0}
    rows = asked.track(rows_of(TextSource(asked.recipe, report), asked.split, vocab, about), "tokenizing")
    pieces = [row["text"] for row in rows]
    stream = np.concatenate([np.empty(0, np.uint16), *pieces])
    if len(stream) < least:
        text = d.valid_text or d.text or d.corpus
        why = f"{len(stream)} tokens to judge the model by: at least {least} are needed"
        raise BadInput(one_line(f"{text} has {why} ({report.sentence()})"))
    return HeldOutText(stream, np.array([len(piece) for piece in pieces]), about["bytes"], report)


def frequencies(asked: EvaluationRequest, stream: np.ndarray, vocab: Vocab) -> dict[str, tuple[str, float]]:
    """What guessing by frequency costs, as long as the run has the text that it learned from."""
    if not (asked.run / "train").is_dir():
        return {}
    train = Store.mapped(asked.run / "train")  # to check all of a corpus would take long
    learned = train.stream("text")[:ENOUGH]
    if train.about.get("vocab") != vocab.hash or learned.max(initial=0) >= vocab.size:
        return {}
    return {"loss": ("every token at its frequency", unigram_entropy(learned, stream, vocab.size))}
