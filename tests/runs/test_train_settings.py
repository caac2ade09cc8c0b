"""Patience, recomputing, compiling, minutes: settings that change when a run ends or what it costs."""

import json
import shutil

import pytest
import torch
from helpers.run_together import cut_after
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    losses,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)

from heedful.errors import BadInput
from heedful.parts.blocks import Block
from heedful.runs import checkpoint, setup, trainer
from heedful.tasks import lm


class Clock(Quiet):
    """Knows which step it is."""

    now = 0

    def step(self, progress, steps) -> None:
        Clock.now = progress.step
        super().step(progress, steps)


# Patience

HELD_OUT = {2: 5.0, 4: 4.0, 6: 4.5, 8: 4.0, 10: 3.0, 12: 3.5, 14: 3.5, 16: 3.5, 18: 2.0, 20: 1.0}
STOPS = {1: 6, 2: 8, 3: 16, 4: 20, 0: 20}  # by patience: 4.0 is no better than 4.0


@pytest.fixture
def scripted(monkeypatch):
    """Held-out losses as if they had been measured."""
    monkeypatch.setattr(
        lm,
        "evaluate",
        lambda *_, **__: {"loss": HELD_OUT[Clock.now], "perplexity": 1.0, "bits_per_byte": 1.0},
    )


def patient(texts, patience: int):
    every = {"evaluate.every": 2, "checkpoint.every": 3, "evaluate.patience": patience}
    return recipe_for("lm", texts, steps=20, **every)


@pytest.mark.parametrize("patience", STOPS)
def test_patience_stops_at_the_right_evaluation(patience, texts, tmp_path, scripted):
    talk, folder = Clock(), tmp_path / "run"
    outcome = trainer.start(patient(texts, patience), folder, talk, CPU)
    stop = STOPS[patience]
    assert outcome.finished and outcome.steps == stop == losses(folder)[-1]["step"]
    said = [line for line in talk.lines if "no better" in line]
    assert said == ([f"stopped at step {stop}: no better for {patience} evaluations"] if stop < 20 else [])
    best = min((step for step in HELD_OUT if step <= stop), key=HELD_OUT.__getitem__)
    status = json.loads((folder / "status.json").read_text())
    assert (status["reason"], status["step"], status["best_step"]) == ("done", stop, best)
    assert (folder / "checkpoints" / f"step-{stop}").is_dir()


def test_a_run_that_lost_patience_stays_where_it_is(texts, tmp_path, scripted):
    trainer.start(patient(texts, 2), tmp_path / "run", Clock(), CPU)
    expected = state_of(tmp_path / "run")
    outcome = trainer.resume(tmp_path / "run", Clock(), CPU)
    assert outcome.finished and outcome.steps == 8 and outcome.best.step == 4
    assert state_of(tmp_path / "run") == expected
    assert json.loads((tmp_path / "run" / "status.json").read_text())["reason"] == "done"


def test_patience_survives_an_interruption_at_every_step(texts, tmp_path, scripted):
    trainer.start(patient(texts, 2), tmp_path / "whole", Clock(), CPU)
    expected = state_of(tmp_path / "whole")
    for step in range(1, 9):
        folder = tmp_path / f"cut-{step}"
        with pytest.raises(Interrupted):
            trainer.start(patient(texts, 2), folder, Clock(until=step), CPU)
        assert trainer.resume(folder, Clock(), CPU).steps == 8
        assert state_of(folder) == expected, step
        shutil.rmtree(folder)


def test_a_held_out_loss_that_rises_is_warned_of_once(texts, tmp_path, scripted):
    talk = Clock()
    trainer.start(patient(texts, 0), tmp_path / "run", talk, CPU)
    (place,) = [n for n, line in enumerate(talk.lines) if "has not been better for 3 evaluations" in line]
    before = [line for line in talk.lines[:place] if line.startswith("step ")]
    assert before[-1].startswith("step 16: ") and "evaluate.patience" in talk.lines[place]


# Recomputing


@pytest.mark.parametrize("task", ["translate", "lm", "mlm"])
def test_recomputing_gives_the_same_losses(task, texts, tmp_path, monkeypatch):
    calls, forward = [], Block.forward

    def counted(self, *args, **kwargs):
        calls.append(torch.is_grad_enabled())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Block, "forward", counted)
    few = {"model.layers": 2, "evaluate.every": 100, "evaluate.rows": 1, "evaluate.examples": 0}
    times = []
    for name, more in {"plain": {}, "again": {"train.activation_checkpointing": True}}.items():
        calls.clear()
        trainer.start(recipe_for(task, texts, steps=5, **{**few, **more}), tmp_path / name, Quiet(), CPU)
        times.append(sum(calls))
    assert times[1] == 2 * times[0] > 0  # every block a second time, in the backward pass
    for a, b in zip(losses(tmp_path / "plain"), losses(tmp_path / "again"), strict=True):
        assert b == pytest.approx(a, rel=1e-6)


