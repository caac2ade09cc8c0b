"""The stages of text-to-image in order: three runs in one folder, each begun when the one before it is done.

    RUN/stages.json            the recipe of each
    RUN/pictures/              what all of them learn from, made ready once
    RUN/codes/ decoder/ ranker/  ordinary runs

Interrupted at any moment, the folder goes on: what is done is left alone, what was begun goes on, the rest
begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..errors import BadInput, command
from ..files import inside, naming, present, read_json, write_json
from ..interop.run_folder import STAGES as FILE
from ..models.base.settings import Setting, unknown
from ..tasks import STAGED, STAGES, find_task
from ..tasks.captioned import pictures_of
from ..tasks.recipe import from_json, known_settings, make, to_json
from ..tasks.recipe.settings import Recipe
from .folder import RECIPE
from .setup import Reporter
from .trainer import resume as resume_run
from .trainer import start as start_run
from .training import Outcome

PICTURES = "pictures"


def is_staged(folder: Path) -> bool:
    """Whether a folder holds the stages of one model."""
    return (folder / FILE).is_file()


def recipes_of(size: str, corpus: str, settings: Mapping[str, Any], path: Path) -> dict[str, Recipe]:
    """The recipe of each stage. A setting is for all stages that have it, or for one: decoder.train.steps."""
    known = {stage: stage_settings(stage) for stage in STAGES}
    check_settings(settings, known)
    found = {}
    for stage in STAGES:
        common = {key: value for key, value in settings.items() if key in known[stage]}
        prefix = f"{stage}."
        own = {key.removeprefix(prefix): settings[key] for key in settings if key.startswith(prefix)}
        codes = {"train.from": str(path / "codes")} if stage == "decoder" else {}
        found[stage] = make(task_of(stage), size, corpus, common | own | codes)
    return found


def task_of(stage: str) -> str:
    """The task of a stage."""
    return f"{STAGED}-{stage}"


def stage_settings(stage: str) -> dict[str, Setting]:
    """Everything that can be set for a stage."""
    task = find_task(task_of(stage))
    return known_settings(task, next(iter(task.architectures)))


def check_settings(settings: Mapping[str, Any], known: Mapping[str, Mapping[str, Setting]]) -> None:
    """Refuse settings that no stage has, that follow from the folder, or that all stages must share."""
    every = dict.fromkeys(key for some in known.values() for key in some)
    for key in settings:
        stage, _, rest = key.partition(".")
        name = rest if stage in STAGES else key
        if name == "train.from":
            raise BadInput(f"{key} cannot be set here: the decoder writes codes of this run. Leave it out")
        if stage not in STAGES and key not in every:
            raise BadInput(f"{STAGED} has no setting {unknown(key, list(every))}")
        if stage in STAGES and rest.startswith("data.") and all(rest in some for some in known.values()):
            raise BadInput(f"all stages learn from the same pictures: set {rest}, not {key}")


@dataclass(frozen=True)
class Staged:
    """How the stages ended."""

    finished: bool  # False: asked to stop, and can be resumed
    outcomes: dict[str, Outcome]  # of those that were worked on


def start(
    recipes: Mapping[str, Recipe],
    path: Path,
    reporter: Reporter,
    device: torch.device,
    track: str | None = None,
) -> Staged:
    """All stages in a new folder; what was asked for in vain leaves none behind."""
    if present(path / FILE):
        raise BadInput(
            f"{path} holds a run: go on with `{command('train', '--resume', path)}`, or give another --run"
        )
    if path.is_dir() and any(path.iterdir()):
        raise BadInput(f"{path} is there and not empty: give another --run")
    beside_others = path.parent.exists()
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / FILE, {stage: to_json(recipe) for stage, recipe in recipes.items()})
    try:
        return go_on(recipes, path, reporter, device, track)
    except ValueError:
        if not any(present(path / stage / RECIPE) for stage in STAGES):
            shutil.rmtree(path)
            if not beside_others:
                with suppress(OSError):
                    path.parent.rmdir()
        raise


def resume(path: Path, reporter: Reporter, device: torch.device, track: str | None = None) -> Staged:
    """What is still to be done of the stages of a folder."""
    with naming(path / FILE):
        found = read_json(inside(path, FILE))
        if list(found) != list(STAGES):
            raise BadInput(
                f"it has the stages {', '.join(map(str, found))[:200]}, and should have {', '.join(STAGES)}"
            )
        recipes = {stage: from_json(recipe) for stage, recipe in found.items()}
    return go_on(moved(recipes, path), path, reporter, device, track)


def moved(recipes: Mapping[str, Recipe], path: Path) -> dict[str, Recipe]:
    """The recipes for where the folder is now."""
    decoder = recipes["decoder"]
    train = replace(decoder.train, from_=str(path / "codes"))
    return {**recipes, "decoder": replace(decoder, train=train)}


def go_on(
    recipes: Mapping[str, Recipe],
    path: Path,
    reporter: Reporter,
    device: torch.device,
    track: str | None,
) -> Staged:
    """Every stage that is not done, in order."""
    outcomes = {}
    for number, (stage, recipe) in enumerate(recipes.items(), 1):
        folder = path / stage
        if is_done(folder):
            reporter.say(f"stage {number} of {len(recipes)}, {stage}: done already")
            continue
        reporter.say(f"stage {number} of {len(recipes)}, {stage}")
        if present(folder / RECIPE):
            outcome = resume_run(folder, reporter, device, track=track)
        else:
            pictures_of(recipe, path / PICTURES, reporter.say)
            outcome = start_run(recipe, folder, reporter, device, ready=path / PICTURES, track=track)
        outcomes[stage] = outcome
        if not outcome.finished:
            return Staged(False, outcomes)
    return Staged(True, outcomes)


def is_done(folder: Path) -> bool:
    """Whether a stage has finished."""
    if not present(folder / "status.json"):
        return False
    with naming(folder / "status.json"):
        return read_json(inside(folder, "status.json")).get("reason") == "done"
