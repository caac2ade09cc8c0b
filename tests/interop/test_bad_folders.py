"""Folders that are wrong in every way a download can be: each is refused in one sentence, or rightly accepted."""

import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import hf_zoo
from helpers.refusals import refused
from safetensors.torch import load_file, save_file

import heedful
from heedful.interop.loaded import parameters
from heedful.parts.places import IN_ORDER, Lengths

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
    """The first case whose model has two layers and ties its weights; BERT's has all heads of pre-training."""
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
    ours, others = parameters(a.model), parameters(b.model)
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

# what: (family, damage, words the sentence must hold)
BAD = {
    # config.json
    "no config": ("gpt2", removed("config.json"), ["config.json", "missing"]),
    "empty config": ("gpt2", written("config.json", ""), ["config.json", "JSON"]),
    "config of another format": ("gpt2", written("config.json", "n_embd: 12"), ["config.json", "JSON"]),
    "config cut short": ("gpt2", written("config.json", '{"model_type": "gp'), ["config.json", "JSON"]),
    "config that is a list": ("gpt2", written("config.json", "[1]"), ["config.json", "object"]),
    "config that is null": ("gpt2", written("config.json", "null"), ["config.json", "object"]),
    "config in Latin-1": ("gpt2", written("config.json", b'{"a": "\xe9"}'), ["config.json", "UTF-8", "7"]),
    "NaN in the config": ("gpt2", written("config.json", '{"n_embd": NaN}'), ["config.json", "NaN"]),
    "infinity in the config": ("gpt2", settings(layer_norm_epsilon=1e999), ["config.json", "Infinity"]),
    "infinity by exponent": (
        "gpt2",
        written("config.json", '{"model_type": "gpt2", "layer_norm_epsilon": 1e999}'),
        ["layer_norm_epsilon", "inf"],
    ),
    "config of two megabytes": (
        "gpt2",
        settings(note="x" * 2_000_000),
        ["config.json", "bytes", 1 << 20],
    ),
    "config nested deeply": ("gpt2", written("config.json", DEEP), ["config.json", "deep"]),
    "settings nested deeply": (
        "gpt2",
        settings(n_embd=json.loads("[" * 900 + "]" * 900)),
        ["config.json", "n_embd"],
    ),
    "config that is a folder": (
        "gpt2",
        in_its_place("config.json", lambda path, _: path.mkdir()),
        ["config.json", "regular"],
    ),
    "config that is a pipe": (
        "gpt2",
        in_its_place("config.json", lambda path, _: os.mkfifo(path)),
        ["config.json", "regular"],
    ),
    "config that is a device": (
        "gpt2",
        in_its_place("config.json", lambda path, _: path.symlink_to("/dev/zero")),
        ["config.json", "regular"],
    ),
    "config that links out": (
        "gpt2",
        in_its_place("config.json", lambda path, moved: path.symlink_to(moved)),
        ["config.json", "leads out"],
    ),
    "config that links to itself": (
        "gpt2",
        in_its_place("config.json", lambda path, _: path.symlink_to(path.name)),
        ["config.json", "leads nowhere"],
    ),
    # which model
    "near miss of a model_type": ("gpt2", settings(model_type="gpt-2"), ["gpt-2", 'did you mean "gpt2"']),
    "unknown model_type": ("gpt2", settings(model_type="rwkv"), ["rwkv", "llama", "bert"]),
    "unknown model_type with its own code": (
        "gpt2",
        settings(model_type="evil", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}),
        ["evil"],
    ),
    "no model_type": ("gpt2", settings("model_type"), ["config.json", "no model_type", "llama"]),
    "model_type that is a list": ("gpt2", settings(model_type=["gpt2"]), ["model_type", "gpt2"]),
    "unknown class of BERT": ("bert", settings(architectures=["BertForMultipleChoice"]), ["Multiple"]),
    "unknown class of ViT": ("vit", settings(architectures=["ViTForMaskedImageModeling"]), ["Masked"]),
    "classes that are a number": ("bert", settings(architectures=7), ["architectures", "7"]),
    "classes that are an object": ("vit", settings(architectures={"a": 1}), ["architectures"]),
    "a class that is a list": ("bert", settings(architectures=[["BertModel"]]), ["architectures"]),
    "labels that are a number": ("bert", settings(id2label=7), ["id2label", "7"]),
    "labels that are a list": ("vit", settings(id2label=["cat", "dog"]), ["id2label", "cat"]),
    # what heedful does not implement
    "gpt1's other activation": ("gpt1", settings(afn="mish"), ["afn", "mish", "gelu"]),
    "gpt2's other activation": (
        "gpt2",
        settings(activation_function="mish"),
        ["activation_function", "mish"],
    ),
    "bert's other activation": ("bert", settings(hidden_act="mish"), ["hidden_act", "mish"]),
    "llama's other activation": ("llama", settings(hidden_act="mish"), ["hidden_act", "mish"]),
    "vit's other activation": ("vit", settings(hidden_act="mish"), ["hidden_act", "mish"]),
    "marian's other activation": (
        "transformer",
        settings(activation_function="mish"),
        ["activation_function", "mish"],
    ),
    "t5's other activation": ("t5", settings(feed_forward_proj="gated-mish"), ["feed_forward_proj", "mish"]),
    "an activation that is a list": ("gpt2", settings(activation_function=["relu"]), ["activation_function"]),
    "an activation that is a number": ("t5", settings(feed_forward_proj=3), ["feed_forward_proj"]),
    "unscaled scores": ("gpt2", settings(scale_attn_weights=False), ["scale_attn_weights"]),
    "scores scaled by layer": (
        "gpt2",
        settings(scale_attn_by_inverse_layer_idx=True),
        ["scale_attn_by_inverse_layer_idx"],
    ),
    "gpt2 with a source": ("gpt2", settings(add_cross_attention=True), ["add_cross_attention"]),
    "two dropouts in gpt2": ("gpt2", settings(resid_pdrop=0.2, embd_pdrop=0.3), ["resid_pdrop", 0.2, 0.3]),
    "two dropouts in gpt1": ("gpt1", settings(resid_pdrop=0.2, embd_pdrop=0.3), ["resid_pdrop", 0.2, 0.3]),
    "relative positions in bert": (
        "bert",
        settings(position_embedding_type="relative_key"),
        ["position_embedding_type", "relative_key"],
    ),
    "bert as decoder": ("bert", settings(is_decoder=True), ["is_decoder"]),
    "bert with a source": ("bert", settings(add_cross_attention=True), ["add_cross_attention"]),
    "untied bert": ("bert", settings(tie_word_embeddings=False), ["tie_word_embeddings"]),
    "dropout of everything in bert": ("bert", settings(classifier_dropout=1.5), ["classifier_dropout", 1.5]),
    "scaled rotation": (
        "llama",
        settings(rope_parameters={"rope_type": "yarn", "factor": 8.0}),
        ["rope_type", "yarn"],
    ),
    "scaled rotation, old spelling": (
        "llama",
        settings(rope_scaling={"type": "dynamic", "factor": 2.0}),
        ["dynamic"],
    ),
    "rotation that is a list": ("llama", settings(rope_parameters=[1]), ["rope_parameters"]),
    "rotation without a base": ("llama", settings(rope_parameters={"rope_theta": 0}), ["rope_theta"]),
    "odd head width": ("llama", settings(head_dim=5), ["config.json", "odd", 5]),
    "heads that cannot share": ("llama", settings(num_key_value_heads=4), ["config.json", 6, 4]),
    "marian with the norm first": ("transformer", settings(normalize_before=True), ["normalize_before"]),
    "marian with a normed embedding": ("transformer", settings(normalize_embedding=True), ["normalize_emb"]),
    "marian with a last norm": ("transformer", settings(add_final_layer_norm=True), ["add_final_layer_norm"]),
    "marian with learned positions": (
        "transformer",
        settings(static_position_embeddings=False),
        ["static_position_embeddings"],
    ),
    "untied marian": ("transformer", settings(tie_word_embeddings=False), ["tie_word_embeddings"]),
    "two sizes of one vocabulary": (
        "transformer",
        settings(vocab_size=11, decoder_vocab_size=13, share_encoder_decoder_embeddings=True),
        ["config.json", 11, 13],
    ),
    "images that cannot be cut": ("vit", settings(image_size=7, patch_size=2), ["config.json", 7, 2]),
    "another last layer of vit's pooling": ("vit", settings(pooler_act="relu"), ["pooler_act", "relu"]),
    "a probability of one": ("gpt2", settings(attn_pdrop=1.0), ["config.json", "probability", "1.0"]),
    "a flag that is a word": ("gpt2", settings(tie_word_embeddings="yes"), ["tie_word_embeddings", "yes"]),
    "a flag that is null": ("vit", settings(qkv_bias=None), ["qkv_bias", "None"]),
    "a negative epsilon": ("bert", settings(layer_norm_eps=-1e-5), ["layer_norm_eps", "-1e-05"]),
    "an epsilon of 4000 digits": ("bert", settings(layer_norm_eps=10**4000), ["layer_norm_eps"]),
    "2^40 layers": ("llama", settings(num_hidden_layers=2**40), ["num_hidden_layers", 2**40]),
    "too many layers for the file": ("llama", settings(num_hidden_layers=2**30), [2**30, "tensors"]),
    "a matrix too large for any memory": (
        "llama",
        settings(head_dim=2**30, num_attention_heads=2**30, num_key_value_heads=2**30),
        ["config.json", "memory"],
    ),
    # weights against config
    "no weights": ("gpt2", removed(SINGLE), [SINGLE, INDEX]),
    "a missing weight": ("gpt2", tensors(lambda w: w.pop(WTE)), ["lacks", WTE]),
    "a whole layer missing": ("gpt2", settings(n_layer=3), ["lacks transformer.h.2.", "more"]),
    "an extra weight": ("gpt2", tensors(put("score.weight", torch.ones(2))), ["score.weight", "no place"]),
    "a whole layer extra": ("gpt2", settings(n_layer=1), ["holds transformer.h.1.", "more"]),
    "a weight twice, by two names": (
        "gpt2",
        tensors(lambda w: w.update({"wte.weight": w[WTE] + 1})),
        ["wte.weight", WTE, "one weight"],
    ),
    "a weight twice, by its old name": (
        "bert",
        tensors(
            lambda w: w.update({"bert.embeddings.LayerNorm.gamma": w["bert.embeddings.LayerNorm.weight"]})
        ),
        ["LayerNorm.gamma", "LayerNorm.weight"],
    ),
    "names in capitals": (
        "gpt2",
        tensors(lambda w: w.update({WTE.upper(): w.pop(WTE)})),
        ["lacks", WTE],
    ),
    "names with a line break": ("gpt2", tensors(put("a\nb\x1b[31m", torch.ones(2))), ["a?b?[31m"]),
    "a very long name": ("gpt2", tensors(put("a" * 100_000, torch.ones(2))), ["aaa"]),
    "a number for a matrix": ("gpt2", tensors(put(WTE, torch.tensor(1.0))), [WTE, "single number"]),
    "a matrix the other way round": (
        "bert",
        tensors(altered("bert.pooler.dense.weight", lambda w: w[:3])),
        [3],
    ),
    "whole numbers for weights": ("gpt2", tensors(altered(WTE, lambda w: w.long())), [WTE, "I64", "F32"]),
    "whole numbers for a bias": ("gpt2", tensors(add_int_bias), ["attn.c_attn.bias", "I64"]),
    "truths for weights": ("gpt2", tensors(altered(WTE, lambda w: w > 0)), [WTE, "BOOL"]),
    "complex weights": ("gpt2", tensors(altered(WTE, lambda w: w + 0j)), [WTE, "C64"]),
    "eight-bit weights": ("gpt2", tensors(altered(WTE, lambda w: w.to(torch.float8_e4m3fn))), [WTE, "F8"]),
    "a tied copy that differs": (
        "gpt2",
        tensors(lambda w: w.update({"lm_head.weight": w[WTE] + 1})),
        ["lm_head.weight", WTE, "set tie_word_embeddings to false"],
    ),
    "a tied copy of another shape": (
        "gpt2",
        tensors(lambda w: w.update({"lm_head.weight": w[WTE][:5]})),
        ["lm_head.weight", "5 x "],
    ),
    "a tied copy of whole numbers": (
        "gpt2",
        tensors(lambda w: w.update({"lm_head.weight": w[WTE].long()})),
        ["lm_head.weight", "I64"],
    ),
    "a tied copy that differs in t5": (
        "t5",
        tensors(lambda w: w.update({"decoder.embed_tokens.weight": w["shared.weight"] + 1})),
        ["decoder.embed_tokens.weight", "shared.weight"],
    ),
    "a tied copy that differs in bert": (
        "bert",
        tensors(lambda w: w.update({"cls.predictions.decoder.bias": w["cls.predictions.bias"] + 1})),
        ["cls.predictions.decoder.bias"],
    ),
    "untied, but only one matrix": ("gpt2", settings(tie_word_embeddings=False), ["lm_head.weight"]),
    # model.safetensors itself
    "an empty file": ("gpt2", written(SINGLE, b""), [SINGLE, "cut short"]),
    "four bytes": ("gpt2", written(SINGLE, b"\0\0\0\0"), [SINGLE, "cut short"]),
    "a web page": ("gpt2", written(SINGLE, "<!DOCTYPE html><html>not found</html>"), [SINGLE]),
    "a pointer of Git LFS": (
        "gpt2",
        written(SINGLE, "version https://git-lfs.github.com/spec/v1\n"),
        [SINGLE],
    ),
    "a header of 2^63 bytes": ("gpt2", header({}, size=2**63), [SINGLE, 2**63]),
    "a header of 2^64 - 1 bytes": ("gpt2", header({}, size=2**64 - 1), [SINGLE, 2**64 - 1]),
    "a header longer than the file": ("gpt2", header({}, size=4096), [SINGLE, "cut short"]),
    "a header that is a list": ("gpt2", header(b"[]"), [SINGLE]),
    "a header nested deeply": ("gpt2", header(DEEP.encode()), [SINGLE]),
    "a header in Latin-1": ("gpt2", header(b'{"\xe9": 1}'), [SINGLE]),
    "no tensors": ("gpt2", header({}), ["config.json", "only 0 tensors"]),
    "tensors that overlap": (
        "gpt2",
        header({"a": f32(0, 8, 2), "b": f32(4, 12, 2)}, rest=bytes(12)),
        [SINGLE],
    ),
    "tensors beyond the end": ("gpt2", header({"a": f32(0, 8, 2)}, rest=bytes(4)), [SINGLE]),
    "tensors that start late": ("gpt2", header({"a": f32(100, 108, 2)}, rest=bytes(8)), [SINGLE]),
    "tensors that end before they start": ("gpt2", header({"a": f32(8, 0, 2)}, rest=bytes(8)), [SINGLE]),
    "tensors larger than they say": ("gpt2", header({"a": f32(0, 8, 3)}, rest=bytes(8)), [SINGLE]),
    "tensors of negative size": ("gpt2", header({"a": f32(0, 8, -2)}, rest=bytes(8)), [SINGLE]),
    "tensors of 2^62 numbers": ("gpt2", header({"a": f32(0, 8, 2**62)}, rest=bytes(8)), [SINGLE]),
    "an unknown type": (
        "gpt2",
        header({"a": f32(0, 8, 2) | {"dtype": "F99"}}, rest=bytes(8)),
        [SINGLE],
    ),
    "six thousand tensors": (
        "gpt2",
        header({f"h.{i}": f32(0, 0, 0) for i in range(6000)}),
        [SINGLE, 6000, 5000],
    ),
    "weights that are a folder": (
        "gpt2",
        in_its_place(SINGLE, lambda path, _: path.mkdir()),
        [SINGLE, "regular"],
    ),
    "weights that are a pipe": (
        "gpt2",
        in_its_place(SINGLE, lambda path, _: os.mkfifo(path)),
        [SINGLE, "regular"],
    ),
    "weights that link out": (
        "gpt2",
        in_its_place(SINGLE, lambda path, moved: path.symlink_to(moved)),
        [SINGLE, "leads out"],
    ),
    "weights that link nowhere": (
        "gpt2",
        in_its_place(SINGLE, lambda path, moved: path.symlink_to("nothing")),
        [SINGLE, "leads nowhere"],
    ),
    # shards
    "an empty index": ("sharded", written(INDEX, ""), [INDEX, "JSON"]),
    "an index without a map": ("sharded", written(INDEX, "{}"), [INDEX, "weight_map"]),
    "an index with a list for a map": ("sharded", places(list), [INDEX, "weight_map"]),
    "an index with an empty map": ("sharded", places(lambda m: {}), [INDEX, "weight_map"]),
    "an index of six thousand tensors": (
        "sharded",
        places(lambda m: m | {f"a.{i}": m[WTE] for i in range(6000)}),
        [INDEX, "tensors", 5000],
    ),
    "an index of two megabytes": ("sharded", written(INDEX, "{" + " " * 2_000_000 + "}"), [INDEX, 2_000_002]),
    "an index nested deeply": ("sharded", written(INDEX, DEEP), [INDEX, "deep"]),
    "an index that is a pipe": (
        "sharded",
        in_its_place(INDEX, lambda path, _: os.mkfifo(path)),
        [INDEX, "regular"],
    ),
    "a shard that is missing": ("sharded", lambda f: first_shard(f).unlink(), ["model-00001", "missing"]),
    "a shard without one of its tensors": (
        "sharded",
        places(lambda m: m | {"transformer.h.9.ln_1.weight": m[WTE]}),
        ["transformer.h.9.ln_1.weight", "does not hold it", INDEX],
    ),
    "a tensor in two shards": (
        "sharded",
        lambda f: save_file(
            load_file(first_shard(f)) | {"transformer.ln_f.bias": torch.ones(3)}, first_shard(f)
        ),
        ["model-00001", "transformer.ln_f.bias", INDEX],
    ),
    "a shard cut short": (
        "sharded",
        lambda f: first_shard(f).write_bytes(first_shard(f).read_bytes()[:-1]),
        ["model-00001", "cut short"],
    ),
    "a shard that is a pipe": (
        "sharded",
        lambda f: in_its_place(first_shard(f).name, lambda path, _: os.mkfifo(path))(f),
        ["model-00001", "regular"],
    ),
    "a shard that links out": (
        "sharded",
        lambda f: in_its_place(first_shard(f).name, lambda path, moved: path.symlink_to(moved))(f),
        ["model-00001", "leads out"],
    ),
    "a shard that links to itself": (
        "sharded",
        lambda f: in_its_place(first_shard(f).name, lambda path, _: path.symlink_to(path.name))(f),
        ["model-00001", "leads nowhere"],
    ),
    "shards that are numbers": ("sharded", every_place(7), ["names a file 7"]),
    "shards that are lists": ("sharded", every_place(["a"]), ["names a file ['a']"]),
    "shards that are null": ("sharded", every_place(None), ["names a file None"]),
}
BAD |= {
    f"a shard named {name!r:.30}": ("sharded", every_place(name), ["only plain names"])
    for name in (
        "", ".", "..", "../model/model-00001-of-00002.safetensors", "/etc/hostname", "a/b", "..\\model", "C:\\model",
        "C:model", "%2e%2e%2fmodel", "model\0", "model\n", "\ud800", "a" * 300, "é" * 200, "\x1b[31m",
    )
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_folder_is_refused_in_one_sentence(what, zoo, tmp_path):
    name, damage, words = BAD[what]
    folder = copied(zoo, name, tmp_path)
    damage(folder)
    refused(folder, *words)


def test_a_folder_must_be_one(zoo, tmp_path):
    refused(tmp_path / "nothing", "nothing", "not a folder")
    refused(zoo / "gpt2" / "config.json", "config.json", "not a folder")
    refused("a" * 5000)
    refused("a\0b", "not a folder")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", "not a folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "config.json", "missing")


