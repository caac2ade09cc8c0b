"""Together: answers to many requests at once, each of which joins and leaves when it likes.

`Together` puts requests such as `generate` and `translate` make into the rows of one batch. What an answer
says does not depend on the others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ..decode.choices import Top
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
    top: int = 0  # most likely tokens to report with each token
    tag: Any = None  # whose it is, for whoever asked
    due: float = 0.0  # when its next piece is wanted
    tokens: list[int] = field(default_factory=list)  # written so far, an end included
    log_probabilities: list[float] = field(default_factory=list)  # of these
    tops: list[Top] = field(default_factory=list)  # the most likely tokens in their places, if wanted
    ended: bool = False  # the last token is an end
    window: int = 0  # how often the position table was full
    row: Row | None = None
    pieces: list[str] = field(default_factory=list)  # text that nobody has taken
    put: int = 0  # tokens that `text` has

    def __post_init__(self) -> None:
        self.plain = not self.top and not self.text.stop  # a token is put aside, and that is all

    @property
    def ids(self) -> list[int]:
        """The prompt and what follows it."""
        return [*self.request.prompt, *self.tokens]

    def push(self, news: News) -> bool:
        """Add a token; whether a stop string is complete with it. Text is made where somebody looks at it."""
        self.tokens.append(news.token)
        self.log_probabilities.append(news.log_probability)
        self.ended = news.ended
        if self.top:
            self.tops.append(news.top)
        return bool(self.text.stop) and self.read(news.ended)

    def read(self, whole: bool) -> bool:
        """Make text of tokens that have none; whether a stop string is complete. whole: nothing follows."""
        self.text.ids += self.tokens[self.put : -1 if self.ended else None]
        self.put = len(self.tokens)
        self.pieces.append(self.text.shown(whole))
        return self.text.stopped

    def take(self, whole: bool = False) -> str:
        """The text that can be shown since the last time. whole: nothing follows."""
        self.read(whole)
        found, self.pieces = "".join(self.pieces), []
        return found

    def next_row(self) -> Row:
        """The row that goes on from here. Past the end of a position table, its later half is read again."""
        part, how = self.search.within(self.request, self.ids), self.search.how
        self.row = Row(
            list(part.prompt),
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
    """An answer with its newest token; or why there is none."""

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

    def turn(self, now: float = math.inf) -> list[Piece]:
        """One token more of every answer whose prompt has been read, and some reading.

        The pieces are of answers that are over, and of those whose pieces are due by now.
        """
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
        return faults + self.pieces(news, now)

    def pieces(self, news: Sequence[News], now: float) -> list[Piece]:
        """What new tokens mean for their answers. Most are put aside, and nobody waits for them yet."""
        found, writings = [], self.writings
        for one in news:
            row, token, log_p, _, _, last, _, _ = one
            writing = writings[row]
            if last or not writing.plain:
                piece = self.piece(writing, one)
                if piece.finish or writing.due <= now:
                    found.append(piece)
            else:
                writing.tokens.append(token)
                writing.log_probabilities.append(log_p)
                if writing.due <= now:
                    found.append(Piece(writing, one))
        return found

    def restart(self, error: BaseException) -> list[Piece]:
        """Begin anew without the answers that are being written: nobody knows what the error left behind."""
        self.slots = self.new_slots()
        return [self.failed(writing, error) for writing in list(self.writings.values())]

    def begin(self, writing: Writing) -> None:
        """Give an answer a row."""
        row = writing.next_row()
        self.writings[row] = writing
        self.slots.add([row])

    def piece(self, writing: Writing, news: News) -> Piece:
        """What a new token means for its answer."""
        if news.cause is not None:
            return self.failed(writing, news.cause)
        try:
            return self.written(writing, news)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (a panic in a tokenizer is no Exception)
            return self.failed(writing, error)

    def written(self, writing: Writing, news: News) -> Piece:
        stopped = writing.push(news)
        if stopped or news.ended:
            return self.finished(Piece(writing, news, "stop"))
        if len(writing.tokens) >= writing.request.longest:
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
