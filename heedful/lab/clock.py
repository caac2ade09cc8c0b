"""Clocks: how long work takes, and how many bytes a forward pass keeps for the backward pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

LEAST = 5  # repetitions


@dataclass(frozen=True)
class ShortestTime:
    """Seconds of the fastest repetition."""

    cpu: float
    wall: float


def timed(work: Callable[[], object], least: int = LEAST, seconds: float = 0.2) -> ShortestTime:
    """The minimum over at least `least` repetitions and about `seconds`, after one that does not count."""
    work()
    cpu, wall, done, began = float("inf"), float("inf"), 0, time.perf_counter()
    while done < least or (time.perf_counter() - began < seconds and done < 100 * least):
        first_cpu, first_wall = time.process_time(), time.perf_counter()
        work()
        cpu = min(cpu, time.process_time() - first_cpu)
        wall = min(wall, time.perf_counter() - first_wall)
        done += 1
    return ShortestTime(cpu, wall)


def saved_bytes(work: Callable[[], object], without: tuple[Tensor, ...] = ()) -> int:
    """The bytes that a forward pass keeps for the backward pass; each storage counts once.

    without: tensors that are there anyway, such as weights.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in without}
    found: dict[int, Tensor] = {}  # holds the tensors, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in known:
            found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        kept = work()
    del kept
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())
