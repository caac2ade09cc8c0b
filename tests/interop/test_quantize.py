"""Weights rounded to 8 bits through torchao: their error, their cost, and what stays as it is."""

import json
import re

import pytest
import torch
from helpers import tiny
from helpers.small_runs import small_run  # noqa: F401 (fixtures)
from torch import nn

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput, NotInstalled
from heedful.interop import quantize
from heedful.parts.blocks import Block


@pytest.mark.parametrize("width", [96, 20])
def test_every_weight_is_off_by_at_most_half_a_step_of_its_row(width):
    torch.manual_seed(0)
    block = Block(nn.Identity(), nn.Sequential(nn.Linear(width, 7)))
    layer = block.feed_forward[0]
    before = layer.weight.detach().clone()
    quantize.quantize_weights(block, "int8")
    eye = torch.eye(width)
    with torch.no_grad():
        after = (layer(eye) - layer.bias).T
    largest = before.abs().amax(-1, keepdim=True)
    assert ((after - before).abs() <= 0.51 / 127 * largest + 1e-6).all() and not torch.equal(after, before)
    assert len({round(float(x), 6) for x in after[0].abs()}) <= 128


@pytest.mark.parametrize("name", ["gpt2", "llama", "modern"])
def test_only_matrices_of_blocks_and_of_an_output_of_its_own_are_rounded(name):
    model = tiny.build(tiny.DECODERS[name]).float()
    before = {n: w.detach().clone() for n, w in model.named_parameters()}
    quantize.quantize_weights(model, "int8")
    changed = {n for n, w in model.named_parameters() if "Int8" in type(w).__name__}
    expected = {
        n
        for n in before
        if n.endswith(".weight") and before[n].ndim == 2 and (".blocks." in n or n.startswith("head."))
    }
    assert changed == expected and not any("tokens" in n for n in changed)


def test_a_quantized_model_writes_and_reads(small_run):
    plain, model = heedful.load(small_run("demo")), heedful.load(small_run("demo"), quantize="int8")
    sources = ["i am a student", "the cat sleeps", "the dog eats a fish"]
    assert model.translate(sources) == plain.translate(sources)
    assert all(isinstance(text, str) for text in model.translate(sources, beam=2, n_best=2))
    off = [
        abs(a.total - b.total)
        for a, b in zip(model.score(sources, sources), plain.score(sources, sources), strict=True)
    ]
    assert 0 < max(off) < 0.5
    lm = heedful.load(small_run("lm"), quantize="int8")
    assert isinstance(lm.generate("the cat", max_new_tokens=5), str) and "".join(
        lm.stream("the cat", max_new_tokens=5)
    )
    with pytest.raises(BadInput, match="rounded weights, which are not saved: load it without `quantize`"):
        heedful.save(lm, "nowhere")


def test_evaluate_prints_fp32_beside_and_what_it_costs_in_perplexity(small_run, capsys):
    assert main(["evaluate", small_run("lm"), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["metrics"]
    assert main(["evaluate", small_run("lm"), "--quantize", "int8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["quantize"] == "int8" and found["beside"]["fp32"]["perplexity"] == plain["perplexity"]
    assert found["metrics"]["perplexity"] != plain["perplexity"]
    assert main(["evaluate", small_run("lm"), "--quantize", "int8"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "perplexity" in line]
    more = found["metrics"]["perplexity"] / plain["perplexity"] - 1
    assert re.search(rf"fp32: {plain['perplexity']:,.2f} \({more:+.2%}\)".replace("+", r"\+"), line)
    assert main(["translate", small_run("demo"), "--quantize", "int8", "the", "cat", "sleeps"]) == 0
    assert capsys.readouterr().out == "le chat dort\n"


def test_what_cannot_be_is_one_sentence(small_run, monkeypatch, capsys):
    with pytest.raises(BadInput, match="two ways to round weights"):
        heedful.load(small_run("demo"), quantize="int8", weights="int8")
    with pytest.raises(BadInput, match='`quantize` is int8, not "int4"'):
        heedful.load(small_run("demo"), quantize="int4")
    assert main(["translate", small_run("demo"), "--quantize", "int8", "--weights", "fp16", "the"]) == 2
    assert "--weights and --quantize are two ways" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "torchao.quantization", None)
    monkeypatch.setitem(__import__("sys").modules, "torchao", None)
    with pytest.raises(NotInstalled, match=r'torchao .*: pip install "heedful\[quant\]"'):
        heedful.load(small_run("demo"), quantize="int8")
