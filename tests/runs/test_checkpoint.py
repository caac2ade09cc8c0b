"""Checkpoints: whole or not there, whatever fails while one is written or happens to it afterwards."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from helpers import train_toy
from helpers.checkpoints import (  # noqa: F401 (fixtures)
    FILES,
    copied,
    flip,
    memory,
    names,
    run,
    same,
    save,
    seed_of,
    server,
    tmp_path,
    why,
)

from heedful import files
from heedful.data import tensor_files
from heedful.errors import BadInput, DiskFull, NotFinite
from heedful.runs import checkpoint

# What is written is what is read.


def test_everything_comes_back_bit_for_bit(tmp_path):
    dtypes = [d for d in tensor_files.TYPES if d not in (torch.uint16, torch.uint32, torch.uint64)]
    sets = {"model": {str(d): torch.tensor([[0, 1, 3]]).to(d) for d in dtypes}}
    sets["odd"] = {
        "none": torch.zeros(0, 4),
        "one": torch.tensor(2.5),
        "turned": torch.randn(3, 5).T,
        "ü": torch.ones(2),
    }
    sets["empty"] = {}
    state = {
        "floats": [0.1, 1e-320, 2**0.5, -0.0],
        "big": 2**80,
        "text": 'ü"\n',
        "none": None,
        "deep": {"a": [True]},
    }
    tensors, found = checkpoint.load(checkpoint.save(tmp_path, 0, sets, state))
    assert same(tensors, sets) and found == state
    assert all(a.hex() == b.hex() for a, b in zip(found["floats"], state["floats"], strict=True))
    assert all(tensors["model"][name].dtype == sets["model"][name].dtype for name in sets["model"])


def test_files_are_the_same_as_the_librarys(tmp_path):
    torch.manual_seed(0)
    tensors = {
        f"{number} {dtype}": torch.randn(3, 2).to(dtype) for number, dtype in enumerate(tensor_files.TYPES)
    }
    tensors |= {"ü": torch.randn(0, 4), "one": torch.tensor(2.5), "a": torch.randn(5, 7).T.contiguous()}
    entry = tensor_files.write_tensors(tmp_path / "x", tensors)
    written = (tmp_path / "x").read_bytes()
    assert written == safetensors.torch.save(tensors, {"format": "pt"})
    assert entry == {"bytes": len(written), "sha256": checkpoint.file_hash(tmp_path / "x")}
    assert tensor_files.tensor_bytes(tensors) == len(written)


def test_files_longer_than_a_block_are_written_and_hashed_in_full(tmp_path):
    tensors = {"model": {"a": torch.arange(700_001), "b": torch.arange(300_000)}}
    folder = checkpoint.save(tmp_path, 1, tensors, {})
    assert same(checkpoint.load(folder)[0], tensors)
    flip(folder / "model.safetensors", 8 * 1_000_000)
    assert "model.safetensors: expected SHA-256" in why(folder)


def test_loaded_tensors_do_not_lie_in_the_file(run):
    tensors, _ = checkpoint.load(run / "checkpoints/step-30")
    assert tensors and "step-30" not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("state", [{1: "a"}, {"a": (1, 2)}])
def test_a_state_that_json_would_alter_is_refused(tmp_path, state):
    with pytest.raises(BadInput, match="would come back altered"):
        checkpoint.save(tmp_path, 1, {}, state)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [{"step": -1}, {"step": "x"}, {"keep": 0}, {"tensors": {"a/b": {}}}])
def test_what_could_not_be_found_again_is_refused(tmp_path, bad):
    with pytest.raises(BadInput):
        checkpoint.save(tmp_path, **{"step": 1, "tensors": {}, "state": {}, **bad})
    assert list(tmp_path.iterdir()) == []


# Numbers that are not finite are never written.


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.float8_e5m2]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_checkpoint_that_is_not_finite_is_never_written(run, dtype, value):
    poisoned = torch.ones(3, 7)
    poisoned[1, 4] = value
    with pytest.raises(NotFinite, match=r"step 40, optimizer: c "):
        checkpoint.save(run, 40, {"model": {"b": torch.ones(2)}, "optimizer": {"c": poisoned.to(dtype)}}, {})
    with pytest.raises(NotFinite):
        checkpoint.save(run, 40, {}, {"best": value})
    assert names(run) == ["step-10", "step-20", "step-30"]


def test_a_kill_at_every_operation_of_a_run_leaves_the_old_or_the_new(server, tmp_path):
    """From taking the lock to releasing it, with the save of step 6, which deletes step 2; then to step 8."""
    assert server.run(tmp_path / "whole", "--steps", 8) == 0
    assert server.run(tmp_path / "begun", "--steps", 4) == 0
    found, code, at = [], -9, 0
    while code == -9:
        at += 1
        run = copied(tmp_path / "begun", tmp_path / "run")
        code = server.run(run, "--steps", 6, "--resume", kill_at=at)
        folder, told = checkpoint.latest(run)
        found.append((folder.name, server.in_save))
        assert told == [] and not [name for name in names(run) if "." in name]
        assert server.run(run, "--steps", 8, "--resume") == 0
        for name in ("metrics.jsonl", "model.safetensors", *(f"checkpoints/step-8/{name}" for name in FILES)):
            assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert names(run) == ["step-6", "step-8"]
    steps, saving = zip(*found, strict=True)
    print(f"killed at {at - 1} operations of a run, of which {sum(saving)} were of a save")
    assert code == 0 and sum(saving) > 25
    assert list(steps) == sorted(steps) and set(steps) == {"step-4", "step-6"}  # up to a point the old one


def test_a_kill_at_every_operation_of_a_replacement_leaves_the_old_or_the_new(server, tmp_path):
    (tmp_path / "begun").mkdir()
    save(tmp_path / "begun", 1, seed=1.0)
    found, code, at = set(), -9, 0
    while code == -9:
        at += 1
        run = copied(tmp_path / "begun", tmp_path / "run")
        code = server.run(run, 1, 2.0, do="save_again", kill_at=at)
        folder, told = checkpoint.latest(run)  # keep is 1 here: this is the only one
        assert told == [] and names(run) == ["step-1"]
        found.add(seed_of(folder))
    assert code == 0 and found == {1.0, 2.0} and at > 25


def test_nothing_is_renamed_or_deleted_before_it_is_safe_on_the_disk(run, monkeypatch):
    """A kill spares what the system holds in memory; a power cut does not, so the order must be right."""
    log = []
    monkeypatch.setattr(files, "_before", lambda op, path: log.append((op, path.name)))
    save(run, 40, keep=2)
    aside = f"step-40.tmp-{os.getpid()}"
    for name in FILES:
        assert log.index(("fsync", name)) > last(log, ("write", name))
        assert log.index(("fsync", name)) < log.index(("fsync folder", aside))
    assert log.index(("open", "manifest.json")) > max(log.index(("fsync", name)) for name in FILES[:3])
    published = log.index(("rename", "step-40"))
    assert log.index(("fsync folder", aside)) < published < last(log, ("fsync folder", "checkpoints"))
    deletions = [number for number, (op, _) in enumerate(log) if op in ("unlink", "rmdir")]
    assert len(deletions) == 10 and min(deletions) > last(log, ("fsync folder", "checkpoints"))


def last(log, entry):
    return len(log) - 1 - log[::-1].index(entry)


class FullDisk:
    """Takes so many bytes and no more."""

    def __init__(self, room):
        self.room = room

    def put(self, handle, data):
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(handle, data[: self.room])
        self.room -= written
        return written


def test_a_disk_that_fills_up_in_the_middle_leaves_what_was_there(run, monkeypatch):
    folder = save(run, 40, keep=4)
    total = sum(path.stat().st_size for path in folder.iterdir())
    shutil.rmtree(folder)
    for room in [0, 1, *(total * part // 18 for part in range(1, 18)), total - 1]:
        monkeypatch.setattr(files, "put", FullDisk(room).put)
        with pytest.raises(DiskFull) as caught:
            save(run, 40)
        assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(folder)
        needed, free = map(
            int, re.search(r"(\d+) bytes are needed and (\d+) are free", str(caught.value)).groups()
        )
        assert 0 < needed <= total and free > 0
        assert names(run) == ["step-10", "step-20", "step-30"]
        assert checkpoint.latest(run) == (run / "checkpoints/step-30", [])
    monkeypatch.setattr(files, "put", FullDisk(total).put)
    assert seed_of(save(run, 40)) == 40.0


@pytest.mark.parametrize("room", [0, 500, 1500, 3000])
def test_a_full_disk_has_its_exit_code_and_the_run_goes_on_when_there_is_room(
    tmp_path, monkeypatch, capsys, room
):
    assert train_toy.main([f"{tmp_path}/whole", "--steps", "8"]) == 0
    assert train_toy.main([f"{tmp_path}/run", "--steps", "4"]) == 0
    monkeypatch.setattr(files, "put", FullDisk(room).put)
    assert train_toy.main([f"{tmp_path}/run", "--steps", "8", "--resume"]) == 5
    assert re.search(r"\d+ bytes are needed and \d+ are free", capsys.readouterr().err)
    assert not list((tmp_path / "run").rglob("*.tmp-*"))
    monkeypatch.undo()
    assert train_toy.main([f"{tmp_path}/run", "--steps", "8", "--resume"]) == 0
    for name in ("metrics.jsonl", "model.safetensors", "checkpoints/step-8/optimizer.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_disk_that_is_too_full_is_noticed_before_anything_is_written(run, monkeypatch):
    monkeypatch.setattr(files, "free_bytes", lambda path: files.MARGIN + 300)
    log = []
    monkeypatch.setattr(files, "_before", lambda op, path: log.append(op))
    with pytest.raises(DiskFull, match=rf"{files.MARGIN + 300} are free"):
        save(run, 40)
    assert log == ["mkdir"]  # of checkpoints/, which is there


OPERATIONS = ["open", "write", "fsync", "mkdir", "fsync folder", "rename"]


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_fails_is_told_and_leaves_what_was_there(run, monkeypatch, operation, error):
    """A folder one may not write to, a disk that is read-only or breaks: at each kind of operation."""

    def fail(op, path):
        if op == operation:
            raise OSError(error, os.strerror(error), str(path))

    before = {path: path.read_bytes() for path in run.rglob("*.*") if path.is_file()}
    tensors, state = train_toy.numbers(40.0), {"seed": 40.0}
    monkeypatch.setattr(files, "_before", fail)
    with pytest.raises(BadInput, match=f"step-40 cannot be written: {os.strerror(error)}"):
        checkpoint.save(run, 40, tensors, state)
    monkeypatch.undo()
    assert not [name for name in names(run) if "tmp" in name]
    assert {path: path.read_bytes() for path in before} == before
    assert same(tensors, train_toy.numbers(40.0))  # what was to be saved is still there to be saved again
    assert seed_of(checkpoint.save(run, 40, tensors, state)) == 40.0


def test_a_replacement_that_fails_puts_the_old_one_back(run, monkeypatch):
    moved = []

    def fail(op, path):
        if op == "rename" and path.name == "step-30" and not moved:
            moved.append(path)
            raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(files, "_before", fail)
    with pytest.raises(BadInput):
        save(run, 30, seed=31.0)
    assert moved and names(run) == ["step-10", "step-20", "step-30"] and seed_of(moved[0]) == 30.0


def test_a_folder_that_is_missing_or_was_deleted_is_told_and_not_made_again(tmp_path):
    with pytest.raises(BadInput, match="gone/checkpoints/step-1 cannot be written: No such file"):
        save(tmp_path / "gone", 1)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "run").mkdir()
    save(tmp_path / "run", 1)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(BadInput, match="run/checkpoints/step-2 cannot be written"):
        save(tmp_path / "run", 2)
    assert list(tmp_path.iterdir()) == []


# Which ones are kept.


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_are_kept(tmp_path, keep):
    for step in range(1, 8):
        save(tmp_path, step, keep=keep)
        assert names(tmp_path) == [f"step-{s}" for s in range(max(1, step - keep + 1), step + 1)]
        assert checkpoint.latest(tmp_path) == (tmp_path / f"checkpoints/step-{step}", [])


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_damaged_ones_are_not_counted(tmp_path, keep):
    for step in range(1, 7):
        save(tmp_path, step, keep=6)
    for step in (4, 6):
        flip(tmp_path / f"checkpoints/step-{step}/model.safetensors", 1000)
    save(tmp_path, 7, keep=keep)
    whole = {1: [7], 2: [5, 7], 3: [3, 5, 7]}[keep]
    assert [s for s in range(1, 8) if checkpoint.fault(tmp_path / f"checkpoints/step-{s}") is None] == whole
    assert set(names(tmp_path)) <= {f"step-{s}" for s in (*whole, 4, 6)}


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_going_on_from_an_older_one_never_deletes_the_one_just_written(run, keep):
    """Steps 20 and 30 are whole and later than what is written now."""
    for step in (11, 12, 13):
        folder = save(run, step, keep=keep)
        assert seed_of(folder) == step
        assert len(names(run)) <= keep + 1
    assert checkpoint.latest(run)[0].name == "step-30"


@pytest.mark.parametrize("keep", [1, 2])
def test_a_failed_save_deletes_nothing(run, monkeypatch, keep):
    monkeypatch.setattr(files, "put", FullDisk(700).put)
    for _ in range(3):
        with pytest.raises(DiskFull):
            save(run, 40, keep=keep)
        assert names(run) == ["step-10", "step-20", "step-30"]


def test_the_same_checkpoint_again_changes_nothing(run):
    folder = run / "checkpoints/step-30"
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    save(run, 30)
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before
    assert names(run) == ["step-20", "step-30"]


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_one_is_replaced(run, name):
    flip(run / "checkpoints/step-30" / name, 33)
    assert seed_of(save(run, 30)) == 30.0
    assert checkpoint.latest(run) == (run / "checkpoints/step-30", []) and names(run) == [
        "step-20",
        "step-30",
    ]


def test_another_one_of_the_same_step_is_replaced(run):
    assert seed_of(save(run, 30, seed=31.0)) == 31.0
    (run / "checkpoints/step-50").write_text("a file in the way")
    assert seed_of(save(run, 50)) == 50.0
    assert names(run) == ["step-30", "step-50"]


def test_files_that_did_not_change_are_not_read_again_to_decide_what_to_delete(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SURE", -1)
    read = []
    hashed = checkpoint.file_hash
    monkeypatch.setattr(checkpoint, "file_hash", lambda path: read.append(path.name) or hashed(path))
    for step in range(1, 6):
        save(tmp_path, step, keep=2)
    assert read == []
    later = (tmp_path / "checkpoints/step-5/model.safetensors").stat().st_ctime_ns
    while (tmp_path / "checkpoints/step-5/model.safetensors").stat().st_ctime_ns == later:
        flip(tmp_path / "checkpoints/step-5/model.safetensors", 1000)
        flip(tmp_path / "checkpoints/step-5/model.safetensors", 1001)
    save(tmp_path, 6, keep=2)
    assert "model.safetensors" in read
    assert names(tmp_path) == ["step-4", "step-5", "step-6"]  # step-5 is damaged, so step-4 is still needed


def test_a_file_changed_just_now_is_read_again(tmp_path, monkeypatch):
    """Clocks of disks are coarse: two changes soon after one another may leave the same time behind."""
    identity = checkpoint.identity

    def coarse(path):
        *rest, changed = identity(path)
        return (*rest, changed - changed % (checkpoint.SURE // 2))

    monkeypatch.setattr(checkpoint, "identity", coarse)
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3)
    flip(tmp_path / "checkpoints/step-3/optimizer.safetensors", 300)
    save(tmp_path, 4, keep=2)
    assert names(tmp_path) == ["step-2", "step-3", "step-4"]


def test_the_manifest_records_the_facts(run):
    found = json.loads((run / "checkpoints/step-30/manifest.json").read_text())
    assert found["facts"] == {"threads": 1} and found["step"] == 30 and found["format"] == 1
