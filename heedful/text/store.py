"""Tokenised corpora on disk, mapped into memory, so that one larger than memory works.

    FOLDER/source.bin    every token of the field, row after row (uint16, or uint32 for large vocabularies)
    FOLDER/source.idx    where each row begins, and at last where the last one ends (int64)
    FOLDER/store.json    how many there are of everything, and what they were made from

Files are written in the ordinary way: a full disk is then an error, and not the end of the process.
"""

from __future__ import annotations

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

from ..errors import BadInput
from ..interop.files import MEGABYTE, flush, inside, is_plain, naming, one_line, present, read_json, short

HEADER = "store.json"
FORMAT = 1
TYPES = {"uint16": "H", "uint32": "I"}  # and their letter in `array`
OFFSET = 8  # bytes
LARGEST = 2**63  # of any number here


class Store:
    """Rows of tokens in named fields."""

    def __init__(self, folder: Path, header: dict[str, Any], fields: dict[str, Field]) -> None:
        self.folder, self.fields = folder, fields
        self.vocab_size: int = header["vocab_size"]
        self.about: dict[str, Any] = header["about"]
        self._rows: int = header["rows"]

    @classmethod
    def open(cls, folder: str | Path) -> Store:
        """A store that `write_store` wrote; every size is checked before anything is mapped."""
        folder = Path(folder)
        with naming(folder / HEADER):
            header = read_json(inside(folder, HEADER))
            check_header(header)
        fields = {name: map_field(folder, name, spec, header) for name, spec in header["fields"].items()}
        return cls(folder, header, fields)

    def __len__(self) -> int:
        return self._rows

    def row(self, field: str, i: int) -> np.ndarray:
        """The tokens of one row, not copied."""
        if not 0 <= i < len(self):
            raise IndexError(f"row {i} of {len(self)}")
        part = self.fields[field]
        start, end = int(part.offsets[i]), int(part.offsets[i + 1])
        if not 0 <= start <= end <= len(part.tokens):
            refuse_row(self.folder, field, i, start, end)
        return part.tokens[start:end]

    def lengths(self, field: str) -> np.ndarray:
        """How many tokens each row has."""
        offsets = self.fields[field].offsets
        lengths = np.diff(offsets)
        if len(lengths) and lengths.min() < 0:
            i = int(lengths.argmin())
            refuse_row(self.folder, field, i, int(offsets[i]), int(offsets[i + 1]))
        return lengths

    def stream(self, field: str) -> np.ndarray:
        """All tokens one after the other, not copied."""
        return self.fields[field].tokens

    def tokens(self, field: str) -> int:
        """How many tokens there are."""
        return len(self.fields[field].tokens)

    def __reduce__(self) -> Any:
        return Store.open, (self.folder,)  # another process maps the files again instead of getting a copy


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
        raise BadInput(f"format is {short(header.get('format'))}; this version of heedful reads {FORMAT}")
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
    for name, number in numbers:
        if type(number) is not int or not 0 <= number < LARGEST:
            raise BadInput(f"{name} is {short(number)}, where a number from 0 to 2^63 - 1 is expected")


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
                f"{path} has {size} bytes, but {HEADER} speaks of {count * kind.itemsize}: make the store again"
            )
        if not count:
            return np.empty(0, kind)  # nothing cannot be mapped
        return np.asarray(np.memmap(path, kind, "r"))


# Writing


def write_store(
    folder: str | Path,
    fields: Mapping[str, str],
    rows: Iterator[dict[str, list[int]]],
    vocab_size: int,
    about: dict[str, Any],
) -> Store:
    """Write rows of tokens; `fields` says in words what each holds, `about` what it was all made from."""
    folder = Path(folder)
    refuse_fields(fields)
    with writing(folder) as aside:
        dtype = "uint16" if vocab_size <= 65536 else "uint32"
        header = {"format": FORMAT, "dtype": dtype, "vocab_size": vocab_size, "about": about}
        with ExitStack() as files:
            writers = {name: Writer(aside, name, dtype, vocab_size, files) for name in fields}
            count = write_rows(writers, rows)
        told = {name: writer.counts(fields[name]) for name, writer in writers.items()}
        text = json.dumps({**header, "rows": count, "fields": told}, indent=1, allow_nan=False)
        if len(text) > MEGABYTE:  # it could not be read again
            raise BadInput(one_line(f"more is said about {folder} than the {MEGABYTE} bytes of {HEADER}"))
        (aside / HEADER).write_text(text, encoding="utf-8")
    return Store.open(folder)


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
    aside = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed and had our number
    aside.mkdir()
    try:
        yield aside
        for path in (*aside.iterdir(), aside):
            flush(path)
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    flush(folder.parent)


def write_rows(writers: dict[str, Writer], rows: Iterator[dict[str, list[int]]]) -> int:
    count = 0
    for row in rows:
        if row.keys() != writers.keys():
            raise BadInput(f"row {count} has the fields {', '.join(row)}, not {', '.join(writers)}")
        for name, writer in writers.items():
            writer.write(count, row[name])
        count += 1
    return count


class Writer:
    """The files of one field, as they grow."""

    def __init__(self, folder: Path, name: str, dtype: str, vocab_size: int, files: ExitStack) -> None:
        self.name, self.letter, self.vocab_size, self.tokens = name, TYPES[dtype], vocab_size, 0
        self.bin: BinaryIO = files.enter_context((folder / f"{name}.bin").open("xb"))
        self.idx: BinaryIO = files.enter_context((folder / f"{name}.idx").open("xb"))
        self.idx.write(little(array("q", [0])))

    def counts(self, holds: str) -> dict[str, Any]:
        """What store.json says of the field."""
        return {"holds": holds, "tokens": self.tokens, "bytes": self.tokens * array(self.letter).itemsize}

    def write(self, number: int, ids: Sequence[int]) -> None:
        """Add a row."""
        try:
            tokens = array(self.letter, ids)
        except (OverflowError, TypeError, ValueError) as error:
            raise BadInput(f"row {number} of {self.name} holds what is no token: {error}") from None
        if tokens and max(tokens) >= self.vocab_size:
            raise BadInput(
                f"row {number} of {self.name} has token {max(tokens)}; the vocabulary ends at {self.vocab_size - 1}"
            )
        self.tokens += len(tokens)
        self.bin.write(little(tokens))
        self.idx.write(little(array("q", [self.tokens])))


def little(numbers: array[int]) -> array[int]:
    """The numbers as they stand in the file, lowest byte first."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
