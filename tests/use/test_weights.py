"""Weights in fewer bits, from Python and from the shell: what is written, and what is refused."""

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
from heedful.use.model import WEIGHTS

KINDS = {"fp32": BlockedMatrix, "fp16": Fp16Matrix, "int8": Int8Matrix}


@pytest.fixture(autouse=True)
def even_the_smallest(monkeypatch):
    monkeypatch.setattr(matrices, "FEW", 0)


def test_these_are_all():
    assert set(WEIGHTS) == set(KINDS) == set(matrices.KINDS)


@pytest.mark.parametrize("weights", WEIGHTS)
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
    with pytest.raises(BadInput, match='weights are fp32, fp16, int8, not "int4"'):
        heedful.load(small_run("demo"), weights="int4")
    assert heedful.load(small_run("demo"), dtype=torch.float64).translate("the cat sleeps") == "le chat dort"


def test_from_the_shell(small_run, capsys):
    assert cli.main(["translate", str(small_run("demo")), "--weights", "int8", "the cat sleeps"]) == 0
    assert capsys.readouterr().out == "le chat dort\n"
