"""Measuring: each contender in a process of its own, all of them taking turns, medians of the turns.

Two thread pools in one process slow each other down, and a crash would end everyone, hence the processes.
They take turns (A B C A B C ...), so that a machine that warms up or is busy for a while treats all alike;
while one works, the others wait for a line on stdin. Nothing of torch is imported here.
"""

from __future__ import annotations

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from .. import WAITING
from ..errors import BadInput
from .machine import busy
from .peers import OURS, Contender, Place, Variant
from .work import SMALL, Work, as_json

PATIENCE = 600.0  # seconds for one answer
TURN = 0.25  # seconds that a turn takes at least
PAUSE = 0.3  # seconds between turns on a CPU: threads go on spinning for up to 0.2 after their work is done
FEWEST, MOST = 3, 15  # rounds
OPENMP_SPINS = "300000"  # of an idle thread of GNU's OpenMP (torch, llama.cpp), unless told otherwise


class Failed(Exception):
    """A worker could not do what it was asked; the sentence says why."""


class WorkerLike(Protocol):
    """What answers requests: a worker, or in a test something that stands for one."""

    def ask(self, do: str, **given: Any) -> Any: ...

    def close(self) -> None: ...


class Worker:
    """The other end of `worker.py`: a process, asked by lines of JSON."""

    def __init__(self, threads: int | None = None, ours: bool = True) -> None:
        """ours: whether it is to measure heedful."""
        debug = os.environ.get("HEEDFUL_DEBUG") == "1"
        self.log = None if debug else tempfile.TemporaryFile()  # noqa: SIM115 (until close)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "heedful.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment(threads, ours),
        )
        self.asked = False  # and has not answered yet
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, do: str, **given: Any) -> Any:
        """What one of the worker's functions returns."""
        assert self.process.stdin is not None
        self.asked = True
        with suppress(BrokenPipeError):  # the end of its answers says it better
            print(json.dumps({"do": do, **given}), file=self.process.stdin, flush=True)
        try:
            line = self.lines.get(timeout=PATIENCE)
        except queue.Empty:
            self.process.kill()
            raise Failed(f"did not answer within {PATIENCE:.0f} seconds") from None
        if line is None:
            self.lines.put(None)  # for whoever asks again
            raise Failed(self.last_words())
        self.asked = False
        answer = json.loads(line)
        if "ok" in answer:
            return answer["ok"]
        raise BadInput(answer["error"]) if answer["fault"] else Failed(answer["error"])

    def last_words(self) -> str:
        """How a process ended that was not to end, and the last line it wrote."""
        from .worker import without_folders

        code = self.process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == -9:
            how += ", probably out of memory"
        if self.log is None:
            return how
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 2000))
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return without_folders(f"{how}: {lines[-1]}" if lines else how)[:200]

    def close(self) -> None:
        """End the process: politely, and if that does not help, at once."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.asked:  # nobody waits for the answer any more
            self.process.kill()
        try:
            self.process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.listener.join(timeout=3)  # a child that the process left behind may hold the other end
        if not self.listener.is_alive():
            self.process.stdout.close()
        if self.log is not None:
            self.log.close()


def environment(threads: int | None, ours: bool) -> dict[str, str]:
    """The environment of a worker: this very package, so many threads, and no network.

    `import heedful` says how idle threads wait. Peers are measured with what they have without heedful.
    """
    here = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    counted = {} if threads is None else {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    waiting = {} if ours or WAITING & {*os.environ} else {"GOMP_SPINCOUNT": OPENMP_SPINS}
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **quiet, **counted, **waiting}


# One work, all contenders.


@dataclass
class Result:
    """What was measured of one contender at one work."""

    contender: Contender
    turns: list[float] = field(default_factory=list)  # seconds a unit
    answer: Any = None  # of the first unit: a loss, or tokens
    unit: float = 0.0  # seconds a unit, before the turns
    compiling: float | None = None  # seconds
    memory: int | None = None  # bytes
    elsewhere: list[float] = field(default_factory=list)  # processors that others kept busy meanwhile
    failed: str | None = None

    @property
    def seconds(self) -> float:
        """The median."""
        return statistics.median(self.turns)

    @property
    def spread(self) -> float:
        """How wide the middle half of the turns is, as a share of the median; of two turns at least."""
        low, _, high = statistics.quantiles(self.turns, n=4, method="inclusive")
        return (high - low) / self.seconds


def contest(
    everyone: Sequence[Contender],
    work: Work,
    place: Place,
    rounds: int | None,
    seconds: float,
    say: Callable[[str], None],
    start: Callable[[int, bool], WorkerLike] = Worker,
    at_once: int = 1,
) -> list[Result]:
    """Let everyone do the same work, in turns; whoever fails is out, and says why.

    at_once: contenders that start side by side, which is sooner done where compiling takes most of the time;
    each is timed again before the turns.
    """
    results = [Result(each) for each in everyone]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(at_once))
        workers: dict[int, WorkerLike] = {}

        def start_one(i: int) -> None:
            result = results[i]
            say(f"{result.contender.name}: starting")
            attempt(result, lambda: begin(workers[i], result, work, place))
            if result.failed:
                say(f"{result.contender.name}: {result.failed}")
                workers[i].close()

        for i in range(len(results)):
            workers[i] = start(place.threads, results[i].contender.peer == OURS)
            stack.callback(workers[i].close)  # before the pool is waited for: whoever is asked then gives up
        list(pool.map(start_one, range(len(results))))
        going = [i for i, result in enumerate(results) if not result.failed]
        for i in going if at_once > 1 else []:
            attempt(results[i], partial(time_alone, workers[i], results[i]))
        going = [i for i in going if not results[i].failed]
        count = rounds or rounds_for([results[i].unit for i in going], seconds)
        for turn in range(count):
            for i in [i for i in going if not results[i].failed]:
                say(f"turn {turn + 1} of {count}: {results[i].contender.name}")
                attempt(results[i], partial(take_turn, workers[i], results[i], place))
    return results


def attempt(result: Result, do: Callable[[], None]) -> None:
    try:
        do()
    except (Failed, BadInput) as error:
        result.failed = str(error)


def begin(worker: WorkerLike, result: Result, work: Work, place: Place) -> None:
    """Build a contender and warm it up."""
    where = {**vars(place), "path": result.contender.path}
    found = worker.ask("build", contender=result.contender.as_json(), work=as_json(work), place=where)
    result.answer, result.unit, result.memory = found["answer"], found["unit"], found["memory"]
    result.compiling = found["compile"]


def time_alone(worker: WorkerLike, result: Result) -> None:
    """How long a unit takes, now that nobody else is starting."""
    result.unit = worker.ask("turn", units=2, unit=0.0)["seconds"]


def take_turn(worker: WorkerLike, result: Result, place: Place) -> None:
    """One turn, and how busy the machine was with anything else meanwhile."""
    if place.device == "cpu":
        time.sleep(PAUSE)
    units = max(1, round(TURN / max(result.unit, 1e-6)))
    before, began = busy(), time.perf_counter()
    found = worker.ask("turn", units=units, unit=result.unit)
    after, took = busy(), time.perf_counter() - began
    result.turns.append(found["seconds"])
    if before is not None and after is not None and took > 0:
        result.elsewhere.append(max(0.0, after - before - found["cpu"]) / took)


def alone(worker: WorkerLike, work: Work, place: Place, rounds: int) -> Result:
    """heedful by itself, its plain way.

    A microscopic work comes first, so that imports at first use do not count as memory of this one.
    """
    result = Result(Contender(OURS, Variant()))
    begin(worker, replace(result), SMALL[work.kind], place)
    begin(worker, result, work, place)
    for _ in range(rounds):
        take_turn(worker, result, place)
    return result


def rounds_for(units: Sequence[float], seconds: float) -> int:
    """As many rounds as the slowest can do in so many seconds, within reason."""
    slowest = max([TURN, *units])
    return min(MOST, max(FEWEST, round(seconds / slowest)))


# What comes of it.


def agreement(answer: Any, expected: Any) -> dict[str, float]:
    """How near an answer is: the difference of two losses, or tokens before the first that differs."""
    if isinstance(expected, int | float):
        return {"loss": float(answer), "difference": abs(float(answer) - expected)}
    alike = [common(mine, theirs) for mine, theirs in zip(answer, expected, strict=True)]
    return {"tokens": statistics.fmean(map(len, expected)), "alike": statistics.fmean(alike)}


def common(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """Tokens before the first difference."""
    pairs = enumerate(zip(mine, theirs, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(mine), len(theirs)))


@dataclass(frozen=True)
class Floor:
    """A lower bound on time: all arithmetic at the matrix-product rate, or all bytes at that of a copy."""

    flops: float
    traffic: float  # bytes; 0 in training, which is arithmetic
    ceilings: dict[str, float]

    @property
    def arithmetic(self) -> float:
        return self.flops / self.ceilings["flops"]

    @property
    def moving(self) -> float:
        return self.traffic / self.ceilings["bandwidth"]

    @property
    def seconds(self) -> float:
        return max(self.arithmetic, self.moving)


def floor_of(
    work: Any, numbers: str, precision: str, flops: float | None, ceilings: dict[str, float]
) -> Floor:
    """The floor of a contender whose weights are `numbers`.

    Arithmetic in another kind of numbers than everyone's is left out: its rate was not measured.
    """
    if work.trains:
        return Floor((flops or 0.0) if numbers == precision else 0.0, 0.0, ceilings)
    return Floor(work.flops if numbers == precision else 0.0, work.traffic(numbers, precision), ceilings)


def best_peer(results: Sequence[Result], numbers: Callable[[Contender], str], kind: str) -> Result | None:
    """The fastest of those that are not heedful, among those that multiply the same kind of numbers."""
    some = [
        r
        for r in results
        if r.turns and not r.failed and not r.contender.is_ours and numbers(r.contender) == kind
    ]
    return min(some, key=lambda r: r.seconds, default=None)
