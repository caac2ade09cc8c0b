"""Train a model on your own files, or on a corpus that is built in.

Writes a run folder: the recipe, the model, its tokenizer, what was measured, and checkpoints from which the
run goes on exactly where it was, whatever stopped it. Ctrl-C saves and stops; --resume goes on. On several
GPUs or machines, the same command under torchrun: torchrun --nproc-per-node 4 -m -- heedful train ...

In place of a file, hf:NAME[:CONFIG][@SPLIT][#COLUMN] is a Hugging Face data set, if the package
datasets is installed: --text hf:wikitext:wikitext-2-raw-v1@train#text, --data hf:imdb@train.

Examples: heedful train translate --corpus phrasebook --size tiny --minutes 3;
heedful train translate --source a.en --target a.de --valid-source b.en --valid-target b.de;
heedful train lm --text books/ --size small --steps 5000; heedful train --resume runs/translate;
heedful train mlm --text books/; heedful train classify --data a.tsv --valid-data b.tsv --from runs/mlm;
heedful train parse --data en-train.conllu --valid-data en-dev.conllu;
heedful train summarize --corpus facts --size tiny; heedful train instruct --corpus instructions --size tiny;
heedful train instruct --data chats.jsonl --valid-data held-out.jsonl --from ./gpt2 --tune lora;
heedful train dpo --corpus instructions --from runs/instruct;
heedful train rl --corpus instructions --from runs/instruct;
heedful train reward --data pairs.jsonl --valid-data held-out.jsonl --from ./gpt2;
heedful train image-classify --images photos/;
heedful train caption --corpus shapes --size tiny
"""

from __future__ import annotations

import os
import shlex
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ..errors import LOST, BadInput, Lost, NotFinite, give_way, program, said_once
from ..files import one_line
from ..interop.run_folder import RECIPE, STAGES
from ..tasks import STAGED, find_task
from ..tasks.evaluation import format_score
from ..train.device import find_device
from .shared.exit_codes import FAILED, INTERRUPTED_AND_SAVED, NOT_FINITE
from .shared.options import DataOptions, Positional, Repeated, arg

if TYPE_CHECKING:
    import torch

    from ..runs.training import Outcome
    from ..tasks.recipe.settings import Recipe
    from ..train.processes import World


SHOWN_RATES = 5  # one in so many that were tried


@dataclass(frozen=True)
class TrainOptions(DataOptions):
    """The options of `heedful train`."""

    task: Annotated[str, Positional, arg("TASK")] = "translate"
    """What to learn; `heedful train --help` lists the tasks, and `heedful train TASK --help` its settings."""

    trees: Annotated[str | None, arg("FILE", "none")] = None
    """Dependency trees of the sources, CoNLL-U, for model.positions=structural; `heedful parse` writes
    them."""

    valid_trees: Annotated[str | None, arg("FILE", "none")] = None
    """Dependency trees of the held-out sources."""

    architecture: Annotated[str | None, arg("NAME", "the task's first")] = None
    """The architecture, a file of heedful/models: gpt2, llama, transformer, bart, ..."""

    from_: Annotated[str | None, arg("FOLDER", "none", name="from")] = None
    """The model to start from: a run or a Hugging Face folder. Its sizes and its tokenizer come along."""

    tune: Annotated[Literal["whole", "head", "lora"] | None, arg("whole|head|lora", "whole")] = None
    """With --from, what learns: the whole model, a new head, or LoRA adapters and a new head. A LoRA run
    stores only the adapters: keep the base model at the same path."""

    run: Annotated[str | None, arg("DIR", "runs/TASK")] = None
    """Where the run goes: a folder that is not there yet."""

    resume: Annotated[str | None, arg("RUN", "none")] = None
    """Go on with an interrupted run; its recipe says everything else."""

    size: str = "small"
    """Size of the model: tiny, small, base or large, or a preset of the architecture such as gpt2-medium."""

    steps: Annotated[int | None, arg("INT", "by task and data")] = None
    """Number of optimizer steps."""

    minutes: Annotated[float | None, arg("FLOAT", "--steps")] = None
    """Train for so long instead, compiling and evaluating included."""

    seed: Annotated[int | None, arg("INT", "0")] = None
    """Seed of the weights and of the order of examples."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes the GPU if there is one."""

    find_rate: bool = False
    """Only try learning rates, a hundred steps in all, and suggest one."""

    track: Annotated[
        Literal["tensorboard", "trackio", "wandb"] | None, arg("tensorboard|trackio|wandb", "none")
    ] = None
    """Also write the metrics for one of these tools, on this machine only: no login, no upload. A resumed
    run goes on in the same track. pip install "heedful[NAME]" brings the tool."""

    set: Annotated[tuple[str, ...], arg("PART.NAME=VALUE", "none"), Repeated] = ()
    """Any other setting, such as model.heads=8; may be repeated."""


