"""heedful doctor: faults of tokenizers, embeddings, positions and signals are found; sound models pass."""

import dataclasses

import pytest
import torch
from helpers import tiny
from helpers.look_cases import Runs, imported, saved
from torch import nn

from heedful.cli.main import main
from heedful.inside.doctor import CHECKS, FAIL, OK, WARN, NotApplicable, Patient, embeddings
from heedful.inside.doctor.fit import trained_rows
from heedful.interop.formats import load
from heedful.interop.loaded import Loaded
from heedful.models import gpt2
from heedful.runs.finished import read_run

NEW = (
    "tokenizer fits the model",
    "padding is not the end",
    "embeddings were trained",
    "positions were trained",
    "residual stream is level",
    "softmax is not saturated",
)
EVERY = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS, "vit": (tiny.vit, tiny.VIT)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


def bare(name: str, fresh: bool = False) -> Loaded:
    file, config = EVERY[name]
    torch.manual_seed(3)
    model = file.build(config).eval() if fresh else tiny.build(EVERY[name], torch.float32)
    return Loaded(file.__name__.rpartition(".")[2], config, model, None, {})


def check(name: str, loaded: Loaded, *more):
    return CHECKS[name](Patient(loaded, *more))


# Sound models


def verdicts(loaded, *more):
    found = {}
    for name in NEW:
        try:
            found[name] = check(name, loaded, *more).verdict
        except NotApplicable:
            continue
    return found


@pytest.mark.parametrize("fresh", [True, False])
def test_models_of_every_family_pass_fresh_or_not(fresh):
    for name in EVERY:
        found = verdicts(bare(name, fresh))
        if fresh and name == "modern":  # its output layers begin at 0, and the finding says so
            assert "normal in a fresh model" in check("residual stream is level", bare(name, fresh)).remedy
            found["residual stream is level"] = OK
        assert set(found.values()) == {OK}, (name, found)


@pytest.mark.parametrize("kind", ["translate", "lm", "mlm", "classify"])
def test_runs_pass(runs, kind):
    found = verdicts(load(runs(kind)), runs(kind), read_run(runs(kind))[0])
    assert set(found.values()) == {OK} and "tokenizer fits the model" in found, found


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5"])
def test_imported_folders_pass(name):
    assert FAIL not in verdicts(imported(name)).values()


# Tokenizers


def test_a_tokenizer_with_more_tokens_than_rows_is_found():
    loaded = imported("gpt2")
    loaded.tokenizer.add_tokens(["<one more>", "<and another>"] * 3)
    rows = loaded.model.inputs.tokens.weight.shape[0]
    loaded.tokenizer.add_tokens([f"<more {i}>" for i in range(rows)])
    found = check("tokenizer fits the model", loaded)
    assert found.verdict == FAIL and f"the embedding has {rows:,}" in found.summary and found.remedy


def test_a_special_token_that_is_another_in_the_tokenizer_is_found():
    loaded = imported("gpt2")
    loaded.tokenizer.add_special_tokens(["<|endoftext|>"])
    end = loaded.tokenizer.token_to_id("<|endoftext|>")
    assert check("tokenizer fits the model", dataclasses.replace(loaded, special={"eos": end})).verdict == OK
    found = check("tokenizer fits the model", dataclasses.replace(loaded, special={"eos": 7}))
    assert found.verdict == FAIL and "eos is token 7" in found.summary and "'<|endoftext|>'" in found.summary
    gone = check("tokenizer fits the model", dataclasses.replace(loaded, special={"eos": 10**6}))
    assert gone.verdict == FAIL and "which the tokenizer does not have" in gone.summary


def test_padding_that_is_the_end_token_is_found_in_folders_and_harmless_in_runs(runs):
    loaded = imported("gpt2")
    found = check("padding is not the end", dataclasses.replace(loaded, special={"eos": 3, "pad": 3}))
    assert found.verdict == WARN and "both token 3" in found.summary and "never learns to end" in found.remedy
    run = load(runs("lm"))
    same = dataclasses.replace(run, special={"eos": 3, "pad": 3})
    found = check("padding is not the end", same, runs("lm"), read_run(runs("lm"))[0])
    assert found.verdict == OK and "by its place" in found.summary


# Embeddings and positions


def test_rows_that_are_equal_or_zero_are_found():
    loaded = bare("gpt2", fresh=True)
    weight = loaded.model.inputs.tokens.weight
    with torch.no_grad():
        weight[5] = 0
    assert check("embeddings were trained", loaded).verdict == OK  # a row of padding
    with torch.no_grad():
        weight[20:25] = weight[19]
    found = check("embeddings were trained", loaded)
    assert found.verdict == WARN and found.number == 6 and "6 of 29 rows equal" in found.summary


