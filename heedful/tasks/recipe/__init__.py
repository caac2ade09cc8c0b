"""Recipes: what was asked of a training run, with every default filled in.

Values come from, in rising order: the task's dataclasses and the architecture's Config, the size, what the
task changes for the architecture, for a built-in corpus and for tuning, and what somebody gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from reprlib import repr as short  # a hostile value may be a megabyte long
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...models import config_class
from ...models.base.config import model_settings
from ...models.base.settings import Setting, settings_of, unknown
from ...train.parallel.way import read_way
from .. import find_task, task_files
from .settings import LORA_LAYERS, CheckpointSettings, EvaluateSettings, ModelSettings, Recipe, lora_layers

if TYPE_CHECKING:
    from ..task import Task

PARTS = ("data", "model", "train", "evaluate", "checkpoint")
ARCHITECTURE = "model.architecture"
FEW = 3  # architectures that an error names
BUILT_AT_ONCE = 64  # layers; to find out whether a model can be built must not take long
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")  # what a model to start from can be given
TOKENIZER = ("data.tokenizer", "data.vocab_size", "data.lowercase")
TUNING: dict[str, dict[str, Any]] = {  # a new head and adapters learn faster than what is there already
    "head": {"train.optimizer": "adamw", "train.learning_rate": 1e-3},
    "lora": {"train.optimizer": "adamw", "train.learning_rate": 5e-4},
}


def make(
    task: str, size: str = "small", corpus: str = "", settings: Mapping[str, Any] | None = None
) -> Recipe:
    """Make a recipe: every setting of a run, from its task, its size and the settings that are given.

    Defaults come from the task and the architecture. A size, a built-in corpus and a model to start from
    change some of them, and `settings` come last.

    Args:
        task: Name of a task, such as "translate" or "lm"; `heedful.tasks.summaries` lists them.
        size: "tiny", "small", "base" or "large", or a preset of the architecture such as "gpt2-medium".
        corpus: A built-in corpus, such as "phrasebook"; "" for files of your own.
        settings: Values by "part.name", such as {"train.steps": 100, "data.text": "book.txt"}.
            "model.architecture" chooses the architecture, "train.from" a model to start from.

    Returns:
        `Recipe`. `heedful.runs.trainer.start` trains by it.

    Raises:
        BadInput: There is no such setting, or a value does not fit; the message says what does.

    Example:
        >>> asked = make("translate", corpus="phrasebook", settings={"train.steps": 200, "model.layers": 2})
        >>> asked.train.steps, asked.model.layers, asked.data.tokenizer
        (200, 2, 'word')
    """
    found, given = find_task(task), dict(settings or {})
    if corpus:
        given.setdefault("data.corpus", corpus)
    architecture = chosen_architecture(found, given)
    known = known_settings(found, architecture)
    starts = bool(given.get("train.from")) and found.starts is not None
    for key in given:
        if starts and key in TOKENIZER:
            raise BadInput(f"{key} cannot be set with --from: the tokenizer comes with the model there")
        if key not in known and key != ARCHITECTURE:
            raise BadInput(not_there(key, found, architecture, known))
    layers = [
        found.size(size, architecture),
        {f"model.{name}": value for name, value in found.architectures.get(architecture, {}).items()},
        found.corpus_settings(str(given.get("data.corpus", ""))),
        found.tuning_settings(given) if given.get("train.from") else {},
        TUNING.get(str(given.get("train.tune")), {}),
        found.adapter_settings(given),
        {"train.learning_rate": 1.0} if given.get("train.schedule") == "noam" else {},  # a factor there
    ]
    values = {key: value for layer in layers for key, value in layer.items() if key in known}
    values |= {key: value for key, value in given.items() if key != ARCHITECTURE}
    recipe = one_average(filled(found, architecture, known, values), given)
    return checked(found, replace(recipe, given=frozenset(given)))


def one_average(recipe: Recipe, given: Mapping[str, Any]) -> Recipe:
    """Weights are averaged once: a given average of checkpoints replaces a moving average by default."""
    if recipe.train.average_checkpoints and "train.ema_decay" not in given:
        return replace(recipe, train=replace(recipe.train, ema_decay=0.0))
    return recipe


def chosen_architecture(task: Task, given: Mapping[str, Any]) -> str:
    """The architecture that was asked for, or the task's first; none where a model is started from."""
    chosen = given.get(ARCHITECTURE)
    means_another = task.starts is None and "from" in settings_of(task.train)  # a setting of its own
    if given.get("train.from") and not means_another:
        return task.started_architecture(str(given["train.from"]), chosen)
    return task.check_architecture(str(chosen)) if chosen else next(iter(task.architectures))


