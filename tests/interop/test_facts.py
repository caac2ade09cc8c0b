"""Runs and models are described without torch, as they are once loaded."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.chat_cases import CHATML, folder, tell  # noqa: F401
from helpers.small_runs import small_run  # noqa: F401

import heedful
from heedful.interop import run_files
from heedful.interop.facts import facts
from heedful.runs.folder import Lock

USE = """
import sys
from pathlib import Path
from heedful.interop import run_files
from heedful.interop.facts import facts
run = Path(sys.argv[1])
print(facts(run).can, facts(Path(sys.argv[2])).can)
print(run_files.recipe(run)["task"], run_files.status(run)["reason"])
print(run_files.owner(run), run_files.checkpoints(run), run_files.best(run)["step"])
print(len(run_files.metrics(run / "metrics.jsonl").rows), "torch" in sys.modules)
"""


def test_a_run_is_read_without_torch(small_run, folder):
    run = small_run("bytes")
    done = subprocess.run(
        [sys.executable, "-c", USE, run, folder], capture_output=True, text=True, check=True, timeout=60
    )
    abilities, *told, counts = done.stdout.splitlines()
    assert abilities == f"{heedful.load(run).can} {heedful.load(folder).can}"
    assert told == ["translate done", "{} [2] 2"] and counts == "3 False"


@pytest.mark.parametrize("name", ["bytes", "draft", "mlm-bytes", "classify", "summarize", "classify-decoder"])
def test_facts_of_runs_are_those_of_the_loaded_model(name, small_run):
    found, model = facts(Path(small_run(name))), heedful.load(small_run(name))
    assert found.own and (found.architecture, found.task) == (model.architecture, model.task)
    assert found.can == model.can and found.parameters == model.parameter_count
    assert found.context == getattr(model.config, "context", None)
    assert found.vocab == max(getattr(model.config, n, 0) for n in ("vocab", "target_vocab"))
    assert not found.chat


def test_facts_of_folders_are_those_of_the_loaded_model(folder):
    model = heedful.load(folder)
    found = facts(folder)
    assert not found.own and found.can == model.can and found.parameters == model.parameter_count
    assert (found.architecture, found.vocab, found.context) == ("llama", model.config.vocab, 999)
    assert not found.chat
    tell(folder, CHATML)
    assert facts(folder).chat
    (folder / "model.safetensors").write_bytes(b"\xff" * 30)
    assert facts(folder).parameters is None
    (folder / "config.json").write_text('{"model_type": "other"}')
    with pytest.raises(heedful.BadInput, match="model_type of 'other', which heedful does not read"):
        facts(folder)


def test_metrics_are_read_on_from_a_cursor(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert run_files.metrics(file) == ([], 0, 0)
    file.write_bytes(b'{"step": 1}\n{"step": 2}\nnonsense\n[3]\n{"step"')
    rows, cursor, skipped = run_files.metrics(file)
    assert rows == [{"step": 1}, {"step": 2}] and skipped == 2 and cursor == file.stat().st_size - 7
    assert run_files.metrics(file, cursor) == ([], cursor, 0)  # half a line waits
    with file.open("ab") as more:
        more.write(b': 4}\n{"step": 5}\n')
    assert run_files.metrics(file, cursor).rows == [{"step": 4}, {"step": 5}]
    found, cursor = [], 0
    while (news := run_files.metrics(file, cursor, most=14)).cursor > cursor:
        found, cursor = found + [row["step"] for row in news.rows], news.cursor
    assert found == [1, 2, 4, 5] and cursor == file.stat().st_size
    file.write_bytes(b'{"step": 1}\n')  # a resumed run has dropped lines
    assert run_files.metrics(file, cursor).rows == [{"step": 1}]
    with pytest.raises(heedful.BadInput, match="from byte -1"):
        run_files.metrics(file, -1)


def test_the_owner_is_a_process_that_lives(tmp_path):
    assert run_files.owner(tmp_path) == {}
    lock = Lock(tmp_path / "lock")
    assert run_files.owner(tmp_path)["pid"] == os.getpid()
    lock.release()
    dead = {"pid": 2**22 + 5, "host": os.uname().nodename, "started": "1"}
    for said, found in ((dead, {}), (dead | {"host": "far"}, dead | {"host": "far"}), ([], {})):
        (tmp_path / "lock").write_text(json.dumps(said))
        assert run_files.owner(tmp_path) == found


def test_a_run_that_has_begun_has_no_checkpoints_and_no_best_figures(tmp_path):
    assert run_files.checkpoints(tmp_path) == [] and run_files.best(tmp_path) == {}
    for name in ("step-3", "step-20", "step-07", "step-4.tmp-9"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert run_files.checkpoints(tmp_path) == [20, 3] and run_files.status(tmp_path) == {}
    (tmp_path / "status.json").write_text('{"reason": "done", "best": {"loss": 2.5}, "best_step": 20}')
    assert run_files.best(tmp_path) == {"step": 20, "loss": 2.5}
