"""Defaults chosen by device, data and length: what is chosen, why, and that what somebody gave stays."""

import json
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

from heedful.runs import setup, trainer
from heedful.tasks import find_task, recipe, task_files
from heedful.tasks.recipe import choices
from heedful.tasks.recipe.choices import Choice, DataSize

PAIRS = DataSize(29_000, 400_000, "pairs")


def made(task: str = "translate", **settings) -> recipe.Recipe:
    return recipe.make(task, settings={key.replace("__", "."): value for key, value in settings.items()})


# What is applied


def test_a_choice_fills_in_what_nobody_gave_and_says_why():
    found, why = choices.apply(
        made(), [Choice("train.steps", 4321, "3 passes"), Choice("train.warmup_steps", 77)]
    )
    assert (found.train.steps, found.train.warmup_steps) == (4321, 77) and why == ["steps 4,321: 3 passes"]


def test_what_was_given_and_what_the_corpus_says_stays():
    given = made(train__steps=10, model__dropout=0.25)
    some = [
        Choice("train.steps", 4321, "a"),
        Choice("model.dropout", 0.4, "b"),
        Choice("train.beta2", 0.5, "c"),
    ]
    found, why = choices.apply(given, some, fixed={"train.beta2": 0.98})
    assert found == given and why == []


def test_a_default_that_somebody_gave_counts_as_given():
    default = made().train.steps
    found, _ = choices.apply(made(train__steps=default), [Choice("train.steps", default + 1)])
    assert found.train.steps == default


def test_what_an_architecture_does_not_have_is_not_chosen_for_it():
    lstm = recipe.make("lm", settings={"model.architecture": "lstm"})
    found, why = choices.apply(lstm, [Choice("model.attention_dropout", 0.3, "often seen")])
    assert found == lstm and why == []


def test_every_choice_is_checked_like_a_value_that_somebody_gives():
    with pytest.raises(ValueError, match="model.dropout must be a number"):
        choices.apply(made(), [Choice("model.dropout", 1.5)])


# Steps, dropout, warm-up, evaluations, precision, compiling


@pytest.mark.parametrize(
    ("batch", "epochs", "most", "steps"),
    [(1000, 50, 10**6, 20_000), (1000, 50, 10_000, 10_000), (4096, 3, 10**6, 293), (10**8, 1, 99, 1)],
)
def test_steps_are_so_many_passes_over_the_data_within_reason(batch, epochs, most, steps):
    (choice,) = choices.steps_for(made(train__batch_tokens=batch), PAIRS, epochs, most)
    assert choice.key == "train.steps" and choice.value == steps
    passes = steps * batch / PAIRS.tokens
    assert choice.reason == f"{passes:,.1f} passes over 29,000 pairs of {batch:,} tokens per step"


def test_a_batch_is_smaller_only_where_nobody_gave_one():
    assert choices.with_batch(made(), 77).train.batch_tokens == 77
    assert choices.with_batch(made(train__batch_tokens=512), 77).train.batch_tokens == 512


def test_dropout_grows_with_the_epochs_in_steps_of_a_twentieth():
    rates = {epochs: choices.dropout_for(epochs) for epochs in (0, 0.5, 3, 6, 12, 24, 46, 187, 10**6)}
    assert rates == {0: 0, 0.5: 0, 3: 0, 6: 0.1, 12: 0.2, 24: 0.3, 46: 0.4, 187: 0.4, 10**6: 0.4}
    many = [choices.dropout_for(epochs / 7) for epochs in range(1, 700)]
    assert many == sorted(many) and all(20 * rate == round(20 * rate) for rate in many)
    assert choices.dropout_for(12, less=0.05) == 0.15 and choices.dropout_for(3, less=0.05) == 0


def test_dropout_follows_from_how_often_each_pair_is_seen():
    asked = made(train__steps=1200, train__batch_tokens=4000)  # twelve times
    found, why = choices.apply(asked, choices.dropout_by_epochs(asked, PAIRS))
    assert found.model.dropout == 0.2 and why == ["dropout 0.2: 29,000 pairs will be seen 12.0 times"]
    assert found.model.attention_dropout == asked.model.attention_dropout == 0.0