def test_tokens_that_a_run_never_read_are_found(runs, monkeypatch):
    monkeypatch.setattr(embeddings, "PER_ROW", 1)
    loaded = load(runs("lm"))
    rows = loaded.model.inputs.tokens.weight.shape[0]
    config = dataclasses.replace(loaded.config, vocab=2 * rows)
    wider = dataclasses.replace(loaded, config=config, model=gpt2.build(config))
    found = check("embeddings were trained", wider, runs("lm"), read_run(runs("lm"))[0])
    assert found.verdict == WARN and found.number >= rows and "never occur in the data" in found.summary


def smooth(rows: int) -> torch.Tensor:
    """A table like a trained one: waves, some of them long."""
    places = torch.arange(rows)[:, None] / torch.tensor([9.0, 31.0, 77.0, 150.0])
    return torch.cat([places.sin(), places.cos()], -1)


def test_a_position_table_with_an_untrained_tail_is_found():
    torch.manual_seed(0)
    table = smooth(128)
    assert trained_rows(table) == 128 and trained_rows(torch.randn(128, 8)) == 128
    noisy, faded = table.clone(), table.clone()
    noisy[80:], faded[80:] = torch.randn(48, 8), faded[80:] * 1e-3
    assert abs(trained_rows(noisy) - 80) <= 16 and abs(trained_rows(faded) - 80) <= 1
    config = dataclasses.replace(tiny.DECODERS["gpt2"][1], context=128, width=8, heads=2)
    loaded = Loaded("gpt2", config, gpt2.build(config).eval(), None, {})
    assert check("positions were trained", loaded).verdict == OK  # fresh altogether
    with torch.no_grad():
        loaded.model.inputs.position.table.copy_(faded)
    found = check("positions were trained", loaded)
    assert found.verdict == WARN and "128 positions, of which 8" in found.summary and found.remedy


def test_a_context_beyond_the_windows_of_a_run_is_found(runs):
    loaded, recipe = load(runs("lm")), read_run(runs("lm"))[0]
    assert check("positions were trained", loaded, runs("lm"), recipe).verdict == OK
    short = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, max_length=5))
    found = check("positions were trained", loaded, runs("lm"), short)
    assert found.verdict == WARN and "of which 5 were trained (data.max_length" in found.summary


def test_a_context_beyond_the_reach_of_scaled_rotary_positions_is_found():
    loaded = bare("llama stretched, biased")
    assert check("positions were trained", loaded).verdict == OK
    long = dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, context=100))
    found = check("positions were trained", long)
    assert found.verdict == WARN and "of which 64 were trained" in found.summary


# Signals


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bert"])
def test_a_block_that_blows_up_the_stream_is_found(name):
    loaded = bare(name)
    shell = list(Patient(loaded).shells.values())[-1]
    block = shell.stack.blocks[-1]
    with torch.no_grad():
        post = type(block.feed_forward).__name__ == "PostNorm"
        (block.feed_forward.norm if post else block.feed_forward.layer.down).weight.mul_(1e7)
    found = check("residual stream is level", loaded)
    assert found.verdict == WARN and "explodes at block" in found.summary and found.number > 1e4


def test_a_stream_that_vanishes_is_found():
    loaded = bare("gpt1")
    norm = loaded.model.stack.blocks[-1].feed_forward.norm
    with torch.no_grad():
        norm.weight.mul_(1e-6)
        norm.bias.mul_(1e-6)
    found = check("residual stream is level", loaded)
    assert found.verdict == WARN and "vanishes at block 2" in found.summary


def test_a_block_that_adds_nothing_is_found():
    loaded = bare("gpt2")
    block = loaded.model.stack.blocks[1]
    for layer in (block.attention.layer.out, block.feed_forward.layer.down):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    found = check("residual stream is level", loaded)
    assert found.verdict == WARN and "block 2 adds nothing" in found.summary


@pytest.mark.parametrize("name", ["gpt2", "bert", "bart"])
def test_a_saturated_softmax_is_found(name):
    loaded = bare(name)
    assert check("softmax is not saturated", loaded).verdict == OK
    shell = list(Patient(loaded).shells.values())[-1]
    attention = shell.stack.blocks[0].attention.layer
    with torch.no_grad():
        attention.query.weight.mul_(1e4)
    found = check("softmax is not saturated", loaded)
    assert found.verdict == WARN and found.number > 0.9 and "self 1" in found.summary


@pytest.mark.parametrize("part", ["value", "out"])
def test_a_head_whose_output_is_zero_is_found(part):
    loaded = bare("gpt2")
    attention = loaded.model.stack.blocks[1].attention.layer
    with torch.no_grad():
        if part == "out":
            attention.out.weight[:, 4:8] = 0
        else:
            attention.value.weight[4:8] = 0
            attention.value.bias[4:8] = 0
    found = check("heads are in use", loaded)
    assert found.verdict == WARN and "output is 0: self 2.2" in found.summary


def test_the_command_runs_every_check_on_an_imported_folder(tmp_path, capsys):
    assert main(["doctor", str(saved("llama", tmp_path / "llama"))]) == 0
    out = capsys.readouterr().out
    for name in NEW:
        assert name in out
