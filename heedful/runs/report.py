"""What a run reports while it trains: each step, its speed, and a warning if nothing was learned."""

from __future__ import annotations

import math
import statistics
from typing import Protocol

import torch

from ..tasks import expert_load
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Job
from ..train.loop import Progress
from .folder import RunFolder
from .plan import format_bytes, format_seconds, peak_memory
from .resume import Best

SETTLED = 20  # steps after which the speed is said


class Reporter(Protocol):
    """Where a run reports to."""

    def say(self, line: str) -> None:
        """A sentence."""

    def step(self, progress: Progress, steps: int) -> None:
        """One more step was made."""


class SilentReporter:
    """A reporter that prints nothing: every process but the leading one has it."""

    def say(self, line: str) -> None:
        pass

    def step(self, progress: Progress, steps: int) -> None:
        pass


def report_step(progress: Progress, folder: RunFolder | None, reporter: Reporter, recipe: Recipe) -> None:
    """Write a step's loss, learning rate and gradient norm to the log."""
    if folder is not None:
        folder.metrics.append(
            {"step": progress.step, "loss": progress.loss, "rate": progress.rate, "norm": progress.norm}
            | expert_load.logged(progress.expert_load)
        )
    reporter.step(progress, recipe.train.steps)


def report_speed(
    pace: list[float], progress: Progress, recipe: Recipe, device: torch.device, reporter: Reporter
) -> None:
    """Report the speed, the time left and the memory in use, once the first steps are done."""
    if len(pace) > SETTLED:
        return
    pace.append(progress.seconds)
    if len(pace) == SETTLED:
        seconds = statistics.median(pace)
        left = seconds * (recipe.train.steps - progress.step)
        reporter.say(
            f"speed: {1000 * seconds:.0f} ms a step, {progress.a_second(seconds)} a second; "
            f"about {format_seconds(left)} left; memory so far {format_bytes(peak_memory(device))}"
        )


def warning_if_no_better(best: Best, job: Job) -> str | None:
    """A warning, if a model that has finished is no better than what takes no learning."""
    told, guessing = job.baselines.get("loss", ("", math.inf))
    if best.scores["loss"] < guessing:
        return None
    return (
        f"warning: the best held-out loss, {best.scores['loss']:.3f}, is not below {guessing:.3f} of "
        f"guessing ({told}): "
        "the model has learned nothing yet; give it more --steps, or another train.rate (--find-rate tries "
        "some)"
    )
