"""A run's folder: interrupted at any moment it goes on to the same bytes, and one process owns it."""

import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest
import torch
from helpers import train_toy
from helpers.run_folders import (  # noqa: F401 (fixtures)
    memory,
    resuming,
    same_as,
    server,
    tmp_path,
    toy,
    whole,
)

from heedful import files
from heedful.errors import BadInput, DiskFull
from heedful.runs import checkpoint
from heedful.runs.folder import RunFolder, Stop

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


# Interrupted and resumed.


def killed_at_random(server, whole, tmp_path, kills):
    """Kill runs until each is done, by the clock and at random operations; how many kills in a save."""
    rng, killed, inside = random.Random(1), 0, 0
    began = time.perf_counter()
    assert server.run(tmp_path / "first") == 0 and same_as(whole, tmp_path / "first")
    length = time.perf_counter() - began
    while killed < kills:
        run, code = tmp_path / f"run{killed}", -9
        while code == -9:
            by_clock = rng.random() < 0.5
            child = server.start(
                run, *resuming(run), kill_at=0 if by_clock or killed >= kills else rng.randrange(1, 1000)
            )
            if by_clock and killed < kills:
                time.sleep(rng.uniform(0, length))
                os.kill(child, signal.SIGKILL)
            code = server.wait()
            assert code in (0, -9), server.said
            killed += code == -9
            inside += code == -9 and server.in_save
        assert same_as(whole, run)
        shutil.rmtree(run)
    print(f"{killed} kills, {inside} of them in a save")
    assert killed == kills
    return inside


def test_a_run_killed_at_random_moments_ends_in_the_same_bytes(server, whole, tmp_path):
    assert killed_at_random(server, whole, tmp_path, 20) >= 2


@pytest.mark.slow
def test_a_run_killed_at_five_hundred_random_moments_ends_in_the_same_bytes(server, whole, tmp_path):
    assert killed_at_random(server, whole, tmp_path, 500) >= 50


def test_a_run_resumed_after_any_step_ends_in_the_same_bytes(whole, tmp_path):
    for step in range(1, 61):
        run = tmp_path / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(whole / f"checkpoints/step-{step}", run / f"checkpoints/step-{step}")
        for name in ("recipe.json", "metrics.jsonl"):  # with the lines of all 60 steps
            shutil.copy(whole / name, run / name)
        assert toy(run, "--resume", "--every", 100) == 0
        assert same_as(whole, run), step


def test_a_resume_of_a_resume_ten_times_ends_in_the_same_bytes(whole, tmp_path):
    run = tmp_path / "run"
    for steps in range(6, 61, 6):
        assert toy(run, "--steps", steps, "--every", 4, *resuming(run)) == 0
        assert same_as(whole, run, steps)
    assert steps == 60


def test_a_run_killed_before_its_first_checkpoint_begins_again(whole, tmp_path):
    run = tmp_path / "run"
    assert toy(run, "--steps", 3, "--every", 9) == 0
    shutil.rmtree(run / "checkpoints")
    assert toy(run, "--resume", "--every", 30) == 0
    assert same_as(whole, run)


def test_a_damaged_checkpoint_is_passed_over_said_and_made_again(whole, tmp_path, capsys):
    run = tmp_path / "run"
    assert toy(run, "--steps", 20) == 0
    damaged = run / "checkpoints/step-20/optimizer.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert toy(run, "--resume") == 0
    assert "checkpoints/step-20 is damaged (optimizer.safetensors: expected" in capsys.readouterr().err
    assert same_as(whole, run)


