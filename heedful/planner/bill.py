"""The bill: what a whole training takes, in steps, days, energy and money."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .search import TrainingPlan, Workload

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class Bill:
    """What a whole training takes.

    Attributes:
        steps: Optimizer steps.
        days: Days.
        gpu_hours: Hours of a GPU.
        kwh: Energy of the GPUs at their limit, without machines and cooling.
        dollars: Price of the GPU-hours.

    Example:
        >>> Bill(steps=1000, days=0.5, gpu_hours=96, kwh=67.2, dollars=288).gpu_hours
        96
    """

    steps: int
    days: float
    gpu_hours: float
    kwh: float
    dollars: float


def bill_of(plan: TrainingPlan, work: Workload, tokens: float, price: float, watts: float) -> Bill:
    """The bill of a training by a plan.

    Args:
        plan: The plan.
        work: What a step has to do.
        tokens: Target tokens of the whole training.
        price: Dollars of a GPU for an hour.
        watts: Power of a GPU.

    Returns:
        `Bill`.

    Example:
        >>> from heedful.models import find_preset
        >>> from heedful.planner.machines import find_cluster, find_gpu
        >>> from heedful.planner.search import Planner, fastest
        >>> from heedful.planner.subject import Subject
        >>> cluster = find_cluster(find_gpu("h100"), gpus=8)
        >>> work = Subject("gpt2", *find_preset("gpt2")).workload(cluster)
        >>> bill = bill_of(fastest(Planner(work, cluster).all()), work, tokens=10e9, price=3.0, watts=700)
        >>> bill.steps, bill.days < 0.1, bill.dollars < 20
        (19074, True, True)
    """
    steps = math.ceil(tokens / work.tokens)
    seconds = steps * plan.step.total
    hours = plan.sharding.cluster.gpus * seconds / HOUR
    return Bill(steps, seconds / DAY, hours, hours * watts / 1000, hours * price)