@pytest.mark.parametrize("name", WIDTHS)
def test_heads_that_do_not_divide_the_width_name_both_numbers(name, zoo, tmp_path):
    folder = copied(zoo, name, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    width, heads, _ = WIDTHS[name]
    settings(**{heads: 7})(folder)
    if name == "t5":  # whose heads have a width of their own: the file says that there are not seven
        refused(folder, SINGLE, 7 * config["d_kv"], config["num_heads"] * config["d_kv"])
    else:
        settings(head_dim=None)(folder)
        refused(folder, "config.json", config[width], 7)


ODD = [0, -1, "12", 1.5, None, True, [12], {"a": 12}, "", 2**31, 2**40, 2**63, 10**4000, -(2**63)]


@pytest.mark.parametrize("name, key", [(name, key) for name, keys in WIDTHS.items() for key in keys])
def test_a_size_that_is_none_is_refused_by_its_name_in_the_file(name, key, zoo, tmp_path):
    folder = copied(zoo, name, tmp_path)
    for value in ODD:
        settings(**{key: value})(folder)
        refused(folder, "config.json", f"{key} must be a whole number")


@pytest.mark.parametrize("name", WIDTHS)
def test_a_wrong_shape_names_both_shapes(name, zoo, tmp_path):
    folder = copied(zoo, name, tmp_path)
    stored = load_file(folder / SINGLE)
    key = max(stored, key=lambda key: stored[key].ndim)
    tensors(altered(key, lambda w: w[..., :-1]))(folder)
    old = list(stored[key].shape)
    was, given = (" x ".join(map(str, shape)) for shape in (old, [*old[:-1], old[-1] - 1]))
    refused(folder, SINGLE, key, f"is {given}, but config.json asks for {was}")


def test_a_file_cut_anywhere_is_refused(zoo, tmp_path):
    folder = copied(zoo, "gpt2", tmp_path)
    whole = (folder / SINGLE).read_bytes()
    header_end = 8 + int.from_bytes(whole[:8], "little")
    sizes = {0, 1, 7, 8, 9, header_end - 1, header_end, header_end + 1, len(whole) - 4, len(whole) - 1}
    sizes |= {len(whole) * i // 11 for i in range(1, 11)}
    for size in sorted(sizes):
        (folder / SINGLE).write_bytes(whole[:size])
        refused(folder, SINGLE, "cut short")
    (folder / SINGLE).write_bytes(whole + b"\0")
    refused(folder, SINGLE)


def test_shards_give_the_same_model_as_one_file(zoo):
    assert len(list((zoo / "sharded").glob("model-*.safetensors"))) > 2
    assert same_weights(heedful.load(zoo / "sharded"), heedful.load(zoo / "gpt2"))


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


# What must be accepted: other spellings of the same weights.

SAME = {
    "a tied copy": ("gpt2", lambda w: w.update({"lm_head.weight": w[WTE]})),
    "only the tied copy": ("gpt2", lambda w: w.update({"lm_head.weight": w.pop(WTE)})),
    "all tied copies of t5": (
        "t5",
        lambda w: w.update(
            {
                f"{side}.weight": w["shared.weight"]
                for side in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head")
            }
        ),
    ),
    "only a tied copy of t5": (
        "t5",
        lambda w: w.update({"encoder.embed_tokens.weight": w.pop("shared.weight")}),
    ),
    "tied copies of bert": (
        "bert",
        lambda w: w.update(
            {
                "cls.predictions.decoder.weight": w["bert.embeddings.word_embeddings.weight"],
                "cls.predictions.decoder.bias": w["cls.predictions.bias"],
            }
        ),
    ),
    "gpt2 as published, without prefix and with its masks": (
        "gpt2",
        lambda w: (
            [w.update({name.removeprefix("transformer."): w.pop(name)}) for name in list(w)],
            w.update({f"h.{i}.attn.bias": torch.ones(1, 1, 4, 4).tril() for i in range(2)}),
            w.update({f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}),
        ),
    ),
    "gpt2 with masks of truths": (
        "gpt2",
        lambda w: w.update({f"transformer.h.{i}.attn.bias": torch.ones(1, 1, 4, 4).bool() for i in range(2)}),
    ),
    "gpt1 with its masks and position ids": (
        "gpt1",
        lambda w: w.update({"h.0.attn.bias": torch.ones(1, 1, 4, 4), "position_ids": torch.arange(5)}),
    ),
    "bert with gamma and beta": (
        "bert",
        lambda w: [
            w.update({name.replace("LayerNorm.weight", "LayerNorm.gamma"): w.pop(name)})
            if name.endswith("LayerNorm.weight")
            else w.update({name.replace("LayerNorm.bias", "LayerNorm.beta"): w.pop(name)})
            for name in list(w)
            if "LayerNorm." in name
        ],
    ),
    "bert with position ids": (
        "bert",
        lambda w: w.update({"bert.embeddings.position_ids": torch.arange(5)[None]}),
    ),
    "t5 with the table that no layer reads": (
        "t5",
        lambda w: w.update(
            {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(32, 3)}
        ),
    ),
    "llama with its frequencies": (
        "llama",
        lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}),
    ),
    "marian with its sinusoids": (
        "transformer",
        lambda w: w.update(
            {
                "model.encoder.embed_positions.weight": tied_case(
                    "transformer"
                ).theirs.model.encoder.embed_positions.weight.data
            }
        ),
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_another_spelling_is_the_same_model(what, zoo, tmp_path):
    name, change = SAME[what]
    folder = copied(zoo, name, tmp_path)
    before = load_file(folder / SINGLE).keys()
    tensors(change)(folder)
    assert load_file(folder / SINGLE).keys() != before
    found = heedful.load(folder)
    assert same_weights(found, heedful.load(zoo / name))
    case = tied_case(name)
    with torch.no_grad():
        for expected, ours in case.compare(case.theirs, found.model):
            assert (expected - ours).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_of_another_precision_keep_their_values(dtype, zoo, tmp_path):
    folder = copied(zoo, "llama", tmp_path)
    tensors(lambda w: w.update({name: weight.to(dtype) for name, weight in w.items()}))(folder)
    found = parameters(heedful.load(folder).model)
    stored = load_file(folder / SINGLE)["model.embed_tokens.weight"]
    assert stored.dtype == dtype and found["inputs.tokens.weight"].dtype == torch.float32
    assert torch.equal(found["inputs.tokens.weight"], stored.float())
    asked = heedful.load(folder, dtype=torch.bfloat16).model
    assert {weight.dtype for weight in asked.parameters()} == {torch.bfloat16}


def test_special_tokens_are_read_where_the_model_has_them(zoo, tmp_path):
    folder = copied(zoo, "gpt2", tmp_path)
    settings(pad_token_id=-1, bos_token_id=3, eos_token_id=10**9, decoder_start_token_id="x")(folder)
    assert heedful.load(folder).special == {"bos": 3}


# A learned table ends somewhere.


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "bert"])
def test_a_sequence_beyond_the_table_names_both_numbers(name, zoo):
    loaded = heedful.load(zoo / name)
    longest = loaded.config.context
    tokens = torch.zeros(2, longest + 1, dtype=torch.long)
    both = f"{longest + 1} .*{longest}"
    with torch.no_grad():
        loaded.model(tokens[:, :longest])
        for places in (IN_ORDER, Lengths(torch.tensor([longest + 1, 2]))):
            with pytest.raises(ValueError, match=both):
                loaded.model(tokens, places)


@pytest.mark.parametrize("name", ["gpt1", "gpt2"])
@pytest.mark.parametrize("places", [IN_ORDER, Lengths(torch.tensor([3, 1]))], ids=["in order", "padded"])
def test_a_cache_beyond_the_table_names_both_numbers(name, places, zoo):
    loaded = heedful.load(zoo / name)
    longest = loaded.config.context
    start, rest = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, longest - 3, dtype=torch.long)
    with torch.no_grad():
        with pytest.raises(ValueError, match=f"{longest + 1} .*{longest}"):
            loaded.model.static_cache(2, longest + 1)
        for cache in (loaded.model.growing_cache(), loaded.model.static_cache(2, longest)):
            loaded.model(start, places, cache=cache)
            loaded.model(rest, cache=cache)
            with pytest.raises(ValueError, match=f"{longest}"):
                loaded.model(start[:, :1], cache=cache)
