"""Runs as the studio lists them, and what their training processes are told."""

import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from helpers.studio_cases import local_studio

from heedful.studio.runs import ModelFolders, id_of, parameters


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A studio of folders with odd and damaged files."""
    root = tmp_path_factory.mktemp("odd")
    names = ["whole", "no config", "broken json", "<img src=x onerror=pwned()>", "deep json"]
    for name in names:
        (root / name).mkdir()
        (root / name / "recipe.json").write_text(json.dumps({"task": "lm"}))
        (root / name / "config.json").write_text(json.dumps({"heedful": "gpt2", "config": {}}))
    (root / "no config" / "config.json").unlink()
    (root / "broken json" / "recipe.json").write_text("{")
    (root / "broken json" / "status.json").write_text("[]")
    (root / "deep json" / "config.json").write_text("[" * 100_000)
    with local_studio(root) as client:
        yield root, client


def test_damaged_folders_are_listed_with_what_can_be_read(folders):
    root, client = folders
    runs = {run["name"]: run for run in client.get("/api/runs").json["runs"]}
    assert runs.keys() == {path.name for path in root.iterdir()}
    assert runs["whole"]["task"] == "lm" and runs["broken json"]["task"] is None
    assert runs["no config"]["has_model"] is False and runs["deep json"]["architecture"] is None
    for run in runs.values():
        assert client.get(f"/api/runs/{run['id']}").json["name"] == run["name"]


@pytest.fixture
def odd(tmp_path):
    """A studio with one run, whose files a test writes."""
    root = tmp_path / "runs"
    (root / "odd").mkdir(parents=True)
    (root / "odd" / "config.json").write_text("{}")
    with local_studio(root) as client:
        yield root / "odd", client


def answers(client):
    """What is said of the only run: in the list, alone, of its metrics and of its samples."""
    (run,) = client.get("/api/runs").json["runs"]
    paths = ("", "/metrics", "/samples")
    return [run, *(client.get(f"/api/runs/{run['id']}{path}") for path in paths)]


def test_numbers_and_texts_that_json_does_not_have_do_no_harm(odd):
    folder, client = odd
    folder.joinpath("config.json").write_text('{"heedful": {"a": 1}, "x": 1e999, "y": "\\ud800"}')
    folder.joinpath("status.json").write_text('{"reason": "\\udfff", "step": -1e999}')
    lines = ['{"step": NaN, "loss": 1}', '{"step": 2, "loss": 1%s}' % ("0" * 400)]
    folder.joinpath("metrics.jsonl").write_text("\n".join(lines) + "\n")
    run, alone, metrics, _ = answers(client)
    assert (run["architecture"], run["step"], run["last"]) == (None, None, {"step": 2})
    assert alone.json["config"]["x"] is None and alone.json["config"]["y"] == "\ud800"
    figures = np.frombuffer(metrics.body[-16:], "<f4")  # two columns of two rows
    assert np.isinf(figures).sum() == np.isnan(figures).sum() == 1 and {1, 2} <= set(figures)


def test_pipes_and_links_to_other_places_are_left_alone(odd, tmp_path):
    folder, client = odd
    (tmp_path / "secret.json").write_text('{"task": "secret"}\n')
    for name in ("recipe.json", "samples.jsonl"):
        (folder / name).symlink_to(tmp_path / "secret.json")
    for name in ("metrics.jsonl", "model.safetensors", "status.json"):
        os.mkfifo(folder / name)  # whoever opens one waits for ever
    run, alone, metrics, samples = answers(client)
    assert run["task"] is None and alone.json["recipe"] == {} and run["parameters"] is None
    assert metrics.status == 409 and "is not a regular file" in metrics.json["error"]["message"]
    assert samples.status == 409 and "leads out of its folder" in samples.json["error"]["message"]


def test_a_run_is_described_once_its_model_is_loaded(studio):
    run = studio.id("lm")
    assert studio.get(f"/api/runs/{run}").json["config"]["heedful"] == "gpt2"
    assert studio.post(f"/api/runs/{run}/load", {}).json["state"] == "ready"
    assert studio.get(f"/api/runs/{run}").json["costs"]["parameters"] > 0
    assert studio.post("/api/runs/0123456789ab/load", {}).status == 404
    assert studio.post(f"/api/runs/{run}/load", {"now": True}).status == 400


def test_parameters_are_counted_by_the_header(stored, tmp_path):
    from helpers.studio_cases import load

    assert parameters(stored / "lm" / "model.safetensors") == load(str(stored / "lm")).parameter_count
    (tmp_path / "x").write_bytes(b"\xff" * 30)
    assert parameters(tmp_path / "x") is None and parameters(tmp_path / "none") is None


@pytest.fixture
def trainer(folders):
    """A process that says which signal it got, as the owner of a run."""
    root, client = folders
    code = (
        "import signal, sys, time\n"
        "for one in (signal.SIGTERM, signal.SIGUSR2):\n"
        "    signal.signal(one, lambda number, frame: (print(number), sys.exit()))\n"
        "print('ready', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    lock = root / "whole" / "lock"
    lock.write_text(json.dumps({"pid": process.pid, "host": socket.gethostname()}))
    yield client, id_of(root / "whole"), process, lock
    process.kill()
    process.wait()
    process.stdout.close()
    lock.unlink()


@pytest.mark.parametrize("order, number", [("stop", signal.SIGTERM), ("save", signal.SIGUSR2)])
def test_the_process_that_trains_is_told(trainer, order, number):
    client, run, process, _ = trainer
    assert client.get(f"/api/runs/{run}").json["status"] == "running"
    assert client.post(f"/api/runs/{run}/{order}", {}).json == {"pid": process.pid}
    assert process.stdout.read().strip() == str(int(number))


@pytest.mark.parametrize(
    "owner", [{"host": "another-machine"}, {"pid": 1}, {"pid": 2**22 + 5}, {"pid": -1}, {"pid": 0}]
)
def test_other_processes_are_left_alone(trainer, owner, monkeypatch):
    client, run, process, lock = trainer
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)) if number else None)
    if owner.get("pid") == 1:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    lock.write_text(json.dumps({"pid": process.pid, "host": socket.gethostname()} | owner))
    assert client.post(f"/api/runs/{run}/stop", {}).status == 409 and sent == []


def test_ids_stay_the_same(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text("{}")
    first, second = (ModelFolders(tmp_path).scan()[0].id for _ in range(2))
    assert first == second == id_of(tmp_path / "a") and len(first) == 12
