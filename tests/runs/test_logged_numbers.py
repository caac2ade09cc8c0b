"""metrics.jsonl says what was computed: every step, every digit, also numbers that are not finite."""

import json
import math
import signal
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
import torch

from heedful.cli.main import main
from heedful.models import family
from heedful.runs import checkpoint, setup
from heedful.tasks import lm, recipe
from heedful.train import loop

SIZES = {
    "model.layers": 1,
    "model.width": 12,
    "model.heads": 3,
    "model.ffn_width": 20,
    "model.context": 14,
    "train.batch_tokens": 60,
    "train.warmup_steps": 2,
    "train.steps": 6,
    "train.accumulation_steps": 2,
    "checkpoint.every": 1,
    "checkpoint.keep": 9,
    "evaluate.every": 4,
    "evaluate.rows": 5,
    "evaluate.examples": 0,
    "data.tokenizer": "char",
    "model.dropout": 0.0,
    "train.label_smoothing": 0.2,
    "train.learning_rate": 0.01,
}


@pytest.fixture
def text(tmp_path) -> str:
    (tmp_path / "text").write_text("".join(f"line {i * i % 17} of {i % 7}\n" for i in range(60)))
    return str(tmp_path / "text")


def train(text: str, run: Path, **settings: object) -> int:
    chosen = [f"--set={key}={value}" for key, value in {**SIZES, **settings}.items()]
    return main(["train", "lm", "--text", text, "--run", str(run), *chosen])


def logged(run: Path) -> list[dict]:
    """Every line; numbers that JSON does not have are written as text."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    odd = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    return [
        {name: odd.get(value, value) if isinstance(value, str) else value for name, value in line.items()}
        for line in lines
    ]


def steps_of(run: Path) -> list[dict]:
    return [line for line in logged(run) if "loss" in line]


class Heard:
    """What the loop said, step by step; `odd` puts other numbers into some steps before they are reported."""

    def __init__(self) -> None:
        self.steps: list[loop.Progress] = []
        self.odd: dict[int, dict[str, float]] = {}
        self.train = loop.train

    def __call__(self, *args, **more):
        for progress in self.train(*args, **more):
            self.steps.append(replace(progress, **self.odd.get(progress.step, {})))
            yield self.steps[-1]


@pytest.fixture
def heard(monkeypatch) -> Heard:
    listener = Heard()
    monkeypatch.setattr(loop, "train", listener)
    return listener


ODD = {
    2: {"loss": math.nan},
    3: {"norm": math.inf},
    4: {"loss": -math.inf, "norm": math.nan},
    5: {"loss": 1e300},
}


@pytest.mark.parametrize("odd", [False, True])
def test_every_step_is_logged_exactly_as_it_was_computed(odd, text, tmp_path, heard):
    heard.odd = ODD if odd else {}
    assert train(text, tmp_path / "run") == 0
    found = steps_of(tmp_path / "run")
    assert [line["step"] for line in found] == [1, 2, 3, 4, 5, 6]
    for line, progress in zip(found, heard.steps, strict=True):
        for name in ("step", "loss", "rate", "norm"):
            assert repr(line[name]) == repr(getattr(progress, name)), (progress.step, name)
    assert [line["tokens"] for line in found] == list(accumulate(step.tokens for step in heard.steps))
    assert math.isnan(found[1]["loss"]) == odd and math.isinf(found[2]["norm"]) == odd


def test_sigusr2_saves_a_checkpoint_and_the_run_goes_on_to_the_same_end(text, tmp_path, monkeypatch):
    plain, saved, often = tmp_path / "plain", tmp_path / "saved", {"checkpoint.every": 5}
    assert train(text, plain, **often) == 0
    steps = loop.train

    def disturbed(*args, **more):
        for progress in steps(*args, **more):
            if progress.step == 3:
                signal.raise_signal(signal.SIGUSR2)
            yield progress

    monkeypatch.setattr(loop, "train", disturbed)
    assert train(text, saved, **often) == 0
    assert [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in (plain, saved)] == [
        ["step-5", "step-6"],
        ["step-3", "step-5", "step-6"],
    ]
    for name in ("metrics.jsonl", "model.safetensors", "checkpoints/step-6/optimizer.safetensors"):
        assert (plain / name).read_bytes() == (saved / name).read_bytes()


def test_the_logged_loss_is_that_of_the_weights_before_the_step(text, tmp_path):
    """Computed again from the checkpoint of the step before: unsmoothed, over both micro-batches."""
    run = tmp_path / "run"
    assert train(text, run) == 0
    asked = json.loads((run / "recipe.json").read_text())
    asked.pop("facts")
    job = setup.make_job(recipe.from_json(asked), run, setup.SilentReporter())
    model = family(job.architecture).build(job.config)
    for line in steps_of(run)[1:]:
        weights, _ = checkpoint.load(run / "checkpoints" / f"step-{line['step'] - 1}")
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(weights["model"][name])
            losses = [lm.loss_of(model, batch) for batch in job.batches(line["step"] - 1)]
        assert len(losses) == 2
        again = sum(float(loss.nll) for loss in losses) / sum(loss.count for loss in losses)
        assert line["loss"] == pytest.approx(again, rel=1e-6)


def test_a_gradient_that_overflowed_in_half_precision_is_logged_as_what_it_is(
    text, tmp_path, heard, monkeypatch
):
    """fp16 skips such a step and lowers its scale; the log does not pass over it."""
    coarse = partial(torch.amp.GradScaler, init_scale=2.0**40, backoff_factor=2.0**-12)
    monkeypatch.setattr(torch.amp, "GradScaler", coarse)
    assert train(text, tmp_path / "run", **{"train.precision": "fp16"}) == 0
    norms = [progress.norm for progress in heard.steps]
    assert [repr(line["norm"]) for line in steps_of(tmp_path / "run")] == list(map(repr, norms))
    assert any(not math.isfinite(norm) for norm in norms) and any(map(math.isfinite, norms)), norms


def test_a_held_out_loss_that_is_no_number_is_logged(text, tmp_path, monkeypatch):
    honest = lm.evaluate
    monkeypatch.setattr(lm, "evaluate", lambda *args, **more: honest(*args, **more) | {"loss": math.nan})
    code = train(text, tmp_path / "run")
    found = [line["valid_loss"] for line in logged(tmp_path / "run") if "valid_loss" in line]
    assert found and all(map(math.isnan, found))
    assert code in (0, 3)
