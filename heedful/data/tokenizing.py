"""Long texts to shards of tokens, by several processes, once for each text and vocabulary.

    .tokens/KEY/00000, ...     beside the run; KEY follows from the text itself and the vocabulary
    .tokens/KEY/shards.json    written last: all shards are there

A shard appears whole, hashed and under its name, or not at all. So whatever was killed goes on with the
shards that are there, and other runs of the same text share them by links.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput
from ..files import (
    clear_leftovers,
    faults,
    inside,
    link_tree,
    make_folder,
    one_line,
    open_file,
    present,
    read_json,
    remove,
    write_json,
)
from .documents import joined
from .encode import CachedEncoder
from .progress import FileProgress
from .sections import Stretch
from .shards import LIST, Shards, Tokenized, mapped, shard_name, write_list
from .store import Store, write_store
from .vocab import LIMIT, Vocab
from .workers import at_once, cores

if sys.platform != "win32":
    import fcntl

KEPT = ".tokens"  # beside runs
FIELDS = {"text": "every token of the text"}
PATIENCE = 1800.0  # seconds without a new shard, of another run that makes the same
LOOKED = 0.5  # seconds between two looks at it

Encoder = Callable[[str], np.ndarray]


# Rows


def token_rows(
    documents: Iterable[Iterable[str]], vocab: Any, kind: str, about: dict[str, Any], more: bool = False
) -> Iterator[dict[str, Any]]:
    """Tokens, row by row: of a "stream", pieces; of "documents", each with its end; of "lines", lines, and
    the ends of documents alone.

    about["bytes"] grows as they are read: it is complete when they are. more: text follows.
    """
    encode = encoder_of(vocab)

    def tokens_of(piece: str) -> np.ndarray:
        about["bytes"] += len(piece.encode())
        return encode(piece)

    return ROWS[kind](documents, tokens_of, np.array([vocab.eos], encode.dtype), more)


def stream_rows(
    documents: Iterable[Iterable[str]], tokens_of: Encoder, end: np.ndarray, more: bool
) -> Iterator[dict[str, Any]]:
    for piece in ended(joined(documents)) if more else joined(documents):
        yield {"text": tokens_of(piece)}


def ended(pieces: Iterable[str]) -> Iterator[str]:
    """The same text, with a line end behind it if it has none."""
    held = None
    for piece in pieces:
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held if held.endswith("\n") else held + "\n"


def line_rows(
    documents: Iterable[Iterable[str]], tokens_of: Encoder, end: np.ndarray, more: bool
) -> Iterator[dict[str, Any]]:
    for document in documents:
        said = False
        for line in lines_of(document):
            tokens = tokens_of(line)
            said = said or len(tokens) > 0
            yield {"text": tokens}
        if said:
            yield {"text": end}


def document_rows(
    documents: Iterable[Iterable[str]], tokens_of: Encoder, end: np.ndarray, more: bool
) -> Iterator[dict[str, Any]]:
    for document in documents:
        parts = (tokens for tokens in map(tokens_of, document) if len(tokens))
        first = next(parts, None)
        if first is not None:
            yield {"text": chain([first], parts, [end])}


ROWS = {"stream": stream_rows, "documents": document_rows, "lines": line_rows}


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


def encoder_of(vocab: Any) -> CachedEncoder | WholeTextEncoder:
    return CachedEncoder(vocab) if isinstance(vocab, Vocab) else WholeTextEncoder(vocab)


# Shards


@dataclass(frozen=True)
class Tokenizing:
    """How a text becomes tokens."""

    vocab: Any
    kind: str  # of rows
    about: dict[str, Any] = field(default_factory=dict)  # what else is to be known of the tokens

    def header(self, stretch: Stretch) -> dict[str, Any]:
        """What is known of a shard before it is made."""
        return {"vocab": self.vocab.hash, "rows": self.kind, **stretch.facts}

    def write(self, stretch: Stretch, folder: Path) -> Store:
        """A shard."""
        about = {**self.header(stretch), "bytes": 0}
        rows = token_rows(stretch.read(), self.vocab, self.kind, about, stretch.more)
        return write_store(folder, FIELDS, rows, self.vocab.size, about)

    def write_all(self, stretches: Sequence[Stretch], folder: Path) -> Store:
        """One store of a text that is no longer than a shard, or empty."""
        about = {"vocab": self.vocab.hash, "bytes": 0, **self.about}
        documents = (document for stretch in stretches for document in stretch.read())
        rows = token_rows(documents, self.vocab, self.kind, about)
        return write_store(folder, FIELDS, rows, self.vocab.size, about)


@dataclass(frozen=True)
class ShardWriter:
    """Writes the shards that it is asked for, in whatever process it is."""

    how: Tokenizing
    folder: Path

    def __call__(self, job: tuple[int, Stretch]) -> None:
        number, stretch = job
        self.how.write(stretch, self.folder / shard_name(number))


def tokenize(
    folder: Path,
    stretches: Sequence[Stretch],
    how: Tokenizing,
    say: Callable[[str], None],
    processes: int | None = None,
) -> Tokenized:
    """The tokens of a text in a folder of a run, which is not there yet: made, or shared with other runs."""
    processes = processes or cores()
    kept = home_of(folder.parent) / key_of([how.about, *map(how.header, stretches)])
    with alone(kept, say):
        made = complete(kept, stretches, how, say, processes)
        link_tree(made.folder, folder)
    return mapped(folder)


def home_of(run: Path) -> Path:
    """Where runs beside this one share what they made; made now, if it is not there."""
    home = run.absolute().parent / KEPT
    with faults(home):
        make_folder(home)
        stranger = hasattr(os, "getuid") and home.stat().st_uid != os.getuid()
    if stranger:  # whose tokens are not to be learned from
        raise BadInput(one_line(f"{home} belongs to another user: give --run a folder of your own"))
    return home


def key_of(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def complete(
    kept: Path,
    stretches: Sequence[Stretch],
    how: Tokenizing,
    say: Callable[[str], None],
    processes: int,
) -> Shards:
    """All shards of a text: those that are there and as they should be, and the others made now."""
    with faults(kept):
        make_folder(kept)
        clear_leftovers(kept)
    numbers = range(len(stretches))
    missing = missing_of(kept, stretches, how, say)
    if missing or not present(kept / LIST):
        remove(kept / LIST)
        found = len(numbers) - len(missing)
        total = sum(stretches[i].bytes for i in missing)
        progress = FileProgress("tokenizing", total, say)
        some = f", {found} of {len(numbers)} shards were there" if found else f" in {len(numbers)} shards"
        if missing:
            progress.begin(f"{some}, by {min(processes, len(missing))} processes")
        jobs = [(i, stretches[i]) for i in missing]
        for job, _ in at_once(ShardWriter(how, kept), jobs, processes):
            progress.add(stretches[missing[job]].bytes)
        stores = [Store.mapped(kept / shard_name(i)) for i in numbers]
        bytes_ = sum(store.about["bytes"] for store in stores)
        write_list(kept, stores, {"vocab": how.vocab.hash, "bytes": bytes_, **how.about})
    else:
        say(f"tokens: those of an earlier run of the same text, {kept}")
    made = mapped(kept)
    assert isinstance(made, Shards)
    return made


def missing_of(
    kept: Path, stretches: Sequence[Stretch], how: Tokenizing, say: Callable[[str], None]
) -> list[int]:
    """The shards that are still to be made."""

    def whole(number: int) -> bool:
        return is_whole(kept / shard_name(number), how.header(stretches[number]), say)

    progress = FileProgress("checking the tokens of", sum(stretch.bytes for stretch in stretches), say)
    missing = []
    with ThreadPoolExecutor(cores()) as threads:
        for number, there in enumerate(threads.map(whole, range(len(stretches)))):
            progress.add(stretches[number].bytes)
            if not there:
                missing.append(number)
    return missing


def is_whole(folder: Path, expected: dict[str, Any], say: Callable[[str], None]) -> bool:
    """Whether a shard is there with every byte, and holds what it should; another one is removed."""
    if not present(folder):
        return False
    try:
        store = Store.open(folder)
        if {name: store.about.get(name) for name in expected} == expected:
            return True
        why = f"{folder} holds other text"
    except BadInput as error:
        why = str(error)
    say(f"{why}; it is made again")
    remove(folder)
    return False


# A vocabulary, which takes long to learn from a large text


def learn_once(
    run: Path,
    stretches: Sequence[Stretch],
    settings: Sequence[object],
    learn: Callable[[], Vocab],
    say: Callable[[str], None],
) -> Vocab:
    """The vocabulary that `learn` gives, or gave to another run of the same text and settings."""
    kept = home_of(run) / f"{key_of([*settings, *(stretch.facts for stretch in stretches)])}.json"
    with alone(kept, say):
        if present(kept):
            with suppress(BadInput):
                found = read_json(inside(kept.parent, kept.name), LIMIT)
                vocab = Vocab.from_json(str(found.get("tokenizer")))
                if vocab.hash == found.get("sha256"):
                    return vocab
            say(f"{kept} is damaged; it is made again")
        vocab = learn()
        write_json(kept, {"sha256": vocab.hash, "tokenizer": vocab.to_json()})
        return vocab


def sample_of(stretches: Sequence[Stretch], every: int) -> Iterator[str]:
    """All of a text; or the beginning of each part, one character in so many, and it is not read further."""
    for stretch in stretches:
        room = -(-(stretch.stop - stretch.start) // every) if every > 1 else sys.maxsize
        for piece in joined(stretch.read()):
            if len(piece) >= room:
                yield piece[: piece.rfind("\n", 0, room) + 1 or room]
                break
            yield piece
            room -= len(piece)


# One at a time


@contextmanager
def alone(kept: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One process at a time makes this; another one waits for it as long as there is progress."""
    handle = open_file(kept.with_name(f"{kept.name}.lock"), os.O_RDWR | os.O_CREAT)
    try:
        since, seen, told = time.monotonic(), -1, False
        while not locked(handle):
            now = len(os.listdir(kept)) if kept.is_dir() else 0
            if now != seen:
                since, seen = time.monotonic(), now
            if time.monotonic() - since > PATIENCE:
                stuck = f"another run has been tokenizing the same text for {PATIENCE / 60:.0f} minutes"
                raise BadInput(one_line(f"{stuck} without a new shard in {kept}: end it, and start again"))
            if not told:
                say("another run is tokenizing the same text: waiting for it")
                told = True
            time.sleep(LOOKED)
        yield
    finally:
        os.close(handle)


def locked(handle: int) -> bool:
    """Lock an open file unless another process has; where disks cannot lock, two may do the same work."""
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
