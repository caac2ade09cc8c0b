"""Tokenized corpora on disk, mapped into memory, so that one larger than memory works.

    FOLDER/source.bin    every token of the field, row after row (uint16, uint32 for large vocabularies, uint8
    for bytes) FOLDER/source.idx    where each row begins, and at last where the last one ends (int64)
    FOLDER/store.json    how many there are of everything, what they were made from, and the SHA-256 of each
    file

Files are written in the ordinary way: a full disk is then an error, and not the end of the process. They are
read through once when a store is opened: a flipped bit would otherwise train another model, and nobody would
know.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import BadInput, DiskFull
from ..files import MEGABYTE, flush, inside, is_plain, naming, one_line, present, read_json, short

HEADER = "store.json"
FORMAT = 2
TYPES = {"uint8": "B", "uint16": "H", "uint32": "I"}  # and their letter in `array`
BYTES = 256  # the vocabulary of what is no text, but bytes
LARGEST = 2**63  # of any number here

Tokens = Sequence[int] | np.ndarray


class Store:
    """Tokenized texts on disk, mapped into memory. `write_store` makes one, and `Store.open` opens it.

    Args:
        folder: The folder of its files.
        header: What store.json says.
        fields: The mapped files of each field.

    Attributes:
        folder: The folder of its files.
        fields: The mapped files of each field.
        vocab_size: Number of tokens in the vocabulary.
        about: What the store was made from.

    Example:
        >>> rows = [{"source": [7, 8, 9], "target": [7]}, {"source": [10], "target": [8, 9]}]
        >>> _ = write_store("tokens", {"source": "English", "target": "French"}, iter(rows), 20, {})
        >>> store = Store.open("tokens")
        >>> len(store), store.row("source", 0).tolist(), store.lengths("target").tolist()
        (2, [7, 8, 9], [1, 2])
        >>> store.stream("source").tolist(), store.tokens("target")
        ([7, 8, 9, 10], 3)
    """

    def __init__(self, folder: Path, header: dict[str, Any], fields: dict[str, Field]) -> None:
        self.folder, self.fields = folder, fields
        self.vocab_size: int = header["vocab_size"]
        self.about: dict[str, Any] = header["about"]
        self._rows: int = header["rows"]
        self._seal: str = header["sha256"]
        self._hashes: dict[str, dict[str, str]] = {n: spec["sha256"] for n, spec in header["fields"].items()}

    @classmethod
    def open(cls, folder: str | Path, vocab: str | None = None) -> Store:
        """Open a store and check every byte of it.

        Args:
            folder: The folder that `write_store` wrote.
            vocab: The hash of the vocabulary that it must have been made with. None: any.

        Returns:
            `Store`.

        Raises:
            BadInput: A file is damaged or missing, or the vocabulary is another one.
        """
        store = cls.mapped(folder)
        for name, hashes in store._hashes.items():
            check_bytes(store.folder, name, hashes)
        if vocab is not None and store.about.get("vocab") != vocab:
            raise BadInput(other_vocabulary(store.folder, store.about.get("vocab"), vocab))
        return store

    @classmethod
    def mapped(cls, folder: str | Path) -> Store:
        """A store whose bytes are known to be right: only their number is checked."""
        folder = Path(folder)
        with naming(folder / HEADER):
            header = read_json(inside(folder, HEADER))
            check_header(header)
        check_seal(folder, header)
        fields = {name: map_field(folder, name, spec, header) for name, spec in header["fields"].items()}
        return cls(folder, header, fields)

    def __len__(self) -> int:
        return self._rows

    @property
    def hash(self) -> str:
        """SHA-256 of store.json, which has the hashes of the files: equal hashes mean equal rows."""
        return self._seal

    def row(self, field: str, i: int) -> np.ndarray:
        """The tokens of one row, not copied.

        Args:
            field: Name of the field.
            i: Number of the row.

        Returns:
            An array of token numbers.
        """
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        part = self.fields[field]
        start, end = int(part.offsets[i]), int(part.offsets[i + 1])
        if not 0 <= start <= end <= len(part.tokens):
            refuse_row(self.folder, field, i, start, end)
        return part.tokens[start:end]

    def lengths(self, field: str) -> np.ndarray:
        """How many tokens each row has.

        Args:
            field: Name of the field.

        Returns:
            An array of lengths.
        """
        offsets = self.fields[field].offsets
        lengths = np.diff(offsets)
        if len(lengths) and lengths.min() < 0:
            i = int(lengths.argmin())
            refuse_row(self.folder, field, i, int(offsets[i]), int(offsets[i + 1]))
        return lengths

    def stream(self, field: str) -> np.ndarray:
        """All tokens one after the other, not copied.

        Args:
            field: Name of the field.

        Returns:
            An array of token numbers.
        """
        return self.fields[field].tokens

    def tokens(self, field: str) -> int:
        """How many tokens there are.

        Args:
            field: Name of the field.

        Returns:
            The number of tokens.
        """
        return len(self.fields[field].tokens)

    def __reduce__(self) -> Any:
        return Store.mapped, (self.folder,)  # another process maps the files again instead of getting a copy


@dataclass(frozen=True)
class Field:
    """The mapped files of one field."""

    tokens: np.ndarray
    offsets: np.ndarray


def refuse_row(folder: Path, field: str, i: int, start: int, end: int) -> None:
    raise BadInput(
        one_line(f"{folder / field}.idx is damaged: row {i} goes from token {start} to {end}; make it again")
    )


# Reading


def check_header(header: dict[str, Any]) -> None:
    """Every number is one that files can have."""
    if header.get("format") != FORMAT:
        raise BadInput(
            f"format is {short(header.get('format'))}; this version of heedful reads {FORMAT}: "
            f"delete the folder, and a run that needs it makes it again"
        )
    if header.get("dtype") not in list(TYPES):  # it may be no text at all
        raise BadInput(f"dtype is {short(header.get('dtype'))}, where {' or '.join(TYPES)} is expected")
    for name in ("fields", "about"):
        if not isinstance(header.get(name), dict):
            raise BadInput(f"{name} is {short(header.get(name))}, where an object {{...}} is expected")
    numbers = [("rows", header.get("rows")), ("vocab_size", header.get("vocab_size"))]
    for name, spec in header["fields"].items():
        if not is_plain(name) or not isinstance(spec, dict):
            raise BadInput(f"there is a field {short(name)}: {short(spec)}, which cannot be read")
        numbers += [(f"{what} of {name}", spec.get(what)) for what in ("tokens", "bytes")]
        if not isinstance(spec.get("sha256"), dict) or spec["sha256"].keys() != {"bin", "idx"}:
            raise BadInput(f"sha256 of {name} is {short(spec.get('sha256'))}, where two hashes are expected")
    for name, number in numbers:
        if type(number) is not int or not 0 <= number < LARGEST:
            raise BadInput(f"{name} is {short(number)}, where a number from 0 to 2^63 - 1 is expected")


def check_seal(folder: Path, header: dict[str, Any]) -> None:
    """What a header says is what was written."""
    if header.get("sha256") != seal(header):
        raise BadInput(damaged(folder / HEADER, header.get("sha256"), seal(header)))


def seal(header: dict[str, Any]) -> str:
    """The SHA-256 of all that a header says, be it spaced as it may."""
    said = {name: value for name, value in header.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def check_bytes(folder: Path, name: str, hashes: dict[str, str]) -> None:
    """The files of a field have the bytes that were written."""
    for kind, expected in hashes.items():
        path = folder / f"{name}.{kind}"
        with naming(path), path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise BadInput(damaged(path, expected, found))


def damaged(path: Path, expected: object, found: str) -> str:
    again = "delete its folder, and a run that needs it makes it again"
    return one_line(f"{path} is damaged: expected SHA-256 {expected!s:.64}, found {found}: {again}")


def other_vocabulary(folder: Path, made: object, now: str) -> str:
    told = f"{folder} was made with another vocabulary than the one beside it"
    remedy = "put the old tokenizer.json back, or start another run"
    return one_line(f"{told}: {remedy} (SHA-256 {short(made)}, now {short(now)})")


def map_field(folder: Path, name: str, spec: dict[str, Any], header: dict[str, Any]) -> Field:
    tokens = map_file(folder, f"{name}.bin", header["dtype"], spec["tokens"])
    if tokens.nbytes != spec["bytes"]:
        where = one_line(str(folder / HEADER))
        raise BadInput(f"{where} gives {name} {spec['bytes']} bytes, but its tokens have {tokens.nbytes}")
    offsets = map_file(folder, f"{name}.idx", "int64", header["rows"] + 1)
    ends = int(offsets[0]), int(offsets[-1])
    if ends != (0, len(tokens)):
        path = one_line(str(folder / name))
        raise BadInput(f"{path}.idx goes from {ends[0]} to {ends[1]}, but {path}.bin from 0 to {len(tokens)}")
    return Field(tokens, offsets)


def map_file(folder: Path, name: str, dtype: str, count: int) -> np.ndarray:
    """A file of `count` numbers, if it has as many bytes as they need."""
    kind = np.dtype(dtype).newbyteorder("<")
    with naming(folder / name):
        path = inside(folder, name)
        size = path.stat().st_size
        if size != count * kind.itemsize:
            raise BadInput(
                f"{path} has {size} bytes, but {HEADER} speaks of {count * kind.itemsize}: "
                f"make the store again"
            )
        if not count:
            return np.empty(0, kind)  # nothing cannot be mapped
        return np.asarray(np.memmap(path, kind, "r"))


# Writing


def write_store(
    folder: str | Path,
    fields: Mapping[str, str],
    rows: Iterator[Mapping[str, Tokens | Iterator[Tokens]]],
    vocab_size: int,
    about: dict[str, Any],
) -> Store:
    """Write rows of tokens to disk. A failure leaves nothing behind.

    Args:
        folder: The folder to write, which must not be there yet.
        fields: Names of the fields, each with a few words on what it holds.
        rows: Rows of token numbers, by field; a long row may come in parts.
        vocab_size: Number of tokens in the vocabulary.
        about: What the tokens were made from; it is kept in store.json.

    Returns:
        The `Store`.

    Raises:
        BadInput: The folder is there already, or a token is not in the vocabulary.
        DiskFull: The disk is full.

    Example:
        >>> store = write_store("one", {"tokens": "a text"}, iter([{"tokens": [7, 8]}]), 10, {"from": "me"})
        >>> store.about, len(store)
        ({'from': 'me'}, 1)
    """
    folder = Path(folder)
    refuse_fields(fields)
    with writing(folder) as aside:
        dtype = "uint8" if vocab_size == BYTES else "uint16" if vocab_size <= 65536 else "uint32"
        header: dict[str, Any] = {
            "format": FORMAT,
            "dtype": dtype,
            "vocab_size": vocab_size,
            "about": about,
        }
        with ExitStack() as files:
            writers = {name: FieldWriter(aside, name, dtype, vocab_size, files) for name in fields}
            count = write_rows(writers, rows)
        header["rows"] = count
        header["fields"] = {name: writer.counts(fields[name]) for name, writer in writers.items()}
        text = json.dumps({**header, "sha256": seal(header)}, indent=1, allow_nan=False)
        if len(text) > MEGABYTE:  # it could not be read again
            raise BadInput(one_line(f"more is said about {folder} than the {MEGABYTE} bytes of {HEADER}"))
        (aside / HEADER).write_text(text, encoding="utf-8")
    return Store.mapped(folder)


def refuse_fields(fields: Mapping[str, str]) -> None:
    for name in fields:
        if not is_plain(name):
            raise BadInput(f"{short(name)} cannot be the name of a field")


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A folder to write in, which becomes `folder` at the end; after a failure nothing is left of it."""
    if present(folder):
        raise BadInput(one_line(f"{folder} already exists: remove it or choose another name"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.tmp-{os.getpid()}")  # a run clears away what has such a name
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed and had our number
    aside.mkdir()
    try:
        yield aside
        for path in (*aside.iterdir(), aside):
            flush(path)
        aside.rename(folder)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(folder.parent).free
            why = f"{free} bytes are free, too few for the tokenized texts"
            full = f"the disk is full, or your share of it: {why}"
            raise DiskFull(errno.ENOSPC, full, str(folder)) from None
        raise
    flush(folder.parent)


def write_rows(
    writers: dict[str, FieldWriter], rows: Iterator[Mapping[str, Tokens | Iterator[Tokens]]]
) -> int:
    count = 0
    for row in rows:
        if row.keys() != writers.keys():
            raise BadInput(f"row {count} has the fields {', '.join(row)}, not {', '.join(writers)}")
        for name, writer in writers.items():
            writer.write(count, row[name])
        count += 1
    return count


def parts_of_row(row: Tokens | Iterator[Tokens]) -> Iterator[Tokens]:
    """The parts of a row that may be too long for memory, or the row itself."""
    return row if isinstance(row, Iterator) else iter([row])


class FieldWriter:
    """The files of one field, as they grow."""

    def __init__(self, folder: Path, name: str, dtype: str, vocab_size: int, files: ExitStack) -> None:
        self.name, self.letter, self.vocab_size, self.tokens = name, TYPES[dtype], vocab_size, 0
        self.bin: BinaryIO = files.enter_context((folder / f"{name}.bin").open("xb"))
        self.idx: BinaryIO = files.enter_context((folder / f"{name}.idx").open("xb"))
        self.hashes = {"bin": hashlib.sha256(), "idx": hashlib.sha256()}
        self.put(self.idx, "idx", array("q", [0]))

    def counts(self, holds: str) -> dict[str, Any]:
        """What store.json says of the field."""
        size = self.tokens * array(self.letter).itemsize
        hashes = {kind: found.hexdigest() for kind, found in self.hashes.items()}
        return {"holds": holds, "tokens": self.tokens, "bytes": size, "sha256": hashes}

    def write(self, number: int, row: Tokens | Iterator[Tokens]) -> None:
        """Add a row, which may come in parts."""
        for ids in parts_of_row(row):
            self.extend(number, ids)
        self.put(self.idx, "idx", array("q", [self.tokens]))

    def extend(self, number: int, ids: Tokens) -> None:
        """Add tokens to the row."""
        try:
            largest, tokens = self.tokens_of(ids)
        except (OverflowError, TypeError, ValueError) as error:
            raise BadInput(f"row {number} of {self.name} holds what is no token: {error}") from None
        if tokens and largest >= self.vocab_size:
            raise BadInput(
                f"row {number} of {self.name} has token {largest}; "
                f"the vocabulary ends at {self.vocab_size - 1}"
            )
        self.tokens += len(tokens)
        self.put(self.bin, "bin", tokens)

    def tokens_of(self, ids: Tokens) -> tuple[int, array[int]]:
        """The largest of some tokens, and all of them in the type of the file; arrays are converted whole."""
        if isinstance(ids, np.ndarray) and ids.dtype.kind == "u":
            largest, tokens = int(ids.max(initial=0)), array(self.letter)
            tokens.frombytes(ids.astype(self.letter).tobytes())
        else:
            tokens = array(self.letter, ids)
            largest = max(tokens, default=0)
        return largest, tokens

    def put(self, file: BinaryIO, kind: str, numbers: array[int]) -> None:
        data = little(numbers)
        file.write(data)
        self.hashes[kind].update(data)


def little(numbers: array[int]) -> array[int]:
    """The numbers as they stand in the file, lowest byte first."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
