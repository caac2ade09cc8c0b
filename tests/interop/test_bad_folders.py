"""Folders that are wrong in every way a download can be: each is refused in one sentence."""

import json
import os

import pytest
import torch
from helpers.bad_folders import (
    DEEP,
    INDEX,
    SINGLE,
    WIDTHS,
    WTE,
    add_int_bias,
    altered,
    copied,
    every_place,
    f32,
    first_shard,
    header,
    in_its_place,
    places,
    put,
    removed,
    settings,
    tensors,
    written,
    zoo,  # noqa: F401 (fixtures)
)
from helpers.refusals import refused
from safetensors.torch import load_file, save_file

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
    "unknown model_type": (
        "gpt2",
        settings(model_type="mamba"),
        ["does not read", "mamba", "use transformers", "llama", "bert"],
    ),
    "relative of a model_type": (
        "gpt2",
        settings(model_type="umt5"),
        ["every layer has positions", "a mt5 model"],
    ),
    "model_type of sound": ("gpt2", settings(model_type="whisper"), ["it reads sound", "use transformers"]),
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
        settings(rope_parameters={"rope_type": "proportional", "factor": 8.0}),
        ["rope_type", "proportional"],
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
    "a probability of one": ("gpt2", settings(attn_pdrop=1.0), ["config.json", "dropout", "below 1", "1.0"]),
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
    "an extra weight": (
        "gpt2",
        tensors(put("score.weight", torch.ones(2))),
        ["score.weight", "does not describe"],
    ),
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
        "",
        ".",
        "..",
        "../model/model-00001-of-00002.safetensors",
        "/etc/hostname",
        "a/b",
        "..\\model",
        "C:\\model",
        "C:model",
        "%2e%2e%2fmodel",
        "model\0",
        "model\n",
        "\ud800",
        "a" * 300,
        "é" * 200,
        "\x1b[31m",
    )
}


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
