"""What may change between an interruption and --resume: everything is refused or reported.

The tables here are the promise; `heedful/runs/resume.py` keeps it.
"""

import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)

from heedful.errors import BadInput
from heedful.models.base.settings import Setting
from heedful.runs import resume, setup, trainer, training
from heedful.tasks import find_task, recipe, task_files

# Settings. A change of these makes it another run, as does one of the data or the model; a change of those
# only changes the rest of the way.
REFUSED = {
    "train.seed",
    "train.optimizer",
    "train.ema_decay",
    "train.average_checkpoints",
    "train.from",
    "evaluate.rows",
    "train.tune",
    "train.lora_rank",
    "train.lora_alpha",
    "train.lora_dropout",
    "train.lora_layers",
    "train.algorithm",
    "train.reward",
    "train.prompts",
    "train.responses",
    "train.passes",
    "train.updates",
}
WARNED = {
    "train.steps",
    "train.minutes",
    "train.batch_tokens",
    "train.accumulation_steps",
    "train.learning_rate",
    "train.warmup_steps",
    "train.schedule",
    "train.min_lr_ratio",
    "train.weight_decay",
    "train.beta2",
    "train.max_grad_norm",
    "train.label_smoothing",
    "train.lm_loss_weight",
    "train.word_dropout",
    "train.mix_l2",
    "train.text_loss_weight",
    "train.kl_weight",
    "train.kl_warmup_fraction",
    "train.temperature_decay_fraction",
    "train.final_temperature",
    "train.activation_checkpointing",
    "train.compile",
    "train.beta",
    "train.clip",
    "train.temperature",
    "train.discount",
    "train.gae_lambda",
    "train.value_loss_weight",
    "train.parallel",
    "train.precision",
    "checkpoint.every",
    "checkpoint.keep",
    "evaluate.every",
    "evaluate.examples",
    "evaluate.patience",
    "evaluate.choose_by",
}
TRAINABLE = [(task, name) for task in task_files() for name in find_task(task).architectures]


