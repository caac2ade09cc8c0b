"""Recipes: layers of values, strict names and kinds, and the way to JSON and back."""

import json
import math
import os
import re
import typing
from pathlib import Path

import pytest
from heedful.tasks.recipe.checks import LORA, OF_FEATURES, ONLY_AT, ONLY_FOR, ONLY_IN, RELATIVE
from heedful.tasks.recipe.presets import CORPUS_DEFAULTS, DEMO, SIZES

from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.tasks import recipe
from heedful.tasks.recipe.settings import TASKS, TrainSettings


def every_setting() -> dict[str, object]:
    found = recipe.to_json(recipe.make("translate"))
    return {
        f"{part}.{name}": value
        for part, section in found.items()
        if part != "task"
        for name, value in section.items()
    }


def test_later_layers_win():
    made = recipe.make("lm", "tiny", "phrasebook", {"model.width": "96", "train.learning_rate": 0.5})
    assert made.model.width == 96  # the setting, over the size's 128
    assert made.model.layers == 2  # the size
    assert made.train.learning_rate == 0.5  # the setting, over the corpus's
    assert made.train.steps == CORPUS_DEFAULTS["phrasebook"]["train.steps"] != TrainSettings().steps
    assert made.train.label_smoothing == 0.0  # the task
    assert made.train.max_grad_norm == TrainSettings().clip  # the default


def test_a_short_run_warms_up_for_a_quarter_of_its_steps_unless_told_otherwise():
    def warmup(task, corpus="", **train):
        settings = {f"train.{name}": value for name, value in train.items()}
        return recipe.make(task, "tiny", corpus, settings).train.warmup_steps

    assert warmup("lm") == warmup("lm", steps=1600) == TrainSettings().warmup == 400
    assert warmup("lm", steps=60) == 15 and warmup("lm", steps="1599") == 399 and warmup("lm", steps=3) == 0
    assert warmup("lm", steps=60, warmup=400) == 400 and warmup("lm", steps=60, warmup="0") == 0
    assert warmup("classify") == 100 and warmup("classify", steps=200) == 50
    assert warmup("translate", "phrasebook") == 150 and warmup("translate", "phrasebook", steps=600) == 150
    assert warmup("translate", "phrasebook", steps=100) == 25
    assert warmup("lm", steps=60, minutes=1) == 400  # nobody knows yet how many steps there will be


def test_the_demo_is_as_it_was_measured():
    made = recipe.make("translate", "tiny", "phrasebook", DEMO)
    assert (made.train.steps, made.train.warmup_steps, made.train.learning_rate) == (4500, 150, 8e-3)
    assert made.model.positions == "sinusoidal"  # what other tools have too


def test_the_documentation_has_the_sizes_as_they_are():
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert {size: [int(n) for n in numbers] for size, *numbers in rows} == {
        size: list(settings.values()) for size, settings in SIZES.items()
    }


def test_a_corpus_has_other_defaults_in_some_tasks():
    masked, classified = (recipe.make(task, "tiny", "phrasebook") for task in ("mlm", "classify"))
    assert masked.train.optimizer == "adamw" and classified.train.optimizer == "muon"
    assert masked.data.tokenizer == classified.data.tokenizer == "word"
    assert classified.train.steps < recipe.make("translate", "tiny", "phrasebook").train.steps


def test_recipes_go_to_json_and_back():
    for task in TASKS:
        for size in SIZES:
            made = recipe.make(task, size)
            assert recipe.from_json(json.loads(json.dumps(recipe.to_json(made)))) == made


SETTINGS = recipe.known_settings()
NUMBERS = {
    key: (kind, limits)
    for key, hint in SETTINGS.items()
    if typing.get_origin(hint) is typing.Annotated
    for kind, limits in [typing.get_args(hint)]
}
ODD = [
    None,
    [],
    {},
    [1],
    "nonsense",
    "nan",
    "-inf",
    "-1",
    -1,
    0,
    "0",
    0.0,
    -0.5,
    math.inf,
    -math.inf,
    math.nan,
    2**63,
    -(2**63),
    10**400,
    1e308,
    "9" * 5000,
    "1e400",
    "",
    " ",
    True,
    1.5,
    "1.5",
    "\ud800",
    "x" * 100_000,
    "a\nb\x1b[31m",
    (1, 2),
    b"1",
]


def refused(key, value, *said):
    """It is refused in one short line that names the setting, what it may be, and what it was."""
    with pytest.raises(BadInput) as caught:
        recipe.make(ONLY_FOR.get(key, ["translate"])[0], settings={key: value})
    message = str(caught.value)
    assert message.isprintable() and len(message) < 300
    for what in (key, *said):
        assert what in message, message


