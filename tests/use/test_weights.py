"""Weights in fewer bits, from Python and from the shell: what is written, and what is refused."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from helpers.small_runs import (
    PAIRS,
)

import heedful
from heedful import BadInput
from heedful.cli import main as cli
from heedful.fast import cpu_weights as matrices
from heedful.fast.cpu_weights import BlockedMatrix, Fp16Matrix, Int8Matrix
from heedful.fast.kernels.packed import KINDS as EIGHT_BITS
from heedful.fast.rounding import round_weights
from heedful.use.model import WEIGHTS, check_weights
from heedful.use.perplexity import perplexity
from heedful.use.search import search_of

KINDS = {"fp32": BlockedMatrix, "fp16": Fp16Matrix, "int8": Int8Matrix}


@pytest.fixture(autouse=True)
def even_the_smallest(monkeypatch):
    monkeypatch.setattr(matrices, "FEW", 0)


def test_these_are_all():
    assert set(WEIGHTS["cpu"]) == set(KINDS) == set(matrices.KINDS)
    assert set(WEIGHTS["cuda"]) == {"fp32", *EIGHT_BITS}


@pytest.mark.parametrize("weights", KINDS)
def test_what_was_learned_is_written_in_any_of_them(weights, small_run):
    translator = heedful.load(small_run("demo"), weights=weights)
    assert translator.translate(list(PAIRS)) == list(PAIRS.values())
    assert translator.translate(list(PAIRS), beam=1) == list(PAIRS.values())
    writer = heedful.load(small_run("lm"), weights=weights)
    assert (
        writer.generate("the cat", max_new_tokens=10)
        == "".join(writer.stream("the cat", max_new_tokens=10))
        == " sat on th"
    )
    for model in (translator, writer):
        packed = model.writing.model
        decoder = getattr(packed, "decoder", packed)
        assert type(decoder.head.matrix) is KINDS[weights]
        assert packed is not model.model and model.look("the cat") is not None


def test_what_would_do_nothing_is_refused(small_run):
    with pytest.raises(BadInput, match="is an encoder, which writes nothing: leave out weights"):
        heedful.load(small_run("mlm"), weights="int8")
    with pytest.raises(
        BadInput, match='weights="int8" is for writing on a CPU from float32, and the model is torch.float64'
    ):
        heedful.load(small_run("demo"), dtype=torch.float64, weights="int8")
    with pytest.raises(BadInput, match='the weights of a CPU are fp32, fp16, int8, not "int4": give one of'):
        heedful.load(small_run("demo"), weights="int4")
    assert heedful.load(small_run("demo"), dtype=torch.float64).translate("the cat sleeps") == "le chat dort"


def test_from_the_shell(small_run, capsys):
    assert cli.main(["translate", str(small_run("demo")), "--weights", "int8", "the cat sleeps"]) == 0
    assert capsys.readouterr().out == "le chat dort\n"


def test_each_device_has_its_own(small_run):
    model = heedful.load(small_run("lm"))
    with pytest.raises(
        BadInput, match='the weights of a CPU are fp32, fp16, int8, not "fp8": give one of these'
    ):
        heedful.load(small_run("lm"), weights="fp8")
    with pytest.raises(
        BadInput, match='the weights of a GPU are fp32, int8, fp8, not "fp16": give one of these'
    ):
        check_weights(model, "fp16", "cuda")
    for weights in EIGHT_BITS:
        check_weights(model, weights, "cuda")
    with pytest.raises(BadInput, match="is an encoder, which writes nothing: leave out weights"):
        check_weights(heedful.load(small_run("mlm")), "fp8", "cuda")


@pytest.mark.parametrize(
    "given, why", [({"draft": "itself"}, "several tokens"), ({"coverage_penalty": 0.2}, "attention weights")]
)
def test_what_a_gpu_would_write_with_unrounded_weights_is_refused(given, why, small_run):
    model = heedful.load(small_run("demo" if "coverage_penalty" in given else "lm"))
    how = model.decoding("translate" if "coverage_penalty" in given else "generate", {})
    how = SimpleNamespace(**vars(how) | given | ({"draft": model} if "draft" in given else {}))
    on_gpu = SimpleNamespace(
        weights="fp8", device=torch.device("cuda"), kind=model.kind, folder="it", wording=model.wording
    )
    with pytest.raises(BadInput, match=f'{why}, .* no kernels with weights="fp8": leave out weights="fp8"'):
        search_of(on_gpu, how)


@pytest.mark.parametrize("weights", EIGHT_BITS)
@pytest.mark.parametrize("task, options", [("lm", []), ("demo", ["--beam", "2"])])
def test_evaluate_measures_the_loss_of_rounded_weights_beside_the_model(
    task, options, weights, small_run, capsys
):
    command = ["evaluate", str(small_run(task)), *options]
    assert cli.main([*command, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["metrics"]
    assert cli.main([*command, "--weights", weights, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["weights"] == weights and found["beside"]["fp32"]["perplexity"] == plain["perplexity"]
    assert found["metrics"]["perplexity"] != plain["perplexity"]
    assert cli.main([*command, "--weights", weights]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "perplexity" in line]
    more = found["metrics"]["perplexity"] / plain["perplexity"] - 1
    assert re.search(rf"fp32: {plain['perplexity']:,.2f} \({more:+.2%}\)".replace("+", r"\+"), line)


def test_evaluate_rounds_what_commands_round(small_run, tmp_path, capsys):
    """The loss that it prints is that of a model whose weights were rounded."""
    model, text = heedful.load(small_run("lm")), "the cat sat on the mat. " * 40
    (tmp_path / "text.txt").write_text(text)
    round_weights(model.model, "fp8")
    given = ["--text", str(tmp_path / "text.txt"), "--context", "8", "--weights", "fp8", "--json"]
    assert cli.main(["evaluate", str(small_run("lm")), *given]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"]["loss"]
    assert found == pytest.approx(perplexity(model, text, 8).loss, abs=1e-6)


def test_evaluate_rounds_only_models_that_write(small_run, capsys):
    assert cli.main(["evaluate", str(small_run("mlm")), "--weights", "int8"]) == 2
    assert "is an encoder, which writes nothing: leave out" in capsys.readouterr().err
