"""The model of a run that has been evaluated at least once: its recipe and its weights."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..files import inside, naming, one_line, present, read_json, read_text
from ..interop.hf.tokenizer import LIMIT, TARGET_TOKENIZER, TOKENIZER
from ..interop.run_folder import NO_VOCABULARY, RECIPE, check_written, is_run, refuse_stages, runs_inside
from ..tasks.recipe import from_json
from ..tasks.recipe.settings import Recipe
from ..train.device import find_device

if TYPE_CHECKING:
    from ..interop.loaded import Loaded

STATUS = "status.json"


def read_run(run: str | Path) -> tuple[Recipe, dict[str, Any]]:
    """Read the recipe of a run.

    Args:
        run: The folder of the run.

    Returns:
        (recipe, facts): the recipe, and what else the result depends on, such as versions and hashes of data.

    Raises:
        BadInput: The folder is no run, or its recipe cannot be read.

    Example:
        >>> recipe, facts = read_run("runs/choose")
        >>> recipe.task, recipe.train.steps, facts["device"]
        ('choose', 150, 'cpu')
    """
    run = Path(run)
    if not run.is_dir():
        why = "is a file" if run.exists() else "is not there"
        raise BadInput(one_line(f"{run} {why}: give the folder of a run, such as runs/translate"))
    if not present(run / RECIPE):
        refuse_stages(run)
        told = f"{run} is no run: it has no {RECIPE}; give the folder that `heedful train` wrote"
        raise BadInput(one_line(told + runs_inside(run)))
    with naming(run / RECIPE):
        found = read_json(inside(run, RECIPE))
        facts = found.pop("facts", {})
        return from_json(found), facts if isinstance(facts, dict) else {}


def check_model(run: Path, facts: dict[str, Any]) -> None:
    """There must be weights, and the tokenizers that they were trained with."""
    check_written(run)
    for name, fact in {TOKENIZER: "vocab", TARGET_TOKENIZER: "target_vocab"}.items():
        if facts.get(fact) == NO_VOCABULARY:
            continue
        if fact in facts or name == TOKENIZER:
            with naming(run / name):
                text = read_text(inside(run, name), LIMIT)
            if facts.get(fact) not in (None, hashlib.sha256(text.encode()).hexdigest()):
                why = f"is not the one its model was trained with, whose SHA-256 is in {RECIPE}"
                raise BadInput(one_line(f"{run / name} {why}: put that back"))


def best_step(run: Path) -> int | None:
    """The step of the weights, as far as the run says."""
    if not present(run / STATUS):
        return None
    with naming(run / STATUS):
        step = read_json(inside(run, STATUS)).get("best_step")
    return step if type(step) is int else None


def open_model(folder: Path, device: str) -> Loaded:
    """The model of a run, whose files are checked first, or of a Hugging Face folder."""
    from ..interop.formats import load

    if folder.is_dir() and is_run(folder):
        check_model(folder, read_run(folder)[1])
    return load(folder, find_device(device))