def test_dropout_of_attention_follows_where_it_is_the_same_by_default():
    asked = recipe.make("lm", settings={"train.steps": 1200, "train.batch_tokens": 4000})
    together = asked.model.attention_dropout == asked.model.dropout
    found, _ = choices.apply(asked, choices.dropout_by_epochs(asked, PAIRS))
    assert found.model.dropout == 0.2
    assert found.model.attention_dropout == (0.2 if together else asked.model.attention_dropout)
    given = recipe.make(
        "lm", settings={"train.steps": 1200, "train.batch_tokens": 4000, "model.attention_dropout": 0.05}
    )
    assert choices.apply(given, choices.dropout_by_epochs(given, PAIRS))[0].model.attention_dropout == 0.05


@pytest.mark.parametrize(
    ("steps", "warmup"), [(1, 0), (7, 1), (100, 25), (1599, 399), (1600, 400), (9999, 400)]
)
def test_warmup_is_at_most_a_quarter_of_the_steps(steps, warmup):
    asked = made("mlm", train__steps=steps)
    wanted = min(warmup, asked.train.warmup_steps)
    assert choices.apply(asked, choices.choose_length(asked))[0].train.warmup_steps == wanted
    given = made("mlm", train__steps=steps, train__warmup_steps=999)
    assert choices.apply(given, choices.choose_length(given))[0].train.warmup_steps == 999


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (10, 1), (11, 2), (3000, 300), (3001, 301)])
def test_a_run_is_evaluated_ten_times(steps, every):
    asked = made(train__steps=steps)
    assert choices.apply(asked, choices.choose_evaluations(asked))[0].evaluate.every == every
    given = made(train__steps=steps, evaluate__every=7)
    assert choices.apply(given, choices.choose_evaluations(given))[0].evaluate.every == 7


def test_a_gpu_computes_in_bf16_unless_told_otherwise():
    assert choices.apply(made(), choices.choose_precision("cuda"))[0].train.precision == "bf16"
    assert choices.apply(made(), choices.choose_precision("cpu"))[0].train.precision == "fp32"
    given = made(train__precision="fp32")
    assert choices.apply(given, choices.choose_precision("cuda"))[0].train.precision == "fp32"


@pytest.mark.parametrize(
    ("device", "steady", "steps", "compiled"),
    [
        ("cuda", True, 1500, True),
        ("cuda", True, 1499, False),
        ("cuda", False, 9000, False),
        ("cpu", True, 9000, False),
    ],
)
def test_only_long_runs_of_one_shape_on_a_gpu_are_compiled(device, steady, steps, compiled):
    asked = made(train__steps=steps)
    assert choices.apply(asked, choices.choose_compiling(asked, device, steady))[0].train.compile == compiled
    given = made(train__steps=steps, train__compile=not compiled)
    found, _ = choices.apply(given, choices.choose_compiling(given, device, steady))
    assert found.train.compile is (not compiled)


# Through the pipeline


SIZES = {
    "model.layers": 1,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "evaluate.rows": 4,
    "evaluate.examples": 0,
}


def open_recipe(task: str, texts: dict, **given) -> recipe.Recipe:
    """A recipe with the files of a test and small sizes, and nothing else that somebody gave."""
    full = recipe_for(task, texts)
    files = {key for key in full.given if key.startswith("data.") and key not in ("data.tokenizer",)}
    data = recipe.to_json(full)["data"]
    settings = {key: data[key.split(".")[1]] for key in files}
    known = recipe.known_settings(find_task(task), next(iter(find_task(task).architectures)))
    return recipe.make(
        task, settings={**settings, **{key: size for key, size in SIZES.items() if key in known}, **given}
    )


def decided(asked: recipe.Recipe, folder, device: str = "cpu") -> tuple[recipe.Recipe, list[str]]:
    asked, _ = setup.foresee(asked)
    examples = setup.read_examples(asked, folder, Quiet())
    return setup.decide(asked, examples, Quiet(), torch.device(device), setup.ALONE)


