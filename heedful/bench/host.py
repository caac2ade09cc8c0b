"""The host: the machine that a bench runs on, and a worker process that measures it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .measure import Worker, WorkerLike
from .peers import Place
from .records import setting
from .table import rate


@dataclass
class Host:
    """The machine that a bench runs on, as it was found, and a worker process to ask about it."""

    worker: WorkerLike
    machine: dict[str, Any]
    small: bool
    say: Callable[[str], None]
    start: Callable[[int, bool], WorkerLike] = Worker  # with so many threads, for heedful or for a peer

    @cached_property
    def ceilings(self) -> dict[str, float]:
        """What the machine can do at best, measured when it is first asked for."""
        self.say("measuring a matrix product and a copy")
        sizes = {"device": self.device, "threads": self.place.threads, "small": self.small}
        return self.worker.ask("ceilings", **sizes)

    @property
    def device(self) -> str:
        return self.machine["device"]

    @property
    def place(self) -> Place:
        return Place(self.device, self.machine["threads"])

    @property
    def shared(self) -> dict[str, Any]:
        """What every record says."""
        return setting(self.machine, self.ceilings)

    def introduce(self, args: Any) -> None:
        """Say what the machine is and can do, where that does not get into the way of JSON."""
        m, hardware, best = self.machine, self.machine["hardware"], self.ceilings
        cpu = f"{hardware['cpu']}, {m['threads']} of {hardware['cores']} cores"
        self.say("")
        product = f"{self.place.precision} matrix product {rate(best['flops'], 'FLOP/s')}"
        copy = f"copy {rate(best['bandwidth'], 'B/s')}"
        print(
            f"{hardware['gpu'] or cpu}; torch {m['versions']['torch']}; {product}, {copy}",
            file=sys.stderr if args.json else sys.stdout,
            flush=True,
        )


@contextmanager
def opened(args: Any) -> Iterator[Host]:
    """A host, its machine described by a worker."""
    say = progress()
    say("reading the machine's properties")
    worker = Worker(args.threads)
    try:
        machine = worker.ask("machine", device=args.device, threads=args.threads)
        yield Host(worker, machine, args.small, say)
    finally:
        say("")
        worker.close()


def progress() -> Callable[[str], None]:
    """A function that says on stderr what is being done: in one line of a terminal, or what is new."""
    live = sys.stderr.isatty()
    last = ""

    def say(line: str) -> None:
        nonlocal last
        if live:
            print(f"\r\x1b[K{line[:110]}", end="", file=sys.stderr, flush=True)
        elif line and not line.startswith("turn ") and line != last:
            print(f"bench: {line}", file=sys.stderr, flush=True)
        last = line

    return say
