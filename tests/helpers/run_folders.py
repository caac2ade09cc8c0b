"""Runs of a toy on a disk in memory, for the tests of a run's folder and of its files."""

import tempfile
from pathlib import Path

import pytest

from helpers import train_toy


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
