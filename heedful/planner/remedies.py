"""Remedies: what helps where nothing fits into memory, or where GPUs wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ..inside.costs import Costs
from .machines import MOST_GPUS, Cluster, find_gpu, gpus
from .memory import memory_of
from .search import TrainingPlan, Workload, room
from .shardings import shardings
from .training_step import count_costs

LEAST_LENGTH = 128  # tokens of a row that are suggested
NOTICED = 0.05  # share of a step that GPUs wait, from which on it is told
GIB = 2**30


def remedies(work: Workload, cluster: Cluster) -> Iterator[str]:
    """What would fit, where nothing does: each is an option of `heedful plan`."""
    costs = count_costs(work.model, 1, work.length)
    found = next((many for many in larger(cluster) if fits(work, costs, many)), None)
    if found is not None:
        yield f"--gpus {found.gpus}"
    for name in gpus():
        other = find_gpu(name)
        if other.memory > cluster.gpu.memory and fits(work, costs, replace(cluster, gpu=other)):
            yield f"--gpu {name}, which has {other.memory / GIB:,.0f} GiB"
    length = work.length // 2
    while length >= LEAST_LENGTH:
        if fits(work, count_costs(work.model, 1, length), cluster):
            yield f"--context {length}"
            return
        length //= 2


def larger(cluster: Cluster) -> Iterator[Cluster]:
    """Twice as many GPUs, and so on: first in one machine, then in machines of eight or more."""
    gpus = 2 * cluster.gpus
    while gpus <= MOST_GPUS:
        per_machine = max(cluster.per_machine, math.gcd(gpus, 8))
        if gpus % per_machine == 0:
            bandwidth = cluster.network / cluster.per_machine * per_machine
            yield replace(cluster, gpus=gpus, per_machine=per_machine, network=bandwidth)
        gpus *= 2


def fits(work: Workload, costs: Costs, cluster: Cluster) -> bool:
    """Whether one row at a time fits with activation checkpointing, which takes the least memory."""
    return any(
        memory_of(one, costs, checkpointing=True).total <= room(cluster)
        for one in shardings(cluster, work.model)
    )


def describe(plan: TrainingPlan) -> str:
    """A plan in a few words: "fsdp with tensor=2 and activation checkpointing"."""
    more = [f"tensor={plan.sharding.tensor}"] * (plan.sharding.tensor > 1)
    more += ["activation checkpointing"] * plan.checkpointing
    kind = "one GPU" if plan.sharding.cluster.gpus == 1 else plan.sharding.parallel
    return f"{kind} with {' and '.join(more)}" if more else kind


def notes(plan: TrainingPlan, work: Workload) -> Iterator[str]:
    """What to know of the best plan: GPUs that wait, and recomputing."""
    cluster, step = plan.sharding.cluster, plan.step
    if step.waiting > NOTICED * step.total:
        replicas = plan.sharding.replicas
        even = -(-work.rows // replicas) * replicas * work.length
        yield (f"some GPUs wait: {work.rows:,} rows in {replicas:,} parts; --batch {even} gives each as many")
    if step.communication > NOTICED * step.total and cluster.machines > 1:
        yield "a larger --batch hides more of the communication"
    if plan.checkpointing:
        yield "blocks are computed twice (activation checkpointing): more GPUs may avoid it"
