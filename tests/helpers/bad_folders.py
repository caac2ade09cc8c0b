"""Small folders of every family, and ways to damage them: each is a function of the folder."""

import json
import shutil
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers import hf_zoo

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="session")
def zoo(tmp_path_factory):
    """A valid folder of each family, with tied weights where the family has a choice; gpt2 also in shards."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    root = tmp_path_factory.mktemp("zoo")
    for name in hf_zoo.FAMILIES:
        hf_zoo.write(tied_case(name), root / name)
    hf_zoo.write(tied_case("gpt2"), root / "sharded", max_shard_size="2KB")
    return root


def tied_case(name):
    """The first case whose model has two layers and ties its weights; BERT's has all heads of
    pre-training."""
    for seed in range(1000):
        case = hf_zoo.make(name, seed)
        config = case.theirs.config
        layers = next(getattr(config, key) for key in LAYERS if hasattr(config, key))
        right = name != "bert" or type(case.theirs).__name__ == "BertForPreTraining"
        if right and layers == 2 and getattr(config, "tie_word_embeddings", True):
            return case
    raise AssertionError(name)


LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers")
WIDTHS = {
    "transformer": ("d_model", "encoder_attention_heads", "encoder_layers"),
    "gpt1": ("n_embd", "n_head", "n_layer"),
    "gpt2": ("n_embd", "n_head", "n_layer"),
    "bert": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
    "t5": ("d_model", "num_heads", "num_layers"),
    "llama": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
    "vit": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
    "roberta": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
    "distilbert": ("dim", "n_heads", "n_layers"),
    "ernie": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
    "albert": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
    "deberta": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
    "deit": ("hidden_size", "num_attention_heads", "num_hidden_layers"),
}


def copied(zoo, name, tmp_path):
    return shutil.copytree(zoo / name, tmp_path / "model", symlinks=True)


def same_weights(a, b):
    ours, others = dict(a.model.named_parameters()), dict(b.model.named_parameters())
    assert ours.keys() == others.keys()
    return all(torch.equal(ours[name], others[name]) for name in ours)


# Ways to damage a folder: each is a function of the folder.


def settings(*without, **changed):
    """Change config.json."""

    def damage(folder):
        config = json.loads((folder / "config.json").read_text()) | changed
        for key in without:
            del config[key]
        (folder / "config.json").write_text(json.dumps(config))

    return damage


def written(name, content):
    """Replace a file by these bytes."""

    def damage(folder):
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def removed(name):
    return lambda folder: (folder / name).unlink()


def tensors(change):
    """Change model.safetensors: `change` gets its tensors by name."""

    def damage(folder):
        weights = load_file(folder / SINGLE)
        change(weights)
        save_file({name: weight.clone().contiguous() for name, weight in weights.items()}, folder / SINGLE)

    return damage


def header(content, *, size=None, rest=b""):
    """A model.safetensors with this header, and perhaps a lie about its length."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return written(SINGLE, struct.pack("<Q", len(text) if size is None else size) + text + rest)


def places(change):
    """Change the weight_map of the index: `change` gets it and returns it."""

    def damage(folder):
        index = json.loads((folder / INDEX).read_text())
        index["weight_map"] = change(index["weight_map"])
        (folder / INDEX).write_text(json.dumps(index))

    return damage


def every_place(name):
    """All tensors in the file of this name."""
    return places(lambda m: dict.fromkeys(m, name))


def in_its_place(name, make):
    """Something else under the name of a file: `make` gets the path, now free, and the file's new path."""

    def damage(folder):
        moved = folder.parent / "outside"
        (folder / name).rename(moved)
        make(folder / name, moved)

    return damage


def first_shard(folder):
    return next(iter(sorted(folder.glob("model-*.safetensors"))))


def f32(start, end, size):
    return {"dtype": "F32", "shape": [size], "data_offsets": [start, end]}


def put(name, weight):
    return lambda weights: weights.update({name: weight})


def altered(name, how):
    return lambda weights: weights.update({name: how(weights[name])})


def add_int_bias(weights):
    weights["transformer.h.0.attn.c_attn.bias"] = weights["transformer.h.0.attn.c_attn.bias"].long()


DEEP = "[" * 100_000
WTE = "transformer.wte.weight"