def known_settings(task: Task, architecture: str) -> dict[str, Setting]:
    """{"part.name": setting} of everything that can be set for a task and an architecture."""
    parts = {
        "data": settings_of(task.data),
        "model": model_settings(config_class(architecture)) if architecture else dropout_settings(),
        "train": settings_of(task.train),
        "evaluate": settings_of(EvaluateSettings),
        "checkpoint": settings_of(CheckpointSettings),
    }
    return {f"{part}.{name}": found for part, some in parts.items() for name, found in some.items()}


def dropout_settings() -> dict[str, Setting]:
    """The settings of a model that is started from."""
    known = model_settings(config_class("gpt2")) | model_settings(config_class("transformer"))
    return {name: known[name] for name in DROPOUTS if name in known}


def not_there(key: str, task: Task, architecture: str, known: Mapping[str, Setting]) -> str:
    """Why there is no such setting, and what was probably meant."""
    part = key.partition(".")[0]
    if part == "model" and not architecture:
        return f"{key} cannot be set with --from: sizes come with the model to start from"
    whose = f"{task.name} with {architecture}" if part == "model" else task.name
    has = [name for name in task.all_architectures() if part == "model" and key in known_settings(task, name)]
    others = [name for name in has if name in task.architectures] or has
    if 1 <= len(others) <= FEW:
        return f'{whose} has no setting "{key}"; it is for --architecture {" or ".join(others)}'
    return f"{whose} has no setting {unknown(key, list(known))}"


def filled(task: Task, architecture: str, known: Mapping[str, Setting], values: Mapping[str, Any]) -> Recipe:
    """The recipe of these values, with the defaults of all others."""
    parts: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for key, value in values.items():
        part, _, name = key.partition(".")
        parts[part][name] = known[key].convert(key, value)
    data = task.data(**fields_of(parts["data"], task.data))
    sizes = parts["model"]
    if architecture:
        sizes = model_sizes(architecture, sizes, data.config_fields())
    return Recipe(
        task.name,
        data,
        ModelSettings(architecture, sizes),
        task.train(**fields_of(parts["train"], task.train)),
        CheckpointSettings(**parts["checkpoint"]),
        EvaluateSettings(**parts["evaluate"]),
    )


