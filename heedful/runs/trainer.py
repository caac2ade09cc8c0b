"""A run: a recipe done in a folder, from the first step to the last, however often it is interrupted.

The loop is `heedful.train.loop`; what is here is the body of its `for`: log, evaluate, save, stop when asked. What a
run prints goes through a `Talk`, so that a terminal, a file and a test each get what suits them. Of several
processes (`torchrun`) all do the same, and one of them writes.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import nn

from ..errors import BadInput, NotFinite, command
from ..fast.async_loop import train_ahead
from ..fast.training import for_training
from ..files import naming, present, write_json
from ..interop.run.adapters import BORROWED, described
from ..models import family
from ..models.base.heads import classifier
from ..parts.blocks import Stack
from ..parts.experts import auxiliary
from ..parts.watch import eagerly
from ..tasks import expert_load
from ..tasks.evaluation import spelled
from ..tasks.origin import borrowed
from ..tasks.recipe import from_json, to_json, with_warmup
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Job
from ..tasks.tuning import written_alone
from ..train import finder, loop, optimizer, processes
from ..train.average import Average, MovingAverage, TailAverage
from ..train.loop import Batch, Progress, Settings, seed_for
from ..train.processes import World
from ..train.schedule import schedule
from .folder import METRICS, RECIPE, RunFolder, Stop
from .plan import binary, outlook, peak_memory, span
from .resume import (
    ROUNDING,
    Best,
    Saved,
    Work,
    asked_data,
    compare_facts,
    compare_recipes,
    facts,
    gather,
    kept,
    newest,
    of_step,
    put_weights,
    restore,
    save,
)

MEASURED = 12  # steps made and thrown away to find out how long one takes: the later half of them is timed
SETTLED = 20  # steps after which the speed is said
RISING = 3  # evaluations in a row that got worse: worth a word
PASSED_ON = 1.0  # seconds within which torchrun passes a signal on to processes that may have had it already
ALONE = World()


class Talk(Protocol):
    """Whoever listens to a run."""

    def say(self, line: str) -> None:
        """A sentence."""

    def step(self, progress: Progress, steps: int) -> None:
        """One more step was made."""


class Silence:
    """A listener that hears nothing: every process but the leading one has it."""

    def say(self, line: str) -> None:
        pass

    def step(self, progress: Progress, steps: int) -> None:
        pass


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    steps: int
    finished: bool  # False: it was asked to stop, and can be resumed
    best: Best
    job: Job
    model: nn.Module  # with the best weights, if it finished


def start(
    recipe: Recipe,
    path: Path,
    talk: Talk,
    device: torch.device,
    world: World = ALONE,
    remark: str = "",
    ready: Path | None = None,
) -> Outcome:
    """A new run in a new folder; what was asked for in vain leaves none behind.

    remark: on the folder's name. ready: a folder where a job of the same data was made already; they are shared.
    """
    if not world.leads:
        return follow(path, device, world)
    with Signal(world, device) as signal:
        refuse_impossible(recipe, world, device)
        refuse_taken(path)
        beside_others = path.parent.exists()
        folder = RunFolder.create(path, {**to_json(recipe), "facts": asked_data(recipe)})
        try:
            with folder:
                if ready is not None:
                    share_data(ready, path)
                return go(recipe, folder, talk, device, world, signal, remark)
        except ValueError:  # bad input: a file or a number
            if not (path / METRICS).exists():
                shutil.rmtree(path)
                if not beside_others:  # runs/, which was made for this one
                    with suppress(OSError):
                        path.parent.rmdir()
            raise


def share_data(ready: Path, path: Path) -> None:
    """Data that were made ready elsewhere, as links where the disk has them: nobody writes into such a file again."""
    files_first = sorted(ready.iterdir(), key=lambda entry: entry.is_dir())  # a vocabulary, then what it made
    for entry in files_first:
        aside = path / f".{entry.name}.tmp-{os.getpid()}"
        if entry.is_dir():
            shutil.copytree(entry, aside, copy_function=link_or_copy)
        else:
            link_or_copy(entry, aside)
        os.replace(aside, path / entry.name)


def link_or_copy(old: Path | str, new: Path | str) -> None:
    try:
        os.link(old, new)
    except OSError:
        shutil.copy(old, new)


def resume(path: Path, talk: Talk, device: torch.device, world: World = ALONE) -> Outcome:
    """An interrupted run goes on from its newest whole checkpoint."""
    if not world.leads:
        return follow(path, device, world)
    with Signal(world, device) as signal, RunFolder.open(path) as folder:
        with naming(path / RECIPE):
            recipe = recipe_of(folder.recipe)
        refuse_compiling(recipe, device)
        return go(recipe, folder, talk, device, world, signal)


def recipe_of(found: dict[str, Any]) -> Recipe:
    """The recipe in recipe.json, without the facts that were noted beside it."""
    return from_json({part: value for part, value in found.items() if part != "facts"})


def facts_of(found: dict[str, Any]) -> dict[str, Any]:
    """The facts in recipe.json."""
    facts = found.get("facts")
    return facts if isinstance(facts, dict) else {}


# Several processes. The leading one makes the folder, prepares the data and writes; the others wait until all is there.


class Elsewhere(Exception):
    """The leading process has failed, and says why itself."""


class Signal:
    """What the leading process tells the others, once: to begin, and at which checkpoint; or, if it fails, to give up."""

    def __init__(self, world: World, device: torch.device) -> None:
        self.world, self.device = world, device
        self.given = False

    def give(self, ready: bool, step: int = 0) -> None:
        if not self.given:
            self.given = True
            self.world.from_leader([float(ready), float(step)], self.device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.give(False)


def follow(path: Path, device: torch.device, world: World) -> Outcome:
    """What every other process does: it reads what the leading one has written, and writes nothing."""
    with processes.connected(world):
        ready, step = world.from_leader([0.0, 0.0], device)
        if not ready:
            raise Elsewhere("the leading process could not begin")
        recipe = recipe_of(RunFolder.read_recipe(path))
        job = make_job(recipe, path, Silence())
        saved = of_step(path, int(step)) if step else None
        return work_on(recipe, job, path, None, Silence(), device, world, saved)


def go(
    recipe: Recipe,
    folder: RunFolder,
    talk: Talk,
    device: torch.device,
    world: World,
    signal: Signal,
    remark: str = "",
) -> Outcome:
    """Prepare the data, fix the number of steps, then make every step that is still to be made.

    Whatever every process would find wrong is found here, before the others are told to begin.
    """
    saved = newest(folder.path, talk.say)
    if saved is not None:
        compare_recipes(saved.state.get("recipe", {}), recipe, saved.path, talk.say)
        before = saved.state.get("facts", {})
    else:  # nothing that counts was computed yet, but data may have been prepared
        before = {name: fact for name, fact in facts_of(folder.recipe).items() if name not in ROUNDING}
    compare_facts(before, asked_data(recipe), folder.path, talk.say)
    job = make_job(recipe, folder.path, talk)
    recipe = with_steps(recipe, job, talk, device, world)
    found = facts(recipe, job, world, device)
    compare_facts(before, found, folder.path, talk.say)
    folder.write_recipe({**to_json(recipe), "facts": found})
    write_json(folder.path / "config.json", description(job))
    talk.say(f"run: {folder.path}{remark}")
    signal.give(True, 0 if saved is None else saved.state["step"])
    try:
        with processes.connected(world):
            return work_on(recipe, job, folder.path, folder, talk, device, world, saved)
    except Exception as error:
        with suppress(OSError, ValueError):  # what went wrong may well be the disk
            if isinstance(error, NotFinite) and error.numbers:
                folder.metrics.append(error.numbers)
            folder.status("not finite" if isinstance(error, NotFinite) else "failed", error=str(error))
        raise


def description(job: Job) -> dict[str, Any]:
    """What config.json says: the architecture and its sizes, a decoder's labels, adapters, and the tokens of a
    vocabulary that came along."""
    head = {"labels": job.labels} if job.labels else {}
    lora = {"lora": described(job.tuning.lora)} if job.tuning is not None and job.tuning.lora else {}
    special: dict[str, Any] = {f"{name}_token_id": number for name, number in job.special.items()}
    if borrowed(job.vocab):
        special["vocabulary"] = BORROWED
    return {"heedful": job.architecture, "config": asdict(job.config), **head, **lora, **special}


def make_job(recipe: Recipe, path: Path, talk: Talk) -> Job:
    """What the task makes of the recipe."""
    return import_module(f"heedful.tasks.{recipe.task.replace('-', '_')}").make_job(recipe, path, talk.say)


# The work.


def work_on(
    recipe: Recipe,
    job: Job,
    path: Path,
    folder: RunFolder | None,
    talk: Talk,
    device: torch.device,
    world: World,
    saved: Saved | None,
) -> Outcome:
    """Every step that is still to be made. `folder` is None in a process that does not write."""
    model = fresh_model(job, recipe, device)
    adapted = job.tuning is not None and job.tuning.lora is not None  # whose checkpoints lack what came along
    if (saved is None or adapted) and job.begin is not None:
        job.begin(model)
        world.take_over(model)  # what was computed from data may be rounded otherwise on another machine
    trained, loss_of = arranged(model, job.loss, recipe, world, device)
    work = Work(
        model, make_optimizers(recipe, model), make_scaler(recipe, device), make_average(recipe, model)
    )
    work.carried = job.carried
    if saved is not None:
        restore(work, saved)
    if folder is not None:
        folder.metrics.drop_after(work.step)
        folder.status("running", step=work.step)
    for line in outlook(recipe, job, model, world, device):
        talk.say(line)
    if not patient(work, recipe):
        talk.say(f"already finished at step {work.step}: it lost patience")
    elif work.step >= recipe.train.steps:
        talk.say(f"already finished at step {work.step}: for more, raise train.steps in {path / RECIPE}")
    elif work.step:
        talk.say(f"going on after step {work.step}")
    finished, found = True, facts(recipe, job, world, device)
    with Stop(again=0.0 if world.size == 1 else PASSED_ON) as stop:
        pace: list[float] = []

        def asked() -> bool:
            return world.any(bool(stop.asked) or world.abandoned, device)

        for progress in steps_of(work, job, recipe, trained, loss_of, asked, world, device):
            work.step = progress.step
            last = work.step == recipe.train.steps
            log(progress, folder, talk, recipe)
            say_pace(pace, progress, recipe, device, talk)
            if not progress.settled:
                continue
            if work.step % recipe.evaluate.every == 0 or last:
                work.best = try_out(job, work, trained, folder, talk, world, device)
            last = last or not patient(work, recipe)
            stopping = asked()
            if work.step % recipe.checkpoint.every == 0 or last or stopping:
                save(work, folder, recipe, found)
            if last or stopping:
                finished = last
                break
    if not patient(work, recipe):
        talk.say(f"stopped at step {work.step}: no better for {work.best.since} evaluations")
    return ended(work, job, path, folder, talk, recipe, world, finished)


def steps_of(
    work: Work,
    job: Job,
    recipe: Recipe,
    trained: nn.Module,
    loss_of: Callable[[Any, Any], Any],
    asked: Callable[[], bool],
    world: World,
    device: torch.device,
) -> Iterator[Progress]:
    """The steps that are left: one by one, or on one GPU with the host ahead of the device where nothing keeps it."""
    if not patient(work, recipe):
        return

    def after(step: int) -> None:
        if work.average is not None:
            work.average.after(step, work.model)

    def look(step: int) -> bool:
        return step % recipe.evaluate.every == 0 or step % recipe.checkpoint.every == 0 or asked()

    batches, settings = shares_of(job, recipe, world), settings_of(recipe, device)
    if runs_ahead(job, work.model, work.scaler, world, device):
        steady = job.steady and not recipe.train.recompute
        yield from train_ahead(
            trained, batches, loss_of, work.optimizers, settings, work.step, look, after, steady
        )
        return
    for progress in loop.train(
        trained, batches, loss_of, work.optimizers, settings, work.step, work.scaler, world
    ):
        after(progress.step)
        yield progress


def runs_ahead(
    job: Job, model: nn.Module, scaler: torch.amp.GradScaler | None, world: World, device: torch.device
) -> bool:
    """Whether no step has to wait: neither for other processes, nor for a scaler, what experts say, or a memory."""
    alone = device.type == "cuda" and world.size == 1
    return alone and scaler is None and job.carried is None and auxiliary(model) is None


def patient(work: Work, recipe: Recipe) -> bool:
    """Whether to go on, as far as the held-out loss is concerned."""
    return not recipe.evaluate.patience or work.best.since < recipe.evaluate.patience


def log(progress: Progress, folder: RunFolder | None, talk: Talk, recipe: Recipe) -> None:
    if folder is not None:
        folder.metrics.append(
            {"step": progress.step, "loss": progress.loss, "rate": progress.rate, "norm": progress.norm}
            | expert_load.logged(progress.loads)
        )
    talk.step(progress, recipe.train.steps)


def say_pace(pace: list[float], progress: Progress, recipe: Recipe, device: torch.device, talk: Talk) -> None:
    """Once the first steps are made: how long the rest will take, and what memory they took."""
    if len(pace) > SETTLED:
        return
    pace.append(progress.seconds)
    if len(pace) == SETTLED:
        seconds = statistics.median(pace)
        left = seconds * (recipe.train.steps - progress.step)
        talk.say(
            f"speed: {1000 * seconds:.0f} ms a step, {progress.a_second(seconds)} a second; "
            f"about {span(left)} left; memory so far {binary(peak_memory(device))}"
        )


def ended(
    work: Work,
    job: Job,
    path: Path,
    folder: RunFolder | None,
    talk: Talk,
    recipe: Recipe,
    world: World,
    finished: bool,
) -> Outcome:
    """Say why the run stopped; a finished one gives its best weights."""
    if not finished:
        if folder is not None:
            folder.status("interrupted", step=work.step)
        resume = command("train", "--resume", path)
        talk.say(f"stopped at step {work.step} of {recipe.train.steps}: go on with `{resume}`")
    elif folder is not None:
        folder.status("done", step=work.step, best=work.best.scores, best_step=work.best.step)
        if world.size == 1 or not recipe.train.shard:
            put_weights(work.model, folder.read_model())
        for line in expert_load.told(folder.metrics.path, work.step):
            talk.say(line)
        if job.tuning is not None and job.tuning.lora is not None:
            talk.say(written_alone(path))
        if in_vain := learned_nothing(work.best, job):
            talk.say(in_vain)
    return Outcome(work.step, finished, work.best, job, work.model.eval())


def learned_nothing(best: Best, job: Job) -> str | None:
    """A warning, if a model that has finished is no better than what takes no learning."""
    told, guessing = job.baselines.get("loss", ("", math.inf))
    if best.scores["loss"] < guessing:
        return None
    return (
        f"warning: the best held-out loss, {best.scores['loss']:.3f}, is not below {guessing:.3f} of guessing ({told}): the model has "
        f"learned nothing yet; give it more --steps, or another train.rate (--find-rate tries some)"
    )


# What the recipe asks for.


def fresh_model(job: Job, recipe: Recipe, device: torch.device) -> nn.Module:
    """New weights, which follow from the seed."""
    torch.manual_seed(seed_for(recipe.train.seed, "weights"))
    model = family(job.architecture).build(job.config)
    model = classifier(model, job.config, job.labels, job.head_dropout) if job.labels else model
    if job.tuning is not None:
        job.tuning.arrange(model)
    return model.to(device)


def arranged(
    model: nn.Module,
    loss_of: Callable[[Any, Any], Any],
    recipe: Recipe,
    world: World,
    device: torch.device,
) -> tuple[nn.Module, Callable[[Any, Any], Any]]:
    """The model as the loop sees it, and its loss: recomputed, compiled, sharded."""
    t = recipe.train
    for module in model.modules():
        if isinstance(module, Stack):
            module.recompute = t.recompute
    model = for_training(model, compiled=t.compile, by_block=t.shard)  # weights come and go block by block
    loss_of = processes.with_idle(loss_of)
    if not t.shard or world.size == 1:  # alone: a run that several processes had begun
        return model, loss_of
    return processes.shard(model, world, device), processes.whole_loss(loss_of)


def refuse_impossible(recipe: Recipe, world: World, device: torch.device) -> None:
    """What no run can begin with."""
    refuse_compiling(recipe, device)
    if recipe.train.shard and world.size == 1:
        raise BadInput(
            "train.shard=true needs several processes: torchrun --nproc-per-node N -m -- heedful train ..."
        )


def refuse_taken(path: Path) -> None:
    """A folder with a run in it is not begun again."""
    if present(path / RECIPE):
        resume = command("train", "--resume", path)
        raise BadInput(f"{path} holds a run: go on with `{resume}`, or give another --run")


def refuse_compiling(recipe: Recipe, device: torch.device) -> None:
    """Without a compiler, torch would say so in its own words at the first step."""
    if not recipe.train.compile or device.type != "cpu" or any(map(shutil.which, ("c++", "g++", "clang++"))):
        return
    raise BadInput(
        "--compile needs a C++ compiler (g++ or clang++) on a CPU, and there is none: leave it out"
    )


def shares_of(job: Job, recipe: Recipe, world: World) -> Callable[[int], Sequence[Batch]]:
    """This process's micro-batches of a step."""
    if world.size == 1:
        return job.batches

    def batches(step: int) -> Sequence[Batch]:
        mine = job.batches(step, world.rank, world.size)
        return processes.fill_idle(mine, recipe.train.accumulate, lambda: job.batches(step)[0])

    return batches


