"""The setup of a run, from its recipe: the job, the model, the optimizers, and the number of steps."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ..errors import BadInput
from ..fast.async_loop import train_async
from ..fast.training import for_training
from ..models import family
from ..models.base.shells import classifier
from ..parts.blocks import Stack
from ..parts.experts import auxiliary
from ..tasks import find_task
from ..tasks.recipe import choices
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Examples, Job
from ..train import finder, loop, optimizer, processes
from ..train.average import Average, MovingAverage, TailAverage
from ..train.device import find_device
from ..train.loop import Batch, LoopSettings, Progress, seed_for
from ..train.muon import Muon
from ..train.parallel.way import ProcessGrid
from ..train.processes import World
from ..train.schedule import schedule

LEAST_MEASURED, TRIAL = 3, 0.02  # steps, and the share of the time for it
MEASURED = 12  # steps made and thrown away to find out how long one takes: the later half of them is timed
ALONE = World()


# The pipeline: read, choose what is left to choose, make the job.


def read_examples(recipe: Recipe, path: Path, reporter: Reporter) -> Examples:
    """What the recipe's task reads, and the model that it starts from."""
    task = find_task(recipe.task)
    starts = task.starts is not None and recipe.train.from_
    origin = task.starts.find(recipe, path, reporter.say) if task.starts is not None and starts else None
    return task.read(recipe, path, origin, reporter.say)


def precompute(recipe: Recipe, examples: Examples, reporter: Reporter, device: torch.device) -> None:
    """What the recipe's task computes with a model before the first step, unless the run has it already."""
    find_task(recipe.task).precompute(recipe, examples, device, reporter.say)


def make_job(recipe: Recipe, path: Path, reporter: Reporter) -> Job:
    """The job that the recipe's task makes of it; nothing is chosen any more."""
    return find_task(recipe.task).job(recipe, read_examples(recipe, path, reporter))


