"""SentencePiece .model files: pieces of words with their scores, and how texts are normalized.

Such a file is a protocol buffer: fields, each with a number, a kind and a value. It is read here byte by
byte, every length checked against what is left, so that no other package is needed and a damaged file is
refused. The fields are those of
https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import Path

from ...errors import BadInput
from ...files import MEGABYTE, read_bytes, short

LIMIT = 8 * MEGABYTE  # Gemma, of 256,000 pieces, has 4
LONGEST = 256  # bytes of a piece; those that are learned have at most 16 characters
MOST = 300_000  # pieces; Gemma has 256,000
NODES = 1 << 20  # places in the library's tree of all pieces, which takes some 340 bytes for each
MERGES = 1 << 19  # LLaMA, of 32,000 pieces, has 61,000

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM, BPE = 1, 2  # kinds of models; there are also "word" and "char", which no published model is
WHOLE, SOME = 0, 2  # kinds of values: a number; a length and as many bytes
SIZES = {1: 8, 5: 4}  # and those of 8 bytes and of 4

Place = tuple[int, int]
Value = int | Place


@dataclass
class Pieces:
    """What a file says."""

    path: Path
    names: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    model: int = UNIGRAM
    unknown: int = 0  # the number of the piece that stands for what no piece has
    byte_fallback: bool = False  # what no piece has is spelled by its bytes
    charsmap: bytes = b""  # a table of characters and what to put in their place
    dummy_prefix: bool = True  # a space goes before a text
    squeezes: bool = True  # runs of spaces become one, and none stands at an end

    def of_kind(self, *kinds: int) -> list[int]:
        """The ids of pieces of these kinds."""
        return [number for number, kind in enumerate(self.kinds) if kind in kinds]


def read_pieces(path: Path) -> Pieces:
    """The pieces of a .model file, every one checked."""
    found = Pieces(path)
    wire = Wire(path, read_bytes(path, LIMIT))
    for number, value in wire.fields((0, len(wire.data))):
        if number == 1:
            add_piece(found, wire, wire.place(value))
        elif number == 2:
            read_training(found, wire, wire.place(value))
        elif number == 3:
            read_cleaning(found, wire, wire.place(value))
    check_pieces(found)
    return found


# The format


class Wire:
    """The bytes of a protocol buffer. A message, or a text, is a place in them: (its beginning, its end)."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data = path, data

    def fields(self, place: Place) -> Iterator[tuple[int, Value]]:
        """(number of the field, its value) of everything in a message."""
        at, end = place
        while at < end:
            tag, at = self.varint(at, end)
            number, kind = tag >> 3, tag & 7
            if kind == SOME:
                size, at = self.varint(at, end)
                value: Value = (at, at + size)
            elif kind == WHOLE:
                value, at = self.varint(at, end)
                size = 0
            elif kind in SIZES:
                size = SIZES[kind]
                value = (at, at + size)
            else:
                raise self.broken(f"field {number} is of a kind {kind}, which no such file has")
            at += size
            if at > end:
                raise self.broken(f"field {number} would take {size} bytes, and {end - at + size} are left")
            yield number, value

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """A number, and where it ends: seven bits a byte, lowest first; the eighth bit: more follow."""
        value = shift = 0
        while at < end and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
            shift += 7
        raise self.broken("a number has more than ten bytes" if shift == 70 else "a number has no end")

    def place(self, value: Value) -> Place:
        if isinstance(value, int):
            raise self.broken(f"it has {value} where fields or a text are expected")
        return value

    def whole(self, value: Value) -> int:
        if not isinstance(value, int):
            raise self.broken("it has a text where a number is expected")
        return value

    def real(self, value: Value) -> float:
        start, end = self.place(value)
        if end - start != 4:
            raise self.broken(f"it has {end - start} bytes where a score is expected")
        return struct.unpack_from("<f", self.data, start)[0]

    def text(self, value: Value) -> str:
        start, end = self.place(value)
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise self.broken(f"it has the text {short(self.data[start:end])}, which is not UTF-8") from None

    def broken(self, why: str) -> BadInput:
        return BadInput(f"{self.path} is damaged or cut short: {why}; put a whole copy there")


def add_piece(found: Pieces, wire: Wire, place: Place) -> None:
    name, score, kind = "", 0.0, NORMAL
    for number, value in wire.fields(place):
        if number == 1:
            name = wire.text(value)
        elif number == 2:
            score = wire.real(value)
        elif number == 3:
            kind = wire.whole(value)
    if not name or len(found.names) == MOST:
        raise wire.broken(f"piece {len(found.names)} has no name, or is one of more than {MOST}")
    found.names.append(name)
    found.scores.append(score)
    found.kinds.append(kind)


