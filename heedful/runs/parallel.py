"""How a run is spread over its processes: as `train.parallel` says, or chosen by memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ..models.base.skeleton import skeleton
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Job
from ..train.parallel.splittable import refuse_unsplittable
from ..train.parallel.way import ProcessGrid, Way, read_way
from ..train.processes import World
from .memory import Needed, format_bytes, free_memory, memory_needed

TIGHT = 0.9  # of the memory that is free; the estimate leaves out what kernels take for themselves


@dataclass(frozen=True)
class Spreading:
    """What each process has of the model, why, and the memory that takes."""

    way: Way
    grid: ProcessGrid
    needed: Needed | None = None  # None: nobody knows
    free: float = 0.0

    @property
    def here(self) -> int | None:
        """Bytes that training takes in one process."""
        return None if self.needed is None else self.needed.at(self.grid)

    @property
    def fits(self) -> bool:
        return self.here is None or self.here <= TIGHT * self.free


def local_size() -> int:
    """How many processes torchrun has started on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or 1)


def refuse_unspreadable(recipe: Recipe, job: Job, world: World) -> None:
    """What so many processes cannot share; the leading one says so before the others begin."""
    way = read_way(recipe.train.parallel)
    if world.size > 1:
        way.grid(world.size, local_size())
        if way.tensor > 1:
            refuse_unsplittable(skeleton(job.architecture, job.config), way.tensor)


def in_groups(recipe: Recipe, world: World) -> World:
    """The world, where as many processes compute each example together as the recipe says."""
    return world.in_groups(read_way(recipe.train.parallel).tensor)


def spreading(recipe: Recipe, job: Job, model: nn.Module, world: World, device: torch.device) -> Spreading:
    """What the recipe says; where it says "auto", the first of ddp, hsdp and fsdp that fits, or else fsdp."""
    way, local = read_way(recipe.train.parallel), local_size()
    needed = memory_needed(recipe, job, model, world, device)
    free = free_memory(device) / (1 if device.type == "cuda" else local)
    if world.size == 1:
        return Spreading(way, ProcessGrid(), needed, free)
    if way.kind != "auto":
        return Spreading(way, way.grid(world.size, local), needed, free)
    per_machine = local < world.size and world.size % local == 0 and local % way.tensor == 0
    kinds = [Way(kind, way.tensor) for kind in ("ddp", *(["hsdp"] if per_machine else []), "fsdp")]
    tried = [Spreading(kind, kind.grid(world.size, local), needed, free) for kind in kinds]
    fitting = next((number for number, one in enumerate(tried) if one.fits), len(tried) - 1)
    return tried[int(world.from_leader([float(fitting)], device)[0])]  # the same everywhere


def describe_spreading(chosen: Spreading, asked: str) -> Iterator[str]:
    """What each process has of the model, and why."""
    grid = chosen.grid
    if grid.size == 1:
        return
    parts = []
    if grid.replicas > 1:
        parts.append(f"{grid.replicas} copies of the model")
    if grid.shards > 1:
        parts.append(f"each in {grid.shards} shards" if parts else f"the model in {grid.shards} shards")
    if grid.tensor > 1:
        parts.append(f"every matrix in {grid.tensor} parts")
    why = "as train.parallel says"
    if asked.startswith("auto"):
        whole = None if chosen.needed is None else chosen.needed.at(ProcessGrid())
        if whole is None:
            why = "nothing is known of the memory it takes"
        else:
            fits = "fits" if whole <= TIGHT * chosen.free else "does not fit"
            size, free = format_bytes(whole), format_bytes(chosen.free)
            why = f"a whole copy takes about {size} in training, which {fits} into {free}"
    yield f"parallel: {chosen.way}, {', '.join(parts)} ({why})"