def another(setting: Setting, value: object) -> object:
    """A value that a setting may have, and does not."""
    if setting.choices:
        return next(choice for choice in setting.choices if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "x"
    if value is None:
        return {int: 3, float: 0.5, str: "x", bool: True}[setting.kind]
    tries = [value / 2, 0.5, 0.75] if isinstance(value, float) else [value * 2, 1, value - 1]
    return next(number for number in tries if number != value and number in setting.limits)


def made(task: str, architecture: str) -> recipe.Recipe:
    return recipe.make(task, settings={"model.architecture": architecture})


def test_every_setting_is_in_the_table():
    known = set()
    for task, architecture in TRAINABLE:
        known |= recipe.known_settings(find_task(task), architecture).keys()
    assert REFUSED | WARNED == {key for key in known if not key.startswith(("data.", "model."))}
    assert not REFUSED & WARNED


@pytest.mark.parametrize(("task", "architecture"), TRAINABLE)
def test_a_changed_setting_is_refused_or_said_by_name(task, architecture):
    then = made(task, architecture)
    for key, setting in recipe.known_settings(find_task(task), architecture).items():
        part, name = key.split(".")
        value = another(setting, recipe.to_json(then)[part][name])
        now = recipe.changed(then, key, value)
        assert now != then
        said: list[str] = []
        if key in REFUSED or part in ("data", "model"):
            with pytest.raises(BadInput, match=f"recipe.json has {key} .*that is another run") as caught:
                resume.compare_recipes(recipe.to_json(then), now, Path("step-4"), said.append)
            assert str(caught.value).isprintable() and not said
        else:
            resume.compare_recipes(recipe.to_json(then), now, Path("step-4"), said.append)
            (line,) = said
            assert line.startswith(f"warning: {key} was ") and repr(value) in line


@pytest.mark.parametrize("task", ["lm", "translate"])
def test_another_architecture_is_another_run(task):
    then, *others = [made(task, name) for name in find_task(task).architectures]
    for now in others:
        with pytest.raises(BadInput, match="recipe.json has model.* that is another run"):
            resume.compare_recipes(recipe.to_json(then), now, Path("step-4"), print)


def test_nothing_is_said_of_what_has_not_changed():
    then = recipe.make("lm", "tiny", "pylib")
    said: list[str] = []
    resume.compare_recipes(recipe.to_json(then), then, Path("step-4"), said.append)
    assert said == []


@pytest.mark.parametrize("key", ["train.steps", "checkpoint.every"])
def test_which_steps_are_averaged_cannot_change_half_way(key):
    then = recipe.make("lm", settings={"train.average_checkpoints": 3})
    now = recipe.changed(then, key, 77)
    with pytest.raises(BadInput, match=f"recipe.json has {key} 77"):
        resume.compare_recipes(recipe.to_json(then), now, Path("step-4"), print)


# Through a run

SETTINGS = {"train.learning_rate": 2e-3, "checkpoint.every": 2, "evaluate.every": 3, "evaluate.examples": 0}


@pytest.fixture
def begun(texts, tmp_path) -> Callable[..., Path]:
    """A run of a task that was killed at step 5, two steps after its last checkpoint; or before its first."""

    def start(task: str, at: int = 5, **more) -> Path:
        folder = tmp_path / "run"
        with pytest.raises(Interrupted):
            trainer.start(
                recipe_for(task, texts, steps=7, **{**SETTINGS, **more}), folder, Quiet(until=at), CPU
            )
        assert (folder / "checkpoints").exists() == (at > 2)
        return folder

    return start


def edit(folder: Path, key: str, value: object) -> None:
    found = json.loads((folder / "recipe.json").read_text())
    part, _, name = key.partition(".")
    if name:
        found[part][name] = value
    else:
        found[part] = value
    (folder / "recipe.json").write_text(json.dumps(found))


def files_of(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if name not in ("lock", "status.json")}


def refused(folder: Path, *said: str) -> None:
    """In one line with these words, and not a byte of the run is changed."""
    before = files_of(folder)
    with pytest.raises(BadInput) as caught:
        trainer.resume(folder, Quiet(), CPU)
    message = str(caught.value)
    assert all(words in message for words in said), message
    assert message.isprintable()
    assert files_of(folder) == before


def warned(folder: Path, *said: str) -> None:
    """It goes on to the end, and exactly these warnings are given."""
    talk = Quiet()
    assert trainer.resume(folder, talk, CPU).finished
    warnings = [
        line for line in talk.lines if line.startswith("warning: ") and "has learned nothing" not in line
    ]
    assert len(warnings) == len(said), warnings
    for words, line in zip(said, warnings, strict=True):
        assert words in line


CONDITIONS = {
    "threads": lambda patch: patch.setattr(torch, "get_num_threads", lambda: 77),
    "torch": lambda patch: patch.setattr(torch, "__version__", "77.0.0"),
    "python": lambda patch: patch.setattr(platform, "python_version", lambda: "77.0"),
    "heedful": lambda patch: patch.setattr(resume, "__version__", "77.0"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_other_conditions_are_said(name, begun, monkeypatch):
    folder = begun("lm")
    CONDITIONS[name](monkeypatch)
    warned(folder, f"warning: {name} was ")
    written = json.loads((folder / "recipe.json").read_text())["facts"]
    assert str(written[name]).startswith("77")  # what holds from now on


@pytest.mark.parametrize("name, value", [("device", "cuda"), ("processes", 4)])
def test_another_device_or_number_of_processes_is_said(name, value, begun, monkeypatch):
    honest = trainer.facts_of
    for module in (trainer, training):
        monkeypatch.setattr(module, "facts_of", lambda *given: {**honest(*given), name: value})
    folder = begun("lm")
    for module in (trainer, training):
        monkeypatch.setattr(module, "facts_of", honest)
    warned(folder, f"warning: {name} was {value} and is ")


WARNED_ON_THE_WAY = {
    "train.steps": 9,
    "train.learning_rate": 1e-3,
    "train.accumulation_steps": 2,
    "train.schedule": "constant",
    "train.batch_tokens": 32,
    "train.precision": "fp16",
    "train.parallel": "fsdp",
    "evaluate.every": 2,
}


@pytest.mark.parametrize("key", WARNED_ON_THE_WAY)
def test_another_way_for_the_rest_is_said_and_taken(key, begun):
    folder = begun("lm")
    edit(folder, key, WARNED_ON_THE_WAY[key])
    warned(folder, f"warning: {key} was ")
    part, name = key.split(".")
    assert json.loads((folder / "recipe.json").read_text())[part][name] == WARNED_ON_THE_WAY[key]


@pytest.mark.parametrize(
    "key, value",
    [
        ("train.seed", 3),
        ("train.optimizer", "adamw"),
        ("data.vocab_size", 99),
        ("model.layers", 2),
        ("train.ema_decay", 0.5),
        ("train.from", "elsewhere"),
    ],
)
def test_another_run_is_refused(key, value, begun):
    folder = begun("lm")
    edit(folder, key, value)
    refused(folder, f"recipe.json has {key} {value!r}", "that is another run")


def test_another_task_is_refused(begun):
    folder = begun("lm")
    edit(folder, "task", "mlm")
    refused(folder, "recipe.json: mlm cannot train the architecture gpt2")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_another_tokenizer_is_refused(begun):
    folder = begun("lm")
    found = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(found, indent=3))  # the same to the eye, other bytes
    refused(folder, "another vocabulary", "tokenizer.json")


@pytest.mark.parametrize(
    "task, name", [("lm", "train"), ("mlm", "valid"), ("translate", "data"), ("classify", "data")]
)
def test_altered_tokens_are_refused(task, name, begun):
    folder = begun(task)
    store = max((folder / name).glob("*.bin"), key=lambda path: path.stat().st_size)
    flip(store)
    refused(folder, store.name, "is damaged")


def test_other_tokens_are_refused_even_if_they_are_whole(begun):
    """Training text and held-out text, made by the same run, changed places."""
    folder = begun("lm")
    for old, new in (("train", "aside"), ("valid", "train"), ("aside", "valid")):
        (folder / old).rename(folder / new)
    refused(folder, "the data is not the one the run was begun with")


@pytest.mark.parametrize(
    "task, name", [("translate", "v.tgt"), ("translate", "v.src"), ("classify", "v.tsv")]
)
def test_other_held_out_files_are_refused(task, name, begun, texts):
    folder = begun(task)
    path = Path(texts[name])
    lines = path.read_text().splitlines(keepends=True)
    head = lines[:1] if name.endswith("tsv") else []
    path.write_text("".join(head + lines[:0:-1] + ([] if head else lines[:1])))
    refused(folder, "the held-out data is not the one the run was begun with")


def test_other_labels_are_refused(begun):
    folder = begun("classify")
    found = json.loads((folder / "labels.json").read_text())
    (folder / "labels.json").write_text(json.dumps(dict(reversed(found.items()))))
    refused(folder, "the list of labels is not the one the run was begun with")


# The model to start from


@pytest.fixture
def origin(texts, tmp_path) -> Path:
    trainer.start(recipe_for("lm", texts, steps=2), tmp_path / "origin", Quiet(), CPU)
    return tmp_path / "origin"


def test_a_run_with_a_checkpoint_does_not_need_the_model_it_started_from(begun, origin, texts, tmp_path):
    more = {"train.from": str(origin)}
    trainer.start(
        recipe_for("classify", texts, steps=7, **{**SETTINGS, **more}), tmp_path / "whole", Quiet(), CPU
    )
    folder = begun("classify", **more)
    shutil.rmtree(origin)
    warned(folder)
    assert state_of(folder) == state_of(tmp_path / "whole")


def test_without_a_checkpoint_another_model_to_start_from_is_refused(begun, origin):
    folder = begun("classify", at=1, **{"train.from": str(origin)})
    flip(origin / "model.safetensors")
    refused(folder, "has other weights than when this run was begun")


def test_another_word_on_where_it_started_is_refused(begun, origin):
    folder = begun("classify", **{"train.from": str(origin)})
    found = json.loads((folder / "from.json").read_text())
    (folder / "from.json").write_text(json.dumps({**found, "sha256": "0" * 64}))
    refused(folder, "the from is not the one the run was begun with (0000000000000000 instead of ")


# Before the first checkpoint


@pytest.mark.parametrize(
    "key, value",
    [("data.vocab_size", 99), ("data.tokenizer", "word"), ("data.text", "elsewhere")],
)
def test_data_that_were_prepared_from_another_recipe_are_not_taken(key, value, begun):
    folder = begun("lm", at=1)
    edit(folder, key, value)
    refused(folder, "the recipe of the data is not the one the run was begun with")


def test_killed_while_the_data_were_prepared_the_recipe_cannot_change_either(texts, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(setup, "with_steps", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trainer.start(recipe_for("lm", texts, steps=3), tmp_path / "run", Quiet(), CPU)
    edit(tmp_path / "run", "data.vocab_size", 99)
    refused(tmp_path / "run", "the recipe of the data is not the one the run was begun with")


def test_before_the_first_checkpoint_a_run_simply_begins_again(begun, texts, tmp_path):
    """Nothing of the old way is left: it is the run that was asked for now."""
    folder = begun("lm", at=1)
    edit(folder, "train.learning_rate", 5e-3)
    warned(folder)
    trainer.start(
        recipe_for("lm", texts, steps=7, **{**SETTINGS, "train.learning_rate": 5e-3}),
        tmp_path / "new",
        Quiet(),
        CPU,
    )
    assert state_of(folder) == state_of(tmp_path / "new")
