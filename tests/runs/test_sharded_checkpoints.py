"""Checkpoints of several processes: each writes its share, and any number of processes reads it again.

The processes are started once, for all questions (shard_together.py).
"""

import json
import os
import subprocess
import sys

import pytest
from helpers import shard_together, train_group
from helpers.torchrun import LAUNCH


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> list[dict]:
    """What each of four processes found."""
    folder = tmp_path_factory.mktemp("sharded")
    words = [*LAUNCH[:-1], "4", shard_together.__file__, str(folder)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize("way", shard_together.WAYS)
def test_every_process_writes_its_share(way, told):
    shares = [f"model-{rank:05d}-of-00004.safetensors" for rank in range(1, 5)]
    others = ["average-00001-of-00004.safetensors", "manifest.json", "state.json"]  # one tensor: one file
    assert all(found["pieces"][way] == sorted([*shares, *others]) for found in told)


@pytest.mark.parametrize("way", shard_together.WAYS)
def test_what_was_spread_in_one_way_is_read_in_every_other_bit_for_bit(way, told):
    for other in shard_together.WAYS:
        assert all(found["reshards"][f"{way} {other}"] for found in told), other


def test_an_axis_that_is_cut_twice_comes_back(told):
    """Tensor parallelism and FSDP2 at once, over lengths that neither divides."""
    for found in told:
        assert found["cut twice"] == ["_StridedShard", "Shard"] and found["both"]


def test_what_goes_wrong_in_one_process_is_raised_in_all_and_leaves_nothing(told):
    for found in told:
        poisoned, left, full, still, saved, finally_ = found["errors"]
        assert poisoned == [
            "NotFinite",
            "step 30, model: even holds a number that is not finite, so it is not saved",
        ]
        assert full[0] == "DiskFull" and "bytes are needed" in full[1] and "step-31" in full[1]
        assert left == still == ["step-3"] and saved == "saved" and finally_ == ["step-3", "step-32"]


# Killed at any moment.


def killed(kills: int, folder) -> dict:
    """Four processes that train a sharded model, of which one after the other is killed (train_group.py)."""
    words = [sys.executable, "-W", "ignore", train_group.__file__, str(folder), str(kills)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_whichever_process_is_killed_the_run_ends_in_the_same_numbers(kills, tmp_path):
    found = killed(kills, tmp_path)
    print(found)
    assert found["kills"] == kills and found["same"]
    assert kills < 50 or (found["by clock"] > 10 and found["aside"] > 10)  # of them, many during a save
    assert 0 < found["went on after"] < train_group.STEPS
    assert found["fewer"] and found["wider"]  # four, then two, then one process: equal but for rounding
