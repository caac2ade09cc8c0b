"""Runs whose model is spread over four processes: in shards within pairs, and with matrices in parts."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from helpers.torchrun import DRIVER, LAUNCH
from runs.test_torchrun import LM, SIZES, TRANSLATE, Quiet, assert_alike, bytes_of, environment, write_texts

from heedful.runs import trainer
from heedful.tasks import recipe

CPU = torch.device("cpu")
EVEN = SIZES | {
    "model.width": 16,
    "model.heads": 4,
    "model.ffn_width": 24,
    "evaluate.rows": 4,
    "evaluate.every": 8,
    "evaluate.examples": 0,
}
TEXT = EVEN | LM | {"train.optimizer": "muon", "train.ema_decay": 0.8, "train.batch_tokens": 64}
PAIRS = EVEN | TRANSLATE | {"model.decoder_layers": 2, "model.decoder_heads": 4, "train.batch_tokens": 80}
PLAN = [
    ["start", "lm", TEXT | {"train.parallel": "fsdp,tensor=2"}, "parts"],
    ["cut", "parts", "cut", 4],
    ["resume", "cut"],
    ["start", "translate", PAIRS | {"train.parallel": "auto,tensor=2"}, "pairs"],
    ["cut", "alone/pairs", "grown", 4],
    ["edit", "grown", "train", "parallel", "fsdp,tensor=4"],
    ["resume", "grown"],
    ["main", "train", "lm", "--run", "bad", *(f"--set={k}={v}" for k, v in TEXT.items())],
    ["main", "train", "lm", "--run", "odd", *(f"--set={k}={v}" for k, v in TEXT.items())],
]
PLAN[-2].append("--set=train.parallel=ddp,tensor=3")
PLAN[-1] += ["--set=train.parallel=fsdp,tensor=2", "--set=model.heads=1"]


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> tuple[Path, list[list[dict]]]:
    """The folder, and what became of each item in each process."""
    folder = tmp_path_factory.mktemp("four")
    write_texts(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        for name, task, settings in (("parts", "lm", TEXT), ("pairs", "translate", PAIRS)):
            trainer.start(recipe.make(task, settings=settings), folder / "alone" / name, Quiet(), CPU)
    finally:
        os.chdir(before)
    (folder / "answers").mkdir()
    (folder / "plan.json").write_text(json.dumps(PLAN))
    done = subprocess.run(
        [*LAUNCH[:-1], "4", str(DRIVER), "plan.json", "answers"],
        cwd=folder,
        env=environment(),
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, [json.loads((folder / "answers" / f"{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize("name", ["parts", "pairs"])
def test_four_processes_log_and_score_what_one_does(name, four):
    folder, _ = four
    assert_alike(folder / name, folder / "alone" / name, 5e-6)


def test_a_run_in_parts_goes_on_to_the_same_bytes(four):
    folder, _ = four
    found, expected = bytes_of(folder / "cut"), bytes_of(folder / "parts")
    assert found.keys() == expected.keys() and len(found) >= 4
    assert all(found[name] == expected[name] for name in expected)


def test_one_process_may_become_four_parts_and_four_parts_one(four, tmp_path, monkeypatch):
    folder, _ = four
    assert_alike(folder / "grown", folder / "alone" / "pairs", 5e-6)
    monkeypatch.chdir(folder)
    from runs.test_torchrun import cut_after

    cut_after(folder / "parts", tmp_path / "alone", 4)
    assert trainer.resume(tmp_path / "alone", Quiet(), CPU).finished
    assert_alike(tmp_path / "alone", folder / "parts", 5e-6)


def test_the_plan_says_how_and_why(four):
    _, answers = four
    lead = answers[0]
    assert (
        "parallel: fsdp,tensor=2, the model in 2 shards, every matrix in 2 parts (as train.parallel says)"
        in (lead[0]["lines"])
    )
    (chosen,) = [line for line in lead[3]["lines"] if line.startswith("parallel: ")]
    assert chosen.startswith(
        "parallel: ddp,tensor=2, 2 copies of the model, every matrix in 2 parts (a whole copy"
    )
    assert "in training, which fits into" in chosen
    assert all(other[0]["lines"] == [] for other in answers[1:])


def test_what_cannot_be_divided_is_refused_once(four):
    _, answers = four
    for item, said in (
        (-2, "4 cannot be divided by 3: start another number"),
        (-1, "cannot divide 1 heads evenly"),
    ):
        errors = [line for line in answers[0][item]["err"].splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and said in errors[0]
        assert all(other[item]["err"] == "" for other in answers[1:])
