"""heedful export: what leaves is the same model elsewhere, and what is not does not get its name."""

import hashlib
import json
import struct
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from helpers.export_cases import (
    ENDS,
    certificate,
    names,
    without,  # noqa: F401 (fixtures)
)
from helpers.look_cases import imported
from safetensors.torch import load_file, save_file

import heedful
from heedful.certify.certificate import TOLERANCES
from heedful.cli.main import main
from heedful.cli.shared import exchange
from heedful.errors import BadInput
from heedful.interop.formats import FORMATS, part
from heedful.interop.hf import write as to_hf


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders of tiny random models with their tokenizers, each written when it is first asked for."""
    folder = tmp_path_factory.mktemp("models")

    def give(name):
        if not (folder / name).exists():
            loaded = imported(name)
            ends = ENDS if name in ("gpt2", "llama") else loaded.special
            heedful.save(replace(loaded, special=ends), folder / name)
        return folder / name

    return give


def export(models, name, out, *more):
    return main(["export", str(models(name)), str(out), *more])


# The same model


@pytest.mark.parametrize(
    "name, to",
    [
        *((name, "hf") for name in ("gpt1", "gpt2", "llama", "bert", "t5", "transformer")),
        *((name, "ctranslate2") for name in ("gpt2", "transformer", "t5")),
        ("llama", "gguf"),
    ],
)
def test_what_leaves_is_the_same_model_elsewhere(name, to, models, tmp_path, capsys):
    assert export(models, name, tmp_path / "out", "--to", to, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("out") == str(tmp_path / "out")
    assert told == certificate(tmp_path / "out") and names(tmp_path) == ["out"]
    assert (told["verdict"], told["format"], told["kind"], told["faults"]) == ("same", to, "float32", [])
    assert (
        told["architecture"] == name
        and {"heedful", "torch", FORMATS[to].packages[0]} <= told["versions"].keys()
    )
    checks = {check["name"]: check for check in told["checks"]}
    logits = checks["outputs"]["result"]["compared"]["logits"]
    assert told["tolerance"]["exact"] == 1e-5 > logits["relative"] > 0 < logits["mean"]
    assert logits["argmax"] == 1 and logits["inputs"] >= 17
    rows = checks["outputs"]["inputs"]["embedding_rows"]
    assert rows["of"] - 1 <= rows["read"] <= rows["of"]  # padding is no token of a text
    assert checks["weights"]["result"]["equal"] == checks["weights"]["result"]["of"] > 20
    for search in ("greedy", "beam") if name != "bert" else ():
        assert checks[search]["result"]["equal"] == checks[search]["result"]["of"] == 6
    assert checks["tokenizer"]["result"]["equal"] == checks["tokenizer"]["result"]["of"] > 100
    found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert told["files"].keys() == found.keys() - {"parity.json"}
    assert all(hashlib.sha256(found[file]).hexdigest() == noted for file, noted in told["files"].items())


def test_what_is_told_to_people(models, tmp_path, capsys):
    assert export(models, "gpt2", tmp_path / "out") == 0
    out, err = capsys.readouterr()
    first, *rest = out.splitlines()
    assert first.startswith(f"{tmp_path / 'out'}: gpt2 as hf, float32: the same model in transformers ")
    assert [line.split(":")[0].strip() for line in rest] == [
        "weights", "outputs", "embedding", "greedy", "beam", "generation", "tokenizer",
    ]  # fmt: skip
    assert err.splitlines()[0] == f"exporting {models('gpt2')} as hf"


def test_fewer_bits_are_measured_and_have_a_tolerance_of_their_own(models, tmp_path, capsys):
    assert export(models, "gpt2", tmp_path / "out", "--to", "ctranslate2", "--quantize", "int8") == 0
    told = certificate(tmp_path / "out")
    assert (told["kind"], told["verdict"]) == ("int8", "within the int8 tolerance")
    assert told["tolerance"] == asdict(TOLERANCES["int8"])
    checks = {check["name"]: check["result"] for check in told["checks"]}
    assert checks["outputs"]["compared"]["logits"]["relative"] < 1e-5  # of our own rounding
    found = checks["agreement"]
    assert 0 < found["divergence"] < 0.1 and found["loss"]["difference"] != 0  # of the original
    assert found["top_tokens"]["of"] > 200 and found["greedy"]["of"] == found["beam"]["of"] == 6
    assert "within the int8 tolerance in ctranslate2" in capsys.readouterr().out


def test_the_folder_is_as_private_as_others(models, tmp_path):
    (tmp_path / "plain").mkdir()
    assert export(models, "gpt2", tmp_path / "a" / "out") == 0
    assert (tmp_path / "a" / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode
    for path in (tmp_path / "a" / "out").iterdir():
        assert path.stat().st_mode & 0o044, path


# Another model


def change_tensors(folder):
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("mlp.c_fc.weight"))
    weights[name][3, 5] += 0.01
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def change_bytes(name, floats):
    """Another number in place of one that is sure to be a weight, found by its bytes."""

    def change(folder):
        data = bytearray((folder / name).read_bytes())
        at = data.find(np.float32(floats).tobytes())
        assert at > 0
        data[at : at + 4] = struct.pack("<f", floats[0] + 0.05)
        (folder / name).write_bytes(data)

    return change


def change_words(folder):
    told = json.loads((folder / "tokenizer.json").read_text())
    vocab = told["model"]["vocab"]
    vocab["t"], vocab["h"] = vocab["h"], vocab["t"]
    (folder / "tokenizer.json").write_text(json.dumps(told))


def change_settings(folder):
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | {"layer_norm_epsilon": 1e-2}))


def a_row(name):
    """Three numbers in a row of the output projection of the last feed-forward layer."""
    weights = dict(imported(name).model.named_parameters())
    return next(w for n, w in weights.items() if n.endswith("blocks.1.feed_forward.layer.down.weight"))[
        4, :3
    ].tolist()


@pytest.mark.parametrize(
    "name, to, change, fault",
    [
        ("gpt2", "hf", change_tensors, "1 of 28 weights differ: transformer.h.0.mlp.c_fc.weight"),
        ("gpt2", "hf", change_settings, "logits differ by"),
        ("gpt2", "hf", change_words, "the tokenizers agree on only"),
        ("gpt2", "ctranslate2", change_bytes("model.bin", a_row("gpt2")), "1 of 29 weights differ"),
        ("llama", "gguf", change_bytes("model.gguf", a_row("llama")), "1 of "),
    ],
)
def test_one_number_changed_after_writing_is_found_and_kept_aside(
    name, to, change, fault, models, tmp_path, capsys, monkeypatch
):
    module = part(to, "write")
    writes = module.write

    def write(loaded, folder, kind="float32"):
        writes(loaded, folder, kind)
        change(folder)

    monkeypatch.setattr(module, "write", write)
    assert export(models, name, tmp_path / "out", "--to", to) == 3
    _, err = capsys.readouterr()
    kept = tmp_path / "out.different"
    assert err.splitlines()[-1].startswith(f"error: the models differ: {fault}")
    assert f"the export is kept as {kept}" in err and names(tmp_path) == ["out.different"]
    told = certificate(kept)
    assert told["verdict"] == "different" and told["faults"][0].startswith(fault)
    assert export(models, name, tmp_path / "out", "--to", to, "--json") == 3
    assert json.loads(capsys.readouterr().out)["out"] == f"{kept}-2"
    assert names(tmp_path) == ["out.different", "out.different-2"]


def test_what_the_other_library_cannot_open_is_kept_aside(models, tmp_path, capsys, monkeypatch):
    writes = to_hf.write

    def write(loaded, folder, kind="float32"):
        writes(loaded, folder, kind)
        (folder / "model.safetensors").write_bytes(b"\x08" + bytes(20))

    monkeypatch.setattr(to_hf, "write", write)
    assert export(models, "gpt2", tmp_path / "out") == 3
    assert "transformers cannot use it: " in capsys.readouterr().err
    assert certificate(tmp_path / "out.different")["verdict"] == "different"


def test_what_was_exported_before_stays_when_the_new_one_is_different(models, tmp_path, monkeypatch):
    assert export(models, "gpt2", tmp_path / "out") == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    writes = to_hf.write
    monkeypatch.setattr(to_hf, "write", lambda *given: [writes(*given), change_tensors(given[1])])
    assert export(models, "gpt2", tmp_path / "out", "--replace") == 3
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert names(tmp_path) == ["out", "out.different"]


# Without the other library


def test_without_the_other_library_it_is_written_and_said_to_be_unchecked(models, tmp_path, capsys, without):
    without("transformers")
    assert export(models, "gpt2", tmp_path / "out") == 0
    out, err = capsys.readouterr()
    first, *rest = out.splitlines()
    assert first == f"{tmp_path / 'out'}: gpt2 as hf, float32: written, not checked"
    assert rest == ["  weights: 28 of 28 tensors equal, bit for bit"]
    assert err.splitlines()[1:] == ['not checked: transformers is not installed: pip install "heedful[hf]"']
    told = certificate(tmp_path / "out")
    assert told["verdict"] == "not checked" and [check["name"] for check in told["checks"]] == ["weights"]
    assert told["faults"] == ['transformers is not installed: pip install "heedful[hf]"']
    assert heedful.load(tmp_path / "out").architecture == "gpt2"


@pytest.mark.parametrize(
    "to, package", [("ctranslate2", "ctranslate2"), ("gguf", "gguf"), ("onnx", "onnxscript")]
)
def test_what_cannot_be_written_without_a_package_is_not(to, package, models, tmp_path, capsys, without):
    without(package)
    assert export(models, "llama", tmp_path / "out", "--to", to) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == f'error: {package} is not installed: pip install "heedful[{to}]"'
    assert names(tmp_path) == []


def test_importing_heedful_and_asking_for_help_import_no_other_library():
    code = """