def make_optimizers(recipe: Recipe, model: nn.Module) -> list[torch.optim.Optimizer]:
    t = recipe.train
    return optimizer.OPTIMIZERS[t.optimizer](model, t.rate, t.decay, (0.9, t.beta2))


def make_scaler(recipe: Recipe, device: torch.device) -> torch.amp.GradScaler | None:
    return torch.amp.GradScaler(device.type) if recipe.train.precision == "fp16" else None


def make_average(recipe: Recipe, model: nn.Module) -> Average | None:
    t = recipe.train
    if t.ema:
        return MovingAverage(model, t.ema)
    if t.average:
        ends = range(t.steps, 0, -recipe.checkpoint.every)
        return TailAverage(model, ends[: t.average])
    return None


def settings_of(recipe: Recipe, device: torch.device) -> Settings:
    t = recipe.train
    rates = schedule(t.schedule, t.warmup, t.steps, t.floor)
    return Settings(t.rate, rates, t.steps, t.seed, t.clip, t.precision, device)


def with_steps(recipe: Recipe, job: Job, talk: Talk, device: torch.device, world: World) -> Recipe:
    """Minutes to steps: a few steps are made and thrown away; from then on the number is fixed."""
    if not recipe.train.minutes:
        return recipe
    few = replace(
        recipe, train=replace(recipe.train, steps=MEASURED, minutes=0.0, shard=False, compile=False)
    )
    trial, loss_of = arranged(fresh_model(job, few, device), job.loss, few, world, device)
    optimizers, scaler = make_optimizers(few, trial), make_scaler(few, device)
    settings = settings_of(few, device)
    if runs_ahead(job, trial, scaler, world, device):
        steady = job.steady and not few.train.recompute
        made = list(train_ahead(trial, job.batches, loss_of, optimizers, settings, steady=steady))
    else:
        made = list(
            loop.train(
                trial, lambda step: job.batches(step, world.rank, world.size) or job.batches(step), loss_of,
                optimizers, settings, scaler=scaler,
            )
        )  # fmt: skip
    seconds = statistics.median(progress.seconds for progress in made[MEASURED // 2 :])
    steps = max(1, int(60 * recipe.train.minutes / seconds))
    talk.say(f"{1000 * seconds:.0f} ms a step: {steps} steps fit {recipe.train.minutes:g} minutes")
    return with_warmup(replace(recipe, train=replace(recipe.train, steps=steps, minutes=0.0)))


# Evaluation.


def try_out(
    job: Job,
    work: Work,
    trained: nn.Module,
    folder: RunFolder | None,
    talk: Talk,
    world: World,
    device: torch.device,
) -> Best:
    """Evaluate, show a few examples, and publish the weights if they are the best so far."""
    began = time.perf_counter()
    model, step, best = work.model, work.step, work.best
    averaged = work.average is not None and work.average.ready(step)
    with work.average.in_place_of(model) if averaged and work.average else nullcontext():
        model.eval()
        with torch.no_grad(), eagerly():
            scores, lines = processes.within(trained, lambda model: (job.evaluate(model), job.show(model)))
        model.train()
        scores = dict(zip(scores, world.from_leader(list(scores.values()), device), strict=True))
        if not math.isfinite(scores["loss"]):
            raise NotFinite(
                f"step {step}: the held-out loss is {scores['loss']}, though the training loss is finite: look for a "
                f"held-out example that is unlike the others, or try a lower learning rate",
                {"step": step, "valid_loss": scores["loss"]},
            )
        better = best.beaten_by(scores)
        if better:
            weights = gather(kept(model))
            if folder is not None:
                folder.write_model(weights)
    if folder is not None:
        folder.metrics.append({"step": step, **{f"valid_{name}": score for name, score in scores.items()}})
    told = ", ".join(spelled(name, score) for name, score in scores.items())
    whose = " of averaged weights" if averaged else ""
    talk.say(f"step {step}: held-out {told}{whose} ({time.perf_counter() - began:.1f} s)")
    for line in lines:
        talk.say(line)
    if better:
        return Best(step, scores)
    if best.since + 1 == RISING:
        talk.say(
            f"warning: the held-out loss has not been better for {RISING} evaluations: the model may be learning the "
            f"training examples by heart; more dropout, a smaller model or evaluate.patience={RISING} may help"
        )
    return replace(best, since=best.since + 1)


# The learning-rate finder.


def find_rate(recipe: Recipe, talk: Talk, device: torch.device) -> Iterator[finder.Tried]:
    """The loss at rates that grow with every step; nothing is kept."""
    with tempfile.TemporaryDirectory() as folder:
        job = make_job(recipe, Path(folder), talk)
        few = replace(recipe, train=replace(recipe.train, shard=False, compile=False))
        model, loss_of = arranged(fresh_model(job, few, device), job.loss, few, ALONE, device)
        if job.begin is not None:
            job.begin(model)
        settings = replace(
            settings_of(recipe, device), rate=1.0, schedule=finder.growing(), steps=finder.STEPS
        )
        made = loop.train(
            model, job.batches, loss_of, make_optimizers(recipe, model), settings,
            scaler=make_scaler(recipe, device),
        )  # fmt: skip
        yield from finder.tried(made)
