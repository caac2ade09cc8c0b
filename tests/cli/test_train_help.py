"""`heedful train --help` and `heedful train TASK --help`: what applies, and nothing else, at any width."""

import re
import shlex
import subprocess
import sys

import pytest

from heedful.cli.main import main
from heedful.cli.shared.arguments import options, parse
from heedful.cli.shared.train_help import DATA, OPTION_OF, SETTING_OF, shown_value
from heedful.errors import BadInput
from heedful.models import family
from heedful.tasks import STAGED, STAGES, find_task, recipe, task_files
from heedful.tasks.recipe import choices

PARTS = ("data", "model", "train", "evaluate", "checkpoint")


@pytest.fixture
def help_of(capsys, monkeypatch):
    """The help that these words get, at a width."""

    def call(*words, columns=110):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["train", *words, "--help"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return call


def listed_options(text):
    """The options of a help text, by name."""
    return re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)


def listed_settings(text):
    """{setting: its default} of a help text."""
    return dict(re.findall(rf"^  ((?:{'|'.join(PARTS)})\.[a-z0-9_]+) +(\S+)", text, re.MULTILINE))


def applies(option, task, architecture=""):
    """Whether an option can do something for a task, by what it sets."""
    known = recipe.known_settings(task, architecture or next(iter(task.architectures)))
    name = option[2:].replace("-", "_")
    keys = {f"data.{key}": OPTION_OF.get(key, key) for key in DATA}
    keys |= {key: words.split()[0][2:].replace("-", "_") for words, key in SETTING_OF.items()}
    if name in keys.values():
        return any(key in known for key, of in keys.items() if of == name)
    return name != "architecture" or len(task.all_architectures()) > 1


# Options


@pytest.mark.parametrize("name", task_files())
def test_every_option_that_applies_is_listed_and_no_other(name, help_of):
    task = find_task(name)
    found = listed_options(help_of(name))
    assert sorted(found) == sorted(option for option in options("train") if applies(option, task))


def test_an_option_that_is_not_listed_is_refused(capsys):
    """One of each kind: data of another task, a model to start from, an architecture."""
    for words, said in {
        ("lm", "--source", "a"): 'lm has no setting "data.source"',
        ("elmo", "--tune", "head"): 'elmo has no setting "train.tune"',
        ("tag", "--images", "a"): 'tag has no setting "data.images"',
    }.items():
        assert words[1] not in {option for option in options("train") if applies(option, find_task(words[0]))}
        assert main(["train", *words]) == 2
        assert said in capsys.readouterr().err


def test_sizes_are_those_of_the_task_and_the_presets_of_the_architecture(help_of):
    text = " ".join(help_of("lm", "--architecture", "llama").split())
    presets = ", ".join(family("llama").PRESETS)
    assert f"--size NAME tiny, small, base, large, {presets} (default: small)" in text
    assert "gpt2-medium" in help_of("lm") and "gpt2-medium" not in text


@pytest.mark.parametrize("name", ["lm", "translate", "mlm"])
def test_every_architecture_that_can_be_trained_is_listed(name, help_of):
    said = re.search(r"--architecture NAME +(.+?) \(default: (\w+)\)", " ".join(help_of(name).split()))
    task = find_task(name)
    assert said[1].split(", ") == task.all_architectures() and said[2] == next(iter(task.architectures))
    for architecture in task.all_architectures():
        assert recipe.make(name, settings={"model.architecture": architecture}).model.architecture


# Settings


@pytest.mark.parametrize("name", task_files())
def test_every_setting_is_listed_with_its_default_and_accepted(name, help_of):
    text = help_of(name)
    found, task = listed_settings(text), find_task(name)
    made = recipe.make(name)
    known = recipe.known_settings(task, made.model.architecture)
    as_options = {f"data.{key}" for key in DATA} | {
        key for words, key in SETTING_OF.items() if words.split()[0] in listed_options(text)
    }
    assert found.keys() == known.keys() - as_options
    open_ = {**choices.CHOSEN, **task.chosen}
    values = recipe.to_json(made)
    for key, default in found.items():
        part, _, inner = key.partition(".")
        value = values[part].get(inner)
        if default == "auto":
            assert key in open_ or value in (None, "auto") or key == "model.attention_dropout"
        else:
            assert default == shown_value(value).split()[0]
            assert recipe.changed(made, key, "" if default == '""' else default) == made


def test_defaults_are_those_of_the_architecture_and_the_size_that_are_named(help_of):
    words = ("lm", "--architecture", "llama", "--size", "tiny", "--set", "train.beta2=0.9")
    text = help_of(*words)
    found = listed_settings(text)
    made = recipe.make("lm", "tiny", settings={"model.architecture": "llama"})
    assert "model.rotary_base" in found and found["model.kv_heads"] == str(made.model.kv_heads)
    assert (found["model.width"], found["model.layers"]) == ("128", "2") != ("256", "4")
    assert found["model.activation"] == "silu" and found["train.beta2"] == "0.9"
    assert "of lm with llama" in text


def test_defaults_are_those_of_the_corpus_that_is_named(help_of):
    found = listed_settings(help_of("translate", "--corpus", "phrasebook"))
    assert (found["data.tokenizer"], found["model.dropout"], found["evaluate.rows"]) == ("word", "0", "200")
    assert found["model.attention_dropout"] == "0"  # follows the dropout that the corpus sets
    assert "optimizer steps (default: 3,000)" in help_of("translate", "--corpus", "phrasebook")