def test_every_number_has_a_range():
    for key, value in every_setting().items():
        assert (key in NUMBERS) == (type(value) in (int, float)), f"{key} needs Annotated[..., Range(...)]"


def test_every_default_is_in_its_range():
    for task in TASKS:
        for size in SIZES:
            for corpus in ("", *CORPUS_DEFAULTS):
                made = recipe.make(task, size, corpus)
                again = made
                for part, section in recipe.to_json(made).items():
                    for name, value in section.items() if part != "task" else ():
                        again = recipe.changed(again, f"{part}.{name}", value)
                assert again == made


@pytest.mark.parametrize("key", every_setting())
def test_a_wrong_value_is_refused_by_name_or_is_right(key):
    """Every setting times odd values: either the value is one the setting can have, or the error names it."""
    kind, refusals = type(every_setting()[key]), 0
    for value in ODD:
        try:
            made = recipe.make(ONLY_FOR.get(key, ["translate"])[0], settings={key: value})
        except BadInput as error:
            assert key in str(error) and str(error).isprintable() and len(str(error)) < 300
            refusals += 1
        else:
            part, name = key.split(".")
            found = getattr(getattr(made, part), name)
            assert type(found) is kind
            assert key not in NUMBERS or found in NUMBERS[key][1]
            assert kind is not str or found.encode() is not None
    assert refusals >= 8  # at least: no text is None, a list, an object, a number, half a character


@pytest.mark.parametrize("key", NUMBERS)
def test_the_ends_of_a_range_are_where_it_says(key):
    kind, limits = NUMBERS[key]
    least, most = kind(limits.least), kind(limits.most)
    below = least - 1 if kind is int else math.nextafter(least, -math.inf)
    above = most + 1 if kind is int else math.nextafter(most, math.inf)
    for value, inside in (
        (least, limits.ends[0] == "["),
        (most, limits.ends[1] == "]"),
        (below, False),
        (above, False),
    ):
        settings = {key: value} | ({"model.width": 1 << 16} if key == "model.heads" else {})
        if key == "model.width":
            settings["model.heads"] = 1
        if key in ONLY_IN:
            settings["model.architecture"] = ONLY_IN[key][0]
        if settings.get("model.architecture") == "mixture":
            settings = {"model.experts": 4096, "model.top_k": 1} | settings
        if key in OF_FEATURES:
            settings["train.from"] = "runs/elmo"
        if key in LORA:
            settings |= {"train.tune": "lora", "train.from": "runs/lm"}
        if key in RELATIVE:
            settings["model.positions"] = RELATIVE[key][0]
        if ONLY_FOR.get(key) == ("text-to-image",):
            settings["train.stage"] = ONLY_AT[key][0]
        if inside:
            part, name = key.split(".")
            assert (
                getattr(getattr(recipe.make(ONLY_FOR.get(key, ["lm"])[0], settings=settings), part), name)
                == value
            )
        else:
            refused(key, value, f"{limits.least:,}", f"{limits.most:,}", str(limits), repr(value)[:8])


# What must never be, whatever else the ranges say.
NEVER = {
    "model.layers": 0,
    "model.width": 0,
    "model.heads": 0,
    "model.ffn_width": 0,
    "model.context": 0,
    "train.steps": 0,
    "train.batch_tokens": 0,
    "train.accumulation_steps": 0,
    "train.learning_rate": 0,
    "checkpoint.every": 0,
    "checkpoint.keep": 0,
    "evaluate.every": 0,
    "evaluate.rows": 0,
    "data.vocab_size": 0,
    "data.max_length": 0,
    "model.dropout": 1,
    "train.beta2": 1,
    "train.label_smoothing": 1,
    "train.min_lr_ratio": 1.01,
    "train.seed": 2**63,
    "train.minutes": -1,
    "train.warmup_steps": -1,
    "train.max_grad_norm": -1,
    "train.weight_decay": -1,
    "train.lm_loss_weight": -1,
    "evaluate.examples": -1,
}


@pytest.mark.parametrize("key", NEVER)
def test_what_makes_no_sense_is_refused_with_the_range(key):
    for value in (NEVER[key], str(NEVER[key]), "nan"):
        refused(key, value, "must be a", str(NUMBERS[key][1]), repr(value)[:8])


def test_heads_must_divide_the_width():
    refused("model.heads", 7, "model.heads must divide model.width", "7 does not divide 256")
    with pytest.raises(BadInput, match="3 does not divide 16"):
        recipe.from_json({"task": "lm", "model": {"heads": 3, "width": 16}})
    assert recipe.make("lm", settings={"model.heads": 3, "model.width": 15}).model.heads == 3


