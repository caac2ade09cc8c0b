"""Hugging Face folders in half precision: what is written is what transformers reads, rounded once."""

import json

import pytest
import torch
import transformers as hf
from helpers.loaded_models import make_theirs, spread
from helpers.small_runs import small_run  # noqa: F401 (fixtures)
from safetensors.torch import load_file

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.interop.formats import load
from heedful.interop.hf.write import in_their_terms

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Tiny models of Hugging Face, with random weights."""
    hf.utils.logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("theirs")
    with torch.no_grad():
        for name in ("llama", "marian"):
            model, tokenizer = make_theirs(name)
            spread(model, 3).save_pretrained(folder / name)
            tokenizer.save(str(folder / name / "tokenizer.json"))
    return folder


@pytest.mark.parametrize(
    ("name", "kind"), [("llama", "bfloat16"), ("llama", "float16"), ("marian", "bfloat16")]
)
def test_weights_are_rounded_once_and_transformers_reads_them(name, kind, folders, tmp_path):
    ours = load(folders / name)
    heedful.save(ours, tmp_path / "half", kind)
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == kind
    auto = hf.AutoModelForCausalLM if name == "llama" else hf.AutoModelForSeq2SeqLM
    theirs, told = auto.from_pretrained(tmp_path / "half", output_loading_info=True)
    assert theirs.dtype == HALVES[kind] and not any(told.values())
    before, again = in_their_terms(ours)[1], in_their_terms(load(tmp_path / "half"))[1]
    for key, weight in before.items():
        assert torch.equal(again[key], weight.to(HALVES[kind]).float()), key
    stored = theirs.state_dict()
    assert all(
        torch.equal(stored[key], weight.to(HALVES[kind])) for key, weight in before.items() if key in stored
    )
    written = load_file(tmp_path / "half" / "model.safetensors")
    assert {tensor.dtype for tensor in written.values()} == {HALVES[kind]}


def test_a_run_is_exported_in_half_precision(small_run, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["export", str(small_run("classify")), str(out), "--quantize", "bfloat16", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "bfloat16"
    text = "a good film"
    ours, half = heedful.load(small_run("classify")), heedful.load(out)
    assert half.classify(text).probabilities == pytest.approx(ours.classify(text).probabilities, abs=0.02)


def test_a_weight_that_half_precision_cannot_hold_is_refused(folders, tmp_path):
    ours = load(folders / "llama")
    with torch.no_grad():
        ours.model.stack.norm.weight[0] = 7e4
    with pytest.raises(
        BadInput, match=r"has a weight of 7e\+04, and float16 ends at 6.55e\+04: export as bfloat16"
    ):
        heedful.save(ours, tmp_path / "a", "float16")
    heedful.save(ours, tmp_path / "a", "bfloat16")
    with pytest.raises(BadInput, match="written as float32 or bfloat16 or float16, not int8"):
        heedful.save(ours, tmp_path / "b", "int8")
