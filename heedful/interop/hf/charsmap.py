"""How SentencePiece cleans a text before it cuts it: characters are replaced by a table, spaces are squeezed.

The table is a trie over UTF-8 bytes. At every place of a text its longest entry is replaced, be it one
character or several (a letter and the marks upon it). This is `Normalizer::Normalize` of
https://github.com/google/sentencepiece/blob/master/src/normalizer.cc
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from .sentencepiece import USER, Pieces

SPACE = "▁"  # what stands for a space within pieces
PLAIN = range(0x20, 0x7F)  # printable ASCII


class Charsmap:
    """A table of texts and what to put in their place."""

    def __init__(self, table: bytes) -> None:
        """table: the size of a trie, the trie, and texts that end at a zero, all checked before."""
        size = int.from_bytes(table[:4], "little")
        self.units = struct.unpack_from(f"<{size // 4}I", table, 4) if table else ()
        self.texts = table[4 + size :]

    def longest(self, data: bytes, at: int) -> tuple[int, str] | None:
        """The bytes of the longest entry that begins at a place of a text, and its replacement."""
        if not self.units:
            return None
        place, found = offset(self.units[0]), None
        for end in range(at, len(data)):
            place ^= data[end]
            unit = self.units[place]
            if unit & 0x800000FF != data[end]:
                break
            place ^= offset(unit)
            if unit & 256:
                found = (end + 1 - at, self.units[place] & 0x7FFFFFFF)
        if found is None:
            return None
        length, start = found
        return length, self.texts[start : self.texts.index(b"\0", start)].decode()

    def has_entry_of(self, letters: Sequence[int]) -> bool:
        """Whether an entry consists of these bytes alone."""
        pending = [offset(self.units[0])] if self.units else []
        while pending:
            place = pending.pop()
            for letter in letters:
                unit = self.units[place ^ letter]
                if unit & 0x800000FF == letter:
                    if unit & 256:
                        return True
                    pending.append(place ^ letter ^ offset(unit))
        return False


def offset(unit: int) -> int:
    """From a unit of the trie to those that follow it."""
    return (unit >> 10) << ((unit & 512) >> 6)


class Cleaner:
    """Clean texts as a SentencePiece file says."""

    def __init__(self, pieces: Pieces) -> None:
        self.table = Charsmap(pieces.charsmap)
        self.dummy_prefix, self.squeezes = pieces.dummy_prefix, pieces.squeezes
        own = (pieces.names[n].encode() for n in pieces.of_kind(USER))
        self.own = sorted(own, key=len, reverse=True)  # pieces of the user's stay as they are
        self.simple = not self.own and not self.table.has_entry_of(PLAIN)

    def __call__(self, text: str) -> tuple[str, list[int]]:
        """The clean text, and where each of its characters stood; the last entry is where the text ended."""
        letters: list[str] = []
        places: list[int] = []
        after = True  # a space, or the beginning
        for put, place in self.steps(text):
            if self.squeezes and after:
                put = put.lstrip(" ")
            letters += put
            places += [place] * len(put)
            after = put.endswith(" ") if put else after
        found = "".join(letters).replace(" ", SPACE)
        if self.dummy_prefix and text:
            found, places = SPACE + found, [*(places[:1] or [0]), *places]
        if self.squeezes:
            found = found.rstrip(SPACE)
        return found, [*places[: len(found)], end_of(text, places, len(found))]

    def steps(self, text: str) -> Iterator[tuple[str, int]]:
        """(what stands in the place of some characters, where they stood), from first to last."""
        if self.simple and text.isascii() and text.isprintable():
            yield from zip(text, range(len(text)), strict=True)
            return
        data, at, place = text.encode(), 0, 0
        while at < len(data):
            length, put = self.step(data, at)
            yield put, place
            place += len(data[at : at + length].decode())
            at += length

    def step(self, data: bytes, at: int) -> tuple[int, str]:
        """How many bytes are read, and what stands in their place."""
        for piece in self.own:
            if data.startswith(piece, at):
                return len(piece), piece.decode()
        found = self.table.longest(data, at)
        if found is not None:
            return found
        length = 1 + (data[at] >= 0xC0) + (data[at] >= 0xE0) + (data[at] >= 0xF0)
        return length, data[at : at + length].decode()


def end_of(text: str, places: list[int], kept: int) -> int:
    """Where the text ended that was kept: before the spaces that were cut off."""
    return places[kept] if kept < len(places) else len(text)
