"""Next-sentence prediction: where a text may be cut, so that only its content tells what follows what.

Both parts of a pair begin where a line begins, and never with the first line of a document. A part that does
not follow comes from another document, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.shards import Stream, tokens_at


@dataclass(frozen=True)
class Lines:
    """Where lines and documents begin in a stream of tokens."""

    starts: np.ndarray  # of lines that are not the first of their document
    bounds: np.ndarray  # where documents begin, and where the last one ends

    @classmethod
    def of(cls, stream: Stream, lengths: np.ndarray, end: int) -> Lines:
        """lengths: tokens of each line, the marks between documents being lines too. end: that mark."""
        alone = (np.cumsum(lengths) - lengths)[lengths == 1]
        marks = alone[tokens_at(stream, alone) == end]
        bounds = np.unique(np.concatenate(([0], marks + 1, [len(stream)])))
        starts = np.unique(np.cumsum(lengths) - lengths)
        return cls(np.setdiff1d(starts, np.concatenate((bounds, marks))), bounds)

    def places(self, start: int, room: int, where: float, which: float) -> tuple[int, int] | None:
        """Where the window at `start` is cut, and where else the second part may come from, at random."""
        cut = self.cut(start, room, where)
        other = None if cut is None else self.elsewhere(cut, start, room, start + room - cut, which)
        return None if cut is None or other is None else (cut, other)

    def cut(self, start: int, room: int, draw: float) -> int | None:
        """A random line in the middle half of the window at `start`."""
        first, last = np.searchsorted(self.starts, (start + max(1, room // 4), start + 3 * room // 4 + 1))
        return int(self.starts[first + int(draw * (last - first))]) if last > first else None

    def elsewhere(self, cut: int, start: int, room: int, size: int, draw: float) -> int | None:
        """A random line of another document than the one at `cut`, with `size` tokens that do not touch the
        window at `start`; in a text without other documents, any such line."""
        document = int(np.searchsorted(self.bounds, cut, "right"))
        own = self.bounds[document - 1 : document + 1].tolist()
        apart = self.outside(min(own[0], start), max(own[1], start + room), size, draw)
        return self.outside(start, start + room, size, draw) if apart is None else apart

    def outside(self, low: int, high: int, size: int, draw: float) -> int | None:
        """A random line whose next `size` tokens lie before `low`, or from `high` on."""
        before = int(np.searchsorted(self.starts, low - size, "right"))
        after = int(np.searchsorted(self.starts, high))
        last = int(np.searchsorted(self.starts, self.bounds[-1] - size, "right"))
        there = before + max(0, last - after)
        if there == 0:
            return None
        place = int(draw * there)
        return int(self.starts[place if place < before else after + place - before])


def elsewhere(tokens: int, start: int, room: int, size: int, draw: float) -> int:
    """A random place for `size` tokens that touches nothing of the window at `start`."""
    before = max(0, start - size + 1)
    after = max(0, tokens - size - (start + room) + 1)
    place = int(draw * (before + after))
    return place if place < before else start + room + place - before
