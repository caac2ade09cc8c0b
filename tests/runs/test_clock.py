"""Runs of a given time: the number of steps is corrected on the way, whatever the first estimate was."""

import json
import random
from dataclasses import dataclass, field, replace

import pytest
import torch
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    losses,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)
from safetensors.torch import load_file

from heedful.runs import clock as clocks
from heedful.runs import setup, trainer
from heedful.runs.clock import Clock
from heedful.tasks import recipe
from heedful.tasks.recipe import choices


@dataclass
class Simulated:
    """A run whose steps and evaluations take so many seconds of a clock that nobody waits for."""

    minutes: float
    first: int  # steps, as estimated
    seconds: float  # of a step
    evaluation: float = 0.0
    compiling: float = 0.0  # before the first step is done
    slower_from: float = 1e9  # seconds after which a step takes twice as long
    given: dict = field(default_factory=dict)
    noise: random.Random = field(default_factory=lambda: random.Random(7))
    time: float = 1000.0
    made: list = field(default_factory=list)  # recipes, as they were corrected
    evaluated: list = field(default_factory=list)  # steps

    def run(self) -> float:
        """The share of its time that the run took."""
        clock = Clock(self.minutes, self.given.keys(), lambda: self.time)
        asked = recipe.make("lm", settings={"train.steps": self.first, **self.given})
        asked, _ = choices.apply(asked, choices.choose_length(asked))
        asked, _ = choices.apply(asked, choices.choose_evaluations(asked))
        asked, step, begin = replace(asked, given=None), 0, self.time
        self.time += self.compiling
        while step < asked.train.steps:
            step += 1
            slow = 2 if self.time - begin > self.slower_from else 1
            self.time += slow * self.seconds * self.noise.uniform(0.9, 1.1)
            clock.after_step(step)
            last = step == asked.train.steps
            due = clock.due()
            if step % asked.evaluate.every == 0 or last:
                clock.before_evaluation(step)
                self.time += self.evaluation
                self.evaluated.append(step)
                clock.after_evaluation(step)
                due = True
            if due and not last:
                corrected = clock.corrected(asked, step)
                if corrected != asked:
                    self.made.append(corrected)
                asked = corrected
        return (self.time - begin) / (60 * self.minutes)


@pytest.mark.parametrize("error", [0.01, 0.1, 0.5, 0.9, 1.0, 1.2, 3, 10, 100])
@pytest.mark.parametrize("seconds", [0.005, 0.3])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.05])
def test_a_run_ends_within_a_tenth_of_its_time_whatever_was_estimated(error, seconds, share):
    """`share`: of all the time, that one evaluation takes."""
    run = Simulated(2.0, max(1, int(error * 120 / seconds)), seconds, share * 120)
    assert 0.9 < run.run() < 1.1
    assert len(run.made) <= 8  # the learning rate is not changed for nothing


@pytest.mark.parametrize(
    "conditions",
    [
        {"compiling": 30.0},
        {"compiling": 30.0, "evaluation": 5.0},
        {"slower_from": 60.0},
        {"slower_from": 100.0},
        {"slower_from": 20.0, "evaluation": 2.0},
        {"seconds": 7.0, "first": 17},
        {"seconds": 0.002, "first": 60_000, "evaluation": 0.5},
    ],
    ids=str,
)
def test_compiling_slow_steps_and_a_machine_that_gets_busy_are_made_up_for(conditions):
    assert 0.9 < Simulated(**{"minutes": 2.0, "first": 1200, "seconds": 0.1, **conditions}).run() < 1.1


def test_a_good_estimate_is_left_alone():
    run = Simulated(2.0, 1190, 0.1, 0.02)
    assert 0.98 < run.run() < 1.02
    assert run.made == [] and len(run.evaluated) == 10


def test_evaluations_that_take_long_become_fewer_and_stay_where_they_were_given():
    run = Simulated(2.0, 1200, 0.1, 6.0)
    assert 0.9 < run.run() < 1.1 and 2 <= len(run.evaluated) <= 5
    run = Simulated(2.0, 1200, 0.1, 6.0, given={"evaluate.every": 100})
    assert 0.9 < run.run() < 1.1
    assert run.evaluated[:-1] == list(range(100, run.evaluated[-1], 100)) and len(run.evaluated) > 5
    assert {made.evaluate.every for made in run.made} == {100}


def test_a_much_longer_run_is_not_evaluated_more_often():
    run = Simulated(2.0, 100, 0.01, 0.3)
    run.run()
    assert len(run.evaluated) <= 20 and run.made[-1].train.steps > 10_000


