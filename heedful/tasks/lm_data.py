"""The text of a language model: where it is read from, its vocabulary, and its tokens on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..corpora import phrasebook, pylib, stories
from ..data.documents import joined, read_documents, text_files
from ..data.lines import is_dataset
from ..data.report import Report, no_text, not_in_vain
from ..data.sections import Stretch, Surveyed, merged, size_of, stretches, survey
from ..data.shards import Stream, Tokenized, mapped, opened
from ..data.store import parts_of_row, write_store
from ..data.text_file import BYTES
from ..data.tokenizing import FIELDS, Tokenizing, learn_once, sample_of, token_rows, tokenize
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
    train: Tokenized
    valid: Tokenized
    files: str
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        tokens = self.train.tokens("text")
        return DataSize(tokens, tokens, "tokens")


def files_of(recipe: Recipe) -> str:
    """What a person calls the text."""
    d = recipe.data
    return one_line(" with ".join(path for path in (d.text, d.valid_text) if path) or d.corpus)


SAMPLE = 100_000_000  # characters that a vocabulary is learned from, about
HELD_OUT = 50_000_000  # characters that are held out at most
DELIMITER = " → "  # a sentence and its translation as one text, for a decoder alone (Liu et al. 2018)


CORPORA = ("stories", "pylib", "phrasebook")


class TextSource:
    """The text that a recipe names, and how long it is: read once for that, when bad lines are told."""

    def __init__(self, recipe: Recipe, report: Report) -> None:
        self.data, self.report = recipe.data, report
        d = self.data
        if not d.corpus and not d.text:
            raise BadInput(f"give --text, a file or folder to learn from, or --corpus {' or '.join(CORPORA)}")

    @property
    def streamed(self) -> bool:
        """Whether it can only be read from the beginning: a built-in corpus or a Hugging Face data set."""
        return bool(self.data.corpus) or is_dataset(self.data.text) or is_dataset(self.data.valid_text)

    def learn(self, folder: Path) -> Vocab:
        d = self.data
        texts = islice(joined(self.documents("train")), 0, None, self.every)
        return train_vocab(d.tokenizer, texts, d.vocab_size, d.lowercase)

    def tokenize(self, folder: Path, split: str, vocab: Any) -> Tokenized:
        """The tokens of a split, on disk."""
        about = {"vocab": vocab.hash, "bytes": 0} | ({"every": self.every} if split == "train" else {})
        return write_store(folder, FIELDS, rows_of(self, split, vocab, about), vocab.size, about)

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
        return whole if d.valid_text else part_of(whole, cut_of(self.characters), split == "train")

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


def cut_of(characters: int) -> int:
    """Where what is held out begins: the last tenth of a text, or of a long one less."""
    return max(int(0.9 * characters), characters - HELD_OUT)


def least_characters(path: str) -> int:
    """How many a text has at least, by the sizes of its files."""
    if is_dataset(path):
        return 0
    return sum(size_of(file) for file in text_files(path)) // BYTES


def sampled(every: int) -> str:
    """What to say of a vocabulary that was learned from a part of the text."""
    return f", learned from 1/{every} of the text" if every > 1 else ""


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


def prepare(
    recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]
) -> tuple[Vocab, Tokenized, Tokenized]:
    """The vocabulary and the tokenized text, made once and kept in the run's folder; or the vocabulary of the
    model to start from."""
    report = Report(recipe.data.bad_lines)
    tokenizer, text = folder / "tokenizer.json", TextSource(recipe, report)
    source = text if text.streamed else TextFiles(recipe, report, say)
    if origin is not None:
        vocab: Any = vocabulary(folder, origin)
    elif tokenizer.is_file():
        vocab = read_vocab(tokenizer)
    else:
        vocab = source.learn(folder)
        write_text(tokenizer, vocab.to_json())
    train, valid = (
        opened(folder / split, vocab.hash)
        if (folder / split).is_dir()
        else source.tokenize(folder / split, split, vocab)
        for split in ("train", "valid")
    )
    if report.counts:
        say(report.sentence())
    return vocab, train, valid


class TextFiles:
    """The same for files, which may be larger than memory: cut into parts, and made into shards of tokens."""

    def __init__(self, recipe: Recipe, report: Report, say: Callable[[str], None]) -> None:
        self.data, self.report, self.say = recipe.data, report, say

    @cached_property
    def parts(self) -> dict[str, list[Stretch]]:
        """What is learned from and what is held out, after all of it was read through once."""
        d = self.data
        text = self.survey(d.text)
        whole = sum(part.characters for part in text)
        column = d.text_column or "text"
        if d.valid_text:
            valid = self.survey(d.valid_text, needed=False)
            rest = sum(part.characters for part in valid)
            return {
                "train": stretches(text, column, 0, whole),
                "valid": stretches(valid, column, 0, rest),
            }
        cut = cut_of(whole)
        return {"train": stretches(text, column, 0, cut), "valid": stretches(text, column, cut, whole)}

    def survey(self, path: str, needed: bool = True) -> list[Surveyed]:
        d = self.data
        found = survey(path, d.text_column or "text", kind_of(d) != "stream", self.say)
        self.report.add(merged(found, d.bad_lines))
        if needed and not any(part.said for part in found):
            raise BadInput(no_text(path, self.report))
        return found

    @property
    def every(self) -> int:
        """A vocabulary is learned from one character in so many, which are about as many as `SAMPLE`."""
        train = sum(stretch.stop - stretch.start for stretch in self.parts["train"])
        return max(1, -(-train // SAMPLE))

    def learn(self, folder: Path) -> Vocab:
        d, train, every = self.data, self.parts["train"], self.every
        settings = d.tokenizer, d.vocab_size, d.lowercase

        def learn() -> Vocab:
            if len(train) > 1:
                self.say(f"learning a vocabulary{sampled(every)}")
            return train_vocab(settings[0], sample_of(train, every), *settings[1:])

        return learn() if len(train) < 2 else learn_once(folder, train, [*settings, every], learn, self.say)

    def tokenize(self, folder: Path, split: str, vocab: Any) -> Tokenized:
        about = {"every": self.every} if split == "train" else {}
        how, parts = Tokenizing(vocab, kind_of(self.data), about), self.parts[split]
        if len(parts) > 1:
            return tokenize(folder, parts, how, self.say)
        return how.write_all(parts, folder)


def kind_of(d: Any) -> str:
    """Rows of the store. For next-sentence prediction a row is a line: a text is cut between lines."""
    return "lines" if getattr(d, "pairs", False) else getattr(d, "pack", "stream")


def rows_of(
    text: TextSource, split: str, vocab: Vocab, about: dict[str, Any]
) -> Iterator[dict[str, np.ndarray]]:
    """The tokens of a split, row by row; about["bytes"] grows as they are read."""
    return token_rows(text.documents(split), vocab, kind_of(text.data), about)


@dataclass(frozen=True)
class HeldOutText:
    """A text to evaluate by."""

    stream: Stream  # of tokens
    lengths: np.ndarray  # tokens of each piece; where pairs are made, of each line
    bytes: int
    report: Report  # of bad lines


def held_out_text(asked: EvaluationRequest, vocab: Vocab, least: int) -> HeldOutText:
    """The held-out text that training kept, or the user's own."""
    d, kept = asked.recipe.data, asked.run / "valid"
    report = Report(d.bad_lines)
    if kept.is_dir() and not asked.own and asked.split == "valid":
        store = opened(kept)
        if store.about.get("vocab") != vocab.hash or type(store.about.get("bytes")) is not int:
            raise BadInput(
                one_line(f"{kept} was made with another vocabulary: give --text, a text to read instead")
            )
        return HeldOutText(store.stream("text"), store.lengths("text"), store.about["bytes"], report)
    about = {"bytes": 0}
    rows = asked.track(rows_of(TextSource(asked.recipe, report), asked.split, vocab, about), "tokenizing")
    pieces = [np.concatenate(list(parts_of_row(row["text"]))) for row in rows]
    stream = np.concatenate([np.empty(0, np.uint16), *pieces])
    if len(stream) < least:
        text = d.valid_text or d.text or d.corpus
        why = f"{len(stream)} tokens to judge the model by: at least {least} are needed"
        raise BadInput(one_line(f"{text} has {why} ({report.sentence()})"))
    return HeldOutText(stream, np.array([len(piece) for piece in pieces]), about["bytes"], report)


def frequencies(asked: EvaluationRequest, stream: Stream, vocab: Vocab) -> dict[str, tuple[str, float]]:
    """What guessing by frequency costs, as long as the run has the text that it learned from."""
    if not (asked.run / "train").is_dir():
        return {}
    train = mapped(asked.run / "train")  # to check all of a corpus would take long
    learned = train.stream("text")[:ENOUGH]
    if train.about.get("vocab") != vocab.hash or learned.max(initial=0) >= vocab.size:
        return {}
    return {"loss": ("every token at its frequency", unigram_entropy(learned, stream, vocab.size))}
