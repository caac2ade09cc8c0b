"""What is compared: variants over a shared base, on one budget, with several seeds.

A variant is a name and what differs from the base: `part.name=value` settings, or the recipe of a run that
is there. What all must share is refused in a variant: the data and their tokenizer, the seeds, the budget,
how the models are judged. A learning rate may be several, `train.learning_rate=2e-3,6e-3`: each variant then
uses the one that is best for it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import naming, one_line, present, read_json
from ..interop.run_folder import RECIPE
from ..tasks import find_task
from ..tasks.recipe import (
    ARCHITECTURE,
    chosen_architecture,
    from_json,
    known_settings,
    make,
    parse_settings,
    to_json,
)
from ..tasks.recipe.settings import Recipe

# What variants share, and why; the rest of a recipe may differ.
SHARED = {
    "data.": "all variants read the same data",
    "train.seed": "all variants have the same seeds",
    "train.steps": "all variants have the same budget",
    "train.minutes": "all variants have the same budget",
    "train.from": "all variants start from scratch",
    "evaluate.": "all variants are evaluated in the same way",
    "checkpoint.": "all variants are saved in the same way",
}
BUDGETS = ("steps", "tokens", "flops")
MOST_SEEDS = 100
RATE, MOST_RATES = "train.learning_rate", 10
RATE_SEED = MOST_SEEDS  # learning rates are chosen with a seed that no variant is judged by


@dataclass(frozen=True)
class ModelVariant:
    """A name, and what makes it differ from the base."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name as one of a folder."""
        return re.sub(r"[^\w.+=-]+", "-", self.name).strip("-.") or "variant"


@dataclass(frozen=True)
class Comparison:
    """A comparison, as it was asked for."""

    task: str
    size: str
    corpus: str
    base: dict[str, Any]  # settings that all share
    variants: tuple[ModelVariant, ...]
    budget: tuple[str, float] | None  # steps, tokens or flops, and how many; None: the base's steps
    seeds: int

    def recipe(
        self, variant: ModelVariant, seed: int = 0, steps: int | None = None, rate: Any = None
    ) -> Recipe:
        """The recipe of a trial; what does not fit together is refused by the variant's name. rate: the
        learning rate, by default the first of the variant's."""
        settings = {**self.fitting(variant), **variant.settings, "train.seed": seed}
        settings |= {} if steps is None else {"train.steps": steps}
        if RATE in settings:
            settings[RATE] = several(settings[RATE])[0] if rate is None else rate
        try:
            return make(self.task, self.size, self.corpus, settings)
        except BadInput as error:
            raise BadInput(f"variant {variant.name}: {error}") from None

    def rates(self, variant: ModelVariant) -> tuple[float, ...]:
        """The learning rates that are tried for a variant; a single one is used as it is."""
        given = {**self.base, **variant.settings}.get(RATE)
        found = [self.recipe(variant, rate=one).train.learning_rate for one in several(given)]
        if len(set(found)) < len(found) or len(found) > MOST_RATES:
            wanted = f"takes from 1 to {MOST_RATES} learning rates that all differ"
            raise BadInput(f"variant {variant.name}: {RATE} {wanted}, not {str(given)[:80]}")
        return tuple(found)

    def fitting(self, variant: ModelVariant) -> dict[str, Any]:
        """The settings of the base that the variant's architecture has; others concern other variants."""
        task = find_task(self.task)
        architecture = chosen_architecture(task, {**self.base, **variant.settings})
        known = known_settings(task, architecture).keys() | {ARCHITECTURE}
        apart = any(ARCHITECTURE in other.settings for other in self.variants)
        fits = {key for key in known if task.concerns(key, architecture)}
        return {key: value for key, value in self.base.items() if key in fits or not apart}


def check(asked: Comparison) -> None:
    """Refuse a comparison that would compare nothing, or not like with like."""
    if len(asked.variants) < 2:
        example = '--variant base --variant "rotary: model.positions=rotary"'
        raise BadInput(f"a comparison needs two variants or more, such as {example}")
    if not 1 <= asked.seeds <= MOST_SEEDS:
        raise BadInput(f"--seeds is from 1 to {MOST_SEEDS}, not {asked.seeds}")
    for names in ([v.name for v in asked.variants], [v.folder.casefold() for v in asked.variants]):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadInput(one_line(f'two variants are called "{twice}": give one another name'))
    for variant in asked.variants:
        for key in variant.settings:
            why = next((why for shared, why in SHARED.items() if key.startswith(shared)), None)
            if why is not None:
                raise BadInput(f"variant {variant.name} sets {key}, but {why}: give it once, by --set")
    for key in asked.base:
        if not any(key in asked.fitting(variant) for variant in asked.variants):
            raise BadInput(f"none of these variants has a setting {key}: leave it out")
    recipes = {
        variant.name: (asked.rates(variant), to_json(asked.recipe(variant))) for variant in asked.variants
    }
    for first, second in combinations(recipes, 2):
        if recipes[first] == recipes[second]:
            raise BadInput(f"variants {first} and {second} are the same: change or remove one of them")


