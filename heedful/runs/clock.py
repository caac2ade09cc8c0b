"""A run of so many minutes: the number of steps is estimated before the first, and corrected as time goes by.

At every evaluation the clock knows what a step and an evaluation really take, and how much of the time is
left. A change of the number of steps changes the schedule of the learning rate from there on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from ..tasks.recipe.settings import Recipe

SETTLED = 20  # steps
DRIFT = 0.03  # a smaller change of the steps that are left is not worth it
EVALUATING = 0.1  # of the time that is left, at most
MOST_EVALUATIONS = 9


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

    def after_step(self, step: int, steps: int) -> None:
        """Note the time; the first of all steps compile and warm up, and do not count."""
        if self.mark == 0.0 and step >= min(SETTLED, steps // 20):
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
        planned = max(1, round(remaining / recipe.evaluate.every))
        evaluations = max(1, min(planned, MOST_EVALUATIONS, int(EVALUATING * self.left / seconds)))
        possible = max(1, int((self.left - evaluations * seconds) / self.seconds))
        if evaluations == planned and abs(possible - remaining) < DRIFT * remaining:
            return recipe
        every = -(-(step + possible) // (evaluations + round(step / recipe.evaluate.every)))
        return replace(
            recipe,
            train=replace(recipe.train, steps=step + possible),
            evaluate=replace(recipe.evaluate, every=max(1, every)),
        )
