"""Training steps that were measured on one GPU, beside what the planner predicts of them.

The measurements are in measured.json, and in benchmarks/RESULTS.md with their commands. The page on planning
shows the table that this file makes: `python -m heedful.bench.measured` prints it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models.base.skeleton import skeleton
from ..planner.machines import Gpu, find_gpu
from .ours import architecture, seconds_of
from .work import BASE, GPT2, KINDS, TrainGPT2, TrainTransformer

STEPS = Path(__file__).with_name("measured.json")
# Sizes that a measurement does not name.
USUAL = {
    "train-gpt2": {**GPT2, "length": 1024},
    "train-transformer": {**BASE, "source": 64, "target": 64, "batch": 384},
}


@dataclass(frozen=True)
class MeasuredStep:
    """A training step: what was done, in which time, and which time is predicted."""

    name: str
    work: TrainGPT2 | TrainTransformer
    compiled: bool
    day: str
    ms: float
    predicted: float  # ms

    @property
    def error(self) -> float:
        """Of the prediction, as a share of the measurement."""
        return self.predicted / self.ms - 1


def measured_steps() -> list[MeasuredStep]:
    """All measurements with their predictions."""
    found = json.loads(STEPS.read_text(encoding="utf-8"))
    return [measured_step(find_gpu(found["gpu"]), **row) for row in found["steps"]]


def measured_step(
    gpu: Gpu, name: str, kind: str, compiled: bool, ms: float, day: str, **sizes: Any
) -> MeasuredStep:
    work: Any = KINDS[kind](**{**USUAL[kind], **sizes})
    predicted = seconds_of(skeleton(*architecture(work)), work, gpu, compiled)
    return MeasuredStep(name, work, compiled, day, ms, 1000 * predicted)


def measured_table() -> str:
    """The comparison as a table of a page."""
    lines = ["| training step | compiled | measured, ms | predicted, ms | error |", "|---|---|---|---|---|"]
    for one in measured_steps():
        compiled = "yes" if one.compiled else "no"
        lines.append(
            f"| {one.name} | {compiled} | {one.ms:.3g} | {one.predicted:.3g} | {100 * one.error:+.0f} % |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(measured_table())
