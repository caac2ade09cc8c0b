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
import tempfile
import threading
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch
from helpers import train_toy

from heedful import files
from heedful.errors import BadInput, DiskFull, NotFinite
from heedful.runs import checkpoint
from heedful.runs.folder import Metrics, RunFolder, Stop, check_model

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@pytest.fixture(scope="module")
def memory():
    with train_toy.memory() as folder:
        yield folder


@pytest.fixture
def tmp_path(memory):
    return Path(tempfile.mkdtemp(dir=memory))


@pytest.fixture(scope="module")
def server(memory):
    server = train_toy.Server(memory)
    yield server
    server.close()


@pytest.fixture(scope="module")
def whole(memory):
    """A run of 60 steps that nothing interrupted, with a checkpoint of every step."""
    run = memory / "whole"
    assert train_toy.main([str(run), "--every", "1", "--keep", "99"]) == 0
    return run


def toy(run, *args):
    return train_toy.main([str(run), *(str(arg) for arg in args)])


def same_as(whole, run, steps=60):
    """Weights, moments and every loss, bit for bit."""
    names = ["metrics.jsonl", "model.safetensors"] if steps == 60 else []
    names += [f"checkpoints/step-{steps}/{name}" for name in ("model.safetensors", "optimizer.safetensors")]
    return all((run / name).read_bytes() == (whole / name).read_bytes() for name in names)


def resuming(run):
    return ["--resume"] if (run / "recipe.json").exists() else []


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
        run.save(1, {}, {})
    assert log[0] == ("fsync", "metrics.jsonl") and ("rename", "step-1") in log[1:]


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
