"""Heartbeats: name the process of a run that hangs or has ended, instead of waiting for it in silence.

A collective call that does not return cannot say for whom it waits. So a thread of each process publishes,
once a second, how far its process is, in the store that the processes met in. A process that has not come
further for a while reads what the others publish, and judges. One that publishes nothing any more hangs or
has ended; one that is behind the others is stuck, unless it is in a phase that may take long. Then all
processes say so and end, and torchrun starts them again.

Clocks of different machines are never compared: a heartbeat is a number that grows, and silence is measured
in the seconds that the reader itself was awake. A machine that was suspended as a whole accuses nobody.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from types import FrameType

import torch.distributed as dist

from .. import files
from ..errors import LOST, BadInput
from .meeting import connect

SETTING = "HEEDFUL_HANG_SECONDS"
BOUND = 40.0  # seconds after which a process that hangs is named
BEATS = 20  # heartbeats in that time, but no more than one a second
LISTEN = 0.25  # share of the bound without progress after which a process listens to the others
SLOW = 5  # a step may take as many times longer than the slowest one before it
GRACE = 4  # times the bound that a process may be stuck, alive, before all are ended
MISSED = 4  # heartbeats that a process has missed, if the transport says that some process is gone
HERE = Path(__file__).parent
WAITING = (HERE / "processes.py", HERE.parent / "runs" / "saving.py")  # whose lines wait for other processes


class Phase(IntEnum):
    """What a process does in a step, in order; then comes the next step."""

    PREPARE, READ, COMPUTE, EVALUATE, SAVE = range(5)

    def __str__(self) -> str:
        return ("preparing", "reading its examples", "computing", "evaluating", "saving")[self]


LONG = (Phase.PREPARE, Phase.EVALUATE, Phase.SAVE)  # these take a process as long as they take


@dataclass(frozen=True)
class Beat:
    """What a process has published last."""

    rank: int
    host: str
    pid: int
    started: str  # when the process began, as its own machine counts
    number: int = 0  # grows with each heartbeat
    step: int = 0
    phase: int = Phase.PREPARE
    long: bool = True  # whether it may take long
    where: str = ""  # the line that it is at, once it has been there for a while
    waits: bool = False  # whether that line waits for other processes
    ended: str | None = None  # why it has ended, or "" if that was because of another process

    @property
    def place(self) -> tuple[int, int]:
        """How far it is."""
        return self.step, self.phase

    @property
    def name(self) -> str:
        return f"process {self.rank} (pid {self.pid} on {self.host})"

    @property
    def doing(self) -> str:
        return f"{Phase(self.phase)}, step {self.step}" if self.step else f"{Phase(self.phase)}"

    @property
    def dead(self) -> bool:
        """Whether its machine, if that is this one, has no such process any more."""
        near = self.host == socket.gethostname() and self.started != ""
        return near and files.started(self.pid) != self.started

    @property
    def stopped(self) -> bool:
        """Whether its machine, if that is this one, has the process and does not let it run."""
        with suppress(OSError):
            if self.host == socket.gethostname():
                return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False

    @property
    def epitaph(self) -> str:
        """What became of one that is silent."""
        fate = "hangs or has ended"
        if self.dead:
            fate = "has ended without a word"
        elif self.stopped:
            fate = "hangs: it is stopped"
        return f"{self.name} {fate}; when last heard of, it was {self.doing}"


def behind(now: Sequence[Beat]) -> list[Beat]:
    """Those alive for which the others wait; nobody while one of them is in a phase that may take long."""
    alive = [beat for beat in now if beat.ended is None]
    least = min((beat.place for beat in alive), default=None)
    last = [beat for beat in alive if beat.place == least]
    if any(beat.long for beat in last):
        return []
    if len(last) == len(alive):  # all are in one phase: the others wait for those that wait for nobody
        last = [beat for beat in last if not beat.waits] or last
    return last


def standstill(stuck: Sequence[Beat], alive: int, rest: float) -> str:
    """What to say of processes that are stuck."""
    if len(stuck) == alive:
        line = f" (at {stuck[0].where})" if stuck[0].where else ""
        return (
            f"no process has come further than {stuck[0].doing} for {rest:.0f} s{line}: they wait for each "
            "other, or for the network between them"
        )
    named = [
        f"{beat.name} is stuck {beat.doing}{f' at {beat.where}' if beat.where else ''}" for beat in stuck
    ]
    return f"{'; '.join(named)}; the others have been waiting for {rest:.0f} s"


class Board:
    """The heartbeats of all processes, in the store that they met in."""

    def __init__(self, size: int, patience: float, name: str) -> None:
        self.address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        self.size = size
        self.store = dist.PrefixStore(f"heartbeat/{name}", connect(timedelta(seconds=patience)))

    def write(self, beat: Beat) -> None:
        self.store.set(str(beat.rank), json.dumps(asdict(beat)))

    def read(self) -> list[Beat]:
        """The last heartbeat of each process that has published one."""
        names = [str(rank) for rank in range(self.size)]
        if not self.store.check(names):
            names = [name for name in names if self.store.check([name])]
        return [Beat(**json.loads(text)) for text in self.store.multi_get(names)]


class Heartbeat:
    """The heartbeat of this process, and its judgment on the others.

    One thread talks to the store, which may keep it waiting; another one judges, and waits for nobody.
    """

    def __init__(
        self, rank: int, size: int, bound: float, board: Board, end: Callable[[int], None] = os._exit
    ) -> None:
        self.bound, self.pause, self.board, self.end = bound, min(1.0, bound / BEATS), board, end
        self.every = 1 + size // 64  # heartbeats between two readings: a store must bear many processes
        pid = os.getpid()
        self.beat = Beat(rank, socket.gethostname(), pid, files.started(pid) or "")
        self.now: list[Beat] = []  # the last reading
        self.dead: set[int] = set()  # who was dead before it, and has left no word
        self.since: dict[int, tuple[int, float]] = {}  # of each process: its heartbeat, and when that was new
        self.awake = 0.0  # seconds that the judge was awake
        self.heard = self.marked = 0.0  # when the store has answered last, and when this process came further
        self.slowest, self.computed, self.warned, self.listening = 0.0, False, False, False
        self.over, self.lock = threading.Event(), threading.Lock()
        self.note: Callable[[str], None] = lambda why: None  # where else a verdict goes
        self.where_is: Callable[[], tuple[str, bool]] = lambda: location(main_frame())
        self.publish()
        for work in (self.exchange, self.judge):
            threading.Thread(target=work, daemon=True, name=f"heartbeat-{work.__name__}").start()

    # What this process says.

    def mark(self, phase: Phase, step: int) -> None:
        """This process has come as far. Its first computation may take long: it compiles, and connects."""
        with self.lock:
            if not self.beat.long:
                self.slowest = max(self.slowest, self.awake - self.marked)
            long = phase in LONG or (phase == Phase.COMPUTE and not self.computed)
            self.computed |= phase == Phase.COMPUTE
            self.marked, self.warned, self.listening = self.awake, False, False
            self.beat = replace(self.beat, step=step, phase=phase, long=long, where="", waits=False)

    def leave(self, why: str) -> None:
        """This process ends. why: if that is of its own accord, not because another one is gone."""
        with self.lock:
            if self.over.is_set():
                return
            self.over.set()
            self.beat = replace(self.beat, ended=why)
        teller = threading.Thread(target=self.publish, daemon=True)
        teller.start()
        teller.join(2 * self.pause)  # the store may not answer any more

    def missing(self) -> str:
        """Which process is gone, as the transport says that one is; "" if that cannot be told in time."""
        self.listening = True
        until = self.awake + self.bound
        while self.awake < until and not self.over.wait(self.pause):
            with self.lock:
                self.listening = True
            if found := self.gone(MISSED * self.pause):
                return found
        return ""

    @property
    def speaks(self) -> bool:
        """Whether this is the process that says so for its machine: the first of those not to blame."""
        near = [beat for beat in self.now if beat.host == self.beat.host and not self.to_blame(beat, 0.0)]
        return self.beat.rank <= min((beat.rank for beat in near), default=self.beat.rank)

    # What it finds.

    def silence(self, beat: Beat) -> float:
        """How long the same heartbeat has been there, as far as this process was awake to see it."""
        return self.awake - self.since.get(beat.rank, (0, self.awake))[1]

    def to_blame(self, beat: Beat, patience: float) -> bool:
        """Whether a process has ended of its own accord, or is dead, or silent for so many seconds."""
        if beat.rank == self.beat.rank:
            return False
        if beat.ended is not None:
            return beat.ended != ""
        return beat.rank in self.dead or self.silence(beat) > max(patience, MISSED * self.pause)

    def gone(self, patience: float) -> str:
        """The processes that are gone, and what became of them."""
        lost = [beat for beat in self.now if self.to_blame(beat, patience)]
        if said := [f"{beat.name} has ended: {beat.ended}" for beat in lost if beat.ended]:
            return said[0]  # the others followed
        if lost:
            return "; ".join(beat.epitaph for beat in lost)
        if self.awake - self.heard > max(patience, self.bound * (1 - LISTEN)):
            return f"the store at {self.board.address} does not answer: its machine or torchrun there is lost"
        return ""

    def consider(self) -> None:
        """End this process if it waits for one that is gone, or stuck."""
        mine = self.beat
        rest = self.awake - self.marked
        if rest < LISTEN * self.bound or (mine.long and not mine.waits):
            return
        if lost := self.gone(self.bound * (1 - LISTEN)):
            self.close(lost)
            return
        limit = max(self.bound, SLOW * self.slowest)
        silence_is_judged = limit + MISSED * self.pause
        stuck = behind(self.now) if rest > silence_is_judged else []
        if not stuck:
            return
        said = standstill(stuck, sum(beat.ended is None for beat in self.now), rest)
        if rest > GRACE * limit:
            self.close(said, stuck)
        elif not self.warned:
            self.warned = True
            if self.speaks:
                say(f"warning: {said}; all processes end in {GRACE * limit - rest:.0f} s unless it goes on")

    def close(self, why: str, stuck: Sequence[Beat] = ()) -> None:
        """End this process, so that torchrun can start all again; one that is stuck shows where."""
        if self.over.is_set():  # the transport knew as well, and the main thread says so
            return
        if self.speaks:
            say(f"error: {why}")
        if self.beat.rank in (beat.rank for beat in stuck):
            say("".join(traceback.format_stack(main_frame())))
        with suppress(Exception):
            self.note(why)
        self.leave("")
        self.end(LOST)

    # The threads.

    def exchange(self) -> None:
        while not self.over.wait(self.pause):
            self.exchange_once()

    def exchange_once(self) -> None:
        """Publish; and where nothing goes on here, read."""
        with self.lock:
            self.listening |= self.awake - self.marked > LISTEN * self.bound
            where, waits = self.where_is() if self.listening else ("", False)
            self.beat = replace(self.beat, number=self.beat.number + 1, where=where, waits=waits)
        self.publish()
        if not self.listening:
            self.heard, self.now, self.since, self.dead = self.awake, [], {}, set()
        elif self.beat.number % self.every == 0:
            self.listen()

    def publish(self) -> None:
        with suppress(RuntimeError, OSError):  # the judge will see that nothing is heard
            self.board.write(self.beat)

    def listen(self) -> None:
        with suppress(RuntimeError, OSError):
            dead = {beat.rank for beat in self.now if beat.dead}  # who is so now has said its last word
            self.now, self.dead = self.board.read(), dead
            self.heard = self.awake
            for beat in self.now:
                if self.since.get(beat.rank, (-1, 0.0))[0] != beat.number:
                    self.since[beat.rank] = (beat.number, self.awake)

    def judge(self) -> None:
        before = time.monotonic()
        while not self.over.wait(self.pause):
            now = time.monotonic()
            self.awake += min(now - before, MISSED * self.pause)  # not the time that it was suspended
            before = now
            self.consider()


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main_frame() -> FrameType | None:
    """Where the main thread is."""
    return sys._current_frames().get(threading.main_thread().ident or 0)


def location(frame: FrameType | None) -> tuple[str, bool]:
    """heedful's own line that a thread is at, and whether there it waits for other processes."""
    ours, waits = "", False
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        waits |= "distributed" in path.parts or path in WAITING
        if not ours and path.is_relative_to(HERE.parent):
            ours = f"{path.relative_to(HERE.parent.parent)}:{frame.f_lineno}"
        frame = frame.f_back
    return ours, waits


def start(rank: int, size: int, name: str = "") -> Heartbeat | None:
    """This process's heartbeat, in the part of the store of this name; None if the environment turns it
    off."""
    said = os.environ.get(SETTING, str(BOUND))
    try:
        bound = float(said)
        if not (bound == 0 or 1 <= bound <= 86_400):
            raise ValueError
    except ValueError:
        raise BadInput(
            f"{SETTING} is {said!r}: give seconds from 1 to 86400, or 0 to wait for ever"
        ) from None
    return Heartbeat(rank, size, bound, Board(size, max(1.0, bound / 8), name)) if bound else None
