"""Paces: how many texts of a request are computed at once, so that a turn stays short and a batch large."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ..decode.turns import Turns
from ..errors import BadInput

T = TypeVar("T")
TURN = 0.04  # seconds of a turn
SHORTEST = 2  # a turn may take so many times as long as the shortest one: weights are read for any text
ROWS = 32  # texts at once, as the methods of a model have them
FEWEST, FIRST, MOST = 16, 32, 1 << 14  # tokens at once, with padding: at least, at first, at most
CHARACTERS = 20_000  # that are cut into tokens in one turn


@dataclass
class Pace:
    """How many tokens a turn has room for, as the last turns of this kind of work have shown."""

    tokens: float = FIRST
    shortest: float = 1.0  # seconds of the shortest turn

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a turn."""
        self.shortest = min(self.shortest, seconds)
        room = max(TURN, SHORTEST * self.shortest) * tokens / max(seconds, 1e-6)
        self.tokens = min(MOST, max(FEWEST, (self.tokens + min(room, 4 * self.tokens)) / 2))

    def rows(self, length: int) -> int:
        """How many texts of so many tokens a turn has room for."""
        return max(1, min(ROWS, int(self.tokens // max(1, length))))

    def in_turns(self, lengths: Sequence[int], do: Callable[[list[int]], Sequence[T]]) -> Turns[list[T]]:
        """Results in their order, from a function of the numbers of some texts that are alike in length.

        An error names the number of a text. Where `do` was given only some, it is asked about all of them.
        """
        found: dict[int, T] = {}
        left = sorted(range(len(lengths)), key=lambda i: -lengths[i])  # the shortest are the last
        while left:
            some = self.next_rows(left, lengths)
            start = time.perf_counter()
            with counted_from_first(lambda: do(list(range(len(lengths))))):
                found.update(zip(some, do(some), strict=True))
            self.note(len(some) * lengths[some[-1]], time.perf_counter() - start)
            yield
        return [found[i] for i in range(len(lengths))]

    def watch(self, turns: Turns[T], tokens: int) -> Turns[T]:
        """The same turns, learned from. tokens: of each."""
        while True:
            start = time.perf_counter()
            try:
                next(turns)
            except StopIteration as end:
                return end.value
            self.note(tokens, time.perf_counter() - start)
            yield

    def next_rows(self, left: list[int], lengths: Sequence[int]) -> list[int]:
        """Take the numbers of the next texts from those that are left, shortest first."""
        some = [left.pop()]
        while left and len(some) < self.rows(lengths[left[-1]]):
            some.append(left.pop())
        return some


@contextmanager
def counted_from_first(again: Callable[[], object]) -> Iterator[None]:
    """Where a text is refused by its number among some, the same refusal by its number among all."""
    try:
        yield
    except BadInput:
        again()
        raise


def cut_in_turns(encode: Callable[..., list[T]], *texts: Sequence[str | None]) -> Turns[list[T]]:
    """The rows of texts, or of texts that belong together, some in each turn."""
    found: list[T] = []
    count, start = len(texts[0]), 0
    while start < count:
        end, size = start, 0
        while end < count and (end == start or size < CHARACTERS):
            size += sum(len(some[end] or "") for some in texts)
            end += 1
        with counted_from_first(lambda: encode(*(list(some) for some in texts))):
            found += encode(*(list(some[start:end]) for some in texts))
        start = end
        yield
    return found
