"""The files of a run's folder: metrics, status and the best weights are whole at every moment."""

import json
import os
import shutil
import time

import pytest
import safetensors.torch
import torch
from helpers import train_toy
from helpers.run_folders import memory, server, tmp_path, whole  # noqa: F401 (fixtures)

from heedful import files
from heedful.errors import BadInput, DiskFull, NotFinite
from heedful.runs.folder import Metrics, RunFolder, check_model
from heedful.runs.saving import Saver
from heedful.train.processes import World

# Metrics and status.


@pytest.fixture
def metrics(tmp_path):
    found = Metrics(tmp_path / "metrics.jsonl")
    yield found
    found.close()


def lines(metrics):
    return [json.loads(line, parse_constant=pytest.fail) for line in metrics.path.read_text().splitlines()]


def test_every_line_is_json_and_there_at_once(metrics):
    metrics.append({"step": 1, "loss": 0.1, "deep": {"a": [float("nan"), 2.0]}})
    assert lines(metrics) == [{"step": 1, "loss": 0.1, "deep": {"a": ["nan", 2.0]}}]
    metrics.append({"step": 2, "loss": float("inf"), "norm": -float("inf"), "text": "a\nü\u2028"})
    assert lines(metrics)[1] == {"step": 2, "loss": "inf", "norm": "-inf", "text": "a\nü\u2028"}


def test_lines_after_a_step_are_dropped(metrics):
    for step in (1, 2, 2, 3, 4):
        metrics.append({"step": step})
    metrics.append({"note": "of no step"})
    metrics.drop_after(2)
    assert lines(metrics) == [{"step": 1}, {"step": 2}, {"step": 2}, {"note": "of no step"}]
    metrics.append({"step": 3, "again": True})
    assert lines(metrics)[-1] == {"step": 3, "again": True}
    before = metrics.path.stat().st_ino
    metrics.drop_after(3)
    assert metrics.path.stat().st_ino == before  # nothing to drop, nothing written
    metrics.drop_after(0)
    assert lines(metrics) == [{"note": "of no step"}]


def test_a_line_torn_at_any_byte_is_dropped(metrics):
    metrics.append({"step": 1})
    start = metrics.path.stat().st_size
    metrics.append({"step": 2, "loss": 0.25, "text": "ü"})
    whole = metrics.path.read_bytes()
    for size in range(start, len(whole) + 1):
        metrics.close()
        metrics.path.write_bytes(whole[:size])
        metrics.drop_after(9)
        assert metrics.path.read_bytes() == whole[: start if size < len(whole) - 1 else len(whole)]
        metrics.append({"step": 3})
        assert lines(metrics)[-1] == {"step": 3}


@pytest.mark.parametrize("spoilt", [b'{"step": 2', b"[2]", b"\0\0\0", b"", b'{"a": NaN'])
def test_a_spoilt_line_in_the_middle_is_named_and_nothing_is_changed(metrics, spoilt):
    metrics.path.write_bytes(before := b'{"step": 1}\n' + spoilt + b'\n{"step": 3}\n')
    with pytest.raises(BadInput, match=r"metrics\.jsonl, line 2 is no JSON object"):
        metrics.drop_after(1)
    assert metrics.path.read_bytes() == before


def test_half_a_line_on_a_full_disk_is_taken_back(metrics, monkeypatch):
    metrics.append({"step": 1})
    room = iter([os.write, None])

    def put(handle, data):
        if next(room) is None:
            raise OSError(28, "full")
        return os.write(handle, data[:5])

    monkeypatch.setattr(files, "put", put)
    with pytest.raises(DiskFull, match=r"12 bytes are needed and \d+ are free"):
        metrics.append({"step": 2})
    monkeypatch.undo()
    metrics.append({"step": 3})
    assert lines(metrics) == [{"step": 1}, {"step": 3}]


