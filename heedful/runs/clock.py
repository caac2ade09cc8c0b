"""A run of so many minutes: the number of steps is estimated before the first, and corrected as time goes by.

The clock knows what a step and an evaluation really take, and how much of the time is left. It looks after
every evaluation and several times in between. A change of the number of steps changes the schedule of the
learning rate from there on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from ..tasks.recipe.choices import apply, choose_length
from ..tasks.recipe.settings import Recipe

DRIFT = 0.03  # of all the time: a smaller correction is not worth it
BETWEEN = 0.04  # of all the time, from one look to the next
SETTLED = 20  # steps that compile and warm up, and do not count
EVALUATIONS = 10
EVALUATING = 0.1  # of the time that is left, at most, unless evaluate.every is given


@dataclass
class Clock:
    """The time of a run, from its begin."""

    minutes: float
    given: Collection[str] = ()  # settings that somebody chose: they stay
    now: Callable[[], float] = time.perf_counter
    begin: float = field(init=False)
    looked: float = field(init=False)  # when the number of steps was last considered
    mark: tuple[int, float] | None = None  # a step, and when it was done: from there on, steps are timed
    step_seconds: float = 0.0
    evaluation_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.begin = self.looked = self.now()

    @property
    def all(self) -> float:
        """Seconds that the run is to take."""
        return 60 * self.minutes

    @property
    def left(self) -> float:
        """Seconds."""
        return self.begin + self.all - self.now()

    def due(self) -> bool:
        """Whether it is time to look, without an evaluation."""
        return self.now() - self.looked > BETWEEN * self.all

    def after_step(self, step: int) -> None:
        """Begin to time the steps once the first are done."""
        if self.mark is None and step >= SETTLED:
            self.mark = step, self.now()

    def before_evaluation(self, step: int) -> None:
        """Note what a step took; what follows is timed as an evaluation."""
        self.time_steps(step)
        self.looked = self.now()

    def after_evaluation(self, step: int) -> None:
        """Note what an evaluation took, and time the steps from here on."""
        now = self.now()
        self.evaluation_seconds = now - self.looked
        self.looked, self.mark = now, (step, now)

    def time_steps(self, step: int) -> None:
        if self.mark is not None and step > self.mark[0]:
            self.step_seconds = (self.now() - self.mark[1]) / (step - self.mark[0])

    def corrected(self, recipe: Recipe, step: int) -> Recipe:
        """The recipe with as many steps as the time that is left allows."""
        self.time_steps(step)
        self.looked = self.now()
        if self.mark is None:  # steps are so slow that the first must do
            self.mark = step, self.looked
        remaining, every = recipe.train.steps - step, recipe.evaluate.every
        if not self.step_seconds or remaining <= 0:
            return recipe
        if abs(self.seconds_for(remaining, every) - self.left) < DRIFT * self.all:
            return recipe
        every = self.evaluations_apart(every, remaining)
        possible = max(1, int((self.left - self.evaluation_seconds) / self.seconds_for(1, every, last=0)))
        longer = replace(
            recipe,
            train=replace(recipe.train, steps=step + possible),
            evaluate=replace(recipe.evaluate, every=every),
        )
        given = frozenset(self.given)
        return replace(apply(replace(longer, given=given), choose_length(longer))[0], given=recipe.given)

    def seconds_for(self, steps: int, every: int, last: int = 1) -> float:
        """What so many steps take with their evaluations, and the one after the last."""
        return steps * (self.step_seconds + self.evaluation_seconds / every) + last * self.evaluation_seconds

    def evaluations_apart(self, every: int, remaining: int) -> int:
        """Steps between evaluations: about as many evaluations as planned, if they do not take too long."""
        if "evaluate.every" in self.given:
            return every
        planned = min(max(1, round(remaining / every)), EVALUATIONS)
        evaluations = planned
        if self.evaluation_seconds:
            evaluations = max(1, min(planned, int(EVALUATING * self.left / self.evaluation_seconds)))
        possible = max(1, int((self.left - evaluations * self.evaluation_seconds) / self.step_seconds))
        return math.ceil(possible / evaluations)