def read_training(found: Pieces, wire: Wire, place: Place) -> None:
    """What the file remembers of how it was made."""
    for number, value in wire.fields(place):
        if number == 3:
            found.model = wire.whole(value)
        elif number == 24 and wire.whole(value):
            raise BadInput(f"{found.path} puts spaces after words rather than before, which is not read")
        elif number == 35:
            found.byte_fallback = bool(wire.whole(value))
        elif number == 40:
            found.unknown = wire.whole(value)


def read_cleaning(found: Pieces, wire: Wire, place: Place) -> None:
    for number, value in wire.fields(place):
        if number == 2:
            start, end = wire.place(value)
            found.charsmap = wire.data[start:end]
        elif number == 3:
            found.dummy_prefix = bool(wire.whole(value))
        elif number == 4:
            found.squeezes = bool(wire.whole(value))
        elif number == 5 and not wire.whole(value):
            raise BadInput(f"{found.path} leaves spaces as they are, which no published model does")


# What must hold


def check_pieces(found: Pieces) -> None:
    """Everything that reading on, or a text later, could trip over."""
    path = found.path
    if not found.names:
        raise BadInput(f"{path} has no pieces, so it is no SentencePiece model: put a whole copy there")
    if found.model not in (UNIGRAM, BPE):
        raise BadInput(f"{path} is of a kind {found.model}; heedful reads unigram (1) and BPE (2) models")
    if max(len(name.encode()) for name in found.names) > LONGEST:
        raise BadInput(f"{path} has a piece of more than {LONGEST} bytes")
    if found.model == UNIGRAM:
        check_tree(path, found.names)
    seen: set[str] = set()
    for name in found.names:
        if name in seen:
            raise BadInput(f"{path} has the piece {short(name)} twice")
        seen.add(name)
    for name, score, kind in zip(found.names, found.scores, found.kinds, strict=True):
        if not math.isfinite(score) or not NORMAL <= kind <= BYTE:
            raise BadInput(f"{path} gives the piece {short(name)} the score {score} and the kind {kind}")
    if found.of_kind(UNKNOWN) != [found.unknown]:
        raise BadInput(f"{path} says that piece {found.unknown} stands for the unknown, which does not hold")
    check_charsmap(found)


def check_tree(path: Path, names: Iterable[str]) -> None:
    """Refuse pieces whose tree of beginnings would take more memory than any published one's."""
    nodes, before = 0, b""
    for name in sorted(name.encode() for name in names):
        nodes += len(name) - len(commonprefix([before, name]))
        before = name
    if nodes > NODES:
        raise BadInput(f"{path} has pieces with {nodes} different beginnings; at most {NODES} are read")


def check_charsmap(found: Pieces) -> None:
    """A table is a trie's size, the trie, and texts; no path may lead out of it or into half a character."""
    table, path = found.charsmap, found.path
    if not table:
        return
    size = int.from_bytes(table[:4], "little")
    if size % 1024 or not 0 < size <= len(table) - 4:
        raise BadInput(f"{path} has a table of characters of {len(table)} bytes with a trie of {size}")
    units = struct.unpack_from(f"<{size // 4}I", table, 4)
    texts = table[4 + size :]
    try:
        texts.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path} has a table of characters that is not UTF-8 text") from None
    for place, unit in enumerate(units):
        if unit >> 31:
            continue  # a leaf: what it says is looked at from its parent
        block = place ^ ((unit >> 10) << ((unit & 512) >> 6))
        if block | 255 >= len(units):
            raise BadInput(f"{path} has a table of characters that leads out of itself")
        if unit & 256:
            start = units[block] & 0x7FFFFFFF
            if start >= len(texts) or 128 <= texts[start] < 192:
                raise BadInput(f"{path} has a table of characters that leads into nothing")


# Merges


def merges_of(found: Pieces) -> list[tuple[str, str]]:
    """The pairs that make a piece out of two, in the order they are tried: by the result, then by length."""
    numbers = {name: number for number, name in enumerate(found.names)}
    pairs: list[tuple[int, str, str]] = []
    for number, name in enumerate(found.names):
        ways = [
            (name[:at], name[at:])
            for at in range(1, len(name))
            if name[:at] in numbers and name[at:] in numbers
        ]
        ways.sort(key=lambda way: (numbers[way[0]], numbers[way[1]]))
        pairs += [(number, left, right) for left, right in ways]
        if len(pairs) > MERGES:
            raise BadInput(f"{found.path} has more than {MERGES} ways of making pieces out of two")
    pairs.sort(key=lambda pair: (pair[0], len(pair[1]), len(pair[2])))
    return [(left, right) for _, left, right in pairs]
