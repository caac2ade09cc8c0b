"""The loop of a worker: rows that are being written take a step together, and everything else takes turns.

A request becomes a job, a generator that yields after at most about 50 ms, so that no request holds up the
others for long. Texts that are written token by token become rows of `Together`; texts that a beam is needed
for wait for others of their kind, and are searched for together.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..decode.streaming import Hypothesis
from ..decode.turns import Turns
from ..errors import BadInput, NotFinite
from ..runs.memory import free_memory
from ..use.model import WRITERS, Model
from ..use.together import Piece, Together, can_write_together
from .frames import Frame, with_bytes
from .methods import METHODS, Method
from .searches import KnownSearches
from .writing import Event, Scores, WriteTask, context_of, plan, prompt_scores

News = list[tuple[str, Event]]
Work = Generator[Event | None, None, None]  # yields events, or None: others may have their turn
TURN = 0.05  # seconds of other work at once; while tokens are written, no longer than they took
LEAST = 0.002  # seconds of it, however soon the tokens are written
REPORT = 0.5  # seconds between two reports of memory and rows
ROWS = {"cpu": 32}  # rows at once; 64 elsewhere
PREFILL = {"cpu": 64}  # tokens of prompts that a search reads in a turn; 2,048 elsewhere
SHARE = 4  # one part in so many of the free memory is for keys and values
SEARCHED = 32  # texts of one search
TOKENS = 2048  # of a frame that are sent with their scores: about 2 MB


@dataclass(eq=False)
class WaitingWork:
    """Work that takes turns, for a request; "": for several."""

    number: str
    work: Work


class Loop:
    """Everything that a worker is doing."""

    def __init__(
        self,
        model: Model,
        say: Callable[..., None],
        rows: int = 0,
        prefill: int = 0,
        more: Mapping[str, Method] = MappingProxyType({}),
    ) -> None:
        """more: methods beside METHODS."""
        kind = model.device.type
        self.model, self.say, self.rows = model, say, rows or ROWS.get(kind, 64)
        self.prefill = prefill or PREFILL.get(kind, 2048)
        self.known = KnownSearches(model)
        self.together: Together | None = None
        if not WRITERS.keys().isdisjoint(model.can) and can_write_together(model.writing):
            most_bytes = free_memory(model.device) // SHARE
            self.together = Together(model.writing, self.rows, prefill or None, most_bytes)
            self.together.warm_up()
        self.tasks: dict[str, WriteTask] = {}  # requests for texts that are being written
        self.new: deque[WaitingWork] = deque()  # requests that nobody has looked at
        self.jobs: deque[WaitingWork] = deque()
        self.searches: dict[str, list[WriteTask]] = {}  # {key: those that wait for a search of this kind}
        self.reported = 0.0
        self.methods = {**METHODS, **more}

    def facts(self) -> dict[str, Any]:
        """What the HTTP process is told about the model."""
        model = self.model
        return {
            "can": [name for name in model.can if name not in ("stream", "look")],
            "chat": "generate" in model.can and model.loaded.chat is not None,
            "context": context_of(model) if "generate" in model.can else None,
            "architecture": model.architecture,
            "parameters": model.parameter_count,
            "device": str(model.device),
            "rows": self.rows,
            "languages": [*languages.codes] if (languages := model.loaded.languages) is not None else [],
        }

    # The loop.

    def run(self, take: Callable[[bool], Iterable[Frame]]) -> None:
        """Answer for ever."""
        while True:
            for frame in take(not self.busy):
                self.hear(frame)
            self.turn()

    def turn(self) -> None:
        """A token more in every row, and then other work for as long as that took."""
        start = time.monotonic()
        news = self.write()
        self.send(news)
        took = time.monotonic() - start
        self.send(self.work(min(TURN, max(LEAST, took)) if self.writes else TURN))
        if not self.busy:
            self.report()

    @property
    def busy(self) -> bool:
        return self.writes or bool(self.jobs) or bool(self.new)

    @property
    def writes(self) -> bool:
        return self.together is not None and self.together.busy

    def send(self, news: News) -> None:
        """Send all news, in as few frames as may be; now and then, how much memory is used."""
        for some in in_frames(news):
            told, blob = with_bytes(some)
            self.say({"news": told}, blob)
        if news and time.monotonic() - self.reported > REPORT:
            self.report()

    def report(self) -> None:
        """Say how much is going on here."""
        self.reported = time.monotonic()
        rows, cached = (0, 0) if self.together is None else (self.together.rows, self.together.bytes)
        self.say({"load": {"rows": rows, "cache_bytes": cached, "rss_bytes": resident()}})

    # Requests.

    def hear(self, frame: Frame) -> None:
        """Take a message: a request, or its cancellation."""
        message = frame.message
        if "cancel" in message:
            self.cancel(message["cancel"])
        elif "ask" in message:
            number, do, given = message["ask"], message["do"], message["with"]
            work = self.begin(number, given) if do == "write" else self.other(do, given, frame.blob)
            self.new.append(WaitingWork(number, work))

    def other(self, do: str, given: dict[str, Any], blob: bytes) -> Work:
        """A request for anything but texts."""
        yield from self.methods[do](self.model, given, blob)

    def begin(self, number: str, given: dict[str, Any]) -> Work:
        """Read a request for texts, and let it wait for what it needs."""
        task = WriteTask(number, plan(self.known, given))
        yield None
        if task.plan.echoes:
            yield from echoed(task)
        yield from task.silent()
        search = task.plan.search
        single = search.width == 1 and search.how.beam_groups == 1 and search.draft is None
        if task.left == 0:
            yield task.over()
        elif single and search.reading is None and self.together is not None:
            self.tasks[number] = task
            for writing in task.writings():
                self.together.add(writing)
        elif single and task.plan.streams:
            yield from task.stream_alone()
        else:
            self.tasks[number] = task
            self.wait_for_search(task)

    def cancel(self, number: str) -> None:
        """Forget a request: its rows leave before the next token, its work is closed."""
        task = self.tasks.pop(number, None)
        if task is not None and self.together is not None:
            for writing in task.rows:
                self.together.remove(writing)
        for waiting in self.searches.values():
            if task in waiting:
                waiting.remove(task)
        for waiting_work in (self.new, self.jobs):
            for job in [job for job in waiting_work if job.number == number]:
                waiting_work.remove(job)
                job.work.close()

    # Tokens.

    def write(self) -> News:
        """A token more in every row."""
        if self.together is None or not self.together.busy:
            return []
        news, now = News(), time.monotonic()
        for piece in self.together.turn(now):
            task, index = piece.writing.tag
            if self.is_wanted(task):
                news += [(task.number, event) for event in self.tell(task, index, piece, now)]
        return news

    def is_wanted(self, task: WriteTask) -> bool:
        """Whether somebody still waits for it."""
        return self.tasks.get(task.number) is task

    def tell(self, task: WriteTask, index: int, piece: Piece, now: float) -> list[Event]:
        """The events of a piece of an answer."""

        def events() -> list[Event]:
            if piece.error is not None:
                raise piece.error
            found = task.hear(index, piece, now)
            return [*found, *self.finish(task)] if task.left == 0 else found

        return self.or_fault(task, events)

    def or_fault(self, task: WriteTask, events: Callable[[], list[Event]]) -> list[Event]:
        """What a function finds to say of a request. A fault ends the request with all its answers."""
        try:
            return events()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (a panic in a tokenizer is no Exception)
            self.cancel(task.number)
            return [fault_event(error)]

    def finish(self, task: WriteTask) -> list[Event]:
        """The end of a request whose texts are written; words may still have to be aligned."""
        del self.tasks[task.number]
        if not task.plan.aligns:
            return [task.over()]
        self.jobs.append(WaitingWork(task.number, aligned(task)))
        return []

    # Searches.

    def wait_for_search(self, task: WriteTask) -> None:
        """Queue for a search; the first of its kind starts one."""
        key = task.plan.key
        if key in self.searches:
            self.searches[key].append(task)
        else:
            self.searches[key] = [task]
            self.jobs.append(WaitingWork("", self.search(key)))

    def search(self, key: str) -> Work:
        """Search for the texts of all requests of a kind that wait, until none does."""
        try:
            while waiting := self.searches[key]:
                some = [waiting.pop(0)]
                while waiting and sum(task.left for task in (*some, waiting[0])) <= SEARCHED:
                    some.append(waiting.pop(0))
                yield from self.search_for(some)
        finally:
            del self.searches[key]

    def search_for(self, some: list[WriteTask]) -> Work:
        """Search for the texts of several requests; alone, if something goes wrong with them together."""
        some = [task for task in some if self.is_wanted(task)]
        if not some:
            return
        try:
            found = yield from self.while_wanted(some)
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (whatever it is, it is the answer)
            if len(some) > 1:
                for task in some:
                    yield from self.search_for([task])
            elif self.is_wanted(some[0]):
                self.cancel(some[0].number)
                self.send([(some[0].number, fault_event(error))])
            return
        for task in some:
            own, found = found[: task.left], found[task.left :]
            if self.is_wanted(task):
                self.send([(task.number, event) for event in self.found(task, own)])

    def found(self, task: WriteTask, hypotheses: list[list[Hypothesis]]) -> list[Event]:
        """The events of what a search has found for a request."""
        return self.or_fault(task, lambda: [*task.found(hypotheses), *self.finish(task)])

    def while_wanted(self, some: list[WriteTask]) -> Turns[list[list[Hypothesis]]]:
        """The answers to all texts of these requests; nothing, once nobody waits for any of them."""
        requests = [one for task in some for one in task.plan.requests if one is not None]
        with contextlib.closing(some[0].plan.search.write_in_turns(requests, self.prefill)) as turns:
            while any(map(self.is_wanted, some)):
                try:
                    next(turns)
                except StopIteration as end:
                    return end.value
                yield
        return [[] for _ in requests]

    # Other work.

    def work(self, seconds: float) -> News:
        """Work on requests for so long, or a little longer: on new ones first, then on all in turn."""
        news, end = News(), time.monotonic() + seconds
        for waiting in (self.new, self.jobs):  # one of each at least
            while waiting:
                news += self.work_on(waiting.popleft())
                if time.monotonic() >= end:
                    break
        return news

    def work_on(self, job: WaitingWork) -> News:
        """One piece of a job, which then waits for its next turn."""
        try:
            event = next(job.work)
            self.jobs.append(job)
        except StopIteration:
            return []
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (a panic in a tokenizer is no Exception)
            event = fault_event(error)
        return [] if event is None else [(job.number, event)]


def in_frames(news: News) -> Iterator[News]:
    """News in their order, with so many tokens at once that a frame stays far below its limit."""
    some, tokens = News(), 0
    for number, event in news:
        count = len(event.get("tokens") or ())
        if some and tokens + count > TOKENS:
            yield some
            some, tokens = News(), 0
        some.append((number, event))
        tokens += count
    if some:
        yield some


def echoed(task: WriteTask) -> Work:
    """Let every answer begin with its prompt."""
    n = len(task.plan.requests) // len(task.plan.rows)
    for place, row in enumerate(task.plan.rows):
        scores: list[Scores] = []
        if task.plan.scored:
            scores = yield from prompt_scores(task.plan.model, row.ids, task.plan.top)
        entries = yield from task.echo_entries(row, scores)
        for index in range(place * n, (place + 1) * n):
            yield from task.echo(index, entries)


def aligned(task: WriteTask) -> Work:
    """Link words, and end the request."""
    yield from task.align()
    yield task.over()


def fault_event(error: BaseException) -> Event:
    """What a client is told of an error. What is not its own fault is also written to stderr."""
    if isinstance(error, BadInput):
        return {"fault": {"status": 400, "message": str(error), "code": getattr(error, "code", None)}}
    if isinstance(error, NotFinite):
        return {"fault": {"status": 500, "message": str(error)}}
    frames = traceback.extract_tb(error.__traceback__)[-4:]  # places, no values: texts stay out of logs
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    print(f"{type(error).__name__} at {places}", file=sys.stderr, flush=True)
    short = "there is not enough memory" if is_memory(error) else f"the model failed ({type(error).__name__})"
    return {"fault": {"status": 503 if is_memory(error) else 500, "message": short}}


def is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error) or "allocate memory" in str(error)


def resident() -> int:
    """Bytes of memory that this process has; 0 where there is no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0
