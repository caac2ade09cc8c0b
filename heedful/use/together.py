"""Together: answers to many requests at once, each of which joins and leaves when it likes.

`Together` puts requests such as `generate` and `translate` make into the rows of one batch. What an answer
says does not depend on the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ..decode.filters import Filter
from ..decode.slots import News, Row, fits
from ..fast.decoding import FastModel, slots_for
from .pieces import TextSoFar
from .search import Request, Search, seed_of


@dataclass(eq=False)
class Writing:
    """One answer on its way."""

    request: Request
    search: Search
    text: TextSoFar
    filters: Sequence[Filter] = ()  # beside those of the search
    top: int = 0  # likeliest tokens to report with each token
    tag: Any = None  # whose it is, for whoever asked
    ids: list[int] = field(default_factory=list)  # the prompt and what follows it
    window: int = 0  # how often the position table was full
    row: Row | None = None
    pieces: list[str] = field(default_factory=list)  # text that nobody has taken

    def __post_init__(self) -> None:
        self.ids = list(self.request.prompt)

    @property
    def written(self) -> int:
        return len(self.ids) - len(self.request.prompt)

    def push(self, token: int, ended: bool) -> bool:
        """Add a token; whether a stop string is complete with it. Text is made where somebody looks at it."""
        self.ids.append(token)
        if not self.text.stop and not ended:
            self.text.ids.append(token)
            return False
        piece, stopped = self.text.add(token, ended)
        self.pieces.append(piece)
        return stopped

    def take(self, whole: bool = False) -> str:
        """The text that can be shown since the last time. whole: nothing follows."""
        self.pieces.append(self.text.shown(whole))
        found, self.pieces = "".join(self.pieces), []
        return found

    def next_row(self) -> Row:
        """The row that goes on from here. Past the end of a position table, its later half is read again."""
        part, how = self.search.within(self.request, self.ids), self.search.how
        self.row = Row(
            list(part.prompt),  # `ids` grows
            part.longest,
            frozenset(self.search.ends),
            None if part.source is None else part.source.ids,
            [*self.search.filters([part]), *self.filters],
            seed_of(how.seed, self.request.number, self.window) if how.sample else None,
            self.top,
        )
        self.window += 1
        return self.row


class Piece(NamedTuple):
    """What an answer has gained: a token; or why there is no more."""

    writing: Writing
    news: News | None
    finish: str = ""  # why nothing follows: stop, length, or fault
    error: BaseException | None = None  # of a fault


class Together:
    """The rows of a model that answers many requests at once."""

    def __init__(
        self, fast: FastModel, most: int = 8, prefill: int | None = None, most_bytes: int | None = None
    ) -> None:
        """most: rows at once. prefill: tokens of prompts that are read between two steps. most_bytes: of keys
        and values; rows that need more wait."""
        self.most, self.new_slots = most, partial(slots_for, fast, prefill, most_bytes)
        self.slots = self.new_slots()
        self.writings: dict[Row, Writing] = {}
        self.waiting: deque[Writing] = deque()

    def warm_up(self) -> None:
        """Do what would make the first answers wait."""
        self.slots.warm_up(self.most)

    @property
    def busy(self) -> bool:
        return bool(self.waiting) or self.slots.busy

    @property
    def rows(self) -> int:
        """Rows in use."""
        return len(self.writings)

    @property
    def bytes(self) -> int:
        """Memory of keys and values."""
        return self.slots.bytes

    def add(self, writing: Writing) -> None:
        """Let an answer be written, as soon as there is a row for it."""
        self.waiting.append(writing)

    def remove(self, writing: Writing) -> None:
        """Stop writing an answer; one that is done is not missed."""
        if writing.row is not None and self.writings.pop(writing.row, None) is not None:
            self.slots.remove(writing.row)
        elif writing in self.waiting:
            self.waiting.remove(writing)

    def turn(self) -> list[Piece]:
        """One token more of every answer whose prompt has been read, and some reading."""
        faults = []
        while self.waiting and self.rows < self.most:
            writing = self.waiting.popleft()
            try:
                self.begin(writing)
            except Exception as error:  # noqa: BLE001 (a filter that cannot be made, a text too long)
                faults.append(self.failed(writing, error))
        try:
            news = self.slots.turn()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (a panic of a library is no Exception)
            return [*faults, *self.restart(error)]
        return [*faults, *map(self.piece, news)]

    def restart(self, error: BaseException) -> list[Piece]:
        """Begin anew without the answers that are being written: nobody knows what the error left behind."""
        self.slots = self.new_slots()
        return [self.failed(writing, error) for writing in list(self.writings.values())]

    def begin(self, writing: Writing) -> None:
        """Give an answer a row."""
        row = writing.next_row()
        self.writings[row] = writing
        self.slots.add([row])

    def piece(self, news: News) -> Piece:
        """What a new token means for its answer."""
        writing = self.writings[news.row]
        if news.cause is not None:
            return self.failed(writing, news.cause)
        try:
            return self.written(writing, news)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (a panic in a tokenizer is no Exception)
            return self.failed(writing, error)

    def written(self, writing: Writing, news: News) -> Piece:
        stopped = writing.push(news.token, news.ended)
        if stopped or news.ended:
            return self.finished(Piece(writing, news, "stop"))
        if writing.written >= writing.request.longest:
            return self.finished(Piece(writing, news, "length"))
        if news.last:  # the position table is full
            del self.writings[news.row]
            self.begin(writing)
        return Piece(writing, news)

    def finished(self, piece: Piece) -> Piece:
        self.remove(piece.writing)
        return piece

    def failed(self, writing: Writing, error: BaseException) -> Piece:
        return self.finished(Piece(writing, None, finish="fault", error=error))


def can_write_together(fast: FastModel) -> bool:
    """Whether a model's rows can join a batch."""
    return fits(fast.model)