def train(given: TrainOptions) -> int:
    """Start a run, or go on with one; under torchrun, together with the other processes."""
    from ..runs import trainer
    from ..runs.setup import SilentReporter
    from ..runs.track import refuse_missing
    from ..train.processes import connected, join_world, leave_world, own_device
    from .shared.training import TrainingProgress, remark_on

    with said_once():
        refuse_in_vain(given)
        if given.track:
            refuse_missing(given.track)
        device = find_device(given.device)
        if in_stages(given):
            return train_stages(given, device)
        recipe = None if given.resume else recipe_of(given)
    device = own_device(device)
    if recipe is not None and given.find_rate:
        return find_rate(recipe, device)
    world = join_world(device)
    try:
        with TrainingProgress() if world.leads else nullcontext(SilentReporter()) as voice, connected(world):
            if recipe is None:
                path = Path(given.resume or "")
                outcome = trainer.resume(path, voice, device, world, given.track)
            else:
                path = where(given, recipe, world, device)
                remark = remark_on(path, given.run, given.task)
                outcome = trainer.start(recipe, path, voice, device, world, remark, track=given.track)
            world.wait(device)  # torchrun ends all once one has ended: that must not be before all is written
    except (trainer.LeaderFailed, NotFinite, Lost) as error:
        if world.leads or (isinstance(error, Lost) and world.speaks):
            raise
        codes = {NotFinite: NOT_FINITE, Lost: LOST}
        return give_way(codes.get(type(error), FAILED))
    except Exception as error:
        world.tell_end(one_line(str(error)))
        raise
    finally:
        leave_world(world)
    if not outcome.finished:
        return INTERRUPTED_AND_SAVED
    if world.leads:
        print(summary(outcome, path))
    return 0


def where(given: TrainOptions, recipe: Recipe, world: World, device: torch.device) -> Path:
    """The run's folder: the one that is given, the one that this job has begun, or the first free name; the
    leading process finds it."""
    from ..runs.belonging import belongs
    from .shared.training import free_number, numbered

    if given.run:
        return Path(given.run)
    number = 0
    if world.leads:
        free = free_number(given.task)
        begun = (n for n in range(1, free) if belongs(numbered(given.task, n), recipe))
        number = next(begun, free)
    return numbered(given.task, int(world.from_leader([float(number)], device)[0]))


def summary(outcome: Outcome, path: Path) -> str:
    """The best figures with their intervals, what is in the folder, and what to do next."""
    from ..tasks.metrics import interval

    told = []
    for name, score in outcome.best.scores.items():
        told.append(format_score(name, score))
        if name in SHARES and outcome.job.held_out:
            low, high = interval(score, outcome.job.held_out)
            told[-1] += f" (95 % interval {low:.1%} to {high:.1%})"
    return "\n".join(
        (
            f"best at step {outcome.best.step}: {', '.join(told)}",
            f"{path}: {files_of(outcome.job.vocab)} are the model; metrics.jsonl is how it went",
            "next:",
            *(f"  {line}" for line in what_next(outcome.job.task, path)),
        )
    )


def files_of(vocab: Any) -> str:
    """What a model consists of."""
    return (
        "config.json and model.safetensors"
        if vocab is None
        else "config.json, model.safetensors and tokenizer.json"
    )


SHARES = ("exact", "accuracy", "uas")  # scores that are shares of rows, and so have an interval


def what_next(task: str, path: Path) -> list[str]:
    """Commands that can be copied: what the model scores, what it is made of, and how it is used."""
    folder = shlex.quote(str(path))
    uses = (use.format(path=folder) for use in find_task(task).next)
    return [f"{program()} {words}" for words in (f"evaluate {folder}", f"info {folder}", *uses)]


def refuse_in_vain(given: TrainOptions) -> None:
    """Refuse options that would do nothing: --resume follows the recipe, --find-rate keeps nothing."""
    if given.resume:
        for field in fields(given):
            if (
                field.name not in ("resume", "device", "task", "track")
                and getattr(given, field.name) != field.default
            ):
                name = field.name.rstrip("_").replace("_", "-")
                raise BadInput(
                    f"--{name} cannot be given with --resume: the recipe in {given.resume} says everything"
                    f"{how_to_change(field.name, Path(given.resume) / RECIPE)}"
                )
        refuse_other_task(given)
    for name in ("run", "track"):
        if given.find_rate and getattr(given, name):
            raise BadInput(
                f"--{name} cannot be given with --find-rate: nothing is kept of the steps that are tried"
            )
    if given.find_rate and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("--find-rate is for one process: try it without torchrun")


