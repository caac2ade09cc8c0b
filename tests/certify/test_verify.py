"""heedful verify: damage of any kind is found, with the source and without it."""

import json
import shutil
from dataclasses import replace

import pytest
from helpers.export_cases import ENDS
from helpers.look_cases import imported
from safetensors.torch import load_file, save_file

import heedful
from heedful.certify.certificate import hashes
from heedful.cli.main import main


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model, and its exports."""
    folder = tmp_path_factory.mktemp("exported")
    heedful.save(replace(imported("gpt2"), special=ENDS), folder / "gpt2")
    for name, more in (("hf", []), ("ctranslate2", ["--quantize", "int8"])):
        assert main(["export", str(folder / "gpt2"), str(folder / name), "--to", name, *more]) == 0
    return folder


@pytest.fixture
def copies(exported, tmp_path):
    """Copies of all of them; the certificates still name the source of the originals."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    return tmp_path


def verify(*words):
    return main(["verify", *map(str, words)])


def change_weight(folder):
    weights = load_file(folder / "model.safetensors")
    weights["transformer.h.1.ln_2.bias"][3] += 1e-3
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def forget(folder, *keys):
    """Remove entries of the certificate; hashes become those of the files as they are."""
    told = json.loads((folder / "parity.json").read_text())
    told = {key: value for key, value in told.items() if key not in keys} | {"files": hashes(folder)}
    (folder / "parity.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    "name, verdict", [("hf", "the same model"), ("ctranslate2", "within the int8 tolerance")]
)
def test_what_is_whole_passes_against_its_source_and_alone(name, verdict, copies, capsys):
    assert verify(copies / name) == 0
    out = capsys.readouterr().out
    assert verdict in out.splitlines()[0] and "files have the SHA-256 that parity.json notes" in out
    assert out.splitlines()[-1].startswith("  compared with ") and out.splitlines()[-1].endswith("gpt2")
    forget(copies / name, "source")
    assert verify(copies / name, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["against"] == "heedful's own reading"
    assert [check["name"] for check in told["checks"]][:3] == ["files", "weights", "outputs"]


def test_a_changed_file_is_found_by_its_hash_and_by_its_outputs(copies, capsys):
    change_weight(copies / "hf")
    assert verify(copies / "hf") == 3
    err = capsys.readouterr().err
    assert "model.safetensors has changed since the certificate was written" in err
    assert "1 of 28 weights differ: transformer.h.1.ln_2.bias" in err and "logits differ by" in err


def test_a_changed_weight_is_found_though_the_hashes_were_made_anew(copies, capsys):
    change_weight(copies / "hf")
    forget(copies / "hf")
    assert verify(copies / "hf", "--source", copies / "gpt2") == 3
    assert "weights differ" in capsys.readouterr().err


def test_damage_is_found_without_the_source(copies, capsys):
    change_weight(copies / "hf")
    shutil.rmtree(copies / "gpt2")
    assert verify(copies / "hf") == 3
    assert "model.safetensors has changed" in capsys.readouterr().err
    (copies / "ctranslate2" / "tokenizer.json").unlink()
    assert verify(copies / "ctranslate2") == 3
    assert "tokenizer.json is missing" in capsys.readouterr().err


def test_a_source_that_was_trained_on_is_no_source_any_more(copies, capsys):
    told = json.loads((copies / "hf" / "parity.json").read_text())
    told["source"]["path"] = str(copies / "gpt2")
    (copies / "hf" / "parity.json").write_text(json.dumps(told))
    change_weight(copies / "gpt2")
    assert verify(copies / "hf") == 0
    assert "compared with heedful's own reading" in capsys.readouterr().out


def test_what_was_saved_has_no_certificate_and_is_compared_all_the_same(copies, capsys):
    assert verify(copies / "gpt2") == 0
    out = capsys.readouterr().out
    assert "the same model in transformers" in out and "files" not in out.splitlines()[1]


@pytest.mark.parametrize("path, why", [("nowhere", "does not exist"), ("empty", "config.json is missing")])
def test_what_is_no_export_is_refused(path, why, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert verify(tmp_path / path) == 2
    assert why in capsys.readouterr().err
