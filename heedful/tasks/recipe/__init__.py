"""Recipes: what was asked of a training run, defaults filled in. Numbers and names only; no torch here.

Values come from, in rising order: the task's defaults, the size, a recipe file, `--set part.name=value`,
options.
"""

from __future__ import annotations

import typing
from dataclasses import asdict, fields, replace
from functools import cache
from keyword import iskeyword
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import Any

from ...errors import BadInput
from ...models import nearest
from ...models.base.settings import read_hint, unknown
from .checks import check_settings, consistent
from .presets import (
    ARCHITECTURE_DEFAULTS,
    CORPUS_DEFAULTS,
    CORPUS_TASK_DEFAULTS,
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
    built_in = {"data.corpus": corpus} | corpus_defaults(task, corpus)
    architecture = ARCHITECTURE_DEFAULTS.get(str(given.get("model.architecture")), {})
    tagging = FEATURES | {"train.word_dropout": 0.0} if task == "tag" and given.get("train.from") else {}
    tuning = TUNING.get(str(given.get("train.tune")), {})
    factor = {"train.learning_rate": 1.0} if given.get("train.schedule") == "noam" else {}
    sizes = SIZES[size]
    if task == "text-to-image":
        stage = given.get("train.stage", TrainSettings.stage)
        sizes = stage_settings(stage, size) if stage in tuple(STAGE_SIZES) else {}
    for layer in (TASK_DEFAULTS[task], sizes, built_in, architecture, tagging, tuning, factor, given):
        for key, value in layer.items():
            recipe = changed(recipe, key, value)
    check_settings(recipe, given)
    if "train.warmup_steps" not in given and not recipe.train.minutes:
        recipe = with_warmup(recipe)
    return consistent(recipe)


def corpus_defaults(task: str, corpus: str) -> dict[str, Any]:
    """What differs for a built-in corpus, in all tasks and in this one."""
    return CORPUS_DEFAULTS.get(corpus, {}) | CORPUS_TASK_DEFAULTS.get((corpus, task), {})


def with_warmup(recipe: Recipe) -> Recipe:
    """The recipe with a warm-up of at most a quarter of its steps: a short run must learn too."""
    usual = TASK_DEFAULTS[recipe.task] | corpus_defaults(recipe.task, recipe.data.corpus)
    if recipe.train.warmup_steps != usual.get("train.warmup_steps", TrainSettings.warmup_steps):
        return recipe  # somebody chose it
    return changed(recipe, "train.warmup_steps", min(recipe.train.warmup_steps, recipe.train.steps // 4))


def changed(recipe: Recipe, key: str, value: Any) -> Recipe:
    """The recipe with one value changed, which may be text; wrong names, types and numbers are refused."""
    part, _, name = key.partition(".")
    known = known_settings()
    if key not in known:
        raise BadInput(f"there is no setting {unknown(key, known)}")
    section = getattr(recipe, part)
    field = f"{name}_" if iskeyword(name) else name
    return replace(recipe, **{part: replace(section, **{field: convert(key, known[key], value)})})


@cache
def known_settings() -> dict[str, Any]:
    """{"part.name": its type with its range} of every setting."""
    return {
        f"{part}.{name.rstrip('_')}": hint
        for part, kind in typing.get_type_hints(Recipe).items()
        if part != "task"
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
    }


def convert(key: str, hint: Any, value: Any) -> Any:
    """A value of the kind a setting has, from text or JSON."""
    setting = read_hint(key, hint)
    assert setting is not None
    return setting.convert(key, value)


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
    return {
        part: {name.rstrip("_"): value for name, value in found.items()} if isinstance(found, dict) else found
        for part, found in asdict(recipe).items()
    }


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