def how_to_change(option: str, recipe: Path) -> str:
    """The end of a sentence: where an option can be changed that does not make it another run."""
    setting = {"steps": "train.steps", "minutes": "train.steps"}.get(option)
    return "" if setting is None else f"; edit {setting} in {recipe} to change it"


def refuse_other_task(given: TrainOptions) -> None:
    """A task beside --resume; the first in the list may stand there because nobody named one."""
    path = Path(given.resume or "")
    if given.task == type(given).task or not (path / RECIPE).is_file():
        return
    from ..runs.folder import RunFolder

    task = RunFolder.read_recipe(path).get("task")
    if task != given.task:
        raise BadInput(f"{path} is a run of {task}, not of {given.task}: leave the task out")


def find_rate(recipe: Recipe, device: torch.device) -> int:
    """Try learning rates, from tiny to absurd, and say which is good to begin with."""
    from ..runs import setup
    from ..train.finder import suggest
    from .shared.training import TrainingProgress

    tried = []
    print("rate      loss")
    with TrainingProgress() as voice:
        for one in setup.find_rate(recipe, voice, device):
            tried.append(one)
            if len(tried) % SHOWN_RATES == 1:
                print(f"{one.rate:.1e}  {one.loss:.3f}", flush=True)
    if not tried:
        raise NotFinite("the loss is not finite at any rate: look at the data, or at the model to start from")
    lowest = min(tried, key=lambda one: one.loss)
    between = "" if tried.index(lowest) % SHOWN_RATES == 0 else ", between two of these"
    print(
        f"lowest at {lowest.rate:.1e} (loss {lowest.loss:.3f}{between}); a tenth of that: "
        f"--set train.learning_rate={suggest(tried):g} (without it: {recipe.train.learning_rate:g})"
    )
    return 0


def named_settings(given: TrainOptions) -> dict[str, Any]:
    """The settings that have options of their own, as far as they were given."""
    named = given.data_settings() | {
        "data.trees": given.trees,
        "data.valid_trees": given.valid_trees,
        "train.from": given.from_,
        "train.tune": given.tune,
        "train.steps": given.steps,
        "train.minutes": given.minutes,
        "train.seed": given.seed,
        "model.architecture": given.architecture,
    }
    return {key: value for key, value in named.items() if value is not None}


# The stages of text-to-image


def in_stages(given: TrainOptions) -> bool:
    """Whether more than one run is requested: text-to-image without a stage."""
    if given.resume:
        return (Path(given.resume) / STAGES).is_file()
    return given.task == STAGED


def train_stages(given: TrainOptions, device: torch.device) -> int:
    """All stages of text-to-image, one after the other, in one folder."""
    from ..runs import stages
    from .shared.training import TrainingProgress, free_name

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("the stages of text-to-image are trained in one process: try it without torchrun")
    if given.find_rate:
        raise BadInput("--find-rate is for one stage: train text-to-image-codes, -decoder or -ranker")
    path = Path(given.resume or given.run or free_name("text-to-image"))
    with TrainingProgress() as voice:
        if given.resume:
            found = stages.resume(path, voice, device, given.track)
        else:
            recipes = stages.recipes_of(given.size, given.corpus or "", settings_of_call(given), path)
            found = stages.start(recipes, path, voice, device, given.track)
    if not found.finished:
        return INTERRUPTED_AND_SAVED
    print(stages_summary(found.outcomes, path))
    return 0


def stages_summary(outcomes: dict[str, Outcome], path: Path) -> str:
    """What each stage reached, and what to do next."""
    lines = []
    for stage, outcome in outcomes.items():
        told = ", ".join(format_score(name, score) for name, score in outcome.best.scores.items())
        lines.append(f"{stage}: best at step {outcome.best.step}: {told}")
    folder = shlex.quote(str(path))
    lines += [
        f"{path}: codes, decoder and ranker are its models",
        "next:",
        f'  {program()} paint {folder} "a small red circle above a blue square"',
        f"  {program()} info {shlex.quote(str(path / 'decoder'))}",
    ]
    return "\n".join(lines)


# Recipes


def recipe_of(given: TrainOptions) -> Recipe:
    """Defaults, --set, and the options by name, in rising order."""
    from ..tasks.recipe import make

    return make(given.task, given.size, given.corpus or "", settings_of_call(given))


def settings_of_call(given: TrainOptions) -> dict[str, Any]:
    """The settings that a command names."""
    from ..tasks.recipe import parse_settings

    return parse_settings(list(given.set)) | named_settings(given)