def test_what_was_logged_reaches_the_disk_before_the_checkpoint_does(tmp_path, monkeypatch):
    with RunFolder.create(tmp_path / "run", {}) as run:
        run.metrics.append({"step": 1})
        log = []
        monkeypatch.setattr(files, "_before", lambda op, path: log.append((op, path.name)))
        with Saver(run.path, World(), torch.device("cpu"), run.sync_logs) as saver:
            saver.save(1, {}, {}, 2)
    assert log.index(("fsync", "metrics.jsonl")) < log.index(("rename", "step-1"))


def test_status_is_json_with_a_reason(tmp_path):
    with RunFolder.create(tmp_path / "run", {}) as run:
        run.status("not finite", step=3, loss=float("nan"))
        found = json.loads((run.path / "status.json").read_text(), parse_constant=pytest.fail)
    assert found.pop("time") == pytest.approx(time.time(), abs=60)
    assert found == {"reason": "not finite", "step": 3, "loss": "nan"}


# The best weights.


def test_the_published_model_can_be_checked(tmp_path):
    with RunFolder.create(tmp_path / "run", {}) as run:
        with pytest.raises(BadInput, match=r"model\.safetensors is missing"):
            run.read_model()
        for seed in (1.0, 2.0):
            tensors = train_toy.numbers(seed)["model"]
            run.write_model(tensors, step=int(seed))
            found = run.read_model()
            assert found.keys() == tensors.keys() and all(
                torch.equal(found[name], tensors[name]) for name in found
            )
            entry = check_model(run.path)
            assert entry["step"] == seed and entry == json.loads((run.path / "model.json").read_text())
        with pytest.raises(NotFinite):
            run.write_model({"a": torch.tensor(float("nan"))})
        assert check_model(run.path) == entry
        path = run.path / "model.safetensors"
        whole = path.read_bytes()
        for spoilt in (whole[:-1] + b"?", whole[:-1], b""):
            path.write_bytes(spoilt)
            with pytest.raises(
                BadInput, match=rf"model\.safetensors is damaged: expected {len(whole)} bytes with SHA-256"
            ):
                run.read_model()
        run.write_model(tensors)
        run.read_model()


def test_a_kill_at_any_operation_of_publishing_leaves_the_old_model_or_the_new(server, tmp_path):
    with RunFolder.create(tmp_path / "begun", {}) as run:
        run.write_model(train_toy.numbers(1.0)["model"])
    found, code, at = [], -9, 0
    while code == -9:
        at += 1
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(tmp_path / "begun", run)
        code = server.run(run, 2.0, do="publish", kill_at=at)
        found.append(published(run))
        assert server.run(run, 3.0, do="publish") == 0 and published(run) == 3
        assert sorted(path.name for path in run.iterdir()) == [
            "model.json",
            "model.safetensors",
            "recipe.json",
        ]
    assert code == 0 and found == sorted(found) and set(found) == {1.0, 2.0} and at > 20


def test_publishing_that_fails_again_and_again_leaves_the_old_model(tmp_path, monkeypatch):
    def fail(op, path):
        if (op, path.name) == ("rename", "model.safetensors"):
            raise OSError(5, "broken")

    with RunFolder.create(tmp_path / "run", {}) as run:
        run.write_model(train_toy.numbers(1.0)["model"])
        monkeypatch.setattr(files, "_before", fail)
        for seed in (2.0, 3.0):
            with pytest.raises(BadInput, match=r"model\.safetensors cannot be written: broken"):
                run.write_model(train_toy.numbers(seed)["model"])
            assert published(run.path) == 1


def published(run):
    check_model(run)
    return safetensors.torch.load_file(run / "model.safetensors")["a"][0, 0].item()


def test_leftovers_of_dead_processes_are_cleared(server, tmp_path):
    RunFolder.create(tmp_path / "run", {}).close()
    dead = server.start("x", do="publish")
    server.wait()
    for name in (*(f".status.json.tmp-{pid}" for pid in (dead, os.getpid(), server.process.pid)), ".mine"):
        (tmp_path / "run" / name).write_text("x")
    RunFolder.open(tmp_path / "run").close()
    assert {path.name for path in (tmp_path / "run").glob(".*")} == {
        f".status.json.tmp-{server.process.pid}",
        ".mine",
    }
