"""Recipes: what was asked of a training run, defaults filled in. Numbers and names only; no torch here.

Values come from, in rising order: the task's defaults, the size, a recipe file, `--set part.name=value`,
options.
"""

from __future__ import annotations

import typing
from collections.abc import Collection
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from functools import cache
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Annotated, Any, Literal

from ...errors import BadInput
from ...models import nearest
from .checks import check_settings, consistent
from .presets import (
    ARCHITECTURE_DEFAULTS,
    CORPUS_DEFAULTS,
    FEATURES,
    SIZES,
    STAGE_SIZES,
    TASK_DEFAULTS,
    TUNING,
    stage_settings,
)
from .settings import TASKS, Recipe, TrainSettings


def make(task: str, size: str = "small", corpus: str = "", settings: dict[str, Any] | None = None) -> Recipe:
    """A recipe from its layers of values; `settings` come last: {"train.steps": 100, ...}."""
    if task not in TASKS:
        raise BadInput(f'there is no task "{task}"{nearest(task, TASKS)}')
    if size not in SIZES:
        raise BadInput(f'there is no size "{size}"{nearest(size, SIZES)}')
    recipe, given = Recipe(task), settings or {}
    built_in = {"data.corpus": corpus} | CORPUS_DEFAULTS.get(corpus, {})
    architecture = ARCHITECTURE_DEFAULTS.get(str(given.get("model.architecture")), {})
    tagging = FEATURES | {"train.hide": 0.0} if task == "tag" and given.get("train.from_folder") else {}
    tuning = TUNING.get(str(given.get("train.tune")), {})
    sizes = SIZES[size]
    if task == "text-to-image":
        stage = given.get("train.stage", TrainSettings.stage)
        sizes = stage_settings(stage, size) if stage in tuple(STAGE_SIZES) else {}
    for layer in (TASK_DEFAULTS[task], sizes, built_in, architecture, tagging, tuning, given):
        for key, value in layer.items():
            recipe = changed(recipe, key, value)
    check_settings(recipe, given)
    if "train.warmup" not in given and not recipe.train.minutes:
        recipe = with_warmup(recipe)
    return consistent(recipe)


def with_warmup(recipe: Recipe) -> Recipe:
    """The recipe with a warm-up of at most a quarter of its steps: a short run must learn too."""
    usual = TASK_DEFAULTS[recipe.task] | CORPUS_DEFAULTS.get(recipe.data.corpus, {})
    if recipe.train.warmup != usual.get("train.warmup", TrainSettings.warmup):
        return recipe  # somebody chose it
    return changed(recipe, "train.warmup", min(recipe.train.warmup, recipe.train.steps // 4))


def changed(recipe: Recipe, key: str, value: Any) -> Recipe:
    """The recipe with one value changed, which may be text; wrong names, types and numbers are refused."""
    part, _, name = key.partition(".")
    known = known_settings()
    if key not in known:
        raise BadInput(f"there is no setting {unknown(key, known)}")
    section = getattr(recipe, part)
    return replace(recipe, **{part: replace(section, **{name: convert(key, known[key], value)})})


@cache
def known_settings() -> dict[str, Any]:
    """{"part.name": its type with its range} of every setting."""
    return {
        f"{part}.{name}": hint
        for part, kind in typing.get_type_hints(Recipe).items()
        if part != "task"
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
    }


def unknown(key: str, known: Collection[str]) -> str:
    """A name that is none, and what was probably meant: a name of another part, or one spelled alike."""
    told = f'"{key}"' if key.isprintable() and len(key) < 100 else short(key)
    part, _, name = key.rpartition(".")
    elsewhere = [other for other in known if other.rpartition(".")[2] == name]
    if len(elsewhere) == 1:
        return f'{told}; did you mean "{elsewhere[0]}"?'
    beside = [other.removeprefix(f"{part}.") for other in known if part and other.startswith(f"{part}.")]
    if beside and not get_close_matches(name, beside):  # alike in nothing but their part
        return f"{told}; {part} has {', '.join(beside)}"
    return f"{told}{nearest(key, known)}"


def convert(key: str, hint: Any, value: Any) -> Any:
    """A value of the kind a setting has, from text or JSON."""
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise BadInput(f"{key} must be one of {', '.join(choices)}, not {short(value)}")
        return value
    kind, limits = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint, None)
    try:
        found = READERS[kind](value)
        if limits is not None and found not in limits:
            raise ValueError
        return found
    except (ValueError, KeyError, TypeError, OverflowError):
        wanted = f"{NAMES[kind]} {limits}" if limits is not None else NAMES[kind]
        raise BadInput(f"{key} must be {wanted}, not {short(value)}") from None


def read_truth(value: Any) -> bool:
    return {"true": True, "false": False}[str(value).lower()]


def read_whole(value: Any) -> int:
    number = int(value) if isinstance(value, str) else value
    if type(number) is not int:  # True is one, too
        raise TypeError
    return number


def read_number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def read_words(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a recipe is written in UTF-8, and not every file name can be
    return value


READERS = {bool: read_truth, int: read_whole, float: read_number, str: read_words}
NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text in UTF-8"}


def parse_settings(given: list[str]) -> dict[str, str]:
    """`part.name=value` words to a dict."""
    settings = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"--set takes part.name=value, not {word!r}")
        settings[key.strip()] = value.strip()
    return settings


def to_json(recipe: Recipe) -> dict[str, Any]:
    return asdict(recipe)


def from_json(found: dict[str, Any]) -> Recipe:
    """A recipe read back; parts and settings that there never were are refused."""
    recipe = Recipe(found.get("task", ""))
    if recipe.task not in TASKS:
        raise BadInput(f"a recipe has no task {unknown(str(recipe.task), TASKS)}")
    parts = [part.name for part in fields(Recipe) if part.name != "task"]
    for part, section in found.items():
        if part == "task":
            continue
        if part not in parts:
            raise BadInput(f"a recipe has no part {unknown(part, parts)}")
        if not isinstance(section, dict):
            raise BadInput(f"the part {part} of a recipe must be an object {{...}}, not {short(section)}")
        for name, value in section.items():
            recipe = changed(recipe, f"{part}.{name}", value)
    return consistent(recipe)
