"""Careful reading of binary files: every length is checked against the size of the file before it is used."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BadInput
from ..files import short


class ByteReader:
    """A memory-mapped file, and the place in it from which the next thing is read."""

    def __init__(self, path: Path, view: memoryview) -> None:
        self.path, self.view, self.at = path, view, 0

    @property
    def left(self) -> int:
        return len(self.view) - self.at

    def take(self, count: int, what: str) -> memoryview:
        """The next `count` bytes."""
        if not 0 <= count <= self.left:
            raise self.broken(f"{what} would take {count} bytes, and {self.left} are left")
        self.at += count
        return self.view[self.at - count : self.at]

    def number(self, kind: str, what: str) -> int:
        """The next number, of a `struct` kind, its lowest byte first."""
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(kind), what))[0]

    def several(self, count: int, smallest: int, what: str) -> int:
        """A count, if so many things of at least `smallest` bytes can follow."""
        if count * smallest > self.left:
            raise self.broken(f"it announces {count} {what}, and {self.left} bytes are left for them")
        return count

    def text(self, count: int, what: str) -> str:
        """The next `count` bytes as UTF-8."""
        data = bytes(self.take(count, what))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.broken(f"{what} is not UTF-8 text: {short(data)}") from None

    def broken(self, why: str) -> BadInput:
        return BadInput(f"{self.path} is damaged or cut short: {why}; put a whole copy there")


@contextmanager
def mapped(path: Path) -> Iterator[ByteReader]:
    """A file's bytes; none of it is in memory before it is looked at. What is kept of it must be copied."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise BadInput(f"{path} is empty: put a whole copy there")
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    yield ByteReader(path, memoryview(held))  # closed when nothing holds a view of it any more
