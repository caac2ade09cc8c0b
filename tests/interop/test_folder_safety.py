"""Code in a folder is never run, and links lead only into Hugging Face's own cache."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.bad_folders import (
    SINGLE,
    WTE,
    copied,
    same_weights,
    settings,
    zoo,  # noqa: F401 (fixtures)
)
from helpers.refusals import refused
from safetensors.torch import load_file

import heedful

# Code in a folder is never run.


class Payload:
    """A pickle of this makes a file when it is read."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def test_code_beside_the_weights_is_ignored(zoo, tmp_path):
    folder, marker = copied(zoo, "gpt2", tmp_path), tmp_path / "marker"
    for name in ("modeling_evil.py", "__init__.py", "handler.py", "heedful.py", "torch.py"):
        (folder / name).write_text(f"open({str(marker)!r}, 'w')")
    settings(
        auto_map={"AutoConfig": "modeling_evil.Config", "AutoModelForCausalLM": "modeling_evil.Model"},
        custom_pipelines={"evil": {"impl": "modeling_evil.Pipeline"}},
        trust_remote_code=True,
    )(folder)
    assert same_weights(heedful.load(folder), heedful.load(zoo / "gpt2"))
    assert not marker.exists()


PICKLES = [
    "pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "adapter.bin", "training_args.bin", "model.pt",
    "consolidated.00.pth", "last.ckpt", "model.pkl",
]  # fmt: skip


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_is_never_opened(name, zoo, tmp_path):
    folder, marker = copied(zoo, "gpt2", tmp_path), tmp_path / "marker"
    (folder / SINGLE).unlink()
    (folder / name).write_bytes(pickle.dumps(Payload(marker)))
    assert "safetensors" in refused(folder, name, "pickle")
    assert not marker.exists()
    pickle.loads((folder / name).read_bytes()).close()
    assert marker.exists(), "the payload does nothing, so its absence says nothing"


def convert(folder):
    """Run the command that the refusal prints, as a reader would, from anywhere."""
    command = refused(folder, "pytorch_model", "pickle").partition("convert it: ")[2]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", command], env=os.environ | {"PATH": path}, capture_output=True, check=False
    )


def test_the_printed_conversion_works(zoo, tmp_path):
    folder = shutil.copytree(zoo / "gpt2", tmp_path / "it's a $(touch marker) folder")
    weights = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    halves = list(weights)[::2], list(weights)[1::2]
    for number, names in enumerate(halves):
        part = {name: weights[name] for name in names}
        if WTE in part:
            part["lm_head.weight"] = part[WTE]  # tied, as torch.save keeps it
        torch.save(part, folder / f"pytorch_model-0000{number}-of-00002.bin")
    (folder / "optimizer.bin").write_bytes(pickle.dumps(Payload(tmp_path / "marker")))
    done = convert(folder)
    assert done.returncode == 0, done.stderr
    assert same_weights(heedful.load(folder), heedful.load(zoo / "gpt2"))
    assert not list(tmp_path.glob("marker"))


def test_the_printed_conversion_runs_no_code_either(zoo, tmp_path):
    folder, marker = copied(zoo, "gpt2", tmp_path), tmp_path / "marker"
    (folder / SINGLE).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(marker)))
    assert convert(folder).returncode != 0
    assert not marker.exists() and not (folder / SINGLE).exists()


# Hugging Face's own cache is made of links.


def as_cache(folder, root):
    """The layout of huggingface_hub: snapshots/REVISION/FILE are links into blobs/."""
    blobs, snapshot = root / "models--a--b" / "blobs", root / "models--a--b" / "snapshots" / "1f2e3d"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.copy(path, blobs / f"{number:064x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:064x}")
    return snapshot


def test_a_snapshot_of_the_cache_loads(zoo, tmp_path):
    snapshot = as_cache(zoo / "gpt2", tmp_path)
    expected = heedful.load(zoo / "gpt2")
    assert same_weights(heedful.load(snapshot), expected)
    (tmp_path / "favorite").symlink_to(snapshot)
    assert same_weights(heedful.load(tmp_path / "favorite"), expected)
    assert same_weights(heedful.load(os.path.relpath(snapshot)), expected)


def test_a_snapshot_may_link_only_into_its_own_store(zoo, tmp_path):
    snapshot = as_cache(zoo / "gpt2", tmp_path)
    other = as_cache(zoo / "gpt2", tmp_path / "another")
    config = snapshot / "config.json"
    config.unlink()
    config.symlink_to(other / "config.json")
    refused(snapshot, "config.json", "leads out")
    blobs = snapshot.parent.parent / "blobs"
    shutil.rmtree(blobs)
    blobs.symlink_to(other.parent.parent / "blobs")
    config.unlink()
    config.symlink_to("../../blobs/" + os.path.basename(os.readlink(other / "config.json")))
    refused(snapshot, "config.json", "leads out")


def test_links_within_a_folder_are_files_like_others(zoo, tmp_path):
    folder = copied(zoo, "gpt2", tmp_path)
    (folder / SINGLE).rename(folder / "weights")
    (folder / SINGLE).symlink_to("weights")
    assert same_weights(heedful.load(folder), heedful.load(zoo / "gpt2"))