def foresee(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """The recipe with what must be chosen before the data are read, such as the vocabulary; and why."""
    if recipe.given is None:
        return recipe, []
    task = find_task(recipe.task)
    return choices.apply(recipe, task.foresee(recipe), task.corpus_settings(recipe.data.corpus))


def decide(
    recipe: Recipe, examples: Examples, reporter: Reporter, device: torch.device, world: World
) -> tuple[Recipe, list[str]]:
    """The recipe with all that was left open chosen for this device and these data, and why."""
    if recipe.given is None:
        return recipe, []
    task = find_task(recipe.task)
    fixed = task.fixed_settings(recipe)
    recipe, _ = choices.apply(recipe, choices.choose_precision(device.type))
    recipe, why = choices.apply(recipe, task.choose(recipe, examples, device.type), fixed)
    if recipe.train.minutes:
        why = [line for line in why if not line.startswith("steps ")]
    job = task.job(recipe, examples)
    recipe = with_steps(recipe, job, reporter, device, world)
    recipe, settled = choices.apply(recipe, task.settle(recipe, examples.size), fixed)
    recipe, _ = choices.apply(recipe, choices.choose_length(recipe))
    recipe, _ = choices.apply(recipe, choices.choose_evaluations(recipe), fixed)
    steady = job.steady and world.size == 1
    recipe, more = choices.apply(recipe, choices.choose_compiling(recipe, device.type, steady), fixed)
    return replace(recipe, given=None), [*why, *settled, *more]


def can_run_ahead(
    job: Job, model: nn.Module, scaler: torch.amp.GradScaler | None, world: World, device: torch.device
) -> bool:
    """Whether no step waits for other processes, a gradient scaler, an auxiliary loss, or a memory."""
    alone = device.type == "cuda" and world.size == 1
    return alone and scaler is None and job.carried is None and auxiliary(model) is None


def new_model(job: Job, recipe: Recipe, device: torch.device) -> nn.Module:
    """The job's model with new weights, which follow from the seed."""
    torch.manual_seed(seed_for(recipe.train.seed, "weights"))
    model = family(job.architecture).build(job.config)
    if job.labels:
        model = classifier(model, job.config, job.labels, job.head_dropout, job.head_bias)
    if job.tuning is not None:
        job.tuning.arrange(model)
    return job.around(model).to(device)


def prepare_model(
    model: nn.Module,
    loss_of: Callable[[Any, Any], Any],
    recipe: Recipe,
    device: torch.device,
    grid: ProcessGrid = ProcessGrid(),  # noqa: B008 (frozen)
) -> tuple[nn.Module, Callable[[Any, Any], Any]]:
    """The model as the loop sees it, and its loss: with activation checkpointing, compiled, spread."""
    t = recipe.train
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    if t.activation_checkpointing and not stacks:
        raise BadInput(
            "train.activation_checkpointing=true recomputes the blocks of a Transformer, and this model has "
            "none: leave it out"
        )
    for stack in stacks:
        stack.recompute = t.activation_checkpointing
    several = grid.size > 1  # then weights or gradients come and go block by block
    model = for_training(model, compiled=t.compile, several=several)
    loss_of = processes.with_idle(loss_of)
    if not several:
        return model, loss_of
    from ..train.parallel.spread import spread  # which takes half as long to import as torch

    return spread(model, loss_of, grid, device)


def micro_batches_of(job: Job, recipe: Recipe, world: World) -> Callable[[int], Sequence[Batch]]:
    """This process's micro-batches of a step."""
    if world.shares == 1:
        return job.batches

    def batches(step: int) -> Sequence[Batch]:
        mine = job.batches(step, world.share, world.shares)
        return processes.fill_idle(mine, recipe.train.accumulation_steps, lambda: job.batches(step)[0])

    return batches


def make_optimizers(recipe: Recipe, model: nn.Module, together: bool = False) -> list[torch.optim.Optimizer]:
    """together: of processes that make the same updates, or have parts of the same weights."""
    t = recipe.train
    made = optimizer.OPTIMIZERS[t.optimizer](model, t.learning_rate, t.weight_decay, (0.9, t.beta2))
    for one in made:
        if isinstance(one, Muon):
            one.together = together
    return made


def make_scaler(recipe: Recipe, device: torch.device) -> torch.amp.GradScaler | None:
    return torch.amp.GradScaler(device.type) if recipe.train.precision == "fp16" else None


def make_average(recipe: Recipe, model: nn.Module, after: int = 0) -> Average | None:
    """What averages the weights of the steps that come after a step."""
    t = recipe.train
    if t.ema_decay:
        return MovingAverage(model, t.ema_decay)
    if t.average_checkpoints:
        ends = range(t.steps, after, -recipe.checkpoint.every)
        return TailAverage(model, ends[: t.average_checkpoints])
    return None


def loop_settings(recipe: Recipe, job: Job, device: torch.device) -> LoopSettings:
    t = recipe.train
    rates = schedule(t.schedule, t.warmup_steps, t.steps, t.min_lr_ratio, job.config.width)
    return LoopSettings(t.learning_rate, rates, t.steps, t.seed, t.max_grad_norm, t.precision, device)


def with_steps(recipe: Recipe, job: Job, reporter: Reporter, device: torch.device, world: World) -> Recipe:
    """The recipe with minutes turned into steps: a few steps are timed and thrown away."""
    if not recipe.train.minutes:
        return recipe
    began = time.perf_counter()
    few = replace(recipe, train=replace(recipe.train, steps=MEASURED, minutes=0.0, compile=False))
    trial, loss_of = prepare_model(new_model(job, few, device), job.loss, few, device)
    optimizers, scaler = make_optimizers(few, trial), make_scaler(few, device)
    settings = loop_settings(few, job, device)
    if can_run_ahead(job, trial, scaler, world, device):
        steady = job.steady and not few.train.activation_checkpointing
        steps = train_async(trial, job.batches, loss_of, optimizers, settings, steady=steady)
    else:

        def batches(step: int) -> Sequence[Batch]:
            return job.batches(step, world.rank, world.size) or job.batches(step)

        steps = loop.train(trial, batches, loss_of, optimizers, settings, scaler=scaler)
    seconds = pace_of(steps, TRIAL * 60 * recipe.train.minutes)
    left = 60 * recipe.train.minutes - (time.perf_counter() - began)
    fitting = max(1, int(left / seconds))
    reporter.say(
        f"{1000 * seconds:.0f} ms per step: about {fitting:,} steps fit {recipe.train.minutes:g} minutes"
    )
    return replace(recipe, train=replace(recipe.train, steps=fitting, minutes=0.0))


def pace_of(steps: Iterable[Progress], enough: float) -> float:
    """The seconds of a step: the median of the later half, made until `enough` seconds have passed."""
    found: list[float] = []
    for progress in steps:
        found.append(progress.seconds)
        if len(found) >= LEAST_MEASURED and sum(found) > enough:
            break
    return statistics.median(found[len(found) // 2 :])


def find_rate(
    recipe: Recipe, reporter: Reporter | None = None, device: str | torch.device = "auto"
) -> Iterator[finder.Tried]:
    r"""Try learning rates that grow with every step, on the batches of a run. Nothing is kept.

    `suggest` picks a rate from what is found (Smith 2017).

    Args:
        recipe: What the run would be.
        reporter: Where sentences about the data go. None: nowhere.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.

    Yields:
        `Tried`: a learning rate and the smoothed loss there.

    Raises:
        BadInput: The schedule is noam, whose rate follows from the width.

    Example:
        >>> from pathlib import Path
        >>> from heedful.tasks import recipe
        >>> _ = Path("cats.txt").write_text("the cat sat on the mat.\n" * 90)
        >>> sizes = {"model.width": 16, "model.context": 16, "train.batch_tokens": 128}
        >>> cats = recipe.make("lm", "tiny", settings={"data.text": "cats.txt", **sizes})
        >>> found = list(find_rate(cats, device="cpu"))
        >>> found[0].rate < finder.suggest(found) < 1
        True
    """
    if recipe.train.schedule == "noam":
        raise BadInput(
            "--find-rate is for other schedules: with train.schedule=noam the rate follows from the width"
        )
    reporter, device = reporter or SilentReporter(), find_device(device)
    with tempfile.TemporaryDirectory() as folder:
        recipe, _ = foresee(replace(recipe, train=replace(recipe.train, minutes=0.0)))
        examples = read_examples(recipe, Path(folder), reporter)
        precompute(recipe, examples, reporter, device)
        recipe, _ = decide(recipe, examples, reporter, device, ALONE)
        job = find_task(recipe.task).job(recipe, examples)
        few = replace(recipe, train=replace(recipe.train, compile=False))
        model, loss_of = prepare_model(new_model(job, few, device), job.loss, few, device)
        if job.begin is not None:
            job.begin(model)
        settings = replace(
            loop_settings(recipe, job, device), rate=1.0, schedule=finder.growing(), steps=finder.STEPS
        )
        optimizers, scaler = make_optimizers(recipe, model), make_scaler(recipe, device)
        yield from finder.tried(loop.train(model, job.batches, loss_of, optimizers, settings, scaler=scaler))


class Reporter(Protocol):
    """Where a run reports to: any object with these two methods.

    Example:
        >>> class Losses:
        ...     def say(self, line):
        ...         pass
        ...     def step(self, progress, steps):
        ...         print(f"step {progress.step} of {steps}: loss {progress.loss:.2f}")
        >>> Losses().say("run: runs/mine")
        >>> Losses().step(Progress(1, 2.5, tokens=64, rate=1e-3, norm=1.0, seconds=0.1), steps=10)
        step 1 of 10: loss 2.50
    """

    def say(self, line: str) -> None:
        """Take a sentence: the plan, an evaluation, a warning.

        Args:
            line: The sentence.
        """

    def step(self, progress: Progress, steps: int) -> None:
        """Hear of one more step.

        Args:
            progress: How the step went.
            steps: Steps of the whole run.
        """


class SilentReporter:
    """A reporter that prints nothing: every process but the leading one has it.

    Example:
        >>> SilentReporter().say("nobody reads this")
    """

    def say(self, line: str) -> None:
        pass

    def step(self, progress: Progress, steps: int) -> None:
        pass