import sys, heedful, heedful.cli.main
for name in heedful.__all__:
    getattr(heedful, name)
for command in ("export", "import"):
    heedful.cli.main.main([command, "--help"])
import heedful.cli.export, heedful.cli.import_
import heedful.certify.compare
from heedful.interop.formats import FORMATS, RECOGNIZED, part
for name in FORMATS:
    part(name, "write"), part(name, "reopen")
for name in (*RECOGNIZED, "hf"):
    part(name, "read")
theirs = ("transformers", "ctranslate2", "onnx", "onnxruntime", "onnxscript", "gguf", "peft", "sentencepiece")
print([name for name in theirs if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


# Refusals


@pytest.mark.parametrize(
    "name, more, sentence",
    [
        (
            "gpt2",
            ["--to", "gguf"],
            (
                "cannot be exported as gguf: GGUF export supports the llama family, and this is a "
                "gpt2; it can be exported as hf, ctranslate2, onnx"
            ),
        ),
        ("bert", ["--to", "ctranslate2"], "it can be exported as hf, onnx"),
        (
            "gpt2",
            ["--quantize", "int8"],
            "hf stores weights as float32 or bfloat16 or float16, not as int8: leave out --quantize",
        ),
        (
            "gpt2",
            ["--to", "ctranslate2", "--quantize", "int9"],
            "ctranslate2 stores weights as float32 or int8, not as int9",
        ),
        (
            "gpt2",
            ["--to", "onxx"],
            "--to takes hf or ctranslate2 or onnx or gguf or html, not 'onxx'; did you mean \"onnx\"?",
        ),
    ],
)
def test_a_format_that_cannot_be_is_refused_with_those_that_can(
    name, more, sentence, models, tmp_path, capsys
):
    assert export(models, name, tmp_path / "out", *more) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]
    assert names(tmp_path) == []


def test_a_model_of_no_format_says_so(tmp_path):
    from heedful.models import family

    file = family("rnn")
    model = file.build(file.PRESETS["rnn-650"].__class__(vocab=17, layers=1, width=6))
    loaded = heedful.Loaded("rnn", None, model, None, {})
    with pytest.raises(BadInput, match="cannot be exported as onnx: .*; no format can hold it"):
        exchange.refuse("x", loaded, "onnx")


def test_nothing_is_written_over(models, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    for place, more, sentence in (
        (out, [], f"{out} exists and is not empty: give another OUT, or --replace"),
        (
            out,
            ["--replace"],
            f"{out} has no parity.json, so heedful did not export it: remove it yourself first",
        ),
        (tmp_path / "file", ["--replace"], f"{tmp_path / 'file'} is a file"),
        (models("gpt2"), ["--replace"], "which is read: give another OUT"),
        (models("gpt2").parent, ["--replace"], "which is read: give another OUT"),
    ):
        assert export(models, "gpt2", place, *more) == 2
        assert sentence in capsys.readouterr().err
    assert names(tmp_path) == ["file", "out"] and names(out) == ["mine.txt"]


def test_an_empty_folder_is_filled_and_an_export_replaced(models, tmp_path, without):
    without("transformers")
    out = tmp_path / "out"
    out.mkdir()
    assert export(models, "gpt2", out) == 0
    (out / "old").touch()
    assert export(models, "bert", out) == 2
    assert export(models, "bert", out, "--replace") == 0
    assert json.loads((out / "config.json").read_text())["model_type"] == "bert"
    assert "old" not in names(out) and names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "error, code", [(OSError(28, "No space left on device"), 5), (KeyboardInterrupt(), 130)]
)
def test_a_failure_leaves_everything_as_it_was(error, code, models, tmp_path, monkeypatch, without):
    without("transformers")
    monkeypatch.setattr("heedful.cli.main.give_up_stdout", lambda: None)
    out = tmp_path / "out"
    assert export(models, "gpt2", out) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fail(loaded, folder, kind):
        (folder / "half").touch()
        raise error

    monkeypatch.setattr(to_hf, "write", fail)
    assert export(models, "bert", out, "--replace") == code
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before and names(tmp_path) == ["out"]


def test_info_says_how_a_model_can_leave(models, capsys):
    assert main(["info", str(models("llama"))]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "export formats: hf, ctranslate2, onnx, gguf, html"
    assert main(["info", "gpt2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["formats"]
    assert found.keys() == FORMATS.keys() and found["hf"] is None and "llama family" in found["gguf"]


def test_formats_are_those_of_the_option():
    from typing import get_args, get_type_hints

    from heedful.cli.export import ExportOptions

    assert get_args(get_type_hints(ExportOptions)["to"]) == tuple(FORMATS)
    for form in FORMATS.values():
        assert form.kinds[0] == ("float16" if form.single else "float32")
        assert set(form.kinds) <= TOLERANCES.keys()


def test_progress_is_told_when_it_takes_long(models, tmp_path, capsys, monkeypatch, without):
    without("transformers")
    monkeypatch.setattr(exchange, "PATIENCE", 0.01)
    monkeypatch.setattr(exchange, "LINES", 0.01)
    writes = to_hf.write

    def slowly(*given):
        import time

        time.sleep(0.1)
        writes(*given)

    monkeypatch.setattr(to_hf, "write", slowly)
    assert export(models, "gpt2", tmp_path / "out") == 0
    told = capsys.readouterr().err
    assert "writing Hugging Face, float32 (0 s)" in told


def test_every_preset_can_be_asked_how_it_leaves():
    from heedful.cli.info import export_formats
    from heedful.models import presets

    found = {
        name: export_formats(Path("nowhere"), *entry)
        for name, entry in presets().items()
        if "175b" not in name
    }
    assert all(ways.keys() == FORMATS.keys() for ways in found.values())
    assert all(why is None or len(why) > 10 for ways in found.values() for why in ways.values())
