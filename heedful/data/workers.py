"""Work in several processes, which take one piece of it after another."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from ..errors import BadInput

Job = TypeVar("Job")
Answer = TypeVar("Answer")

MOST = 32  # processes: each needs memory of its own, and they share one disk


def cores() -> int:
    """How many processes at once are worth it here."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(there, MOST)


def at_once(
    work: Callable[[Job], Answer], jobs: Sequence[Job], processes: int
) -> Iterator[tuple[int, Answer]]:
    """(number of the job, answer) for every job, in the order in which they end.

    `work` goes to each process once, and remembers there what it learns from job to job.
    """
    if min(processes, len(jobs)) < 2:
        yield from enumerate(map(work, jobs))
        return
    processes = min(processes, len(jobs))
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=begin, initargs=(work,))
    started: dict[int, BaseProcess] = {}
    try:
        numbers = {pool.submit(do, job): number for number, job in enumerate(jobs)}
        started |= pool._processes
        for done in as_completed(numbers):
            yield numbers[done], done.result()
    except BrokenProcessPool:
        raise BadInput(
            "a process that read the texts was ended, perhaps for want of memory: "
            "what is done is kept, start again"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in started.values():  # after a failure, nobody waits for the others
            process.terminate()


_work: list[Callable[[Any], Any]] = []  # of this process


def begin(work: Callable[[Any], Any]) -> None:
    end_with_parent()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every core has a process already
    _work[:] = [work]


def do(job: Any) -> Any:
    return _work[0](job)


def end_with_parent() -> None:
    """End this process when its parent has ended, even if that was killed. Ctrl-C is for the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None
    wait = parent.join
    threading.Thread(target=lambda: (wait(), os._exit(1)), daemon=True).start()
