"""The stages of a model that learns to do what people want, each a run that starts from another.

    supervised       instruct: learn right responses
    dpo              dpo from supervised: learn from pairs of responses
    rl               rl from supervised: raise the reward that a program knows
    reward model     reward from supervised, stopped early: predict which of two responses is right
    over-optimized   rl from supervised: raise the score of that reward model, with no cost for leaving

A stage that is finished is not trained again, and one that was interrupted goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...errors import BadInput
from ...files import one_line, present, read_json, write_json
from ...interop.run_folder import RECIPE
from ...runs import trainer
from ...runs.folder import STATUS, make_folders
from ...runs.setup import Reporter
from ...tasks.instruct_data import CORPUS
from ...tasks.recipe import make
from ...tasks.recipe.settings import Recipe

SETUP = "alignment.json"


@dataclass(frozen=True)
class AlignmentStage:
    """A run of the story."""

    name: str
    task: str
    steps: int
    start: str = ""  # the stage whose model it starts from
    judge: str = ""  # the stage whose reward model judges its responses
    settings: Mapping[str, Any] = field(default_factory=dict)

    def path(self, folder: Path, seed: int) -> Path:
        return folder / "runs" / f"{self.name.replace(' ', '-')}-{seed}"


SUPERVISED, DPO, RL = "supervised", "dpo", "rl"
REWARD_MODEL, OVER_OPTIMIZED = "reward model", "over-optimized"
STAGES = (
    AlignmentStage(SUPERVISED, "instruct", 200),
    AlignmentStage(DPO, "dpo", 200, SUPERVISED),
    AlignmentStage(RL, "rl", 200, SUPERVISED),
    AlignmentStage(REWARD_MODEL, "reward", 120, SUPERVISED, settings={"train.warmup_steps": 10}),
    AlignmentStage(
        OVER_OPTIMIZED, "rl", 200, SUPERVISED, REWARD_MODEL, {"train.beta": 0.0, "evaluate.every": 10}
    ),
)
BY_NAME = {stage.name: stage for stage in STAGES}
COMPARED = (SUPERVISED, DPO, RL)  # the stages that stand side by side


def recipe_of_stage(stage: AlignmentStage, folder: Path, seed: int, steps: int | None) -> Recipe:
    """The recipe of a stage. steps: instead of its own number of them."""
    settings: dict[str, Any] = {"train.steps": steps or stage.steps, "train.seed": seed, **stage.settings}
    if stage.start:
        settings["train.from"] = str(BY_NAME[stage.start].path(folder, seed))
    if stage.judge:
        settings["train.reward"] = str(BY_NAME[stage.judge].path(folder, seed))
    return make(stage.task, "tiny", CORPUS, settings)


def is_done(path: Path) -> bool:
    """Whether a run has made all its steps."""
    return present(path / STATUS) and read_json(path / STATUS).get("reason") == "done"


def open_folder(folder: Path, steps: int | None) -> None:
    """Make the folder of the stages, or go on in one that was begun in the same way."""
    if present(folder / SETUP):
        if read_json(folder / SETUP) != {"steps": steps}:
            raise BadInput(one_line(f"{folder} was begun with other --steps: give another --run"))
        return
    if present(folder) and any(folder.iterdir()):
        raise BadInput(one_line(f"{folder} is not empty, and holds no stages: give another --run"))
    make_folders(folder)
    write_json(folder / SETUP, {"steps": steps})


def run_stages(
    folder: Path, seed: int, reporter: Reporter, device: torch.device, steps: int | None = None
) -> Iterator[tuple[AlignmentStage, bool]]:
    """Every stage with a seed, one after the other, each with whether it is finished."""
    for stage in STAGES:
        path = stage.path(folder, seed)
        if is_done(path):
            yield stage, True
            continue
        reporter.say(f"{stage.name}, seed {seed}: {steps or stage.steps:,} steps")
        make_folders(path.parent)
        if present(path / RECIPE):
            outcome = trainer.resume(path, reporter, device)
        else:
            outcome = trainer.start(recipe_of_stage(stage, folder, seed, steps), path, reporter, device)
        yield stage, outcome.finished
