"""What was published of the training of GPT: data, tokens, batches and compute. The figures and their sources
are in published.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("published.json")


@dataclass(frozen=True)
class PublishedTraining:
    """How a preset was trained, as it was published.

    Attributes:
        batch: Tokens of a step.
        flops: FLOPs of the training.
        tokens: Tokens read in training; None where nothing was published.

    Example:
        >>> published_trainings()["gpt3-175b"].tokens
        300000000000.0
    """

    batch: int
    flops: float
    tokens: float | None = None


@dataclass(frozen=True)
class Generation:
    """A line of the lectures' table."""

    name: str
    year: int
    data: str
    cost: str
    said: float | None = None  # parameters as they are printed
    preset: str | None = None
    training: PublishedTraining | None = None


@cache
def generations() -> tuple[Generation, ...]:
    """GPT-1 to GPT-4 as the lectures show them."""
    found = []
    for row in json.loads(TABLE.read_text(encoding="utf-8"))["models"]:
        training = {name: row.pop(name) for name in ("batch", "flops", "tokens") if name in row}
        found.append(Generation(**row, training=PublishedTraining(**training) if training else None))
    return tuple(found)


@cache
def published_trainings() -> dict[str, PublishedTraining]:
    """What was published of the training of presets.

    Returns:
        `PublishedTraining` by preset.

    Example:
        >>> sorted(published_trainings())[0]
        'gpt1'
    """
    sizes = json.loads(TABLE.read_text(encoding="utf-8"))["sizes"]
    known = {one.preset: one.training for one in generations() if one.preset and one.training}
    return known | {preset: PublishedTraining(**row) for preset, row in sizes.items()}
