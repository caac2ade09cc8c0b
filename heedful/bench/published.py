"""Steps of FSDP that others measured and published, beside what the planner predicts of them.

The measurements and their sources are in published.json. The page on planning shows the table that this file
makes: `python -m heedful.bench.published` prints it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..models import config_class
from ..models.base.skeleton import skeleton
from ..planner.machines import find_cluster, find_gpu
from ..planner.search import Planner, Workload
from ..planner.shardings import Sharding

STEPS = Path(__file__).with_name("published.json")


@dataclass(frozen=True)
class PublishedStep:
    """A step of several GPUs: what was done, at which rate, and which rate is predicted."""

    model: str
    context: int
    gpu: str
    gpus: int
    rows: int  # of a micro-batch
    micro_batches: int
    rate: float  # tokens/s of a GPU
    tensor: int = 1
    recompute: bool = False
    compiled: bool = False

    @property
    def predicted(self) -> float:
        """Tokens/s of a GPU."""
        cluster = find_cluster(find_gpu(self.gpu), self.gpus)
        sharding = Sharding("fsdp", self.tensor, cluster)
        rows = self.rows * self.micro_batches * sharding.replicas
        planner = Planner(
            Workload(model_of(self.model, self.context), self.context, rows), cluster, self.compiled
        )
        plan = planner.plan(sharding, self.rows, self.micro_batches, self.recompute)
        return rows * self.context / plan.step.total / self.gpus

    @property
    def error(self) -> float:
        """Of the predicted rate, as a share of the published one."""
        return self.predicted / self.rate - 1

    @property
    def name(self) -> str:
        rows = f"{self.micro_batches} x {self.rows} x {self.context:,}"
        return f"{self.model}, {rows}, {self.gpus} {self.gpu.upper()}"


@cache
def model_of(name: str, context: int) -> Any:
    """A model that was measured; nobody had dropout."""
    architecture, sizes = json.loads(STEPS.read_text(encoding="utf-8"))["models"][name]
    kind = config_class(architecture)
    none = {"dropout": 0.0, "attention_dropout": 0.0} if architecture == "gpt2" else {}
    return skeleton(architecture, kind(**sizes, **none, context=context))


def published_steps() -> list[PublishedStep]:
    """All that was found."""
    return [PublishedStep(**row) for row in json.loads(STEPS.read_text(encoding="utf-8"))["steps"]]


def published_table() -> str:
    """The comparison as a table of a page."""
    headings = (
        "rows and GPUs",
        "tensor",
        "recompute",
        "compiled",
        "published, tokens/s",
        "predicted",
        "error",
    )
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for one in published_steps():
        how = [str(one.tensor), "yes" if one.recompute else "no", "yes" if one.compiled else "no"]
        rates = [f"{one.rate:,.0f}", f"{one.predicted:,.0f}", f"{100 * one.error:+.0f} %"]
        lines.append(f"| {' | '.join([one.name, *how, *rates])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(published_table())