# Compiling


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_blocks_give_the_same_losses_and_checkpoints(texts, tmp_path):
    few = {"model.dropout": 0.0, "checkpoint.every": 10, "evaluate.every": 10, "checkpoint.keep": 9}
    for name, compiled in {"eager": False, "compiled": True}.items():
        trainer.start(
            recipe_for("lm", texts, steps=20, **few, **{"train.compile": compiled}),
            tmp_path / name,
            Quiet(),
            CPU,
        )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    one, two = (losses(tmp_path / name) for name in ("eager", "compiled"))
    for a, b in zip(one, two, strict=True):
        assert b == pytest.approx(a, rel=1e-5 if "loss" in a else 1e-4), a["step"]
    tensors = [
        checkpoint.load(tmp_path / name / "checkpoints" / "step-20")[0] for name in ("eager", "compiled")
    ]
    assert {part: found.keys() for part, found in tensors[0].items()} == {
        part: found.keys() for part, found in tensors[1].items()
    }
    for begun, goes_on in (("eager", "compiled"), ("compiled", "eager")):
        folder = tmp_path / f"{begun}, then {goes_on}"
        cut_after(tmp_path / begun, folder, 10)
        found = json.loads((folder / "recipe.json").read_text())
        found["train"]["compile"] = goes_on == "compiled"
        (folder / "recipe.json").write_text(json.dumps(found))
        talk = Quiet()
        assert trainer.resume(folder, talk, CPU).finished
        assert any("train.compile was" in line for line in talk.lines)
        for a, b in zip(one, losses(folder), strict=True):
            assert b == pytest.approx(a, rel=1e-5 if "loss" in a else 1e-4), a["step"]


def test_without_a_compiler_compiling_is_refused_before_anything_is_made(texts, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="needs a C\\+\\+ compiler"):
        trainer.start(recipe_for("lm", texts, **{"train.compile": True}), tmp_path / "run", Quiet(), CPU)
    assert not (tmp_path / "run").exists()


def test_sharding_alone_is_refused_before_anything_is_made(texts, tmp_path):
    with pytest.raises(
        BadInput, match=r"train\.parallel=fsdp needs several processes: torchrun .* -m -- heedful"
    ):
        trainer.start(recipe_for("lm", texts, **{"train.parallel": "fsdp"}), tmp_path / "run", Quiet(), CPU)
    assert not (tmp_path / "run").exists()


# What a run leaves when something goes wrong on the way


def test_bad_input_found_late_deletes_nothing(texts, tmp_path, monkeypatch):
    """Only a folder in which no step was made is taken away again."""
    honest = lm.evaluate

    def fails(*args, **more):
        if Clock.now < 6:
            return honest(*args, **more)
        raise BadInput("found late")

    monkeypatch.setattr(lm, "evaluate", fails)
    folder = tmp_path / "run"
    with pytest.raises(BadInput, match="found late"):
        trainer.start(
            recipe_for("lm", texts, **{"evaluate.every": 3, "checkpoint.every": 100}), folder, Clock(), CPU
        )
    assert (
        len([line for line in losses(folder) if "loss" in line]) == 6
        and (folder / "model.safetensors").exists()
    )
    status = json.loads((folder / "status.json").read_text())
    assert (status["reason"], status["error"]) == ("failed", "found late") and not (folder / "lock").exists()


def test_what_cannot_begin_leaves_no_folder_and_takes_none_away(texts, tmp_path):
    (tmp_path / "mine").mkdir()
    for folder in ("mine/run", "new/run"):
        with pytest.raises(BadInput, match="nowhere is missing"):
            asked = recipe_for("lm", texts, **{"data.text": "nowhere"})
            trainer.start(asked, tmp_path / folder, Quiet(), CPU)
    assert list((tmp_path / "mine").iterdir()) == [] and not (tmp_path / "new").exists()


def test_minutes_are_measured_in_half_precision_too(texts, tmp_path):
    talk = Quiet()
    asked = recipe_for(
        "lm",
        texts,
        **{"train.minutes": 0.001, "train.precision": "fp16", "train.activation_checkpointing": True},
    )
    outcome = trainer.start(asked, tmp_path / "run", talk, CPU)
    assert outcome.steps >= 1 and any("ms per step: about " in line for line in talk.lines)


# The learning rate


@pytest.mark.parametrize(("task", "optimizer"), [("lm", "adamw"), ("translate", "muon"), ("tag", "adamw")])
@pytest.mark.parametrize(("width", "warmup", "factor"), [(16, 4, None), (24, 3, 1.0), (16, 5, 0.5)])
def test_noam_is_the_papers_rate_for_the_models_width(
    task, optimizer, width, warmup, factor, texts, tmp_path
):
    asked = {"train.schedule": "noam", "train.warmup_steps": warmup, "model.width": width}
    asked |= {"train.optimizer": optimizer} | ({} if factor is None else {"train.learning_rate": factor})
    trainer.start(recipe_for(task, texts, **asked), tmp_path / "run", Quiet(), CPU)
    rates = {line["step"]: line["rate"] for line in losses(tmp_path / "run") if "loss" in line}
    paper = {step: width**-0.5 * min(step**-0.5, step * warmup**-1.5) for step in range(1, 13)}
    assert rates == pytest.approx({step: (factor or 1.0) * rate for step, rate in paper.items()}, rel=1e-12)


def test_the_rate_finder_refuses_noam_whose_rate_follows_from_the_width(texts):
    asked = recipe_for("lm", texts, **{"train.schedule": "noam"})
    with pytest.raises(BadInput, match="--find-rate is for other schedules"):
        list(setup.find_rate(asked, Quiet(), CPU))
