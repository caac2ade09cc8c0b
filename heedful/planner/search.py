"""The search: every sharding with every size of micro-batch, with and without activation checkpointing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import BadInput
from ..inside.costs import Costs
from .machines import Cluster
from .memory import SPARE, Memory, memory_of
from .rates import Rates
from .shardings import PARALLEL, Sharding, shardings
from .timeline import StepTime, step_time
from .training_step import ComputeTime, compute_time, count_costs

CLOSE = 0.01  # by how much a plan must be faster than a simpler one to be better
MOST_ROWS = 1024  # of a micro-batch on one GPU


@dataclass(frozen=True)
class Workload:
    """What a step has to do.

    Attributes:
        model: The model, whose tensors may be on the meta device.
        length: Tokens of a row; also of the source, if the model reads texts.
        rows: Rows of a step.

    Example:
        >>> Workload(torch.nn.Linear(2, 2), length=1024, rows=512).tokens
        524288
    """

    model: Any
    length: int
    rows: int

    @property
    def tokens(self) -> int:
        """Target tokens of a step."""
        return self.rows * self.length


@dataclass(frozen=True)
class TrainingPlan:
    """One way to train, with its predicted memory and time.

    Attributes:
        sharding: How weights and rows are divided.
        rows: Rows of a micro-batch on one GPU, or on those that share products.
        micro_batches: Micro-batches of a step.
        checkpointing: Whether activations are computed again in the backward pass.
        memory: Bytes of a GPU by use.
        step: Seconds of a step.

    Example:
        >>> from heedful.models import find_preset
        >>> from heedful.planner.machines import find_cluster, find_gpu
        >>> from heedful.planner.subject import Subject
        >>> cluster = find_cluster(find_gpu("h200"), gpus=1)
        >>> plan = fastest(Planner(Subject("gpt2", *find_preset("gpt2")).workload(cluster), cluster).all())
        >>> plan.fits, plan.sharding.parallel, plan.memory.total < room(cluster)
        (True, 'ddp', True)
    """

    sharding: Sharding
    rows: int
    micro_batches: int
    checkpointing: bool
    memory: Memory
    step: StepTime

    @property
    def fits(self) -> bool:
        """Whether it fits into the memory of a GPU."""
        return self.memory.total <= room(self.sharding.cluster)

    @property
    def order(self) -> tuple[int, int, bool]:
        """Simpler plans first."""
        return self.sharding.tensor, PARALLEL.index(self.sharding.parallel), self.checkpointing


def room(cluster: Cluster) -> float:
    """Bytes of a GPU's memory that training may fill."""
    return (1 - SPARE) * cluster.gpu.memory


class Planner:
    """Plans for one workload on one cluster.

    Args:
        work: What a step has to do.
        cluster: The machines.
        compiled: Whether steps are made by torch.compile.

    Example:
        >>> from heedful.models import find_preset
        >>> from heedful.planner.machines import find_cluster, find_gpu
        >>> from heedful.planner.subject import Subject
        >>> cluster = find_cluster(find_gpu("h100"), gpus=2)
        >>> planner = Planner(Subject("gpt2", *find_preset("gpt2")).workload(cluster), cluster)
        >>> [(plan.sharding.parallel, plan.sharding.tensor) for plan in planner.all()]
        [('ddp', 1), ('fsdp', 1), ('ddp', 2)]
    """

    def __init__(self, work: Workload, cluster: Cluster, compiled: bool = True) -> None:
        """compiled: whether steps are made by torch.compile, as the command of a plan asks for."""
        if work.rows < 1:
            raise BadInput("a step must have at least one row: give a larger --batch or a smaller --context")
        self.work, self.cluster, self.rates = work, cluster, Rates(cluster.gpu)
        self.compiled = compiled
        self.costs = cache(self._costs)
        self.compute = cache(self._compute)

    def _costs(self, rows: int) -> Costs:
        return count_costs(self.work.model, rows, self.work.length)

    def _compute(self, rows: int, tensor: int) -> ComputeTime:
        return compute_time(self.rates, self.work.model, self.costs(rows), tensor, self.compiled)

    def plans(self, sharding: Sharding) -> Iterator[TrainingPlan]:
        """All plans of a sharding, from the smallest micro-batch to the first that does not fit."""
        for checkpointing in (False, True):
            for rows, micro_batches in self.micro_batches(sharding):
                plan = self.plan(sharding, rows, micro_batches, checkpointing)
                yield plan
                if not plan.fits:
                    break

    def micro_batches(self, sharding: Sharding) -> list[tuple[int, int]]:
        """(rows, number) of micro-batches that a GPU can divide its rows into, the smallest first."""
        mine = -(-self.work.rows // sharding.replicas)
        sizes, size = set(), 1
        while size <= min(mine, MOST_ROWS):
            number = -(-mine // size)
            sizes.add((-(-mine // number), number))
            size *= 2
        return sorted(sizes)

    def plan(self, sharding: Sharding, rows: int, micro_batches: int, checkpointing: bool) -> TrainingPlan:
        memory = memory_of(sharding, self.costs(rows), checkpointing)
        share = self.work.rows / (sharding.replicas * micro_batches * rows)
        compute = self.compute(rows, sharding.tensor)
        step = step_time(sharding, compute, micro_batches, checkpointing, share)
        return TrainingPlan(sharding, rows, micro_batches, checkpointing, memory, step)

    def best_of(self, sharding: Sharding) -> TrainingPlan:
        """The fastest plan of a sharding that fits; else the one that needs the least memory."""
        return fastest(self.plans(sharding))

    def all(self) -> list[TrainingPlan]:
        """The best plan of each way to divide the model.

        Returns:
            A list of `TrainingPlan`.
        """
        return [self.best_of(sharding) for sharding in shardings(self.cluster, self.work.model)]


def fastest(plans: Iterator[TrainingPlan] | list[TrainingPlan]) -> TrainingPlan:
    """The simplest among the fastest plans that fit. Plans within 1 % of each other count as equally fast.

    Args:
        plans: The plans, at least one.

    Returns:
        `TrainingPlan`; if none fits, the one that needs the least memory.

    Example:
        >>> from heedful.models import find_preset
        >>> from heedful.planner.machines import find_cluster, find_gpu
        >>> from heedful.planner.subject import Subject
        >>> cluster = find_cluster(find_gpu("a100"), gpus=1)
        >>> subject = Subject("gpt3-175b", *find_preset("gpt3-175b"))
        >>> fastest(Planner(subject.workload(cluster), cluster).all()).fits
        False
    """
    found = list(plans)
    fitting = [plan for plan in found if plan.fits]
    if not fitting:
        return min(found, key=lambda plan: plan.memory.total)
    least = min(plan.step.total for plan in fitting)
    return min((plan for plan in fitting if plan.step.total <= (1 + CLOSE) * least), key=lambda p: p.order)
