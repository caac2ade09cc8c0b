"""A run: a recipe done in a folder, from the first step to the last, however often it is interrupted.

The loop is `heedful.train.loop`; what is here is the body of its `for`: log, evaluate, save, stop when asked. What a
run prints goes through a `Talk`, so that a terminal, a file and a test each get what suits them.
"""

from __future__ import annotations

import platform
import shutil
import statistics
import time
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from .. import __version__
from ..errors import BadInput
from ..models import family
from ..models.heads import classifier
from ..recipe import Recipe, from_json, to_json
from ..train import checkpoint, loop, optimiser
from ..train.files import write_json
from ..train.folder import RunFolder, Stop
from ..train.loop import Progress, Settings, seed_for
from ..train.schedule import schedule
from .job import Job

MEASURED = 8  # steps made and thrown away to find out how long one takes


class Talk(Protocol):
    """Whoever listens to a run."""

    def say(self, line: str) -> None:
        """A sentence."""

    def step(self, progress: Progress, steps: int) -> None:
        """One more step was made."""


@dataclass
class Best:
    """The best evaluation so far."""

    step: int = 0
    scores: dict[str, float] = field(default_factory=dict)

    def beaten_by(self, scores: dict[str, float]) -> bool:
        return not self.scores or scores["loss"] < self.scores["loss"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    steps: int
    finished: bool  # False: it was asked to stop, and can be resumed
    best: Best
    job: Job
    model: nn.Module  # with the best weights, if it finished


def start(recipe: Recipe, path: Path, talk: Talk, device: torch.device) -> Outcome:
    """A new run in a new folder; what was asked for in vain leaves none behind."""
    folder = RunFolder.create(path, to_json(recipe))
    try:
        with folder:
            return go(recipe, folder, talk, device)
    except ValueError:  # bad input: a file or a number
        if not (path / checkpoint.FOLDER).exists():
            shutil.rmtree(path)
        raise


def resume(path: Path, talk: Talk, device: torch.device) -> Outcome:
    """An interrupted run goes on from its newest whole checkpoint."""
    with RunFolder.open(path) as folder:
        asked = {part: value for part, value in folder.recipe.items() if part != "facts"}
        return go(from_json(asked), folder, talk, device)


def go(recipe: Recipe, folder: RunFolder, talk: Talk, device: torch.device) -> Outcome:
    """Make every step that is still to be made."""
    job = import_module(f"heedful.tasks.{recipe.task}").make_job(recipe, folder.path, talk.say)
    model = fresh_model(job, recipe, device)
    recipe = with_steps(recipe, job, model, talk, device)
    folder.write_recipe({**to_json(recipe), "facts": facts(job)})
    head = {"labels": job.labels} if job.labels else {}
    write_json(
        folder.path / "config.json", {"heedful": job.architecture, "config": asdict(job.config), **head}
    )
    optimisers = make_optimisers(recipe, model)
    scaler = torch.amp.GradScaler(device.type) if recipe.train.precision == "fp16" else None
    step, best = restore(job, folder, model, optimisers, scaler, talk)
    announce(recipe, job, model, step, talk)
    train = loop.train(model, job.batches, job.loss, optimisers, settings_of(recipe, device), step, scaler)
    with Stop() as stop:
        for progress in train:
            step = progress.step
            folder.metrics.append(
                {"step": step, "loss": progress.loss, "rate": progress.rate, "norm": progress.norm}
            )
            talk.step(progress, recipe.train.steps)
            last = step == recipe.train.steps
            if step % recipe.evaluate.every == 0 or last:
                best = try_out(job, model, folder, talk, step, best)
            if step % recipe.checkpoint.every == 0 or last or stop.asked:
                save(folder, model, optimisers, scaler, step, best, recipe)
            if stop.asked and not last:
                folder.status("interrupted", step=step)
                talk.say(f"stopped at step {step} of {recipe.train.steps}: go on with --resume {folder.path}")
                return Outcome(step, False, best, job, model)
    folder.status("done", step=step, best=best.scores, best_step=best.step)
    put_weights(model, folder.read_model())
    return Outcome(step, True, best, job, model.eval())


def fresh_model(job: Job, recipe: Recipe, device: torch.device) -> nn.Module:
    """New weights, which follow from the seed."""
    torch.manual_seed(seed_for(recipe.train.seed, "weights"))
    model = family(job.architecture).build(job.config)
    return (classifier(model, job.config, job.labels) if job.labels else model).to(device)


def make_optimisers(recipe: Recipe, model: nn.Module) -> list[torch.optim.Optimizer]:
    t = recipe.train
    return optimiser.OPTIMISERS[t.optimiser](model, t.rate, t.decay, (0.9, t.beta2))


def settings_of(recipe: Recipe, device: torch.device) -> Settings:
    t = recipe.train
    rates = schedule(t.schedule, t.warmup, t.steps, t.floor)
    return Settings(t.rate, rates, t.steps, t.seed, t.clip, t.precision, device)


def with_steps(recipe: Recipe, job: Job, model: nn.Module, talk: Talk, device: torch.device) -> Recipe:
    """Minutes to steps: a few steps are made on a copy and thrown away; from then on the number is fixed."""
    if not recipe.train.minutes:
        return recipe
    trial = deepcopy(model)
    few = replace(recipe, train=replace(recipe.train, steps=MEASURED, minutes=0.0))
    made = list(
        loop.train(trial, job.batches, job.loss, make_optimisers(few, trial), settings_of(few, device))
    )
    seconds = statistics.median(progress.seconds for progress in made[2:])
    steps = max(1, int(60 * recipe.train.minutes / seconds))
    talk.say(f"{1000 * seconds:.0f} ms a step: {steps} steps fit {recipe.train.minutes:g} minutes")
    return replace(recipe, train=replace(recipe.train, steps=steps, minutes=0.0))


def facts(job: Job) -> dict[str, Any]:
    """What a result may depend on beside the recipe."""
    return {
        "heedful": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "vocab": job.vocab.hash,
        **job.facts,
    }


def announce(recipe: Recipe, job: Job, model: nn.Module, step: int, talk: Talk) -> None:
    """The plan, before the first step."""
    count = sum(weight.numel() for weight in model.parameters())
    for line in job.plan:
        talk.say(line)
    talk.say(f"model: {job.architecture}, {count:,} parameters")
    epochs = recipe.train.steps / job.steps_per_epoch
    talk.say(
        f"steps: {recipe.train.steps} ({epochs:.1f} epochs), seed {recipe.train.seed}, {recipe.train.precision}"
    )
    for name, score in job.baselines.items():
        talk.say(f"without learning, {name}: {score:.3f}")
    if step:
        talk.say(f"going on after step {step}")


def restore(
    job: Job,
    folder: RunFolder,
    model: nn.Module,
    optimisers: list[torch.optim.Optimizer],
    scaler: torch.amp.GradScaler | None,
    talk: Talk,
) -> tuple[int, Best]:
    """Put back the newest whole checkpoint; without one, the weights that the job begins with."""
    found = folder.latest()
    if found is None:
        if job.begin is not None:
            job.begin(model)
        folder.metrics.drop_after(0)
        return 0, Best()
    path, remarks = found
    for remark in remarks:
        talk.say(remark)
    tensors, state = checkpoint.load(path)
    if tensors["model"].keys() != dict(model.named_parameters()).keys():
        raise BadInput(f"{path} holds another model than {folder.path / 'recipe.json'} describes")
    warn_of_changes(state.get("facts", {}), talk)
    put_weights(model, tensors["model"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    optimiser.load_state_tensors(model, optimisers, tensors["optimiser"])
    folder.metrics.drop_after(state["step"])
    return state["step"], Best(**state["best"])


def put_weights(model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Every weight by its name; tied ones have one name, and stay tied."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(tensors[name])


def warn_of_changes(then: dict[str, Any], talk: Talk) -> None:
    """A resumed run gives the same bytes only under the same conditions."""
    now = {"threads": torch.get_num_threads(), "torch": torch.__version__}
    for name, value in now.items():
        if name in then and then[name] != value:
            talk.say(
                f"warning: {name} was {then[name]} and is {value} now: numbers will differ in their last digits"
            )


def save(
    folder: RunFolder,
    model: nn.Module,
    optimisers: list[torch.optim.Optimizer],
    scaler: torch.amp.GradScaler | None,
    step: int,
    best: Best,
    recipe: Recipe,
) -> None:
    """Everything that the rest of the run depends on."""
    state = {
        "step": step,
        "scaler": {} if scaler is None else scaler.state_dict(),
        "best": {"step": best.step, "scores": best.scores},
        "facts": {
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "accumulate": recipe.train.accumulate,
        },
    }
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    tensors = {"model": weights, "optimiser": optimiser.state_tensors(model, optimisers)}
    folder.save(step, tensors, state, recipe.checkpoint.keep)


def try_out(job: Job, model: nn.Module, folder: RunFolder, talk: Talk, step: int, best: Best) -> Best:
    """Evaluate, show a few examples, and publish the weights if they are the best so far."""
    began = time.perf_counter()
    model.eval()
    with torch.no_grad():
        scores = job.evaluate(model)
        lines = job.show(model)
    model.train()
    folder.metrics.append({"step": step, **{f"valid_{name}": score for name, score in scores.items()}})
    told = ", ".join(f"{name} {score:.4g}" for name, score in scores.items())
    talk.say(f"step {step}: held-out {told} ({time.perf_counter() - began:.1f} s)")
    for line in lines:
        talk.say(line)
    if not best.beaten_by(scores):
        return best
    folder.write_model({name: weight.detach() for name, weight in model.named_parameters()})
    return Best(step, scores)
