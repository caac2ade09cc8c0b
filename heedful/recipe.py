"""Recipes: exactly what was asked of a training run, defaults filled in. Numbers and names only; no torch here.

Values come from, in rising order: the task's defaults, the size, a recipe file, `--set part.name=value`, options.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from .errors import BadInput
from .models import nearest

TASKS = ("translate", "lm", "mlm", "classify")


@dataclass(frozen=True)
class Data:
    """Where examples come from and how they become numbers."""

    corpus: str = ""  # a built-in one: phrasebook, pylib
    source: str = ""  # files with one sentence a line
    target: str = ""
    valid_source: str = ""
    valid_target: str = ""
    text: str = ""  # a file or folder, for language models
    valid_text: str = ""  # without it, the last 10 % of the text
    pairs: bool = False  # mlm: also tell whether one span of text follows another
    table: str = ""  # classify: rows of texts and labels, tab-separated under a header or JSON objects
    valid_table: str = ""
    text_column: str = ""  # without it, "sentence" or "text", whichever is there
    pair_column: str = ""  # a second text, to be judged together with the first
    label_column: str = "label"
    vocab: Literal["bpe", "wordpiece", "char", "word"] = "bpe"
    vocab_size: int = 8000
    lower: bool = False
    longest: int = 256  # tokens; longer examples are left out (classify: cut) and counted
    bad_lines: Literal["drop", "refuse"] = "drop"


@dataclass(frozen=True)
class Model:
    """Sizes of the model; what they are the sizes of is the task's choice."""

    layers: int = 4
    width: int = 256
    heads: int = 4
    hidden: int = 1024
    context: int = 256  # tokens a language model sees at once
    dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"


@dataclass(frozen=True)
class Train:
    """How it is trained."""

    steps: int = 10000
    minutes: float = 0.0  # instead of steps: as many as fit, from a rate measured before the first
    batch_tokens: int = 4096  # target tokens a step, about
    accumulate: int = 1  # micro-batches a step
    rate: float = 1e-3
    warmup: int = 400
    schedule: Literal["noam", "cosine", "linear", "wsd", "constant"] = "cosine"
    floor: float = 0.05  # where the schedule ends, as a share of the rate
    optimiser: Literal["adamw", "muon"] = "adamw"
    decay: float = 0.01
    beta2: float = 0.98
    clip: float = 1.0
    smoothing: float = 0.1
    from_folder: str = ""  # classify: the model to start from, a run or a Hugging Face folder
    lm_weight: float = 0.5  # classify, from a decoder: what its language-model loss counts (GPT-1's lambda)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """When state is saved, and how much is kept."""

    every: int = 500
    keep: int = 2


@dataclass(frozen=True)
class Evaluate:
    """When the model is tried on held-out examples."""

    every: int = 500
    examples: int = 3  # shown each time
    rows: int = 500  # held-out rows tried each time


@dataclass(frozen=True)
class Recipe:
    """Everything."""

    task: str
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    train: Train = field(default_factory=Train)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    evaluate: Evaluate = field(default_factory=Evaluate)


# What differs from the defaults above, by task and by size.

TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "translate": {},
    "lm": {"model.activation": "gelu_tanh", "train.smoothing": 0.0, "train.decay": 0.1},
    "mlm": {
        "model.activation": "gelu", "model.norm": "post", "train.smoothing": 0.0, "train.rate": 5e-4,
        "train.schedule": "linear",
    },
    "classify": {
        "model.activation": "gelu", "model.norm": "post", "train.smoothing": 0.0, "train.rate": 3e-4,
        "train.schedule": "linear", "train.steps": 1000, "train.warmup": 100, "train.batch_tokens": 2048,
        "evaluate.every": 100, "checkpoint.every": 250,
    },
}  # fmt: skip

# For published models, which are large and know much already (BERT's advice: 2 to 5e-5).
FINE_TUNING: dict[str, Any] = {"train.rate": 5e-5}

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"model.layers": 2, "model.width": 128, "model.heads": 4, "model.hidden": 512},
    "small": {"model.layers": 4, "model.width": 256, "model.heads": 4, "model.hidden": 1024},
    "base": {"model.layers": 6, "model.width": 512, "model.heads": 8, "model.hidden": 2048},
    "large": {"model.layers": 6, "model.width": 1024, "model.heads": 16, "model.hidden": 4096},
}

CORPUS_DEFAULTS: dict[str, dict[str, Any]] = {
    "phrasebook": {
        "data.vocab": "word", "data.vocab_size": 4000, "model.dropout": 0.0, "train.smoothing": 0.0,
        "train.steps": 1500, "train.batch_tokens": 1024, "train.rate": 3e-3, "train.warmup": 150,
        "evaluate.rows": 200,
    },
    "pylib": {"data.vocab_size": 4000},
}  # fmt: skip


def make(task: str, size: str = "small", corpus: str = "", settings: dict[str, Any] | None = None) -> Recipe:
    """A recipe from its layers of values; `settings` come last: {"train.steps": 100, ...}."""
    if task not in TASKS:
        raise BadInput(f'there is no task "{task}"{nearest(task, TASKS)}')
    if size not in SIZES:
        raise BadInput(f'there is no size "{size}"{nearest(size, SIZES)}')
    recipe = Recipe(task)
    built_in = {"data.corpus": corpus} | CORPUS_DEFAULTS.get(corpus, {})
    for layer in (TASK_DEFAULTS[task], SIZES[size], built_in, settings or {}):
        for key, value in layer.items():
            recipe = changed(recipe, key, value)
    return recipe


def changed(recipe: Recipe, key: str, value: Any) -> Recipe:
    """The recipe with one value changed, which may come as text; wrong names and kinds are refused."""
    part, _, name = key.partition(".")
    known = {
        f"{p.name}.{f.name}": f
        for p in fields(Recipe)
        if p.name != "task"
        for f in fields(getattr(recipe, p.name))
    }
    if key not in known:
        raise BadInput(f'there is no setting "{key}"{nearest(key, known)}')
    section = getattr(recipe, part)
    hint = typing.get_type_hints(type(section))[name]
    return replace(recipe, **{part: replace(section, **{name: convert(key, hint, value)})})


def convert(key: str, hint: Any, value: Any) -> Any:
    """A value of the kind a setting has, from text or JSON."""
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise BadInput(f"{key} is one of {', '.join(choices)}, not {value!r}")
        return value
    try:
        if hint is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if hint is int:
            number = int(value) if isinstance(value, str) else value
            if type(number) is not int or not 0 <= number < 2**63:
                raise ValueError
            return number
        if hint is float:
            number = float(value)
            if isinstance(value, bool) or not 0 <= number < float("inf"):
                raise ValueError
            return number
        if hint is str and isinstance(value, str):
            return value
        raise TypeError
    except (ValueError, KeyError, TypeError):
        names = {bool: "true or false", int: "a whole number", float: "a number of at least 0", str: "text"}
        raise BadInput(f"{key} must be {names[hint]}, not {value!r}") from None


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
    """A recipe read back; unknown parts and settings are refused."""
    recipe = Recipe(found.get("task", ""))
    if recipe.task not in TASKS:
        raise BadInput(f"the recipe's task is {recipe.task!r}{nearest(str(recipe.task), TASKS)}")
    parts = {f.name for f in dataclasses.fields(Recipe)} - {"task"}
    for part, section in found.items():
        if part == "task":
            continue
        if part not in parts or not isinstance(section, dict):
            raise BadInput(f'a recipe has no part "{part}"{nearest(part, parts)}')
        for name, value in section.items():
            recipe = changed(recipe, f"{part}.{name}", value)
    return recipe
