"""A worker: a process in which one contender works, which reads its tasks as lines of JSON on stdin.

Every request names one of the functions below; the answer is one line on stdout, {"ok": ...} or {"error":
sentence}. Whatever a library prints goes to stderr, which the process that leads keeps for the day
something breaks. A worker ends when its stdin does, so none is left behind.
"""

from __future__ import annotations

import gc
import json
import math
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ..errors import BadInput
from . import machine
from .peers import OURS, Contender, Place, contenders, field_of, find, given
from .work import Work, from_json

WARM_UP = 1.0  # seconds of units before the first turn, and at least two units: the first of them may compile
LONG = 1.0  # seconds: a unit that takes this long needs no other before it to be warm


class WorkerRequests:
    """What a worker can be asked to do; it remembers what it has built."""

    def __init__(self) -> None:
        self.run: Callable[[], Any] | None = None
        self.place = Place("cpu", 1)
        self.before = 0  # bytes in use before anything was built

    # Of the machine and of everyone.

    def machine(self, device: str, threads: int | None) -> dict[str, Any]:
        return machine.describe(device, threads)

    def ceilings(self, device: str, threads: int, small: bool) -> dict[str, float]:
        return machine.ceilings(device, threads, small)

    def absent(self, asked: list[str]) -> dict[str, str]:
        """Who cannot be measured here, and how to get them."""
        return field_of(given(asked))[1]

    def contenders(self, work: dict[str, Any], asked: list[str]) -> list[dict[str, Any]]:
        paths = given(asked)
        return [each.as_json() for each in contenders(from_json(work), field_of(paths)[0], paths)]

    def prepare(self, work: dict[str, Any], place: dict[str, Any], folder: str) -> dict[str, Any]:
        """Weights for everyone, into a folder, and what they should lead to."""
        machine.set_threads(place["threads"])
        made = find(OURS, None).prepare(from_json(work), Place(**place), Path(folder))
        machine.give_back(place["device"])
        return made

    def predict(self, work: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
        return find(OURS, None).predict(from_json(work), Place(**place))

    # Of one contender.

    def build(self, contender: dict[str, Any], work: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
        """Build, do the first units; report the first answer, seconds a unit, and seconds of compiling."""
        self.run = None
        gc.collect()
        who, task = Contender.from_json(contender), from_json(work)
        self.place = replace(Place(**place), numbers=who.variant.numbers if task.trains else "")
        peer = find(who.peer, who.path)
        machine.set_threads(self.place.threads)
        self.before = machine.start_counting(self.place.device)
        self.run = peer.build(task, who.variant, self.place)
        began = time.perf_counter()
        answer = plain(self.run(), task)
        spans = [machine.finished(self.place.device) - began]
        while len(spans) < 2 or sum(spans[1:]) < WARM_UP and len(spans) < 10:
            spans.append(self.timed(1))
        unit = min(spans[1:])
        memory = machine.most_used(self.place.device, self.before)
        return {
            "answer": answer,
            "unit": unit,
            "compile": max(0.0, sum(spans) - len(spans) * unit) if who.variant.compiled else None,
            "memory": memory,
        }

    def turn(self, units: int, unit: float) -> dict[str, Any]:
        """So many units on end: seconds for each. Processor seconds are those of the whole turn."""
        cpu = time.process_time()
        if unit < LONG:  # others have worked since: caches are cold, and memory was given back
            self.timed(1)
        seconds = self.timed(units) / units
        machine.give_back(self.place.device)
        return {"seconds": seconds, "cpu": time.process_time() - cpu}

    def timed(self, units: int) -> float:
        assert self.run is not None
        began = machine.finished(self.place.device)
        for _ in range(units):
            self.run()
        return machine.finished(self.place.device) - began


def plain(answer: Any, work: Work) -> Any:
    """A loss as a number, tokens as lists; anything else is refused."""
    if hasattr(answer, "tolist"):
        answer = answer.tolist()
    if work.trains:
        if not math.isfinite(answer):
            raise ValueError(f"the loss is {answer}")
        return float(answer)
    rows = [list(map(int, row)) for row in answer]
    if len(rows) != getattr(work, "batch", len(rows)):
        raise ValueError(f"{len(rows)} rows were written instead of {getattr(work, 'batch', 0)}")
    return rows


def said(error: BaseException) -> str:
    """An error as one line of moderate length, without folders of this machine."""
    first = next(iter(str(error).strip().splitlines()), "")
    text = first if isinstance(error, BadInput) else f"{type(error).__name__}: {first}"
    return without_folders(text)[:200]


def without_folders(text: str) -> str:
    """/home/me/x.py becomes x.py."""
    return re.sub(r"(?:[A-Za-z]:)?(?:[/\\][^\s/\\:'\",]+)+[/\\]", "", text)


def serve(requests: TextIO, answers: TextIO) -> None:
    bench = WorkerRequests()
    for line in requests:
        asked = json.loads(line)
        try:
            answer: dict[str, Any] = {"ok": getattr(bench, asked.pop("do"))(**asked)}
        except Exception as error:  # noqa: BLE001 (a peer may fail in any way; the run goes on)
            traceback.print_exc()
            answer = {"error": said(error), "fault": isinstance(error, BadInput)}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that leads: it ends this one
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not look like an answer
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