def test_weights_that_are_not_finite_end_the_run_and_are_saved_nowhere(tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert toy(run, "--steps", 4) == 0
    step = train_toy.Toy.step

    def poisoned(self, number):
        loss = step(self, number)
        self.model[0].weight.data[2, 3] = float("inf")
        return loss

    monkeypatch.setattr(train_toy.Toy, "step", poisoned)
    assert toy(run, "--resume") == 3
    assert checkpoint.latest(run) == (run / "checkpoints/step-4", [])


def test_the_script_itself_runs(whole, tmp_path):
    script = [sys.executable, train_toy.__file__, str(tmp_path / "run"), "--steps", "3"]
    assert subprocess.run(script, check=False).returncode == 0
    assert same_as(whole, tmp_path / "run", steps=3)


# Asked to stop.


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_asked_to_stop_at_random_moments_saves_and_goes_on_to_the_same_bytes(
    server, whole, tmp_path, number
):
    rng, stopped, longest = random.Random(number), 0, 0.1
    run = tmp_path / "run"
    while stopped < 6:
        child = server.start(run, *resuming(run))
        server.wait_until_listening()
        time.sleep(rng.uniform(0, longest))
        os.kill(child, number)
        code = server.wait()
        if code == 0 and stopped:  # asked after the last step
            break
        if code == 0:  # a quick machine: once more from the beginning, and sooner
            shutil.rmtree(run)
            longest /= 2
            assert longest > 1e-4, "it never heard the signal"
            continue
        assert code == 75, (code, server.said)
        stopped += 1
        status = json.loads((run / "status.json").read_text())
        assert status["reason"] == "interrupted" and status["signal"] == number.name
        assert checkpoint.latest(run) == (run / f"checkpoints/step-{status['step']}", [])
        assert not (run / "lock").exists()
    assert server.run(run, *resuming(run)) == 0
    assert same_as(whole, run)


def test_a_signal_at_any_operation_of_a_run_is_heard_once_it_listens(server, whole, tmp_path):
    """Also in the middle of a save: that one is finished, and the run ends after the step at hand."""
    begun = tmp_path / "begun"
    assert server.run(begun, "--steps", 4) == 0
    run, codes = tmp_path / "run", set()
    for at in range(1, 80, 4):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(begun, run)
        code = server.run(run, "--resume", "--steps", 8, signal_at=at, signal=SIGNALS[at % 3])
        codes.add(code)
        if code == 75:
            status = json.loads((run / "status.json").read_text())
            assert same_as(whole, run, status["step"])
        assert code in (0, 75), (at, server.said)
        assert server.run(run, "--resume") == 0 and same_as(whole, run)
    assert codes == {0, 75}  # 0: asked while the last step was being saved


@pytest.mark.parametrize("number", SIGNALS)
def test_being_asked_twice_means_now(server, tmp_path, number):
    child = server.start(tmp_path / "run", "--steps", 100_000, "--every", 100_000)
    server.wait_until_listening()
    time.sleep(0.05)
    os.kill(child, signal.SIGSTOP)  # so that both are there before it can save
    os.kill(child, number)
    os.kill(child, SIGNALS[SIGNALS.index(number) - 1])
    began = time.perf_counter()
    os.kill(child, signal.SIGCONT)
    assert server.wait() == 130
    assert time.perf_counter() - began < 1
    assert server.run(tmp_path / "run", "--resume", "--steps", 2) == 0  # its lock is taken over


def test_stop_gives_the_signals_back(monkeypatch):
    before = [signal.getsignal(number) for number in SIGNALS]
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with Stop() as stop:
        assert stop.asked is None
        signal.raise_signal(signal.SIGUSR1)
        assert stop.asked == "SIGUSR1" and ended == []
        signal.raise_signal(signal.SIGTERM)
        assert ended == [130]
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_stop_does_nothing_in_another_thread():
    before = [signal.getsignal(number) for number in SIGNALS]
    found = []

    def listen():
        with Stop() as stop:
            found.append(stop.asked)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [None] and [signal.getsignal(number) for number in SIGNALS] == before


# One owner.


def owner(pid, host=None, started=None):
    return json.dumps(
        {"pid": pid, "host": host or socket.gethostname(), "started": started or files.started(pid)}
    )


def test_a_folder_in_use_is_refused_and_its_owner_named(server, tmp_path):
    run = tmp_path / "run"
    with RunFolder.create(run, {}):
        before = (run / "lock").read_bytes()
        assert json.loads(before)["pid"] == os.getpid()
        for args in ([run], [run, "--resume"]):
            assert server.run(*args) == 2
            assert f"run is in use by process {os.getpid()} on {socket.gethostname()}: wait" in server.said
        with pytest.raises(BadInput, match=f"in use by process {os.getpid()} "):
            RunFolder.open(run)
        assert (run / "lock").read_bytes() == before
    assert not (run / "lock").exists()
    assert server.run(run, "--resume", "--steps", 1) == 0


def test_the_lock_of_a_dead_process_is_taken_over(server, tmp_path):
    run = tmp_path / "run"
    RunFolder.create(run, {}).close()
    assert server.run(run, do="hold_and_die") == -9
    dead = json.loads((run / "lock").read_text())["pid"]
    with RunFolder.open(run):  # although a child of the dead one still lives
        assert json.loads((run / "lock").read_text())["pid"] == os.getpid() != dead


STALE = {
    "torn": lambda living: '{"pid": 12',
    "empty": lambda living: "",
    "a list": lambda living: "[1]",
    "no number": lambda living: '{"pid": "x"}',
    "no such number": lambda living: owner(-1, started="7"),
    "zeros": lambda living: "\0" * 50,
    "dead": lambda living: owner(2**22 + 5, started="7"),
    "its number went to another": lambda living: owner(living, started="7"),
    "its number is ours": lambda living: owner(os.getpid()),
    "of another machine, and nobody holds it": lambda living: owner(living, host="elsewhere"),
}


@pytest.mark.parametrize("kind", STALE)
def test_a_stale_lock_is_taken_over(server, tmp_path, kind):
    (tmp_path / "lock").write_text(STALE[kind](server.process.pid))
    (tmp_path / "recipe.json").write_text("{}")
    with RunFolder.open(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_a_living_owner_is_believed_where_the_disk_does_not_lock(server, tmp_path):
    living = owner(server.process.pid)
    (tmp_path / "lock").write_text(living)
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(BadInput, match=f"in use by process {server.process.pid} "):
        RunFolder.open(tmp_path)
    assert (tmp_path / "lock").read_text() == living


def test_two_processes_never_hold_a_lock_at_once(server, tmp_path):
    assert server.run(tmp_path / "lock", 4, 100, do="take_turns") == 0, server.said


def test_a_lock_that_cannot_be_written_is_not_kept(tmp_path, monkeypatch):
    (tmp_path / "recipe.json").write_text("{}")
    monkeypatch.setattr(files, "put", lambda handle, data: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(DiskFull, match="lock"):
        RunFolder.open(tmp_path)
    monkeypatch.undo()
    RunFolder.open(tmp_path).close()


def test_a_zombie_does_not_live():
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    child.stdout.read()
    time.sleep(0.2)  # now it has ended, and nobody has asked for its exit code
    os.kill(child.pid, 0)
    assert files.started(child.pid) is None
    child.communicate()


def test_the_lock_is_given_up_at_exit(server, tmp_path):
    RunFolder.create(tmp_path / "run", {}).close()
    assert server.run(tmp_path / "run", do="leave") == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["recipe.json"]


# A new run in a folder.


def test_a_folder_that_holds_a_run_is_refused(tmp_path):
    run = tmp_path / "a" / "b" / "run"
    RunFolder.create(run, {"seed": 1}, config={"width": 2}, tokenizer='{"ü": 1}').close()
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert before.keys() == {"recipe.json", "config.json", "tokenizer.json"}
    with pytest.raises(BadInput) as caught:
        RunFolder.create(run, {"seed": 2})
    assert str(caught.value) == f"{run} holds a run: go on with --resume {run}, or give another --run"
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    with RunFolder.open(run) as folder:
        assert folder.recipe == {"seed": 1}
        folder.write_recipe({"seed": 1, "steps": 3})
        assert folder.recipe == {"seed": 1, "steps": 3}


def test_an_empty_folder_is_taken_and_one_with_other_files_is_not(tmp_path):
    RunFolder.create(tmp_path / "made", {}).close()
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", {}).close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.json").write_text("mine")
    with pytest.raises(BadInput, match="other is no run, for it holds config.json"):
        RunFolder.create(tmp_path / "other", {}, config={})
    assert (tmp_path / "other/config.json").read_text() == "mine" and len(
        list((tmp_path / "other").iterdir())
    ) == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file cannot be written: it is a file, not a folder"):
        RunFolder.create(tmp_path / "file", {})
    with pytest.raises(BadInput, match="below cannot be written"):
        RunFolder.create(tmp_path / "file/below", {})
    with pytest.raises(BadInput, match="gone holds no run"):
        RunFolder.open(tmp_path / "gone")


def test_a_create_that_was_killed_at_any_operation_can_be_made_again_or_resumed(server, whole, tmp_path):
    code, at, made = -9, 0, []
    while code == -9 and at < 100:
        at += 1
        run = tmp_path / f"run{at}"
        code = server.run(run, "--steps", 0, kill_at=at)
        made.append((run / "recipe.json").exists())
        assert server.run(run, "--steps", 2, *resuming(run)) == 0, server.said
        assert same_as(whole, run, steps=2)
        assert not list(run.glob(".*"))
    assert code == 0 and made == sorted(made) and {False, True} == set(made)


def test_a_create_that_fails_at_any_operation_leaves_nothing_and_can_be_made_again(tmp_path, monkeypatch):
    failing = 0

    def fail(op, path):
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(28, "full")

    while True:
        failing += 1
        left = failing
        monkeypatch.setattr(files, "_before", fail)
        try:
            run = RunFolder.create(tmp_path, {}, config={}, tokenizer="x")
        except DiskFull:
            assert list(tmp_path.iterdir()) == []
        else:
            break
    run.close()
    assert failing > 18  # a lock and three files


def test_a_folder_deleted_in_the_middle_of_a_run_is_told(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    step = train_toy.Toy.step

    def disturbed(self, number):
        if number == 5:
            shutil.rmtree(run)
        return step(self, number)

    monkeypatch.setattr(train_toy.Toy, "step", disturbed)
    assert toy(run) == 2
    assert "step-6 cannot be written: No such file or directory" in capsys.readouterr().err
    assert not run.exists()


@pytest.mark.parametrize("operation", ["open", "write", "mkdir", "fsync", "rename", "fsync folder"])
def test_a_folder_that_may_not_be_written_to_is_told(tmp_path, monkeypatch, capsys, operation):
    def refuse(op, path):
        if op == operation:
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files, "_before", refuse)
    assert toy(tmp_path / "run") == 2
    assert "cannot be written: Permission denied" in capsys.readouterr().err
    monkeypatch.undo()
    assert list((tmp_path / "run").rglob("*") if operation != "mkdir" else []) == []
    assert toy(tmp_path / "run", "--steps", 1) == 0


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_modes_follow_the_umask_and_a_linked_folder_stays_a_link(tmp_path, umask):
    (tmp_path / "disk").mkdir()
    run = tmp_path / "run"
    run.symlink_to("disk")
    before = os.umask(umask)
    try:
        assert toy(run, "--steps", 4) == 0
        assert toy(run, "--steps", 6, "--resume") == 0
        with RunFolder.open(run):
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "disk").rglob("*")}
    finally:
        os.umask(before)
    assert run.is_symlink() and os.readlink(run) == "disk"
    assert {path.name for path in modes} >= {
        "lock",
        "metrics.jsonl",
        "model.safetensors",
        "manifest.json",
        "step-6",
    }
    for path, mode in modes.items():
        assert mode == (0o777 if path.is_dir() else 0o666) & ~umask, path


def test_a_link_in_place_of_a_file_is_replaced_and_not_written_through(tmp_path):
    (tmp_path / "outside").write_text("mine")
    with RunFolder.create(tmp_path / "run", {}) as run:
        for name in ("status.json", "model.safetensors"):
            (run.path / name).symlink_to(tmp_path / "outside")
        run.status("done")
        run.write_model({"a": torch.ones(1)})
        (run.path / "metrics.jsonl").symlink_to(tmp_path / "outside")
        with pytest.raises(BadInput, match=r"metrics\.jsonl cannot be written"):
            run.metrics.append({"step": 1})
    assert (tmp_path / "outside").read_text() == "mine"
