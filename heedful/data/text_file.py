"""The bytes of a text file or of a part of one, plain or gzip, read in constant memory, and its lines.

A line ends with LF or CRLF and nothing else: a text may hold any of Unicode's other line ends, and splitting
there would put two files out of step.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple, Protocol

from ..errors import BadInput
from ..files import naming, one_line, present
from .report import Fault, too_long, with_nul

CHUNK = 1 << 16  # bytes read at a time
BYTES = 4  # of the longest character in UTF-8
GZIP, BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
FOREIGN = {
    b"\xff\xfe": "UTF-16 text: convert it with iconv -f utf-16 -t utf-8",
    b"\xfe\xff": "UTF-16 text: convert it with iconv -f utf-16 -t utf-8",
    b"PK\x03\x04": "a zip file: unpack it first",
    b"BZh": "compressed by bzip2: unpack it first, or use gzip",
    b"\xfd7zXZ": "compressed by xz: unpack it first, or use gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first, or use gzip",
}


class Section(NamedTuple):
    """A part of a plain file, or all of a file."""

    path: str
    start: int
    stop: int  # one past its last byte

    @classmethod
    def whole(cls, path: str | Path) -> Section:
        """All of a file, however long it is."""
        return cls(str(path), 0, sys.maxsize)

    @property
    def bytes(self) -> int:
        return self.stop - self.start


class Checksum:
    """The hash and the lines of the bytes that were read, unzipped."""

    def __init__(self) -> None:
        self.sha256, self.bytes, self.lines = hashlib.sha256(), 0, 0

    def add(self, data: bytes) -> None:
        self.sha256.update(data)
        self.bytes += len(data)
        self.lines += data.count(b"\n")


class Bytes(Protocol):
    def read1(self, size: int) -> bytes: ...


class Between:
    """The bytes of a file from one place to another."""

    def __init__(self, file: BufferedReader, start: int, stop: int) -> None:
        file.seek(start)
        self._file, self._left = file, stop - start

    def read1(self, size: int) -> bytes:
        data = self._file.read1(min(size, self._left))
        self._left -= len(data)
        return data


class TextFile:
    """The bytes of a plain or gzip file, less a byte order mark, and the line they have reached."""

    def __init__(
        self, path: Path, file: Bytes, checksum: Checksum | None = None, begins: bool = True
    ) -> None:
        """begins: whether the bytes are the first ones of the file."""
        self.path, self.line = path, 1
        self._file, self._tally, self._started = file, checksum, not begins

    def read(self) -> bytes:
        """The next bytes, at most about 64 KiB; none at the end."""
        data = self._read()
        if not self._started:
            self._started = True
            while len(data) <= len(BOM) and (more := self._read()):
                data += more
            self._refuse_foreign(data)
            data = data.removeprefix(BOM)
        self.line += data.count(b"\n")
        return data

    def _read(self) -> bytes:
        # One read of what lies below, so that a fault takes nothing with it that came before.
        try:
            data = self._file.read1(CHUNK)
        except EOFError:
            raise BadInput(self._at("the gzip file breaks off here: copy or make it again")) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BadInput(self._at(f"the gzip file is damaged: {error}")) from None
        except OSError as error:
            raise BadInput(self._at(f"cannot be read: {error.strerror}")) from None
        if self._tally is not None:
            self._tally.add(data)
        return data

    def _at(self, why: str) -> str:
        return one_line(f"{self.path}:{self.line}: {why}")

    def _refuse_foreign(self, data: bytes) -> None:
        for start, what in FOREIGN.items():
            if data.startswith(start):
                raise BadInput(one_line(f"{self.path} is {what}"))


@contextmanager
def open_text(path: str | Path | Section, checksum: Checksum | None = None) -> Iterator[TextFile]:
    """A regular file, plain or gzip by its content, whatever its name; of a plain one perhaps a section."""
    section, path = (path, Path(path.path)) if isinstance(path, Section) else (None, Path(path))
    with naming(path):
        refuse_irregular(path)
        file = path.open("rb")
    with file:
        if is_zipped(file):
            with gzip.GzipFile(fileobj=file) as content:
                yield TextFile(path, content, checksum)
        elif section is None:
            yield TextFile(path, file, checksum)
        else:
            between = Between(file, section.start, section.stop)
            yield TextFile(path, between, checksum, begins=section.start == 0)


def is_zipped(file: BufferedReader) -> bool:
    """Whether a file that was just opened is gzip, by its content."""
    return file.peek(len(GZIP)).startswith(GZIP)


def refuse_irregular(path: Path) -> None:
    """A pipe may never answer, and texts are read more than once."""
    if not path.exists():
        raise BadInput(f"{path} is a link that leads nowhere" if present(path) else f"{path} is missing")
    if path.is_dir():
        raise BadInput(f"{path} is a folder, where a file is expected")
    if not path.is_file():
        raise BadInput(f"{path} is not a regular file: write what it gives into one first")


def raw_lines(file: TextFile, most: int) -> Iterator[bytes]:
    """Lines without LF; of one that is longer than `most` bytes, enough to see that it is."""
    rest = b""
    while chunk := file.read():
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        rest = rest[: most + 2]  # one more than allowed, and perhaps a CR
    if rest:
        yield rest


def judge(raw: bytes, limit: int) -> str | Fault:
    """The text of a line, or what is wrong with it."""
    raw = raw.removesuffix(b"\r")
    if len(raw) > BYTES * limit:
        return too_long(limit)
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        return Fault("not UTF-8", f"not UTF-8: byte {error.start + 1} of the line is no part of a character")
    if "\0" in line:
        return with_nul(line)
    return too_long(limit) if len(line) > limit else line
