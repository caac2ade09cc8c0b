"""Checkpoints on a disk in memory, for the tests of their writing and of their damages."""

import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from heedful.errors import BadInput
from heedful.runs import checkpoint
from helpers import train_toy

FILES = ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"]


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


@pytest.fixture
def run(tmp_path):
    """A run with checkpoints of steps 10, 20 and 30, each with other numbers."""
    for step in (10, 20, 30):
        save(tmp_path, step, keep=3)
    return tmp_path


def save(run, step, seed=None, keep=2):
    seed = float(step) if seed is None else seed
    return checkpoint.save(run, step, train_toy.numbers(seed), {"seed": seed, "facts": {"threads": 1}}, keep)


def seed_of(folder):
    """Which numbers a checkpoint holds, once it has been read in full."""
    tensors, state = checkpoint.load(folder)
    assert same(tensors, train_toy.numbers(state["seed"]))
    return state["seed"]


def same(a, b):
    return a.keys() == b.keys() and all(
        a[name].keys() == b[name].keys() and all(torch.equal(a[name][key], b[name][key]) for key in a[name])
        for name in a
    )


def names(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def why(folder):
    """The sentence with which a checkpoint is refused."""
    with pytest.raises(BadInput) as caught:
        checkpoint.verify(folder)
    assert str(folder) in str(caught.value)
    with pytest.raises(BadInput):
        checkpoint.load(folder)
    return str(caught.value)


def falls_back(run, damaged, to):
    """The newest is passed over, and that is said."""
    folder, told = checkpoint.latest(run)
    assert folder.name == f"step-{to}" and len(told) == 1
    assert told[0].startswith(f"checkpoints/step-{damaged} is damaged (") and told[0].endswith(
        f": using step-{to}"
    )
    return told[0]


# Killed or failing in the middle of a save.


def copied(source, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
    return target


# Damaged afterwards.


def flip(path, place):
    """Turn one bit round; give back how to undo it."""
    whole = path.read_bytes()
    path.write_bytes(
        whole[: place // 8] + bytes([whole[place // 8] ^ 1 << place % 8]) + whole[place // 8 + 1 :]
    )
    return whole
