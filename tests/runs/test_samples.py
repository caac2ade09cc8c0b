"""samples.jsonl: what a run wrote for the same held-out examples at every evaluation."""

import json
import subprocess
import sys

import pytest
from helpers.runs import (
    CPU,
    Interrupted,
    Quiet,
    recipe_for,
    state_of,
    texts,  # noqa: F401 (fixtures)
)

from heedful.errors import BadInput
from heedful.interop.run_files import samples
from heedful.runs import folder, trainer
from heedful.tasks.task import WrittenSample

WRITERS = ["translate", "lm", "summarize", "caption", "mlm"]


def lines_of(run):
    return [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("task", WRITERS)
def test_every_evaluation_adds_a_line_about_the_same_examples(task, texts, tmp_path):
    outcome = trainer.start(recipe_for(task, texts), tmp_path / "run", Quiet(), CPU)
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [5, 10, 12]
    asked = [[(one["source"], one["reference"]) for one in line["samples"]] for line in lines]
    assert len(asked[0]) == 4 and len(set(asked[0])) == 4 and asked[0] == asked[1] == asked[2]
    assert all(set(one) == {"source", "output", "reference"} for line in lines for one in line["samples"])
    assert samples(tmp_path / "run" / "samples.jsonl").rows == lines
    if outcome.best.step == 12:  # the best weights are those that wrote the last line
        assert [one.as_json() for one in outcome.job.samples(outcome.model)] == lines[-1]["samples"]


def test_the_references_are_those_of_the_held_out_files(texts, tmp_path):
    trainer.start(recipe_for("translate", texts, steps=1), tmp_path / "run", Quiet(), CPU)
    (line,) = lines_of(tmp_path / "run")
    for one in line["samples"]:
        assert one["reference"] == " ".join(reversed(one["source"].upper().split()))


def test_tasks_that_write_nothing_and_runs_that_show_nothing_have_no_samples(texts, tmp_path):
    trainer.start(recipe_for("classify", texts, steps=1), tmp_path / "classify", Quiet(), CPU)
    quiet = recipe_for("translate", texts, steps=1, **{"evaluate.examples": 0})
    trainer.start(quiet, tmp_path / "quiet", Quiet(), CPU)
    assert not list(tmp_path.glob("*/samples.jsonl"))


@pytest.mark.parametrize("task", WRITERS)
def test_samples_change_no_byte_of_what_is_trained(task, texts, tmp_path):
    for name, shown in (("with", 1), ("without", 0)):
        asked = recipe_for(task, texts, **{"evaluate.examples": shown})
        trainer.start(asked, tmp_path / name, Quiet(), CPU)
    found = state_of(tmp_path / "with")
    assert found.pop("samples.jsonl") and found == state_of(tmp_path / "without")


@pytest.mark.parametrize("until", [6, 10, 11])
@pytest.mark.parametrize("task", WRITERS)
def test_a_resumed_run_has_the_same_samples(task, until, texts, tmp_path):
    asked = recipe_for(task, texts)
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until), CPU)
    with (tmp_path / "cut" / "samples.jsonl").open("ab") as file:
        file.write(b'{"step": 11, "samp')  # torn by a kill
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")


def test_a_spoilt_line_is_named_when_a_run_is_resumed(texts, tmp_path):
    with pytest.raises(Interrupted):
        trainer.start(recipe_for("translate", texts), tmp_path / "run", Quiet(11), CPU)
    path = tmp_path / "run" / "samples.jsonl"
    path.write_bytes(b"???\n" + path.read_bytes())
    with pytest.raises(BadInput, match=r"samples\.jsonl, line 1 is no JSON object"):
        trainer.resume(tmp_path / "run", Quiet(), CPU)


def test_texts_and_the_file_are_bounded(tmp_path, monkeypatch):
    long = WrittenSample("a" * 600, "b" * 500, "", "").as_json()
    assert long == {"source": "a" * 499 + "…", "output": "b" * 500, "reference": ""}
    monkeypatch.setattr(folder, "MOST_SAMPLES", 2000)
    with folder.RunFolder.create(tmp_path / "run", {}) as run:
        for step in range(9):
            run.keep_samples(step, [long])
    assert [line["step"] for line in lines_of(tmp_path / "run")] == [0, 1]


# Reading, without torch.

ROW = {"step": 1, "samples": [{"source": "a", "output": "b", "reference": "c"}]}


def test_rows_come_once_and_a_torn_line_waits(tmp_path):
    path = tmp_path / "samples.jsonl"
    assert samples(path) == ([], 0, 0)
    first = json.dumps(ROW).encode() + b"\n"
    path.write_bytes(first + b'{"step": 2')
    assert samples(path) == ([ROW], len(first), 0)
    path.write_bytes(first + json.dumps(ROW | {"step": 2}).encode() + b"\n")
    assert samples(path, after=len(first)) == ([ROW | {"step": 2}], path.stat().st_size, 0)
    path.write_bytes(first)  # written anew, shorter
    assert samples(path, after=10**6) == ([ROW], len(first), 0)


@pytest.mark.parametrize(
    "spoilt",
    [
        b"{",
        b"[1]",
        b"\xff\xfe",
        b'{"step": 1}',
        b'{"step": "1", "samples": []}',
        b'{"step": 1, "samples": [3]}',
        b'{"step": 1, "samples": [{"source": "a", "output": 3, "reference": "c"}]}',
    ],
)
def test_spoilt_lines_are_counted_and_left_out(spoilt, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_bytes(spoilt + b"\n" + json.dumps(ROW).encode() + b"\n")
    found = samples(path)
    assert found.rows == [ROW] and found.skipped == 1 and found.cursor == path.stat().st_size


def test_the_readers_need_no_torch():
    code = "import sys, heedful.interop.run_files as f; f.samples; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