@pytest.mark.parametrize("given", [{}, {"train.warmup_steps": 200}])
def test_the_warmup_stays_a_quarter_of_the_steps_unless_it_was_given(given):
    run = Simulated(2.0, 10_000, 0.5, given=given)
    assert 0.9 < run.run() < 1.1
    last = run.made[-1].train
    assert 200 < last.steps < 300
    assert last.warmup_steps == 200 if given else last.steps // 5 < last.warmup_steps <= last.steps // 4


# Through a run, with a clock on which a step takes a second


class Ticking(Quiet):
    """A reporter that moves the clock: each step takes a second; it is killed at a step, if told so."""

    def __init__(self, until: int | None = None) -> None:
        super().__init__(until)
        self.time = 0.0

    def step(self, progress, steps) -> None:
        self.time += 1
        super().step(progress, steps)


@pytest.fixture
def ticking(monkeypatch):
    """Makes a reporter whose steps are seconds for the clock of a run; 60 steps are estimated at first."""

    def make(until: int | None = None, estimate: int = 60) -> Ticking:
        talk = Ticking(until)
        monkeypatch.setattr(clocks, "SETTLED", 2)
        monkeypatch.setattr(trainer, "Clock", lambda minutes, given: Clock(minutes, given, lambda: talk.time))

        def with_steps(asked, *_):
            return replace(asked, train=replace(asked.train, steps=estimate, minutes=0.0))

        monkeypatch.setattr(setup, "with_steps", with_steps)
        return talk

    return make


MINUTES = {"train.minutes": 0.4, "checkpoint.every": 7}  # 24 seconds


def timed(texts, **more):
    asked = recipe_for("lm", texts, **{**MINUTES, **more})
    return replace(asked, given=asked.given - {"train.steps", "evaluate.every", "train.warmup_steps"})


def train_settings(folder) -> dict:
    return json.loads((folder / "recipe.json").read_text())["train"]


@pytest.mark.parametrize("estimate", [5, 24, 60, 500])
def test_the_corrected_steps_are_made_and_written_down(estimate, texts, tmp_path, ticking):
    talk = ticking(estimate=estimate)
    outcome = trainer.start(timed(texts), tmp_path / "run", talk, CPU)
    assert outcome.finished and 22 <= outcome.steps <= 26
    assert [line["step"] for line in losses(tmp_path / "run") if "loss" in line] == list(
        range(1, outcome.steps + 1)
    )
    written = train_settings(tmp_path / "run")
    assert (written["steps"], written["minutes"]) == (outcome.steps, 0.0)
    assert any("fit the time" in line for line in talk.lines) == (estimate != 24)
    rates = [line["rate"] for line in losses(tmp_path / "run") if "loss" in line]
    assert rates[-1] == min(rates[3:]) < 0.1 * max(rates)  # the schedule comes to its end


@pytest.mark.parametrize("until", [1, 4, 8, 12, 20])
def test_a_timed_run_that_was_killed_resumes_with_the_corrected_steps(until, texts, tmp_path, ticking):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        trainer.start(timed(texts), folder, ticking(until), CPU)
    corrected = train_settings(folder)["steps"]
    assert (corrected == 60) == (until < 4)
    talk = Quiet()
    outcome = trainer.resume(folder, talk, CPU)
    assert outcome.finished and outcome.steps == corrected == train_settings(folder)["steps"]
    assert not any(line.startswith("warning: train.") for line in talk.lines)


def test_checkpoints_are_averaged_up_to_the_corrected_end(texts, tmp_path, ticking):
    folder, talk = tmp_path / "run", ticking()
    more = {"train.average_checkpoints": 3, "checkpoint.every": 1, "checkpoint.keep": 99}
    steps = trainer.start(timed(texts, **more), folder, talk, CPU).steps
    assert steps < 60 and any(f"step {steps}: held-out" in line and "averaged" in line for line in talk.lines)
    saved = [folder / f"checkpoints/step-{steps - back}" for back in (2, 1, 0)]
    models = [load_file(path / "model.safetensors") for path in saved]
    for name, weight in load_file(saved[-1] / "average.safetensors").items():
        mean = torch.stack([model[name] for model in models]).mean(0)
        torch.testing.assert_close(weight, mean, rtol=1e-5, atol=1e-6)
    with pytest.raises(Interrupted):
        trainer.start(timed(texts, **more), tmp_path / "cut", ticking(12), CPU)
    assert trainer.resume(tmp_path / "cut", Quiet(), CPU).finished
    assert state_of(tmp_path / "cut") == state_of(folder)
