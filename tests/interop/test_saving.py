"""Saving: what is saved loads bit for bit, and a failure keeps the folder that was there."""

import json
import os
import shutil
import stat

import pytest
import torch
from helpers import hf_zoo
from helpers.tokenizer_cases import model  # noqa: F401 (fixtures)

import heedful
from heedful.interop.hf import write as hf_write
from heedful.interop.loaded import Loaded
from heedful.models import family, gpt1, gpt3, t5, transformer

# Saving


@pytest.mark.parametrize("name, seed", [(name, seed) for name in hf_zoo.FAMILIES for seed in range(4)])
def test_every_family_is_saved_as_it_was_loaded(name, seed, tmp_path):
    hf_zoo.write(hf_zoo.make(name, seed), tmp_path / "theirs")
    loaded = heedful.load(tmp_path / "theirs")
    heedful.save(loaded, tmp_path / "ours")
    same(heedful.load(tmp_path / "ours"), loaded)


UNHEARD_OF = {
    "gpt3": gpt3.GPT3Config(vocab=13, context=7, layers=2, width=12, heads=3),
    "gpt1": gpt1.GPT1Config(vocab=13, context=7, layers=2, width=12, heads=3, ffn_width=20),
    "transformer": transformer.TransformerConfig(
        vocab=13,
        target_vocab=13,
        layers=1,
        decoder_layers=1,
        width=12,
        heads=3,
        decoder_heads=3,
        ffn_width=20,
        positions="rotary",
    ),
    "t5": t5.T5Config(
        vocab=13, layers=1, decoder_layers=1, width=12, heads=3, ffn_width=20, activation="relu_squared"
    ),
}


@pytest.mark.parametrize("name", UNHEARD_OF)
def test_a_model_that_would_come_back_as_another_is_not_saved(name, tmp_path):
    config = UNHEARD_OF[name]
    loaded = Loaded(name, config, family(name).build(config), None, {})
    with pytest.raises(heedful.BadInput, match=name):
        heedful.save(loaded, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def same(a, b):
    ours, others = dict(a.model.named_parameters()), dict(b.model.named_parameters())
    assert ours.keys() == others.keys() and all(torch.equal(ours[name], others[name]) for name in ours)
    assert (a.architecture, a.config, a.special) == (b.architecture, b.config, b.special)
    assert (a.tokenizer and a.tokenizer.to_str()) == (b.tokenizer and b.tokenizer.to_str())


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WRITTEN = [
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]


def test_what_is_saved_loads_bit_for_bit(model, tmp_path):
    loaded = heedful.load(model)
    heedful.save(loaded, tmp_path / "new" / "folder")
    same(heedful.load(tmp_path / "new" / "folder"), loaded)
    assert contents(tmp_path / "new" / "folder") == contents(model)
    assert sorted(contents(model)) == WRITTEN


def test_a_model_in_half_precision_stays_what_it_is(model, tmp_path):
    loaded = heedful.load(model, dtype=torch.bfloat16)
    heedful.save(loaded, tmp_path / "half")
    same(heedful.load(tmp_path / "half", dtype=torch.bfloat16), loaded)
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"


def changed(loaded):
    with torch.no_grad():
        for weight in loaded.model.parameters():
            weight.add_(1)
    return loaded


def full(*_args, **_more):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "place", ["load.write_tensors", "json.dumps", "load.shutil.copymode", "os.fsync", "Path.write_bytes"]
)
def test_a_failure_while_saving_leaves_the_old_folder(place, model, monkeypatch):
    (model / "README.md").write_text("mine")
    before, new = contents(model), changed(heedful.load(model))
    where = {"load": hf_write, "json": json, "os": os, "Path": type(model)}
    *path, name = place.split(".")
    target = where[path[0]]
    for step in path[1:]:
        target = getattr(target, step)
    with monkeypatch.context() as patched:
        patched.setattr(target, name, full)
        with pytest.raises(OSError, match="No space"):
            heedful.save(new, model)
    assert contents(model) == before and len(list(model.iterdir())) == len(before)
    heedful.save(new, model)
    same(heedful.load(model), new)
    assert contents(model)["README.md"] == b"mine"


def test_an_interruption_while_saving_leaves_the_old_folder(model, monkeypatch):
    before, new = contents(model), changed(heedful.load(model))

    def interrupted(path, tensors):
        path.write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(hf_write, "write_tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        heedful.save(new, model)
    assert contents(model) == before and len(list(model.iterdir())) == len(before)


@pytest.mark.parametrize("mask", [0o077, 0o022, 0o002])
def test_files_get_the_permissions_of_any_new_file(mask, model, tmp_path):
    old = os.umask(mask)
    try:
        heedful.save(heedful.load(model), tmp_path / "saved")
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "saved").iterdir()}
    assert modes == dict.fromkeys(WRITTEN, 0o666 & ~mask)


def test_a_link_to_a_folder_stays_a_link(model, tmp_path):
    (tmp_path / "link").symlink_to(model)
    heedful.save(changed(heedful.load(model)), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    same(heedful.load(tmp_path / "link"), heedful.load(model))


def test_a_model_in_use_survives_its_replacement(model):
    """The old file is not written into: who has it open keeps it."""
    loaded = heedful.load(model)
    before = {name: weight.clone() for name, weight in loaded.model.named_parameters()}
    old = (model / "model.safetensors").read_bytes()
    with open(model / "model.safetensors", "rb") as held:
        heedful.save(changed(heedful.load(model)), model)
        assert held.read() == old != (model / "model.safetensors").read_bytes()
    assert all(torch.equal(weight, before[name]) for name, weight in loaded.model.named_parameters())


def test_a_file_is_no_place_for_a_folder(model, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(heedful.BadInput, match="file"):
        heedful.save(heedful.load(model), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_saving_over_shards_gives_the_new_model(model):
    loaded = heedful.load(model)
    shutil.move(model / "model.safetensors", model / "model-00001-of-00001.safetensors")
    names = loaded.model.state_dict()
    index = {"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    heedful.save(changed(loaded), model)
    same(heedful.load(model), loaded)
