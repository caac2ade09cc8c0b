"""Recipes: layers of values, the settings of a task and its architecture, and the way to JSON and back."""

import ast
import dataclasses
import json
import re
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path

import pytest
import torch
from helpers.recipes import BUILT, STARTED, every_setting, made_for

from heedful.cli.demo import DEMO
from heedful.errors import BadInput
from heedful.models.base.settings import settings_of
from heedful.tasks import find_task, recipe, task_files
from heedful.tasks.recipe.settings import CheckpointSettings, EvaluateSettings, TrainSettings
from heedful.tasks.recipe.sizes import SIZES

PACKAGE = Path(recipe.__file__).parents[2]


# Layers of values.


def test_later_layers_win():
    made = recipe.make("lm", "tiny", "phrasebook", {"model.width": "96", "train.learning_rate": 0.5})
    assert made.model.width == 96  # given, over the size's 128
    assert made.model.layers == 2  # the size's
    assert made.train.learning_rate == 0.5  # given, over the corpus's
    assert made.train.steps == find_task("lm").corpora["phrasebook"].settings["train.steps"]
    assert made.train.optimizer == settings_of(find_task("lm").train)["optimizer"].default
    assert made.train.max_grad_norm == TrainSettings().max_grad_norm  # every task's
    assert made.given == {"model.width", "train.learning_rate", "data.corpus"}


def test_an_architecture_changes_what_the_size_says_and_is_changed_by_what_was_given():
    assert recipe.make("translate", "tiny").model.context == 1024 != SIZES["tiny"]["context"]
    assert recipe.make("translate", "tiny", settings={"model.context": 77}).model.context == 77
    recurrent = recipe.make("translate", "large", settings={"model.architecture": "luong"})
    assert recurrent.model.layers == 2 != SIZES["large"]["layers"]


def test_the_demo_is_as_it_was_measured():
    made = recipe.make("translate", "tiny", "phrasebook", DEMO)
    assert (made.train.steps, made.train.warmup_steps, made.train.learning_rate) == (4500, 150, 8e-3)
    assert made.model.positions == "sinusoidal"  # what other tools have too


def test_the_documentation_has_the_sizes_as_they_are():
    text = (PACKAGE.parent / "docs" / "howto" / "training.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert {size: [int(n) for n in numbers] for size, *numbers in rows} == {
        size: [settings[name] for name in ("layers", "width", "heads", "ffn_width")]
        for size, settings in SIZES.items()
    }


def test_a_size_is_also_a_preset_of_the_architecture():
    made = recipe.make("lm", "gpt2-medium")
    assert (made.model.layers, made.model.width, made.model.heads) == (24, 1024, 16)
    with pytest.raises(BadInput, match='there is no size "gpt2-medium"'):
        recipe.make("lm", "gpt2-medium", settings={"model.architecture": "llama"})
    with pytest.raises(BadInput, match='no size "gpt2-mediun"; did you mean "gpt2-medium"'):
        recipe.make("lm", "gpt2-mediun")


def test_a_corpus_has_other_defaults_in_some_tasks():
    masked, classified = (recipe.make(task, "tiny", "phrasebook") for task in ("mlm", "classify"))
    assert masked.train.optimizer == "adamw" and classified.train.optimizer == "muon"
    assert masked.data.tokenizer == classified.data.tokenizer == "word"
    assert classified.train.steps < recipe.make("translate", "tiny", "phrasebook").train.steps


def test_a_corpus_that_a_task_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(BadInput, match='classify has no built-in corpus "facts"; it has phrasebook$'):
        recipe.make("classify", corpus="facts")
    with pytest.raises(BadInput, match='lm has no built-in corpus "x"; it has pylib and stories and phrase'):
        recipe.make("lm", settings={"data.corpus": "x"})


def test_the_rate_of_noam_is_a_factor():
    assert recipe.make("translate", settings={"train.schedule": "noam"}).train.learning_rate == 1.0
    given = {"train.schedule": "noam", "train.learning_rate": 0.3}
    assert recipe.make("translate", settings=given).train.learning_rate == 0.3


def test_weights_are_averaged_in_one_way():
    with pytest.raises(BadInput, match="train.ema_decay and train.average_checkpoints average weights twice"):
        recipe.make("lm", settings={"train.ema_decay": 0.9, "train.average_checkpoints": 3})


# Settings belong to a task and to an architecture.


