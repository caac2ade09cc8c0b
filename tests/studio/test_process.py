"""`heedful studio` as a process: one link, no torch, no texts in its log, and a worker that really runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.serve_cases import ROOT
from helpers.studio_cases import StudioClient

from heedful.cli.main import main

SECRET = "canary in the text"


@pytest.fixture(scope="module")
def process(stored, tmp_path_factory):
    log = tmp_path_factory.mktemp("studio") / "log"
    command = [sys.executable, "-m", "heedful", "studio", str(stored / "lm"), "--runs", "none", "--no-open"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with log.open("wb") as file:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, env=environment, text=True)
    line = child.stdout.readline()
    port, token = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32}) is the studio", line).groups()
    yield StudioClient(int(port), None, headers={"authorization": f"Bearer {token}"}), child, log
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_model_is_loaded_traced_and_written_with(process):
    client, _, log = process
    run = client.id("lm")
    told = client.trace("lm", SECRET)
    weights = client.numbers(
        f"/api/trace/{told['id']}/tensor?name=weights&which=self&layer=1&head=1&dtype=f32"
    )
    assert abs(weights.sum(-1) - 1).max() < 1e-5
    events = client.stream("/api/write", {"run": run, "text": SECRET, "max_new_tokens": 3})
    assert len(events) == 5 and events[-1]["done"]["tokens"]
    assert client.post("/api/trace", {"run": run, "text": SECRET, "target": SECRET}).status == 400
    assert client.post("/api/trace", {"run": run, "text": 3, SECRET: 1}).status == 400
    assert client.get(f"/api/runs/{run}").json["worker"]["state"] == "ready"
    assert "canary" not in log.read_text() and client.headers["authorization"][7:] not in log.read_text()


def test_the_http_process_has_no_torch(process):
    assert process[0].get("/api/lab").json["claims"]
    maps = Path(f"/proc/{process[1].pid}/maps").read_text()
    assert "libtorch" not in maps and "_multiarray_umath" in maps


def test_a_signal_ends_it_and_its_worker(process):
    child = process[1]
    workers = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    child.terminate()
    assert child.wait(20) == 0 and workers
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.parametrize(
    "options, words",
    [
        (["none"], "there is no folder none"),
        (["--port", "70000"], "--port must be from 0 to 65535"),
        (["--data", "none.txt"], "is no file"),
    ],
)
def test_wrong_options_are_refused(options, words, capsys):
    assert main(["studio", *options]) == 2
    assert words in capsys.readouterr().err
