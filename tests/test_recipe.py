"""Recipes: layers of values, strict names and kinds, and the way to JSON and back."""

import json

import pytest

from heedful import recipe
from heedful.errors import BadInput


def every_setting() -> dict[str, object]:
    found = recipe.to_json(recipe.make("translate"))
    return {
        f"{part}.{name}": value
        for part, section in found.items()
        if part != "task"
        for name, value in section.items()
    }


def test_later_layers_win():
    made = recipe.make("lm", "tiny", "phrasebook", {"model.width": "96", "train.rate": 0.5})
    assert made.model.width == 96  # the setting, over the size's 128
    assert made.model.layers == 2  # the size
    assert made.train.rate == 0.5  # the setting, over the corpus's
    assert made.train.steps == 1500  # the corpus
    assert made.train.smoothing == 0.0  # the task
    assert made.train.clip == recipe.Train().clip  # the default


def test_recipes_go_to_json_and_back():
    for task in recipe.TASKS:
        for size in recipe.SIZES:
            made = recipe.make(task, size)
            assert recipe.from_json(json.loads(json.dumps(recipe.to_json(made)))) == made


@pytest.mark.parametrize("key", every_setting())
@pytest.mark.parametrize(
    "value", [None, [], {}, "nonsense", "nan", "-1", -1, float("inf"), float("nan"), 2**63, "", True, 1.5]
)
def test_a_wrong_value_is_refused_by_name_or_is_right(key, value):
    """Every setting times odd values: either the value is one the setting can have, or the error names it."""
    kind = type(every_setting()[key])
    try:
        made = recipe.make("translate", settings={key: value})
    except BadInput as error:
        assert key in str(error) and "\n" not in str(error)
    else:
        part, name = key.split(".")
        found = getattr(getattr(made, part), name)
        assert type(found) is kind and (kind is str or 0 <= found < float("inf"))


def test_near_misses_are_suggested():
    for key, meant in (
        ("model.head", "model.heads"),
        ("train.step", "train.steps"),
        ("chekpoint.every", "checkpoint.every"),
    ):
        with pytest.raises(BadInput, match=f'no setting "{key}"; did you mean "{meant}"'):
            recipe.make("translate", settings={key: 1})
    with pytest.raises(BadInput, match='no task "translat"; did you mean "translate"'):
        recipe.make("translat")
    with pytest.raises(BadInput, match='no size "smal"; did you mean "small"'):
        recipe.make("lm", "smal")
    with pytest.raises(BadInput, match='no part "modell"; did you mean "model"'):
        recipe.from_json({"task": "lm", "modell": {}})
    with pytest.raises(BadInput, match="part.name=value"):
        recipe.parse_settings(["model.heads"])
    assert recipe.parse_settings(["a.b=c=d", " x.y = 3 "]) == {"a.b": "c=d", "x.y": "3"}