@cache
def read_names(name: str) -> frozenset[str]:
    """Every name after a dot in a module, and in those of heedful.tasks and heedful.data that it imports."""
    module = import_module(name)
    tree = ast.parse(Path(module.__file__).read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            other = resolve_name("." * node.level + node.module, module.__package__)
            if other.startswith(("heedful.tasks.", "heedful.data.")):
                names |= read_names(other)
    return frozenset(names)


EVERY_RUN = [f"heedful.runs.{name}" for name in ("setup", "training", "trainer", "resume", "clock")]


@pytest.mark.parametrize("task", task_files())
def test_every_setting_of_a_task_is_read_by_it_or_by_every_run(task):
    names = read_names(f"heedful.tasks.{task_files()[task]}").union(*map(read_names, EVERY_RUN))
    found = find_task(task)
    for kind in (found.data, found.train, EvaluateSettings, CheckpointSettings):
        unread = {field.name for field in dataclasses.fields(kind)} - names
        assert not unread, f"{kind.__name__} of {task} has settings that nobody reads: {sorted(unread)}"


@pytest.mark.parametrize("task, architecture", BUILT)
def test_every_setting_of_an_architecture_is_a_field_of_its_config(task, architecture):
    known = recipe.known_settings(find_task(task), architecture)
    sizes = recipe.to_json(made_for(task, architecture))["model"]
    assert {key for key in known if key.startswith("model.")} == {
        f"model.{name}" for name in sizes if name != "architecture"
    }


@pytest.mark.parametrize("name", every_setting())
def test_every_setting_says_what_it_means_and_every_number_has_a_range(name):
    *_, known = every_setting()[name]
    assert known.help and known.help == known.help.strip(" .")
    assert (known.limits is not None) == (known.kind in (int, float)), "Annotated[..., Range(...)]"


OF_OTHERS = {
    ("translate", "data.text"): 'translate has no setting "data.text"; did you mean "data.target"?',
    ("lm", "train.word_dropout"): 'lm has no setting "train.word_dropout"; did you mean ',
    ("parse", "data.pairs"): 'parse has no setting "data.pairs"; data has ',
    ("image-classify", "data.tokenizer"): 'image-classify has no setting "data.tokenizer"; data has ',
    (
        "lm",
        "model.memory_length",
    ): 'lm with gpt2 has no setting "model.memory_length"; it is for --architecture xl',
    (
        "translate",
        "model.top_k",
    ): 'translate with transformer has no setting "model.top_k"; it is for --architecture mix',
    ("text-to-image-codes", "model.heads"): 'codes with dvae has no setting "model.heads"; model has ',
    ("elmo", "train.from"): "elmo cannot start from a model: leave out --from",
}


@pytest.mark.parametrize("task, key", OF_OTHERS)
def test_a_setting_of_another_task_is_refused_with_those_that_are_there(task, key):
    with pytest.raises(BadInput) as caught:
        recipe.make(task, settings={key: 3})
    assert OF_OTHERS[task, key] in str(caught.value)


def test_a_model_to_start_from_keeps_its_sizes():
    with pytest.raises(BadInput, match="^model.width cannot be set with --from: sizes come with the model"):
        recipe.make("lm", settings={"train.from": "there", "model.width": 12})
    with pytest.raises(
        BadInput, match="^model.architecture cannot be set with --from: it comes with the mod"
    ):
        recipe.make("lm", settings={"train.from": "there", "model.architecture": "gpt2"})
    with pytest.raises(BadInput, match="^parse cannot start from a model: leave out --fr"):
        recipe.make("parse", settings={"train.from": "there"})
    made = recipe.make("lm", settings={"train.from": "there", "model.dropout": 0.3})
    assert (made.model.architecture, made.model.sizes) == ("", {"dropout": 0.3})


def test_a_published_model_and_ways_of_tuning_have_rates_of_their_own():
    def rate(**train) -> tuple[str, float]:
        made = recipe.make("classify", settings={f"train.{name}": value for name, value in train.items()})
        return made.train.optimizer, made.train.learning_rate

    published = find_task("classify").starts.published["train.learning_rate"]
    assert rate(**{"from": "there"}) == ("adamw", published)
    assert rate(**{"from": "there", "tune": "head"}) == ("adamw", 1e-3)
    assert rate(**{"from": "there", "tune": "lora"}) == ("adamw", 5e-4)
    assert rate(**{"from": "there", "tune": "lora", "learning_rate": 0.25}) == ("adamw", 0.25)


def test_adapters_are_for_lora_and_tuning_is_for_a_model_to_start_from():
    with pytest.raises(BadInput, match="train.tune=head needs a model to start from: give --from FOLDER"):
        recipe.make("classify", settings={"train.tune": "head"})
    with pytest.raises(BadInput, match="train.lora_rank is for LoRA: give --tune lora too"):
        recipe.make("classify", settings={"train.from": "there", "train.lora_rank": 3})
    lora = {"train.from": "there", "train.tune": "lora"}
    for layers in ("", "query,values", " , "):
        with pytest.raises(
            BadInput, match="train.lora_layers names layers of a block, with commas .* down; n"
        ):
            recipe.make("classify", settings={**lora, "train.lora_layers": layers})


def test_an_architecture_that_a_task_cannot_train_is_refused_with_those_it_can():
    with pytest.raises(BadInput, match="lm cannot train the architecture bart: it can train gpt2, llama, "):
        recipe.make("lm", settings={"model.architecture": "bart"})
    with pytest.raises(BadInput, match='there is no architecture "lama"; did you mean "llama"'):
        recipe.make("lm", settings={"model.architecture": "lama"})
    with pytest.raises(
        BadInput, match="translate cannot train the architecture gpt2: it can train transform"
    ):
        recipe.from_json({"task": "translate", "model": {"architecture": "gpt2"}})


# To JSON and back.


@pytest.mark.parametrize("task, architecture", [*BUILT, *STARTED])
def test_recipes_go_to_json_and_back(task, architecture):
    found = find_task(task)
    for size in found.sizes:
        for corpus in ("", *found.corpora):
            made = made_for(task, architecture, size, corpus)
            written = json.loads(json.dumps(recipe.to_json(made)))
            assert recipe.from_json(written) == made
            fixed = dataclasses.replace(made, given=None)
            assert "given" not in recipe.to_json(fixed)
            assert recipe.from_json(recipe.to_json(fixed)) == fixed != made


@pytest.mark.parametrize("task, architecture", [*BUILT, *STARTED])
def test_every_default_is_a_value_that_can_be_set(task, architecture):
    for corpus in ("", *find_task(task).corpora):
        made = again = made_for(task, architecture, corpus=corpus)
        for part, section in recipe.to_json(made).items():
            if part in recipe.PARTS:
                for name, value in section.items():
                    if name != "architecture":
                        again = recipe.changed(again, f"{part}.{name}", value)
        assert again == made


def test_from_is_called_so_in_json_and_in_settings():
    made = recipe.make("lm", settings={"train.from": "there"})
    assert recipe.to_json(made)["train"]["from"] == made.train.from_ == "there"
    assert recipe.changed(made, "train.from", "elsewhere").train.from_ == "elsewhere"


RECIPES = {
    "no object": ({"task": "lm", "model": [1]}, "the part model of a recipe must be an object"),
    "no task": ({}, 'a recipe has no task ""'),
    "odd task": ({"task": ["lm"]}, "a recipe has no task"),
    "near task": ({"task": "ml"}, 'no task "ml"; did you mean "mlm"'),
    "part": ({"task": "lm", "modle": {}}, 'a recipe has no part "modle"; did you mean "model"'),
    "setting": (
        {"task": "lm", "model": {"architecture": "gpt2", "head": 3}},
        'no setting "model.head"; did you mean "model.heads"',
    ),
    "setting of another": (
        {"task": "lm", "model": {"architecture": "gru", "heads": 3}},
        'no setting "model.heads"; model has context, layers, width, dropout',
    ),
    "architecture": ({"task": "lm", "model": {"architecture": "t5"}}, "lm cannot train the architecture t5"),
    "given": ({"task": "lm", "given": {"a": 1}}, "the part given of a recipe must be a list of settings"),
    "long name": ({"task": "lm", "x" * 10**6: {}}, "a recipe has no part 'xxxxx"),
    "strange name": ({"task": "lm", "model": {"\x1b[31m\n": 3}}, "a recipe has no setting"),
    "deep": (
        {"task": "lm", "model": {"architecture": "gpt2", "heads": [[[[[[]]]]]]}},
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


def test_three_matrices_of_a_feed_forward_layer_are_as_large_as_two():
    for size in ("tiny", "small", "base", "large"):
        two, three = (
            recipe.make("lm", size, settings={"model.architecture": name}).model.sizes["ffn_width"]
            for name in ("gpt2", "llama")
        )
        assert 3 * three >= 2 * two > 3 * (three - 8) and three % 8 == 0
    given = recipe.make("lm", "tiny", settings={"model.architecture": "llama", "model.ffn_width": 100})
    assert given.model.sizes["ffn_width"] == 100


def test_dropout_of_llama_survives_the_way_to_hugging_face_and_back():
    from heedful.models import llama

    sizes = {"vocab": 11, "layers": 1, "width": 8, "heads": 2, "ffn_width": 16}
    for rate in (0.0, 0.25):
        config = llama.LlamaConfig(**sizes, dropout=rate)
        theirs = llama.write_config(config)
        assert llama.read_config(theirs) == config and ("resid_pdrop" in theirs) == bool(rate)
    model = llama.build(config)
    rates = [module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    assert rates.count(0.25) == 3  # of the inputs, and around each layer