def test_the_plain_translate_command_chooses_by_device(texts, tmp_path):
    asked = open_recipe("translate", texts)
    (tmp_path / "run").mkdir()
    cpu, why = decided(asked, tmp_path / "run")
    assert cpu.given is None and cpu.train.batch_tokens == 1024 and cpu.data.packed
    assert cpu.train.precision == "fp32" and not cpu.train.compile
    assert any(line.startswith("batch_tokens 1,024: ") for line in why)
    assert any(line.startswith("packed true: ") for line in why)
    assert any(line.startswith("dropout ") and "100 pairs will be seen" in line for line in why)
    cuda, why = decided(asked, tmp_path / "run", "cuda")
    assert cuda.train.batch_tokens == 8192 and cuda.train.precision == "bf16"
    assert not any(line.startswith("batch_tokens") for line in why)
    for found in (cpu, cuda):
        assert found.train.warmup_steps <= found.train.steps // 4
        assert found.evaluate.every == -(-found.train.steps // 10)


GIVEN = {
    "translate": {
        "train.batch_tokens": 333,
        "data.packed": False,
        "data.max_length": 19,
        "model.dropout": 0.15,
    },
    "lm": {"train.batch_tokens": 333, "data.tokenizer": "bpe", "model.context": 16, "model.dropout": 0.15},
    "classify": {"train.batch_tokens": 333, "model.dropout": 0.15},
    "image-classify": {"train.batch_tokens": 333, "data.mean": 0.4, "data.std": 0.3, "data.image_size": 8},
}
GIVEN_TO_ALL = {
    "train.steps": 9,
    "train.warmup_steps": 8,
    "evaluate.every": 4,
    "train.precision": "fp32",
    "train.compile": False,
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("task", GIVEN)
def test_given_values_are_never_overridden(task, device, texts, tmp_path):
    given = GIVEN[task] | GIVEN_TO_ALL
    (tmp_path / "run").mkdir()
    found = recipe.to_json(decided(open_recipe(task, texts, **given), tmp_path / "run", device)[0])
    for key, value in given.items():
        part, name = key.split(".")
        assert found[part][name] == value, key


CORPORA = [(task, corpus) for task in task_files() for corpus in find_task(task).corpora]


@pytest.mark.parametrize(("task", "corpus"), CORPORA)
def test_what_a_corpus_says_is_not_overridden_by_choices(task, corpus):
    """Whatever a task chooses, by the same rules as a run: only what neither people nor the corpus fixed."""
    found, settings = recipe.make(task, corpus=corpus), find_task(task).corpus_settings(corpus)
    known = recipe.known_settings(find_task(task), found.model.architecture)
    fixed = {key: value for key, value in settings.items() if key in known}
    for key, value in fixed.items():
        part, name = key.split(".")
        assert recipe.to_json(found)[part][name] == value, key
    other = [Choice(key, known[key].default, "other") for key in fixed if key != "data.corpus"]
    assert choices.apply(found, other, settings) == (found, [])


def test_a_started_run_has_everything_fixed_and_says_why(texts, tmp_path):
    talk = Quiet()
    asked = open_recipe("translate", texts, **{"train.steps": 3})
    trainer.start(asked, tmp_path / "run", talk, CPU)
    written = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert "given" not in written and written["train"]["batch_tokens"] == 1024
    assert written["train"]["warmup_steps"] == 0 and written["evaluate"]["every"] == 1
    assert any(line.startswith("packed true: ") for line in talk.lines)


def test_a_short_text_is_read_by_characters_and_the_plan_says_why(texts, tmp_path):
    talk = Quiet()
    trainer.start(open_recipe("lm", texts, **{"train.steps": 2}), tmp_path / "run", talk, CPU)
    (line,) = [line for line in talk.lines if line.startswith("tokenizer ")]
    assert line == f"tokenizer char: the text has {len(Path(texts['text']).read_text()):,} characters"
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["data"]["tokenizer"] == "char"


@pytest.mark.parametrize("task", ["translate", "lm", "classify", "image-classify"])
def test_killed_before_the_first_checkpoint_a_run_goes_on_to_the_same(task, texts, tmp_path, monkeypatch):
    """Killed while data were prepared, when settings were still open; and at the first step."""
    asked = open_recipe(task, texts, **{"train.steps": 3})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "decide", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trainer.start(asked, tmp_path / "early", Quiet(), CPU)
    open_ = json.loads((tmp_path / "early" / "recipe.json").read_text())
    assert "train.steps" in open_["given"] and "train.batch_tokens" not in open_["given"]
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "late", Quiet(until=1), CPU)
    for name in ("early", "late"):
        assert trainer.resume(tmp_path / name, Quiet(), CPU).finished
        assert state_of(tmp_path / name) == state_of(tmp_path / "whole")
        one, two = (json.loads((tmp_path / run / "recipe.json").read_text()) for run in (name, "whole"))
        assert one == two
