"""heedful import: what heedful reads becomes a Hugging Face folder, proven to be the same model."""

import json
from dataclasses import replace

import pytest
import torch
from helpers import hf_zoo
from helpers.export_cases import (
    ENDS,
    certificate,
    names,
    without,  # noqa: F401 (fixtures)
)
from helpers.look_cases import imported
from safetensors.torch import load_file, save_file

import heedful
from heedful.cli.main import main
from heedful.interop.ctranslate2 import write as to_ctranslate2
from heedful.interop.formats import load
from heedful.interop.gguf import write as to_gguf
from heedful.interop.hf import write as to_hf
from heedful.interop.packages import quiet


def bring(source, out, *more):
    return main(["import", str(source), str(out), *more])


@pytest.fixture
def gpt2(tmp_path):
    heedful.save(replace(imported("gpt2"), special=ENDS), tmp_path / "gpt2")
    return tmp_path / "gpt2"


def result(told, name):
    return next(check["result"] for check in told["checks"] if check["name"] == name)


def same_weights(a, b):
    a, b = dict(load(a).model.named_parameters()), dict(load(b).model.named_parameters())
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "family, seed", [("gpt2", 1), ("bert", 3), ("t5", 5), ("transformer", 2), ("llama", 4), ("vit", 2)]
)
def test_a_hugging_face_folder_comes_in_whole(family, seed, tmp_path, capsys):
    with quiet():
        hf_zoo.write(hf_zoo.make(family, seed), tmp_path / "theirs")
    assert bring(tmp_path / "theirs", tmp_path / "ours", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told.pop("out") == str(tmp_path / "ours") and told == certificate(tmp_path / "ours")
    assert told["verdict"] == told["source"]["verdict"] == "same"
    assert told["source"]["format"] == "hf" and told["source"]["path"] == str(tmp_path / "theirs")
    assert result(told["source"], "outputs")["compared"] and result(told, "weights")["of"] > 5
    assert result(told, "weights")["equal"] == result(told, "weights")["of"]
    assert same_weights(tmp_path / "theirs", tmp_path / "ours") and names(tmp_path) == ["ours", "theirs"]


def test_other_formats_come_in_as_hugging_face_folders(tmp_path, capsys):
    for module, name, to in ((to_ctranslate2, "transformer", "ctranslate2"), (to_gguf, "llama", "gguf")):
        loaded = imported(name)
        loaded = replace(loaded, special=loaded.special or ENDS)
        (tmp_path / to).mkdir()
        module.write(loaded, tmp_path / to)
        source = tmp_path / to
        if to == "gguf":
            source = (source / "model.gguf").rename(tmp_path / "some name.gguf")
        assert bring(source, tmp_path / f"{to}-in") == 0, capsys.readouterr()
        told = certificate(tmp_path / f"{to}-in")
        assert told["source"]["format"] == to and told["verdict"] == told["source"]["verdict"] == "same"
        assert result(told["source"], "greedy")["equal"] == result(told["source"], "beam")["equal"] == 6
        texts = result(told["source"], "tokenizer")
        assert texts["equal"] == texts["of"]
        assert load(tmp_path / f"{to}-in").architecture == name


def test_what_another_library_computes_in_whole_numbers_is_judged_as_such(tmp_path, capsys):
    (tmp_path / "int8").mkdir()
    to_ctranslate2.write(imported("transformer"), tmp_path / "int8", "int8")
    assert bring(tmp_path / "int8", tmp_path / "in") == 0, capsys.readouterr()
    source = certificate(tmp_path / "in")["source"]
    assert (source["kind"], source["verdict"]) == ("int8", "within the int8 tolerance")
    assert result(source, "outputs")["compared"]["logits"]["relative"] < 1e-5  # products in float32
    assert result(source, "agreement")["divergence"] > 1e-6  # products of whole numbers


def test_a_kernel_that_a_folder_names_is_not_fetched(gpt2, tmp_path, capsys):
    said = json.loads((gpt2 / "config.json").read_text())
    (gpt2 / "config.json").write_text(json.dumps(said | {"_attn_implementation": "somebody/kernel"}))
    assert bring(gpt2, tmp_path / "in") == 0, capsys.readouterr()


@pytest.mark.parametrize("out", [".", "..", "a/.."])
def test_a_place_without_a_name_is_refused(out, gpt2, tmp_path, capsys, monkeypatch):
    (tmp_path / "empty" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "empty")
    assert bring(gpt2, out) == 2
    assert "has no name of its own" in capsys.readouterr().err


def test_a_link_to_a_folder_gives_way_and_what_it_leads_to_stays(gpt2, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "in").symlink_to(tmp_path / "theirs")
    assert bring(gpt2, tmp_path / "in") == 0
    assert (tmp_path / "in" / "parity.json").is_file() and not (tmp_path / "in").is_symlink()
    assert names(tmp_path) == ["gpt2", "in", "theirs"] and not any((tmp_path / "theirs").iterdir())


def test_a_folder_that_is_read_wrongly_is_found_out(gpt2, tmp_path, capsys, monkeypatch):
    """As if our reader changed a weight: what is written is what was read, but not what they have."""
    from heedful.interop.hf import read as loading

    fill = loading.fill

    def wrongly(model, table, plan):
        fill(model, table, plan)
        with torch.no_grad():
            model.stack.blocks[0].attention.layer.query.bias[2] += 0.1

    monkeypatch.setattr(loading, "fill", wrongly)
    assert bring(gpt2, tmp_path / "out") == 3
    assert "the original: logits differ by" in capsys.readouterr().err
    assert names(tmp_path) == ["gpt2", "out.different"]
    assert certificate(tmp_path / "out.different")["source"]["verdict"] == "different"


def test_a_weight_changed_on_the_way_is_found_without_any_other_library(
    gpt2,
    tmp_path,
    capsys,
    monkeypatch,
    without,
):
    without("transformers")
    writes = to_hf.write

    def write(loaded, folder):
        writes(loaded, folder)
        weights = load_file(folder / "model.safetensors")
        weights["transformer.ln_f.bias"][0] += 1e-6
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    monkeypatch.setattr(to_hf, "write", write)
    assert bring(gpt2, tmp_path / "out") == 3
    assert "1 of 28 weights differ: transformer.ln_f.bias" in capsys.readouterr().err
    assert names(tmp_path) == ["gpt2", "out.different"]


def test_without_the_other_library_weights_are_compared_and_the_rest_is_said(gpt2, tmp_path, capsys, without):
    without("transformers")
    assert bring(gpt2, tmp_path / "out") == 0
    told = certificate(tmp_path / "out")
    assert told["verdict"] == told["source"]["verdict"] == "not checked"
    assert result(told, "weights") == {"equal": 28, "of": 28, "different": []}
    assert capsys.readouterr().err.endswith(
        'not checked: transformers is not installed: pip install "heedful[hf]"\n'
    )


def test_an_import_can_be_imported_and_replaced(gpt2, tmp_path):
    """An import can be imported: nothing is lost on the way."""
    assert bring(gpt2, tmp_path / "one") == 0
    assert bring(tmp_path / "one", tmp_path / "two") == 0
    for name in ("model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert bring(gpt2, tmp_path / "two") == 2
    assert bring(gpt2, tmp_path / "two", "--replace") == 0


def test_what_hugging_face_does_not_have_is_refused(tmp_path, capsys):
    from helpers.runs import CPU, TINY, Quiet

    from heedful.runs import trainer
    from heedful.tasks import recipe

    (tmp_path / "text").write_text("the cat sat on the mat\n" * 40)
    settings = TINY | {
        "data.text": str(tmp_path / "text"),
        "data.tokenizer": "char",
        "model.architecture": "modern",
        "train.steps": 1,
        "model.context": 12,
    }
    with torch.enable_grad():
        trainer.start(recipe.make("lm", settings=settings), tmp_path / "run", Quiet(), CPU)
    assert bring(tmp_path / "run", tmp_path / "out") == 2
    told = capsys.readouterr().err
    assert "cannot be exported as hf: modern has no Hugging Face counterpart" in told and told.endswith(
        "it can be exported as onnx, html\n"
    )
    assert not (tmp_path / "out").exists()
