"""The bill: what a whole training takes, in steps, days, energy and money."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .search import TrainingPlan, Workload

HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True)
class Bill:
    """What a training takes. Energy is that of the GPUs at their limit, without machines and cooling."""

    steps: int
    days: float
    gpu_hours: float
    kwh: float
    dollars: float


def bill_of(plan: TrainingPlan, work: Workload, tokens: float, price: float, watts: float) -> Bill:
    """The bill of so many target tokens; price: dollars of a GPU for an hour, watts: of a GPU."""
    steps = math.ceil(tokens / work.tokens)
    seconds = steps * plan.step.total
    hours = plan.sharding.cluster.gpus * seconds / HOUR
    return Bill(steps, seconds / DAY, hours, hours * watts / 1000, hours * price)
