"""Stores side by side, read as one: shards of a tokenized text that is larger than memory.

    FOLDER/00000, FOLDER/00001, ...    a store each (store.py), written by whichever process had time
    FOLDER/shards.json                 how many there are, their hashes, what they were made from

A process maps all of them and reads the pages that its own rows lie on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput
from ..files import MEGABYTE, inside, naming, one_line, present, read_json, short, write_json
from .store import Store, damaged, other_vocabulary, seal
from .workers import cores

LIST = "shards.json"
FORMAT = 1
MOST = 1 << 16  # shards


class Joined:
    """Arrays one after the other, of which slices are taken as of one."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts = parts
        self.ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        self.dtype = parts[0].dtype

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, places: slice) -> np.ndarray:
        """A slice without steps: not copied unless it goes through several parts."""
        start, stop, step = places.indices(len(self))
        if step != 1:
            raise IndexError(f"slices go in steps of 1, not of {step}")
        first = int(np.searchsorted(self.ends, start, "right"))
        found = []
        while start < stop:
            end, part = int(self.ends[first]), self.parts[first]
            begin = end - len(part)
            found.append(part[start - begin : min(stop, end) - begin])
            start, first = end, first + 1
        return found[0] if len(found) == 1 else np.concatenate([np.empty(0, self.dtype), *found])


Stream = np.ndarray | Joined


def rows_at(stream: Stream, starts: np.ndarray, length: int) -> np.ndarray:
    """As many tokens from each of some places, as int64."""
    rows = np.empty((len(starts), length), np.int64)
    for row, start in zip(rows, starts.tolist(), strict=True):
        row[:] = stream[start : start + length]
    return rows


def tokens_at(stream: Stream, places: np.ndarray) -> np.ndarray:
    """The tokens at some places, in rising order."""
    if isinstance(stream, np.ndarray):
        return stream[places]
    cuts = np.searchsorted(places, stream.ends)
    begins = stream.ends - [len(part) for part in stream.parts]
    found = zip(stream.parts, begins, np.split(places, cuts), strict=False)
    return np.concatenate([part[some - begin] for part, begin, some in found])


class Shards:
    """What a `Store` is, made of several."""

    def __init__(self, folder: Path, stores: list[Store], header: dict[str, Any]) -> None:
        self.folder, self.stores = folder, stores
        self.about: dict[str, Any] = header["about"]
        self.vocab_size, self.fields = stores[0].vocab_size, stores[0].fields.keys()
        self._seal: str = header["sha256"]
        self._ends = np.cumsum([len(store) for store in stores], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def hash(self) -> str:
        """SHA-256 of shards.json, which has the hashes of the shards: equal hashes mean equal rows."""
        return self._seal

    def row(self, field: str, i: int) -> np.ndarray:
        """The tokens of one row, not copied."""
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        which = int(np.searchsorted(self._ends, i, "right"))
        return self.stores[which].row(field, i - int(self._ends[which]) + len(self.stores[which]))

    def lengths(self, field: str) -> np.ndarray:
        """How many tokens each row has."""
        return np.concatenate([store.lengths(field) for store in self.stores])

    def stream(self, field: str) -> Joined:
        """All tokens one after the other, mapped."""
        return Joined([store.stream(field) for store in self.stores])

    def tokens(self, field: str) -> int:
        """How many tokens there are."""
        return sum(store.tokens(field) for store in self.stores)

    def __reduce__(self) -> Any:
        return mapped, (self.folder,)


Tokenized = Store | Shards


def is_sharded(folder: Path) -> bool:
    return present(folder / LIST)


def shard_name(number: int) -> str:
    return f"{number:05}"


def opened(folder: Path, vocab: str | None = None) -> Tokenized:
    """A store or shards in a run, every byte checked; `vocab`: the hash of its vocabulary.

    Of several processes of a machine only the first checks the bytes: the others begin after it.
    """
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return mapped(folder, vocab)
    if not is_sharded(folder):
        return Store.open(folder, vocab)
    found = mapped(folder, vocab)
    assert isinstance(found, Shards)
    check([store.folder for store in found.stores])
    return found


def check(folders: Sequence[Path]) -> None:
    """Read every byte of some stores, several at once."""
    with ThreadPoolExecutor(cores()) as threads:
        list(threads.map(Store.open, folders))


def mapped(folder: Path, vocab: str | None = None) -> Tokenized:
    """A store or shards whose bytes are known to be right: only their number is checked."""
    if not is_sharded(folder):
        found: Tokenized = Store.mapped(folder)
    else:
        with naming(folder / LIST):
            header = read_json(inside(folder, LIST), 8 * MEGABYTE)
            check_list(header)
        if header.get("sha256") != seal(header):
            raise BadInput(damaged(folder / LIST, header.get("sha256"), seal(header)))
        found = Shards(folder, stores_in(folder, header["shards"]), header)
    if vocab is not None and found.about.get("vocab") != vocab:
        raise BadInput(other_vocabulary(folder, found.about.get("vocab"), vocab))
    return found


def write_list(folder: Path, stores: Sequence[Store], about: dict[str, Any]) -> None:
    """Make shards one whole."""
    header = {"format": FORMAT, "about": about, "shards": [store.hash for store in stores]}
    write_json(folder / LIST, {**header, "sha256": seal(header)})


def check_list(header: dict[str, Any]) -> None:
    if header.get("format") != FORMAT:
        raise BadInput(
            f"format is {short(header.get('format'))}; this version of heedful reads {FORMAT}: "
            f"delete the folder, and a run that needs it makes it again"
        )
    shards, about = header.get("shards"), header.get("about")
    if not isinstance(shards, list) or not 0 < len(shards) <= MOST:
        raise BadInput(f"shards is {short(shards)}, where a list of 1 to {MOST} hashes is expected")
    if not isinstance(about, dict):
        raise BadInput(f"about is {short(about)}, where an object {{...}} is expected")


def stores_in(folder: Path, seals: list[Any]) -> list[Store]:
    """The shards of a list, in its order, and no others."""
    found = []
    for number, expected in enumerate(seals):
        path = folder / shard_name(number)
        if not path.is_dir() or path.is_symlink():
            again = f"delete {folder}, and a run that needs it makes it again"
            raise BadInput(one_line(f"{path} is missing: {again}"))
        store = Store.mapped(path)
        if store.hash != expected:
            raise BadInput(damaged(path, expected, store.hash))
        found.append(store)
    sizes = {(store.vocab_size, *store.fields) for store in found}
    if len(sizes) > 1:
        kinds = short(sorted(sizes))
        raise BadInput(one_line(f"{folder} has shards of different kinds: {kinds}; delete it"))
    return found
