"""What train, demo and compare share: what is said while a model trains, and the names of runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Self

from ...runs.plan import format_seconds
from ...train.loop import Progress

QUIET = 10.0  # seconds between lines where there is no terminal


class TrainingProgress:
    """What a run says, on stderr: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.job: Any = None
        self.spoke = 0.0
        self.pace = 0.0  # seconds a step
        self.smooth: float | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Bar(*columns, console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def say(self, line: str) -> None:
        if self.bar is not None:
            self.bar.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def step(self, progress: Progress, steps: int) -> None:
        self.smooth = progress.loss if self.smooth is None else 0.95 * self.smooth + 0.05 * progress.loss
        self.pace = 0.95 * self.pace + 0.05 * progress.seconds if self.pace else progress.seconds
        figures = progress.figures or {"loss": self.smooth}
        told = ", ".join(f"{name} {figure:.3f}" for name, figure in figures.items())
        told += f", {progress.a_second(progress.seconds)}/s"
        if self.bar is not None:
            if self.job is None:
                self.job = self.bar.add_task(told, total=steps)
            self.bar.update(self.job, completed=progress.step, description=told)
        elif time.monotonic() - self.spoke > QUIET:
            self.spoke = time.monotonic()
            left = format_seconds(self.pace * (steps - progress.step))
            print(f"step {progress.step} of {steps}: {told}, {left} left", file=sys.stderr, flush=True)


def free_name(name: str) -> Path:
    """runs/NAME, or with the first number that is free."""
    return numbered(name, free_number(name))


def remark_on(path: Path, asked: str | None, name: str) -> str:
    """Why a run that nobody gave a name has a number."""
    first = numbered(name, 1)
    return f" ({first} is there already)" if asked is None and path != first else ""


def free_number(name: str) -> int:
    number = 1
    while numbered(name, number).exists():
        number += 1
    return number


def numbered(name: str, number: int) -> Path:
    return Path("runs") / (name if number == 1 else f"{name}-{number}")
