"""Workers, from the HTTP process: start one for a model, ask it, cancel, and start it again if it dies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .fields import HttpError
from .frames import packed, put_bytes, read_frame

BEAT = 10.0  # seconds between two questions whether it lives
MISSED = 2  # unanswered ones after which it is taken for dead
STUCK = 300.0  # seconds after which a single piece of work is taken for one that never ends
BACK_OFF = (0.0, 0.5, 2.0, 10.0)  # seconds before it is started again, the more often it dies
HEALTHY = 60.0  # seconds after which a death counts as the first again
PATIENCE = 30.0  # seconds that a request waits for a worker that is starting
MOST_PATIENT = 64  # requests that wait for it
RETRY = 5.0  # seconds before a model that could not be loaded is tried again
UNREAD = 1 << 16  # events that a slow client may be behind: a burst for many texts is no slowness
LATER = {"retry-after": "5"}
ENDING = 2.0  # seconds that a worker has to end by itself
SECRET = {"KEY", "KEYS", "TOKEN", "TOKENS", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS", "AUTH"}


@dataclass(frozen=True)
class ServedModel:
    """A model to serve: its name, its folder, and what the worker is given beside it."""

    name: str
    folder: str
    options: tuple[str, ...] = ()
    created: int = 0  # when its folder was written, in seconds since 1970
    program: str = "heedful.service.worker"  # the module that is the worker


@dataclass
class Answered:
    """What a worker has said about one request."""

    events: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    closed: bool = False  # nothing more is taken

    def put(self, event: dict[str, Any]) -> bool:
        """Keep an event; False, and an error as the last one, if the client is too far behind."""
        if self.closed:
            return True
        self.closed = behind = self.events.qsize() >= UNREAD
        late = {"fault": {"status": 503, "message": "the answer was not read fast enough"}}
        self.events.put_nowait(late if behind else event)
        return not behind


class WorkerProcess:
    """The process of one model. `state`: asleep, starting, ready, broken or stopped."""

    def __init__(
        self,
        model: ServedModel,
        noticed: Callable[[WorkerProcess], None] = lambda worker: None,
        learned: Callable[[dict[str, Any]], None] = lambda facts: None,
    ) -> None:
        """noticed: is called at every change of state. learned: gets the facts of a model that is ready."""
        self.model, self.noticed, self.learned = model, noticed, learned
        self.state, self.fault, self.facts = "asleep", "", dict[str, Any]()
        self.restarts, self.deaths, self.began = 0, 0, 0.0
        self.load: dict[str, Any] = {}  # what it last said of itself: rows, bytes
        self.process: asyncio.subprocess.Process | None = None
        self.asked: dict[str, Answered] = {}
        self.numbers = itertools.count()
        self.changed = asyncio.Event()  # set, and replaced, whenever the state changes
        self.tasks: set[asyncio.Task[None]] = set()
        self.unanswered, self.why = 0, ""  # why the process that runs ends, if that is known
        self.patient = 0  # requests that wait until it is ready
        self.broken_at = 0.0
        self.unloadable = False  # it said that the model cannot be loaded

    # Its life.

    def wake(self) -> None:
        """Start it, if it is not running, and has not just failed to start."""
        failed = self.state == "broken" and time.monotonic() - self.broken_at > RETRY
        if self.state == "asleep" or failed:
            self.enter("starting")
            self.spawn(self.live())

    def enter(self, state: str, fault: str = "") -> None:
        self.state, self.fault = state, fault
        self.noticed(self)
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
            self.fail_all(f"the model stopped: {fault}; try again")
            self.deaths = 1 if time.monotonic() - self.began > HEALTHY else self.deaths + 1
            if self.unloadable or (self.state != "ready" and self.deaths >= len(BACK_OFF)):
                self.deaths, self.unloadable, self.broken_at = 0, False, time.monotonic()
                self.enter("broken", fault)  # a later request tries again
                return
            self.restarts += 1
            self.enter("starting", fault)

    async def run(self) -> str:
        """One process from start to end; how it ended."""
        self.unanswered, self.why = 0, ""
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command(self.model),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
                env=environment(),
            )
        except OSError as error:
            return f"the worker cannot be started: {error}"
        beat = asyncio.ensure_future(self.beat())
        try:
            await self.listen()
        except Exception as error:  # noqa: BLE001 (what it said is not what a worker says)
            self.give_up(f"the worker sent something that is no frame ({type(error).__name__})")
        finally:
            beat.cancel()
        code = await self.end()
        return self.why or f"the worker ended with {exit_in_words(code)}"

    async def end(self) -> int:
        """Wait for the process, which has nothing more to say; it is killed if it stays."""
        assert self.process is not None
        try:
            code = await asyncio.wait_for(self.process.wait(), ENDING)
        except TimeoutError:
            self.kill()
            code = await self.process.wait()
        self.kill()  # what it has started and left behind
        return code

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
                self.why, self.unloadable = message["broken"], True
            elif "load" in message:
                self.load = message["load"]
            elif message.get("alive", 0) > STUCK:
                self.give_up(f"the worker was busy with one piece of work for {STUCK:g} seconds")
            if frame.blob:
                put_bytes(message["news"], frame.blob)
            for number, event in message.get("news", ()):
                answered = self.asked.get(number)
                if answered is not None and not answered.put(event):
                    self.say({"cancel": number})

    async def beat(self) -> None:
        """Ask now and then whether it lives, while somebody waits for it; kill it if it does not say so."""
        while True:
            await asyncio.sleep(BEAT)
            if self.state != "ready":
                continue
            if self.unanswered >= MISSED and self.asked:
                self.give_up("the worker no longer answered")
                return
            self.unanswered += 1
            self.say({"alive": True})

    def give_up(self, why: str) -> None:
        self.why = why
        self.kill()

    def kill(self) -> None:
        """Kill it, with whatever it has started: its group has its number."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End it: its stdin is closed, and it is killed if it does not leave."""
        self.enter("stopped")
        self.fail_all("the service is shutting down")
        if self.process is not None and self.process.stdin is not None and self.process.returncode is None:
            self.process.stdin.close()
            await self.end()
            if self.tasks:  # they end by themselves once all that it said is read
                await asyncio.wait(self.tasks, timeout=ENDING)
        for task in list(self.tasks):
            task.cancel()

    def fail_all(self, why: str) -> None:
        """Tell all who wait that no answer comes."""
        for answered in self.asked.values():
            answered.put({"fault": {"status": 503, "message": why}})

    # Requests.

    @property
    def wanted(self) -> bool:
        """Whether a request waits for its answer, or for the model to be loaded."""
        return bool(self.asked) or self.patient > 0

    async def ready(self) -> None:
        """Wait until it answers, but not for ever; refuse where it cannot be loaded."""
        self.wake()
        if self.state == "starting":
            await self.started()
        if self.state == "stopped":
            raise HttpError(503, "the service is shutting down")
        if self.state != "ready":
            raise HttpError(503, f"{self.model.name} cannot be loaded: {self.public(self.fault)}", **LATER)

    async def started(self) -> None:
        """Wait until it has started, or has failed to."""
        later = HttpError(503, f"{self.model.name} is being loaded: try again later", **LATER)
        if self.patient >= MOST_PATIENT:
            raise later
        self.patient += 1
        try:
            async with asyncio.timeout(PATIENCE):
                while self.state == "starting":
                    await self.changed.wait()
        except TimeoutError:
            raise later from None
        finally:
            self.patient -= 1

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
                if "fault" in event:
                    over = True
                    fault = event["fault"]
                    why = self.public(fault["message"])
                    raise HttpError(fault.get("status", 500), why, fault.get("param"), fault.get("code"))
                over = bool(event.get("over"))
                yield event
        finally:
            del self.asked[number]
            if not over:
                self.say({"cancel": number})

    def public(self, text: str) -> str:
        """A sentence for clients, with the model's name in place of the path of its folder."""
        return text.replace(os.path.abspath(self.model.folder), self.model.name)

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
    return (sys.executable, "-m", model.program, os.path.abspath(model.folder), *model.options)


def environment() -> dict[str, str]:
    """The environment of a worker: ours, without what looks like a secret."""
    ours = {name: value for name, value in os.environ.items() if SECRET.isdisjoint(name.upper().split("_"))}
    return {**ours, "PYTHONUNBUFFERED": "1"}


def exit_in_words(code: int) -> str:
    """How a process ended. A negative code is the number of a signal."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