# Reading variants.


def several(value: Any) -> list[Any]:
    """A setting with one value, or with several between commas."""
    return value.split(",") if isinstance(value, str) else [value]


def read_variant(text: str, task: str) -> ModelVariant:
    """`NAME: part.name=value ...`, `part.name=value ...` (which is then its name too), or `NAME` alone: the
    base."""
    name, colon, rest = text.partition(":")
    if "=" in name or (not colon and "=" in text):
        name, rest = text, text
    name = " ".join(name.split())
    if not name or not name.isprintable() or len(name) > 60:
        wanted = '"NAME: part.name=value ...", with a name of at most 60 characters'
        raise BadInput(f"--variant takes {wanted}, not {text[:80]!r}")
    try:
        words = shlex.split(rest)
    except ValueError:
        raise BadInput(f"--variant {name}: a quote is opened and not closed in {rest[:80]!r}") from None
    settings: dict[str, Any] = {}
    for word in words:
        settings |= parse_settings([word]) if "=" in word else settings_of_run(Path(word), task, name)
    try:
        for rate in several(settings.get(RATE)):
            make(task, settings=settings | ({} if rate is None else {RATE: rate}))
    except BadInput as error:
        raise BadInput(f"variant {name}: {error}") from None
    return ModelVariant(name, settings)


def settings_of_run(path: Path, task: str, name: str) -> dict[str, Any]:
    """The sizes and the training of a run's recipe: all of it that variants need not share."""
    file = path / RECIPE if path.is_dir() else path
    if not present(file):
        raise BadInput(
            one_line(f"variant {name}: {path} is neither part.name=value nor a run with a {RECIPE}")
        )
    with naming(file):
        found = read_json(file)
        recipe = from_json({part: value for part, value in found.items() if part != "facts"})
    if recipe.task != task:
        raise BadInput(one_line(f"variant {name}: {path} is a run of {recipe.task}, not of {task}"))
    architecture = {ARCHITECTURE: recipe.model.architecture}
    plain, mine = to_json(make(task, settings=architecture)), to_json(recipe)
    differs = {
        f"{part}.{key}": value
        for part in ("model", "train")
        for key, value in mine[part].items()
        if plain[part].get(key) != value
    }
    return architecture | {k: v for k, v in differs.items() if not k.startswith(tuple(SHARED))}


# Comparisons that are built in.


@dataclass(frozen=True)
class BuiltInComparison:
    """A comparison by name."""

    task: str
    corpus: str
    size: str
    steps: int
    base: dict[str, Any]


# Small enough for a laptop: narrow and shallow, one optimizer for all. Recurrent models want a higher rate
# than Transformers, so each variant tries two.
BUILT_IN = {
    "history": BuiltInComparison(
        task="translate",
        corpus="phrasebook",
        size="tiny",
        steps=1000,
        base={
            "model.width": 64,
            "model.ffn_width": 256,
            "train.batch_tokens": 512,
            "train.optimizer": "adamw",
            "train.learning_rate": "2e-3,6e-3",
            "train.warmup_steps": 100,
            "evaluate.every": 250,
        },
    )
}

# What came before the Transformer, by its architecture, in the order of the lectures.
HISTORY = (
    ("RNN", "seq2seq"),
    ("RNN with attention", "bahdanau"),
    ("ConvS2S", "convs2s"),
)


# The Transformer with each notion of position that the lectures show.
LECTURED = ("none", "sinusoidal", "learned", "concatenated", "shaw", "structural")


def built_in_variants(name: str) -> list[ModelVariant]:
    """The variants of a built-in comparison: the architectures and the positions of the lectures."""
    before = [ModelVariant(told, {"model.architecture": architecture}) for told, architecture in HISTORY]
    return [*before, *(ModelVariant(f"Transformer, {one}", {"model.positions": one}) for one in LECTURED)]
