"""A run: a recipe done in a folder, from the first step to the last, however often it is interrupted.

A run starts in a new folder or resumes in an old one; `training` then makes its steps. What a run prints goes
through a `Reporter`, so that a terminal, a file and a test each get what suits them. Several processes
(`torchrun`) all do the same, and one of them writes.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import torch

from ..errors import BadInput, NotFinite, command
from ..files import link_tree, naming, present, write_json
from ..interop.run.read import BORROWED, described
from ..tasks import find_task
from ..tasks.origin import is_foreign
from ..tasks.recipe import from_json, to_json
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Job
from ..train import processes
from ..train.device import find_device
from ..train.processes import World
from .belonging import belonging, belongs, fingerprint, wait_until_seen
from .clock import Clock
from .folder import METRICS, RECIPE, RunFolder
from .parallel import refuse_unspreadable
from .resume import (
    DATA_RECIPE,
    ROUNDING,
    compare_facts,
    compare_recipes,
    data_fingerprint,
    facts_of,
    newest,
    of_step,
)
from .setup import (
    ALONE,
    Reporter,
    SilentReporter,
    decide,
    foresee,
    make_job,
    precompute,
    read_examples,
)
from .track import choose_track
from .training import Outcome, train_run


def start(
    recipe: Recipe,
    path: str | Path,
    reporter: Reporter | None = None,
    device: str | torch.device = "auto",
    world: World = ALONE,
    remark: str = "",
    ready: Path | None = None,
    track: str | None = None,
) -> Outcome:
    r"""Train a model by a recipe, in a new folder.

    The folder has a model after the first evaluation. `heedful.load` reads it, and `resume` goes on from its
    newest checkpoint. If the recipe cannot be followed, no folder is left behind.

    Args:
        recipe: What to train; `heedful.tasks.recipe.make` makes one.
        path: The folder of the run, which must not be there yet.
        reporter: Where sentences and steps are reported to. None: nowhere.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        world: Which process this is, of how many; `torchrun` starts several.
        remark: Stands after the folder's name where it is reported.
        ready: Folder of a run with the same data, whose tokenized data are shared.
        track: "tensorboard", "trackio" or "wandb", which also get the metrics.

    Returns:
        `Outcome`: the steps, the best evaluation, and the model.

    Raises:
        BadInput: The folder holds a run, or the recipe does not fit the data or the device.
        NotFinite: The loss or the gradient became infinite. The message names the step, layer and examples.

    Example:
        >>> from heedful.tasks import recipe
        >>> _ = Path("cats.txt").write_text("the cat sat on the mat.\n" * 90)
        >>> sizes = {"model.width": 16, "model.context": 16, "train.batch_tokens": 128}
        >>> few = {"data.text": "cats.txt", "train.steps": 4, "evaluate.every": 2, **sizes}
        >>> outcome = start(recipe.make("lm", "tiny", settings=few), "runs/cats", device="cpu")
        >>> outcome.steps, outcome.finished
        (4, True)
        >>> heedful.load("runs/cats").task
        'lm'
    """
    path, reporter, device = Path(path), reporter or SilentReporter(), find_device(device)
    if not world.leads:
        return follow(path, device, world)
    if belongs(path, recipe):
        reporter.say(f"{path} was begun by this job: it goes on")
        return resume(path, reporter, device, world, track)
    with StartSignal(world, device) as signal:
        refuse_impossible(recipe, world, device)
        refuse_taken(path)
        beside_others = path.parent.exists()
        folder = RunFolder.create(
            path, {**to_json(recipe), "facts": data_fingerprint(recipe)}, job=belonging(recipe)
        )
        try:
            with folder:
                if ready is not None:
                    share_data(ready, path)
                choose_track(path, track)
                return prepare_and_train(recipe, folder, reporter, device, world, signal, remark)
        except ValueError:  # bad input: a file or a number
            if not (path / METRICS).exists():
                shutil.rmtree(path)
                if not beside_others:  # runs/, which was made for this one
                    with suppress(OSError):
                        path.parent.rmdir()
            raise


def share_data(ready: Path, path: Path) -> None:
    """Share data that were prepared elsewhere, by links where possible: nobody writes into them again."""
    files_first = sorted(ready.iterdir(), key=lambda entry: entry.is_dir())  # a vocabulary, then what it made
    for entry in files_first:
        link_tree(entry, path / entry.name)


def resume(
    path: str | Path,
    reporter: Reporter | None = None,
    device: str | torch.device = "auto",
    world: World = ALONE,
    track: str | None = None,
) -> Outcome:
    """Go on with an interrupted run, from its newest whole checkpoint.

    The steps, batches and random numbers are those of a run that was never interrupted. A finished run makes
    no step; for more, raise `train.steps` in its recipe.json.

    Args:
        path: The folder of the run.
        reporter: Where sentences and steps are reported to. None: nowhere.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        world: Which process this is, of how many.
        track: "tensorboard", "trackio" or "wandb", which also get the metrics.

    Returns:
        `Outcome`: the steps, the best evaluation, and the model.

    Raises:
        BadInput: The folder holds no run, or its data have changed.

    Example:
        >>> outcome = resume("runs/cats", device="cpu")
        >>> outcome.steps, sorted(outcome.best.scores)
        (4, ['bits_per_byte', 'loss', 'perplexity'])
    """
    path, reporter, device = Path(path), reporter or SilentReporter(), find_device(device)
    if not world.leads:
        return follow(path, device, world)
    with StartSignal(world, device) as signal, RunFolder.open(path) as folder:
        with naming(path / RECIPE):
            recipe = recipe_in(folder.recipe)
        refuse_compiling(recipe, device)
        choose_track(path, track)
        return prepare_and_train(recipe, folder, reporter, device, world, signal)


def recipe_in(found: dict[str, Any]) -> Recipe:
    """The recipe in recipe.json, without the facts that were noted beside it."""
    return from_json({part: value for part, value in found.items() if part != "facts"})


def facts_in(found: dict[str, Any]) -> dict[str, Any]:
    """The facts in recipe.json."""
    facts = found.get("facts")
    return facts if isinstance(facts, dict) else {}


# Several processes. The leading one makes the folder, prepares the data and writes; the others wait until all
# is there.


class LeaderFailed(Exception):
    """The leading process has failed, and says why itself."""


class StartSignal:
    """What the leading process sends the others once: begin, at this checkpoint of the run with this recipe;
    or give up: it failed."""

    def __init__(self, world: World, device: torch.device) -> None:
        self.world, self.device = world, device
        self.given = False

    def give(self, ready: bool, step: int = 0, recipe: float = 0.0) -> None:
        if not self.given:
            self.given = True
            self.world.from_leader([float(ready), float(step), recipe], self.device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.give(False)


def follow(path: Path, device: torch.device, world: World) -> Outcome:
    """What every other process does: it reads what the leading one has written, and writes nothing."""
    with processes.connected(world):
        ready, step, written = world.from_leader([0.0, 0.0, 0.0], device)
        if not ready:
            raise LeaderFailed("the leading process could not begin")
        wait_until_seen(path, written)
        recipe = recipe_in(RunFolder.read_recipe(path))
        job = make_job(recipe, path, SilentReporter())
        saved = of_step(path, int(step)) if step else None
        return train_run(recipe, job, path, None, SilentReporter(), device, world, saved)


def prepare_and_train(
    recipe: Recipe,
    folder: RunFolder,
    reporter: Reporter,
    device: torch.device,
    world: World,
    signal: StartSignal,
    remark: str = "",
) -> Outcome:
    """Prepare the data, fix the number of steps, then make every step that is still to be made.

    Whatever every process would find wrong is found here, before the others are told to begin.
    """
    saved = newest(folder.path, reporter.say)
    if saved is not None:
        compare_recipes(saved.state.get("recipe", {}), recipe, saved.path, reporter.say)
        before = saved.state.get("facts", {})
    else:  # nothing that counts was computed yet, but data may have been prepared
        before = {name: fact for name, fact in facts_in(folder.recipe).items() if name not in ROUNDING}
    compare_facts(before, data_fingerprint(recipe), folder.path, reporter.say)
    open_ = recipe.given is not None
    clock = Clock(recipe.train.minutes, recipe.given or ()) if recipe.train.minutes else None
    recipe, foreseen = foresee(recipe)
    examples = read_examples(recipe, folder.path, reporter)
    precompute(recipe, examples, reporter, device)
    recipe, reasons = decide(recipe, examples, reporter, device, world)
    job = find_task(recipe.task).job(recipe, examples)
    refuse_unspreadable(recipe, job, world)
    job = replace(job, plan=[*job.plan, *foreseen, *reasons])
    if open_:  # how data are read was still to be chosen
        before = {name: fact for name, fact in before.items() if name != DATA_RECIPE}
    found = facts_of(recipe, job, world, device)
    compare_facts(before, found, folder.path, reporter.say)
    folder.write_recipe({**to_json(recipe), "facts": found})
    write_json(folder.path / "config.json", describe_model(job))
    reporter.say(f"run: {folder.path}{remark}")
    signal.give(True, 0 if saved is None else saved.state["step"], fingerprint(folder.path))
    if world.pulse is not None:
        world.pulse.note = lambda why: folder.status("failed", error=why)
    try:
        with processes.connected(world):
            task, timed = find_task(recipe.task), clock if world.size == 1 and saved is None else None
            return train_run(
                recipe,
                job,
                folder.path,
                folder,
                reporter,
                device,
                world,
                saved,
                timed,
                lambda changed: task.job(changed, examples),
            )
    except Exception as error:
        with suppress(OSError, ValueError):  # what went wrong may well be the disk
            if isinstance(error, NotFinite) and error.numbers:
                folder.metrics.append(error.numbers)
            folder.status("not finite" if isinstance(error, NotFinite) else "failed", error=str(error))
        raise


def describe_model(job: Job) -> dict[str, Any]:
    """What config.json says: the architecture and its sizes, a decoder's labels, adapters, and the tokens of
    a vocabulary that came along."""
    bias = {} if job.head_bias else {"head_bias": False}
    head = {"labels": job.labels, **bias} if job.labels else {}
    lora = {"lora": described(job.tuning.lora)} if job.tuning is not None and job.tuning.lora else {}
    special: dict[str, Any] = {f"{name}_token_id": number for name, number in job.special.items()}
    if is_foreign(job.vocab):
        special["vocabulary"] = BORROWED
    return {"heedful": job.architecture, "config": asdict(job.config), **head, **lora, **special}


# The work.


# What the recipe asks for.


def refuse_impossible(recipe: Recipe, world: World, device: torch.device) -> None:
    """What no run can begin with."""
    refuse_compiling(recipe, device)
    if recipe.train.parallel != "auto" and world.size == 1:
        raise BadInput(
            f"train.parallel={recipe.train.parallel} needs several processes: "
            "torchrun --nproc-per-node N -m -- heedful train ..."
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
        "train.compile=true needs a C++ compiler (g++ or clang++) on a CPU, and there is none: leave it out"
    )


# Evaluation.


# The learning-rate finder.
