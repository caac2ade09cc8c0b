"""Packing: documents side by side in rows of one length, so that almost nothing of a batch is padding.

Documents lie one after the other in a stream, each with an end token behind it (a text never becomes one, so
it marks nothing else). A model reads every token but that one, and predicts the next token of the same
document. A document that is longer than a row is cut: every piece goes on where the one before ended, and
stands alone in the attention. Where everything lies follows from the stream alone. Pairs of sentences are
packed by the longer of the two.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np

AT_ONCE = 1 << 20  # documents looked at
UNUSED = 1 << 62  # rows that nothing stands in yet: more than there are tokens


class Fitted:
    """Pieces of known sizes in rows of `length` places, as few rows as best fit needs, numbered from 0."""

    def __init__(self, sizes: np.ndarray, length: int) -> None:
        self.length, self.tokens = length, int(sizes.sum())
        self._order = np.argsort(sizes, kind="stable")  # pieces by size, those of a size as they come
        counts = np.bincount(sizes, minlength=length + 1)
        self._shelves = placed(shelves(counts, length), np.cumsum(counts) - counts)
        self._ends = np.cumsum([shelf.rows for shelf in self._shelves], dtype=np.int64)
        self.rows = int(self._ends[-1]) if len(self._ends) else 0

    @property
    def filled(self) -> float:
        """The share of all rows' places that tokens stand in."""
        return self.tokens / max(1, self.rows * self.length)

    def pieces(self, number: int) -> list[int]:
        """Which pieces stand in a row, the longest first."""
        if not 0 <= number < self.rows:
            raise IndexError(f"row {number} of {self.rows}")
        which = int(np.searchsorted(self._ends, number, "right"))
        shelf = self._shelves[which]
        place = number - int(self._ends[which]) + shelf.rows
        found: list[int] = []
        for (_, copies), first in zip(shelf.sizes, shelf.firsts, strict=True):
            at = first + place * copies
            found += self._order[at : at + copies].tolist()
        return found

    def sizes(self, number: int) -> list[int]:
        """The sizes of those pieces."""
        shelf = self._shelves[int(np.searchsorted(self._ends, number, "right"))]
        return [size for size, copies in shelf.sizes for _ in range(copies)]


class Packing(Fitted):
    """Documents side by side in rows of one length, so that almost nothing of a batch is padding.

    Rows are filled by best fit, the longest first (Krell et al. 2021). A document that is longer than a row
    is cut into pieces.

    Args:
        documents: Tokens of each document, its end included.
        length: Tokens of a row.

    Attributes:
        rows: Number of rows.
        documents: Number of documents that are not empty.

    Example:
        >>> packing = Packing(np.array([4, 7, 3, 3]), length=6)  # ends count here, and are left out below
        >>> packing.rows, packing.filled
        (3, 0.7222222222222222)
        >>> packing.row(0)  # (start, size)
        [(4, 6)]
    """

    def __init__(self, documents: np.ndarray, length: int) -> None:
        """documents: how many tokens each has, its end included."""
        self.documents = int((documents > 1).sum())
        ends = np.cumsum(documents)
        starts, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        for at in range(0, len(documents), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            first, size = pieces_of(ends[some] - documents[some], documents[some] - 1, length)
            starts.append(first)
            sizes.append(size.astype(np.int32))
        self._starts = np.concatenate(starts)
        super().__init__(np.concatenate(sizes), length)

    def row(self, number: int) -> list[tuple[int, int]]:
        """What stands in a row.

        Args:
            number: Number of the row.

        Returns:
            (start in the stream, size) of every piece, the longest first.
        """
        starts = self._starts[self.pieces(number)].tolist()
        return list(zip(starts, self.sizes(number), strict=True))


def pieces_of(starts: np.ndarray, sizes: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and sizes of pieces that are no longer than a row."""
    counts = -(-sizes // length)
    whose = np.repeat(np.arange(len(starts)), counts)
    place = np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)  # in its document
    return starts[whose] + place * length, np.minimum(sizes[whose] - place * length, length)


@dataclass
class Shelf:
    """Rows that hold pieces of the same sizes: (size, how many of it in a row), and how much room is left."""

    rows: int
    room: int
    sizes: tuple[tuple[int, int], ...] = ()
    firsts: tuple[int, ...] = ()  # where the pieces of each size begin, in the order of sizes


def shelves(counts: np.ndarray, length: int) -> list[Shelf]:
    """Best fit, longest first: each piece goes where it leaves the least room.

    counts: how many pieces there are of each size. Pieces of a size are all alike, and so are rows that hold
    the same sizes: so many are filled at once, and the time this takes follows from `length` only (after
    Krell et al. 2021, https://arxiv.org/abs/2107.02027).
    """
    full: list[Shelf] = []
    by_room = {length: [Shelf(UNUSED, length)]}
    rooms = [length]
    for size in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[size])
        while left:
            room = rooms[bisect_left(rooms, size)]
            shelf = by_room[room][-1]
            copies = min(room // size, left)
            rows = min(shelf.rows, left // copies)
            left -= rows * copies
            shelf.rows -= rows
            if not shelf.rows:
                by_room[room].pop()
                if not by_room[room]:
                    rooms.remove(room)
            now = Shelf(rows, room - copies * size, (*shelf.sizes, (size, copies)))
            if not now.room:
                full.append(now)
                continue
            if not by_room.setdefault(now.room, []):
                insort(rooms, now.room)
            by_room[now.room].append(now)
    some = [shelf for room in rooms for shelf in by_room[room] if shelf.sizes]
    return full + some


def placed(found: list[Shelf], firsts: np.ndarray) -> list[Shelf]:
    """Shelves that know which pieces stand in them: of every size, those that no shelf before has taken."""
    taken = firsts.tolist()
    for shelf in found:
        shelf.firsts = tuple(taken[size] for size, _ in shelf.sizes)
        for size, copies in shelf.sizes:
            taken[size] += shelf.rows * copies
    return found
