"""Defaults that depend on what is known before the first step: the device, the data, and how long a run is.

Only settings that nobody gave are chosen, and each choice that people may wonder about comes with its reason,
for the printed plan.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import changed
from .settings import Recipe

EVALUATIONS = 10  # of a run
MOST_DROPOUT = 0.4


@dataclass(frozen=True)
class DataSize:
    """How much there is to learn from."""

    examples: int
    tokens: int  # that are predicted in one pass over all of them
    unit: str  # what an example is, in the plural


@dataclass(frozen=True)
class Choice:
    """A setting, its value, and why."""

    key: str
    value: Any
    reason: str = ""  # "" where it goes without saying
    follows: str = ""  # another setting: this one is chosen only where that one is


def apply(recipe: Recipe, choices: Iterable[Choice], fixed: Iterable[str] = ()) -> tuple[Recipe, list[str]]:
    """The recipe with these values where nobody gave others, and the reasons as sentences."""
    closed = {*(recipe.given or ()), *fixed}
    reasons = []
    for choice in choices:
        part, _, name = choice.key.partition(".")
        if closed & {choice.key, choice.follows} or (part == "model" and name not in recipe.model.sizes):
            continue
        recipe = changed(recipe, choice.key, choice.value)
        if choice.reason:
            reasons.append(f"{name} {shown(choice.value)}: {choice.reason}")
    return recipe, reasons


def shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()


# What a task chooses, in pieces.


def with_batch(recipe: Recipe, tokens: int) -> Recipe:
    """The recipe with another number of tokens a step, where nobody gave one."""
    if "train.batch_tokens" in (recipe.given or ()):
        return recipe
    return replace(recipe, train=replace(recipe.train, batch_tokens=tokens))


def steps_for(recipe: Recipe, size: DataSize, epochs: int, most: int) -> Iterator[Choice]:
    """As many steps as so many passes over the data take, within reason."""
    batch = recipe.train.batch_tokens
    steps = max(1, min(most, math.ceil(epochs * size.tokens / batch)))
    yield Choice("train.steps", steps, f"{passes(recipe, size, steps)} of {batch:,} tokens per step")


def passes(recipe: Recipe, size: DataSize, steps: int) -> str:
    epochs = steps * recipe.train.batch_tokens / size.tokens
    return f"{epochs:,.1f} passes over {size.examples:,} {size.unit}"


def dropout_for(epochs: float, less: float = 0.0) -> float:
    """0.1 log2(epochs / 3), from 0 to 0.4, in steps of 0.05: what is seen often is learned by heart.

    Measured on Multi30k, 7,000 and 29,000 pairs, 3 to 187 epochs: epochs decide, not the number of pairs.
    """
    wanted = 0.1 * math.log2(max(epochs, 1e-9) / 3) - less
    return round(20 * min(max(wanted, 0.0), MOST_DROPOUT)) / 20


def dropout_by_epochs(recipe: Recipe, size: DataSize, less: float = 0.0) -> Iterator[Choice]:
    """Dropout by how often every example will be seen. A small model needs less."""
    epochs = recipe.train.steps * recipe.train.batch_tokens / size.tokens
    rate = dropout_for(epochs, less)
    reason = f"{size.examples:,} {size.unit} will be seen {epochs:,.1f} times"
    sizes = recipe.model.sizes
    together = sizes.get("attention_dropout") == sizes.get("dropout")  # one follows the other
    yield Choice("model.dropout", rate, reason)
    if together:
        yield Choice("model.attention_dropout", rate, follows="model.dropout")


# What every run chooses.

CHOSEN = {  # and by what, for help; {default} is the value of the recipe
    "train.warmup_steps": "{default}, or a quarter of all steps where that is less",
    "train.precision": "bf16 on a GPU, {default} elsewhere",
    "train.compile": "true on a GPU where it pays",
    "evaluate.every": "a tenth of all steps",
}


def choose_precision(device: str) -> Iterator[Choice]:
    if device == "cuda":
        yield Choice("train.precision", "bf16")


def choose_length(recipe: Recipe) -> Iterator[Choice]:
    """What follows from the number of steps: warm-up and evaluations."""
    t = recipe.train
    yield Choice("train.warmup_steps", min(t.warmup_steps, t.steps // 4))


def choose_evaluations(recipe: Recipe) -> Iterator[Choice]:
    yield Choice("evaluate.every", max(1, -(-recipe.train.steps // EVALUATIONS)))


COMPILED_FROM = 1500  # steps; compiling takes half a minute or more


def choose_compiling(recipe: Recipe, device: str, steady: bool) -> Iterator[Choice]:
    """Compile where every batch has one shape and there are steps enough to earn the time back."""
    if device == "cuda" and steady and recipe.train.steps >= COMPILED_FROM:
        yield Choice(
            "train.compile", True, "every batch has the same shape, and the run is long enough to pay"
        )
