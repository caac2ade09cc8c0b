"""Settings of recipes: wrong values, the ends of ranges, and names that are almost right."""

import math
import os

import pytest
from helpers.recipes import every_setting, made_for

from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.models.base.settings import Derived
from heedful.tasks import find_task, recipe

SETTINGS = every_setting()
NUMBERS = [name for name, (*_, known) in SETTINGS.items() if known.limits is not None]
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


def refused(task, architecture, key, value, *said):
    """It is refused in one short line that names the setting, what it may be, and what it was."""
    with pytest.raises(BadInput) as caught:
        made_for(task, architecture, settings={key: value})
    message = str(caught.value)
    assert message.isprintable() and len(message) < 300
    for what in (key, *said):
        assert what in message, message


@pytest.mark.parametrize("name", SETTINGS)
def test_a_wrong_value_is_refused_by_name_or_is_right(name):
    """Every setting times odd values: either the value is one the setting can have, or the error names it."""
    key, task, architecture, known = SETTINGS[name]
    refusals = 0
    for value in ODD:
        try:
            found = known.convert(key, value)
        except BadInput as error:
            assert key in str(error) and str(error).isprintable() and len(str(error)) < 300
            refusals += 1
            with pytest.raises(BadInput):
                made_for(task, architecture, settings={key: value})
        else:
            assert type(found) is known.kind or (found is None and known.optional)
            assert known.limits is None or found is None or found in known.limits
            assert known.kind is not str or found is None or found.encode() is not None
    assert refusals >= 8 - known.optional  # no text is None, a list, an object, a number, half a character


@pytest.mark.parametrize("name", NUMBERS)
def test_the_ends_of_a_range_are_where_it_says(name):
    key, task, architecture, known = SETTINGS[name]
    limits, kind = known.limits, known.kind
    least, most = kind(limits.least), kind(limits.most)
    below = least - 1 if kind is int else math.nextafter(least, -math.inf)
    above = most + 1 if kind is int else math.nextafter(most, math.inf)
    for value, inside in (
        (least, limits.ends[0] == "["),
        (most, limits.ends[1] == "]"),
        (below, False),
        (above, False),
    ):
        if inside:
            assert known.convert(key, value) == value
        else:
            refused(task, architecture, key, value, f"{limits.least:,}", str(limits), repr(value)[:8])


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
    "model.dropout": 1,
    "train.beta2": 1,
    "train.label_smoothing": 1,
    "train.ema_decay": 1,
    "train.min_lr_ratio": 1.01,
    "train.seed": 2**63,
    "train.minutes": -1,
    "train.warmup_steps": -1,
    "train.max_grad_norm": -1,
    "train.weight_decay": -1,
    "evaluate.examples": -1,
}


@pytest.mark.parametrize("key", NEVER)
def test_what_makes_no_sense_is_refused_with_the_range(key):
    known = recipe.known_settings(find_task("translate"), "transformer")[key]
    for value in (NEVER[key], str(NEVER[key]), "nan"):
        refused("translate", "transformer", key, value, "must be a", str(known.limits), repr(value)[:8])


def test_heads_must_divide_the_width():
    with pytest.raises(BadInput, match="^transformer: a width of 256 cannot be divided into 7 heads"):
        recipe.make("translate", settings={"model.heads": 7})
    with pytest.raises(BadInput, match="^gpt2: a width of 16 cannot be divided into 3 heads"):
        recipe.make("lm", settings={"model.heads": 3, "model.width": 16})
    assert recipe.make("lm", settings={"model.heads": 3, "model.width": 15}).model.heads == 3


def test_a_choice_is_refused_with_the_choices():
    refused("lm", "gpt2", "data.tokenizer", "bpee", "bpe, wordpiece, char, word, spaced", "'bpee'")
    refused("lm", "gpt2", "train.schedule", 3, "noam, cosine", "3")
    refused("lm", "gpt2", "data.lowercase", "maybe", "true or false", "'maybe'")


def test_auto_leaves_a_derived_setting_to_follow_from_the_others():
    known = recipe.known_settings(find_task("lm"), "gpt2")
    name = next(key for key, setting in known.items() if isinstance(setting.default, Derived))
    made = recipe.make("lm", settings={"model.width": 24, name: "auto"})
    assert made.model.sizes[name.removeprefix("model.")] == known[name].default.compute(made.model)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_near_miss_is_suggested(name):
    key, task, architecture, _ = SETTINGS[name]
    known = recipe.known_settings(find_task(task), architecture)
    part, word = key.split(".")
    half = len(word) // 2
    misses = {f"{part}.{word[:half]}{word[half + 1 :]}", f"{part}.{word}s", f"{part}.{word[0]}{word}"}
    if architecture or part != "model":
        for miss in misses - known.keys():
            with pytest.raises(BadInput, match=f'has no setting "{miss}"; did you mean "{key}"'):
                made_for(task, architecture, settings={miss: 1})
    if sum(other.endswith(f".{word}") for other in known) == 1:
        for miss in (word, f"elsewhere.{word}"):
            with pytest.raises(BadInput, match=f'has no setting "{miss}"; did you mean "{key}"'):
                made_for(task, architecture, settings={miss: 1})


@pytest.mark.parametrize("name", SETTINGS)
def test_the_command_line_says_so_too_and_makes_nothing(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    key, task, architecture, known = SETTINGS[name]
    wrong = "x" if known.choices else "\udce9" if known.kind is str else ""
    chosen = ["--architecture", architecture] if architecture and key != "train.from" else []
    command = ["train", task, "--run", "new", *chosen]
    assert main([*command, f"--set={key}={wrong}"]) == 2
    assert main([*command, f"--set={key}xx=1"]) == 2
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert out == "" and first.startswith(f"error: {key} must be ")
    assert f'has no setting "{key}xx"; did you mean "{key}"?' in second
    assert os.listdir() == []


def test_near_misses_are_suggested():
    for key, meant in (
        ("model.head", "model.heads"),
        ("train.step", "train.steps"),
        ("chekpoint.every", "checkpoint.every"),
    ):
        with pytest.raises(BadInput, match=f'has no setting "{key}"; did you mean "{meant}"'):
            recipe.make("translate", settings={key: 1})
    with pytest.raises(BadInput, match='translate has no setting "train.qqq"; train has steps, minutes, .*'):
        recipe.make("translate", settings={"train.qqq": 1})
    with pytest.raises(BadInput, match='translate has no setting "qqq"; there are data.corpus, '):
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