def test_a_choice_is_refused_with_the_choices():
    refused("data.tokenizer", "bpee", "bpe, wordpiece, char, word, spaced", "'bpee'")
    refused("train.schedule", 3, "noam, cosine", "3")
    refused("data.lowercase", "maybe", "true or false", "'maybe'")


@pytest.mark.parametrize("key", SETTINGS)
def test_every_near_miss_is_suggested(key):
    part, name = key.split(".")
    half = len(name) // 2
    misses = {
        f"{part}.{name[:half]}{name[half + 1 :]}",
        f"{part}.{name}s",
        f"{part}.{name[0]}{name}",
    } - SETTINGS.keys()
    for miss in misses:
        with pytest.raises(BadInput, match=f'no setting "{miss}"; did you mean "{key}"'):
            recipe.make("translate", settings={miss: 1})
    if sum(other.endswith(f".{name}") for other in SETTINGS) == 1:
        for miss in (name, f"elsewhere.{name}"):
            with pytest.raises(BadInput, match=f'no setting "{miss}"; did you mean "{key}"'):
                recipe.make("translate", settings={miss: 1})


@pytest.mark.parametrize("key", SETTINGS)
def test_the_command_line_says_so_too_and_makes_nothing(key, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = f"--set={key}="
    value = "" if key in NUMBERS or SETTINGS[key] is bool else "x" if SETTINGS[key] is not str else "\udce9"
    assert main(["train", "lm", "--run", "new", told + value]) == 2
    assert main(["train", "lm", "--run", "new", f"--set={key}x=1"]) == 2
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == "" and first.startswith(f"error: {key} must be ")
    assert second == f'error: there is no setting "{key}x"; did you mean "{key}"?'
    assert os.listdir() == []


RECIPES = {
    "no object": ({"task": "lm", "model": [1]}, "the part model of a recipe must be an object"),
    "no task": ({}, 'a recipe has no task ""'),
    "odd task": ({"task": ["lm"]}, "a recipe has no task"),
    "near task": ({"task": "ml"}, 'no task "ml"; did you mean "mlm"'),
    "part": ({"task": "lm", "modle": {}}, 'a recipe has no part "modle"; did you mean "model"'),
    "setting": ({"task": "lm", "model": {"head": 3}}, 'no setting "model.head"; did you mean "model.heads"'),
    "long name": ({"task": "lm", "x" * 10**6: {}}, "a recipe has no part 'xxxxx"),
    "strange name": ({"task": "lm", "model": {"\x1b[31m\n": 3}}, "there is no setting"),
    "deep": (
        {"task": "lm", "model": {"heads": [[[[[[]]]]]]}},
        "model.heads must be a whole number from 1 to",
    ),
    "integer of many digits": (
        {"task": "lm", "train": {"learning_rate": 10**400}},
        "train.learning_rate must be a number above 0",
    ),
}


@pytest.mark.parametrize("found, said", RECIPES.values(), ids=RECIPES)
def test_a_recipe_that_is_none_is_refused(found, said):
    with pytest.raises(BadInput) as caught:
        recipe.from_json(found)
    assert said in str(caught.value) and str(caught.value).isprintable() and len(str(caught.value)) < 1500


def test_near_misses_are_suggested():
    for key, meant in (
        ("model.head", "model.heads"),
        ("train.step", "train.steps"),
        ("chekpoint.every", "checkpoint.every"),
    ):
        with pytest.raises(BadInput, match=f'no setting "{key}"; did you mean "{meant}"'):
            recipe.make("translate", settings={key: 1})
    with pytest.raises(
        BadInput, match='no setting "train.qqq"; train has steps, minutes, .*, precision, seed$'
    ):
        recipe.make("translate", settings={"train.qqq": 1})
    with pytest.raises(BadInput, match='no setting "qqq"; there are data.corpus, '):
        recipe.make("translate", settings={"qqq": 1})
    with pytest.raises(BadInput, match='no task "translat"; did you mean "translate"'):
        recipe.make("translat")
    with pytest.raises(BadInput, match='no size "smal"; did you mean "small"'):
        recipe.make("lm", "smal")
    with pytest.raises(BadInput, match='no part "modell"; did you mean "model"'):
        recipe.from_json({"task": "lm", "modell": {}})
    with pytest.raises(BadInput, match="part.name=value"):
        recipe.parse_settings(["model.heads"])
    assert recipe.parse_settings(["a.b=c=d", " x.y = 3 "]) == {"a.b": "c=d", "x.y": "3"}
