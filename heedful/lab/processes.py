"""Measuring arms in processes of one thread each, so that sums have one order and a core one arm."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import torch

from ..data.workers import end_with_parent
from .claim import Claim, find_claim, measured

Trial = tuple[str, int]  # an arm and a seed
Measurement = tuple[
    str, int, Mapping[str, float], float
]  # with its numbers and its seconds of processor time


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums have one order, and times one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measurement(claim: Claim, arm: str, seed: int, size: str) -> Measurement:
    """One arm with one seed."""
    began = time.process_time()
    with one_thread():
        numbers = measured(claim.arms[arm][0], seed, size)
    return arm, seed, numbers, time.process_time() - began


def in_turn(claim: Claim, trials: Sequence[Trial], size: str) -> Iterator[Measurement]:
    """One measurement after another, in this process."""
    for arm, seed in trials:
        yield measurement(claim, arm, seed, size)


def at_once(claim: Claim, trials: Sequence[Trial], size: str, processes: int) -> Iterator[Measurement]:
    """Several measurements at a time, each as soon as it is there."""
    if min(processes, len(trials)) < 2:
        yield from in_turn(claim, trials, size)
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=end_with_parent)
    started: dict[int, BaseProcess] = {}
    try:
        waiting = [pool.submit(measured_by_name, claim.name, arm, seed, size) for arm, seed in trials]
        started |= pool._processes
        for done in as_completed(waiting):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in started.values():  # a measurement may take a minute: nobody waits for it
            process.terminate()


def measured_by_name(name: str, arm: str, seed: int, size: str) -> Measurement:
    """The same in another process, which finds the claim by its name."""
    return measurement(find_claim(name), arm, seed, size)