def test_what_is_chosen_before_the_first_step_is_auto_until_somebody_sets_it(help_of):
    keys = {"train.warmup_steps", "train.precision", "train.compile", "evaluate.every", "model.dropout"}
    text = help_of("translate")
    assert {key for key, default in listed_settings(text).items() if default == "auto"} >= keys
    assert "optimizer steps (default: 50 passes over the data, at most 10,000 steps)" in text
    assert "auto: bf16 on a GPU, fp32 elsewhere" in " ".join(text.split())
    given = {key: {"train.precision": "bf16", "train.compile": "true"}.get(key, "0.3") for key in keys}
    given |= {"train.warmup_steps": "7", "evaluate.every": "9"}
    found = listed_settings(help_of("translate", *(f"--set={key}={value}" for key, value in given.items())))
    assert {key: found[key] for key in keys} == given


@pytest.mark.parametrize("name", [name for name in task_files() if find_task(name).chosen])
def test_what_help_says_is_chosen_are_settings_of_the_task(name):
    task = find_task(name)
    known = {key for architecture in task.architectures for key in recipe.known_settings(task, architecture)}
    assert task.chosen.keys() <= known and choices.CHOSEN.keys() <= known


def test_words_that_are_wrong_do_not_keep_help_from_answering(help_of):
    assert "of lm with gpt2" in help_of("lm", "--architecture", "llma", "--nothing")


# All stages, all tasks


def test_the_stages_together_have_no_option_of_one_stage(help_of):
    text = help_of(STAGED)
    assert not {"--architecture", "--from", "--tune", "--find-rate"} & set(listed_options(text))
    assert {"--corpus", "--images", "--size", "--steps", "--run"} <= set(listed_options(text))
    assert all(f"{STAGED}-{stage}" in text for stage in STAGES) and listed_settings(text) == {}


def test_all_tasks_are_listed_each_in_a_sentence(help_of):
    text = help_of()
    found = re.findall(r"^  ([a-z-]+)  +\S", text.partition("tasks:")[2], re.MULTILINE)
    assert found == sorted([*(name for name in task_files() if not name.startswith(STAGED)), STAGED])
    assert "None" not in text


@pytest.mark.parametrize("columns", [60, 80, 110])
def test_every_example_can_be_typed(columns, help_of):
    examples = help_of(columns=columns).partition("examples:\n")[2].replace("\\\n", " ")
    assert len(examples.splitlines()) >= 5
    for line in examples.splitlines():
        words = shlex.split(line)
        start = words.index("heedful")
        assert words[start + 1] == "train" and parse("train", words[start + 2 :])


@pytest.mark.parametrize("columns", [60, 80, 100])
@pytest.mark.parametrize("name", ["", "lm", "translate", "image-classify", "span", STAGED])
def test_lines_fit_the_terminal(columns, name, help_of):
    lines = help_of(*filter(None, [name]), columns=columns).splitlines()
    assert max(map(len, lines)) <= columns
    assert max(map(len, lines)) > columns - 12  # and fill it
    assert not any(line != line.rstrip() for line in lines)


def test_parts_are_apart_and_columns_are_aligned(help_of):
    lines = help_of("lm", columns=100).partition("settings and defaults")[2].splitlines()[1:]
    blocks = "\n".join(lines).split("\n\n")
    assert [
        {line.split(".")[0].strip() for line in block.splitlines() if line[2] != " "} for block in blocks
    ] == [{part} for part in PARTS]
    rows = [re.match(r"(  \S+ +)(\S+ +)\S", line) for line in lines if line[2:3].strip()]
    assert len({row.end(1) for row in rows}) == 1 and len({row.end(2) for row in rows}) == 1


def test_no_torch_is_needed_to_list_the_tasks_or_to_begin():
    """The overview ends without torch, and the help of a task says what it is before it imports anything."""
    code = """
import sys
from heedful.cli.shared import train_help
assert list(train_help.overview()) and "torch" not in sys.modules
parts = train_help.task_help("lm", ["lm"])
assert "usage: heedful train lm" in next(parts) and "torch" not in sys.modules
from heedful.cli.main import main
assert main(["train", "--help"]) == 0 and "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: heedful train TASK")


def test_attention_dropout_follows_a_dropout_that_is_given():
    """Chosen are both or neither: the one that somebody sets decides."""
    size = choices.DataSize(10, 100, "pairs")
    sizes = {"model.dropout": 0.2, "train.steps": 100, "train.batch_tokens": 64}
    for settings, expected in ((sizes, (0.2, 0.2)), ({**sizes, "model.dropout": None}, None)):
        given = {key: value for key, value in settings.items() if value is not None}
        made = recipe.make("lm", settings=given)
        found, _ = choices.apply(made, choices.dropout_by_epochs(made, size))
        rates = found.model.dropout, found.model.attention_dropout
        assert rates == expected if expected else rates[0] == rates[1] == choices.dropout_for(64)


def test_a_setting_of_another_architecture_is_refused_with_the_nearest():
    with pytest.raises(
        BadInput, match='lm with gpt2 has no setting "model.kv_heads"; it is for --architecture llama'
    ):
        recipe.make("lm", settings={"model.kv_heads": 2})