def model_sizes(architecture: str, values: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of an architecture's Config, as they come out with these values and what the data say."""
    kind = config_class(architecture)
    names = {field.name for field in fields(kind)}
    try:
        config = kind(**{**values, **{name: value for name, value in known.items() if name in names}})
    except ValueError as error:
        raise BadInput(f"{architecture}: {error}") from None
    return {name: getattr(config, name) for name in model_settings(kind)}


def fields_of(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Values by the names of fields: `from` is called `from_`, since Python keeps the word for itself."""
    names = {field.name.rstrip("_"): field.name for field in fields(kind)}
    return {names[name]: value for name, value in values.items()}


def checked(task: Task, recipe: Recipe) -> Recipe:
    """The recipe, if its settings fit together."""
    t = recipe.train
    if t.ema_decay and t.average_checkpoints:
        raise BadInput(
            "train.ema_decay and train.average_checkpoints average weights twice: give one of them"
        )
    read_way(t.parallel)
    check_tuning(recipe)
    check_corpus(task, recipe.data.corpus)
    task.check(recipe)
    check_config(recipe)
    return recipe


def check_config(recipe: Recipe) -> None:
    """Refuse sizes that the architecture's Config refuses, and given ones that no model can be built of."""
    from ...models.base.skeleton import skeleton  # and torch with it, which help does not need

    m = recipe.model
    if not m.architecture:
        return
    kind = config_class(m.architecture)
    names = {field.name for field in fields(kind)}
    known = {name: value for name, value in recipe.data.config_fields().items() if name in names}
    given = any(key.startswith("model.") for key in set(recipe.given or ()) - {ARCHITECTURE})
    try:
        config = kind(**{**m.sizes, **known})
        if given and getattr(config, "layers", 0) <= BUILT_AT_ONCE:
            skeleton(m.architecture, config)
    except ValueError as error:
        raise BadInput(f"{m.architecture}: {error}") from None


def check_corpus(task: Task, corpus: str) -> None:
    if corpus and corpus not in task.corpora:
        there = f"it has {' and '.join(task.corpora)}" if task.corpora else "it has none"
        raise BadInput(f'{task.name} has no built-in corpus "{corpus}"; {there}')


def check_tuning(recipe: Recipe) -> None:
    """Refuse tuning without a model to start from, adapters without LoRA, and layers that do not exist."""
    t = recipe.train
    if getattr(t, "tune", "whole") != "whole" and not t.from_:
        raise BadInput(
            f"train.tune={t.tune} needs a model to start from: give --from FOLDER, or leave it out"
        )
    adapters = [key for key in recipe.given or () if key.startswith("train.lora_")]
    if adapters and t.tune != "lora":
        raise BadInput(f"{min(adapters)} is for LoRA: give --tune lora too, or leave it out")
    if getattr(t, "tune", "") == "lora":
        named = set(lora_layers(t))
        if not named or not named <= set(LORA_LAYERS):
            raise BadInput(
                f"train.lora_layers names layers of a block, with commas between them: "
                f"{', '.join(LORA_LAYERS)}; not {short(t.lora_layers)}"
            )


# Changing and writing recipes


def changed(recipe: Recipe, key: str, value: Any) -> Recipe:
    """Change one setting of a recipe.

    Args:
        recipe: The recipe, which stays as it is.
        key: The setting, as "part.name".
        value: The value, or the text of one.

    Returns:
        A new recipe.

    Raises:
        BadInput: There is no such setting, or the value does not fit.

    Example:
        >>> changed(make("lm"), "train.steps", "50").train.steps
        50
    """
    task = find_task(recipe.task)
    known = known_settings(task, recipe.model.architecture)
    if key not in known:
        raise BadInput(not_there(key, task, recipe.model.architecture, known))
    part, _, name = key.partition(".")
    new = known[key].convert(key, value)
    if part == "model":
        return replace(recipe, model=replace(recipe.model, sizes={**recipe.model.sizes, name: new}))
    section = getattr(recipe, part)
    return replace(recipe, **{part: replace(section, **fields_of({name: new}, type(section)))})


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
    """A recipe as recipe.json has it.

    Args:
        recipe: The recipe.

    Returns:
        A dictionary of texts, numbers and dictionaries, which `from_json` reads.

    Example:
        >>> sorted(to_json(make("lm")))
        ['checkpoint', 'data', 'evaluate', 'given', 'model', 'task', 'train']
    """
    found = {
        part: {name.rstrip("_"): value for name, value in asdict(getattr(recipe, part)).items()}
        for part in PARTS
        if part != "model"
    }
    model = {"architecture": recipe.model.architecture, **recipe.model.sizes}
    open_ = {} if recipe.given is None else {"given": sorted(recipe.given)}
    return {"task": recipe.task, "data": found.pop("data"), "model": model, **found, **open_}


def from_json(found: Mapping[str, Any]) -> Recipe:
    """A recipe from what `to_json` gave. Parts and settings that do not exist are refused.

    Args:
        found: The content of recipe.json, without "facts".

    Returns:
        `Recipe`.

    Raises:
        BadInput: A task, part or setting does not exist, or a value does not fit.

    Example:
        >>> from_json(to_json(make("lm", "tiny"))) == make("lm", "tiny")
        True
    """
    task = find_task_in(found)
    sections = {part: section for part, section in found.items() if part not in ("task", "given")}
    for part, section in sections.items():
        if part not in PARTS:
            raise BadInput(f"a recipe has no part {unknown(part, PARTS)}")
        if not isinstance(section, dict):
            raise BadInput(f"the part {part} of a recipe must be an object {{...}}, not {short(section)}")
    model = dict(sections.get("model", {}))
    architecture = str(model.pop("architecture", "") or "")
    started = task.starts is not None and sections.get("train", {}).get("from")
    if architecture and not started:
        task.check_architecture(architecture)
    known = known_settings(task, architecture)
    values = {
        f"{part}.{name}": value
        for part, section in {**sections, "model": model}.items()
        for name, value in section.items()
    }
    for key in values:
        if key not in known:
            raise BadInput(f"a recipe has no setting {unknown(key, list(known))}")
    recipe = filled(task, architecture, known, values)
    given = found.get("given")
    if given is not None and not (isinstance(given, list) and all(isinstance(key, str) for key in given)):
        raise BadInput(f"the part given of a recipe must be a list of settings, not {short(given)}")
    return checked(task, replace(recipe, given=None if given is None else frozenset(given)))


def find_task_in(found: Mapping[str, Any]) -> Task:
    """The task that a recipe names."""
    name = found.get("task", "")
    if not isinstance(name, str) or name not in task_files():
        raise BadInput(f"a recipe has no task {unknown(str(name), list(task_files()))}")
    return find_task(name)
