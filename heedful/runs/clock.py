"""A run of so many minutes: the number of steps is estimated before the first, and corrected as time goes by.

At every evaluation the clock knows what a step and an evaluation really take, and how much of the time is
left. A change of the number of steps changes the schedule of the learning rate from there on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from ..tasks.recipe.settings import Recipe

DRIFT = 0.03  # a smaller change of the steps that are left is not worth it
EVALUATIONS = 10


@dataclass
class Clock:
    """The time of a run, from its begin."""

    minutes: float
    begin: float = field(default_factory=time.perf_counter)
    step: int = 0  # at the last mark
    mark: float = 0.0  # when that was
    seconds: float = 0.0  # that a step takes

    @property
    def left(self) -> float:
        """Seconds."""
        return self.begin + 60 * self.minutes - time.perf_counter()

    def after_step(self, step: int, settled: int = 20) -> None:
        """Note the time; the first steps compile and warm up, and do not count."""
        if self.mark == 0.0 and step >= settled:
            self.step, self.mark = step, time.perf_counter()

    def before_evaluation(self, step: int) -> None:
        """What a step took since the last mark."""
        if self.mark and step > self.step:
            self.seconds = (time.perf_counter() - self.mark) / (step - self.step)

    def after_evaluation(self, recipe: Recipe, step: int, seconds: float) -> Recipe:
        """The recipe with as many steps as the time that is left allows, given what an evaluation takes."""
        self.step, self.mark = step, time.perf_counter()
        remaining = recipe.train.steps - step
        if not self.seconds or remaining <= 0:
            return recipe
        evaluations = max(1, min(EVALUATIONS - 1, round(remaining / recipe.evaluate.every)))
        possible = max(1, int((self.left - evaluations * seconds) / self.seconds))
        if abs(possible - remaining) < DRIFT * remaining:
            return recipe
        every = max(1, -(-possible // evaluations))
        train, evaluate = recipe.train, recipe.evaluate
        return replace(
            recipe,
            train=replace(train, steps=step + possible),
            evaluate=replace(evaluate, every=every) if step % every == 0 else evaluate,
        )
