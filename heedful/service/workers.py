"""Workers, from the HTTP process: start one for a model, ask it, cancel, and start it again if it dies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .fields import HttpError
from .frames import packed, read_frame

BEAT = 10.0  # seconds between two questions whether it lives
MISSED = 2  # unanswered ones after which it is taken for dead
BACK_OFF = (0.0, 0.5, 2.0, 10.0)  # seconds before it is started again, the more often it dies
HEALTHY = 60.0  # seconds after which a death counts as the first again
UNREAD = 1024  # events that a slow client may be behind


@dataclass(frozen=True)
class ServedModel:
    """A model to serve: its name, its folder, and what the worker is given beside it."""

    name: str
    folder: str
    options: tuple[str, ...] = ()
    created: int = 0  # when its folder was written, in seconds since 1970


@dataclass
class Answered:
    """What a worker has said about one request."""

    events: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    def put(self, event: dict[str, Any]) -> None:
        self.events.put_nowait(event)


class WorkerProcess:
    """The process of one model. `state`: asleep, starting, ready, broken or stopped."""

    def __init__(
        self,
        model: ServedModel,
        noticed: Callable[[str], None] = lambda line: None,
        learned: Callable[[dict[str, Any]], None] = lambda facts: None,
    ) -> None:
        """noticed: is given a line at every change of state. learned: the facts of a model that is ready."""
        self.model, self.noticed, self.learned = model, noticed, learned
        self.state, self.fault, self.facts = "asleep", "", dict[str, Any]()
        self.restarts, self.deaths, self.began = 0, 0, 0.0
        self.load: dict[str, Any] = {}  # what it last said of itself: rows, bytes
        self.process: asyncio.subprocess.Process | None = None
        self.asked: dict[str, Answered] = {}
        self.numbers = itertools.count()
        self.changed = asyncio.Event()  # set, and replaced, whenever the state changes
        self.tasks: set[asyncio.Task[None]] = set()
        self.unanswered = 0
        self.unloadable = False  # it said that the model cannot be loaded

    # Its life.

    def wake(self) -> None:
        """Start it, if it is not running."""
        if self.state in ("asleep", "broken"):
            self.enter("starting")
            self.spawn(self.live())

    def enter(self, state: str, fault: str = "") -> None:
        self.state, self.fault = state, fault
        self.noticed(f"{self.model.name}: {state}" + (f" ({fault})" if fault else ""))
        self.changed.set()
        self.changed = asyncio.Event()

    def spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def live(self) -> None:
        """Run the process; start it again when it dies, later each time."""
        while self.state != "stopped":
            if self.deaths:
                await asyncio.sleep(BACK_OFF[min(self.deaths - 1, len(BACK_OFF) - 1)])
            if self.state == "stopped":
                return
            self.began = time.monotonic()
            fault = await self.run()
            if self.state == "stopped":
                return
            self.fail_all(fault)
            self.deaths = 1 if time.monotonic() - self.began > HEALTHY else self.deaths + 1
            if self.unloadable or (self.state != "ready" and self.deaths >= len(BACK_OFF)):
                self.deaths, self.unloadable = 0, False
                self.enter("broken", fault)  # the next request tries again
                return
            self.restarts += 1
            self.enter("starting", fault)

    async def run(self) -> str:
        """One process from start to end; how it ended."""
        self.process = await asyncio.create_subprocess_exec(
            *command(self.model),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.unanswered = 0
        beat = asyncio.ensure_future(self.beat())
        try:
            await self.listen()
        except (ValueError, KeyError) as error:
            self.kill()
            return f"the worker said something that is no frame: {error}"
        finally:
            beat.cancel()
            code = await self.process.wait()
        return self.fault if self.fault else f"the worker ended with exit code {code}"

    async def listen(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        while (frame := await read_frame(self.process.stdout)) is not None:
            message = frame.message
            self.unanswered = 0
            if "ready" in message:
                self.facts = message["ready"]
                self.learned(self.facts)
                self.enter("ready")
            elif "broken" in message:
                self.fault, self.unloadable = message["broken"], True
            elif "load" in message:
                self.load = message["load"]
            for number, event in message.get("news", ()):
                if number in self.asked:
                    self.asked[number].put(event)

    async def beat(self) -> None:
        """Ask now and then whether it lives, while somebody waits for it; kill it if it does not say so."""
        while True:
            await asyncio.sleep(BEAT)
            if self.state != "ready":
                continue
            if self.unanswered >= MISSED and self.asked:
                self.fault = "the worker no longer answered"
                self.kill()
                return
            self.unanswered += 1
            self.say({"alive": True})

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def stop(self) -> None:
        """End it: its stdin is closed, and it is killed if it does not leave."""
        self.enter("stopped")
        self.fail_all("the service is shutting down")
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), 2)
            except TimeoutError:
                self.kill()

    def fail_all(self, why: str) -> None:
        """Tell all who wait that no answer comes."""
        for answered in self.asked.values():
            answered.put({"fault": {"status": 503, "message": f"the model stopped: {why}; try again"}})

    # Requests.

    async def ready(self) -> None:
        """Wait until it answers; refuse where it cannot be loaded."""
        self.wake()
        while self.state == "starting":
            await self.changed.wait()
        if self.state != "ready":
            raise HttpError(503, f"{self.model.name} cannot be loaded: {self.fault}")

    async def ask(self, do: str, given: dict[str, Any], blob: bytes = b"") -> AsyncIterator[dict[str, Any]]:
        """The events of one request, up to its end. Whoever stops listening has it cancelled."""
        await self.ready()
        number = f"r{next(self.numbers)}"
        answered = self.asked[number] = Answered()
        over = False
        try:
            self.say({"ask": number, "do": do, "with": given}, blob)
            while not over:
                event = await answered.events.get()
                if answered.events.qsize() > UNREAD:
                    raise HttpError(503, "the answer was not read fast enough")
                if "fault" in event:
                    over = True
                    fault = event["fault"]
                    raise HttpError(fault.get("status", 500), fault["message"], fault.get("param"))
                over = bool(event.get("over"))
                yield event
        finally:
            del self.asked[number]
            if not over:
                self.say({"cancel": number})

    def say(self, message: dict[str, Any], blob: bytes = b"") -> None:
        """Send a frame; one that cannot be sent is answered by the death of the worker."""
        if (
            self.process is not None
            and self.process.stdin is not None
            and not self.process.stdin.is_closing()
        ):
            self.process.stdin.write(packed(message, blob))


def command(model: ServedModel) -> Sequence[str]:
    """The command line of a worker."""
    return (sys.executable, "-m", "heedful.service.worker", model.folder, *model.options)
