"""The gate: how many requests a model works on at once, and how many wait. More are refused."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from .fields import HttpError

REMEMBERED = 20  # waiting times that the advice to come back later is made of


@dataclass(eq=False)
class Waiting:
    """A request in the queue."""

    places: int
    turn: asyncio.Future[None]
    admitted: bool = False


@dataclass
class Gate:
    """Places for rows of a batch. A request of several texts takes several."""

    places: int
    most_waiting: int  # places that those in the queue want together
    queue_seconds: float
    used: int = 0
    queue: deque[Waiting] = field(default_factory=deque)
    times: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    closed: bool = False

    def resize(self, places: int, most_waiting: int) -> None:
        """Have other numbers of places from now on."""
        self.places, self.most_waiting = places, most_waiting
        self.admit()

    @property
    def waiting(self) -> int:
        return sum(one.places for one in self.queue)

    @asynccontextmanager
    async def enter(self, places: int) -> AsyncIterator[float]:
        """Wait for places and hold them; gives the seconds waited.

        429 when the queue is full, 503 if it takes too long.
        """
        places, start = min(places, self.places), time.monotonic()
        if self.closed:
            raise self.shutting_down()
        if self.queue or self.used + places > self.places:
            await self.wait(places)
        else:
            self.used += places
        waited = time.monotonic() - start
        self.times.append(waited)
        try:
            yield waited
        finally:
            self.used -= places
            self.admit()

    async def wait(self, places: int) -> None:
        if self.waiting + places > self.most_waiting:
            raise HttpError(429, "too many requests are waiting: try again later", **self.later())
        mine = Waiting(places, asyncio.get_running_loop().create_future())
        self.queue.append(mine)
        try:
            async with asyncio.timeout(self.queue_seconds):
                await mine.turn
        except BaseException as error:
            self.leave(mine)
            if isinstance(error, TimeoutError):
                raise HttpError(503, "the request waited too long for its turn", **self.later()) from None
            raise

    def leave(self, mine: Waiting) -> None:
        """Give up: the turn may have come in the same moment."""
        if mine in self.queue:
            self.queue.remove(mine)
        if mine.admitted:
            self.used -= mine.places
        self.admit()

    def admit(self) -> None:
        """Let those in whose turn it is, in the order they came."""
        while self.queue and self.used + self.queue[0].places <= self.places:
            first = self.queue.popleft()
            if not first.turn.done():  # a request that was cancelled just now has yet to leave
                self.used += first.places
                first.admitted = True
                first.turn.set_result(None)

    def close(self) -> None:
        """Let nobody in any more. Those in the queue are refused, those inside stay."""
        self.closed = True
        while self.queue:
            turn = self.queue.popleft().turn
            if not turn.done():
                turn.set_exception(self.shutting_down())

    def shutting_down(self) -> HttpError:
        return HttpError(503, "the service is shutting down", **self.later())

    def later(self) -> dict[str, str]:
        """When to come back: about as long as others have waited."""
        mean = sum(self.times) / len(self.times) if self.times else 1.0
        return {"retry-after": str(max(1, math.ceil(mean)))}
