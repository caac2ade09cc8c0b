"""heedful doctor: sound models pass, and every fault is caught by the check that is for it."""

import dataclasses
import json
import math

import pytest
import tokenizers as tk
import torch
from helpers import tiny
from helpers.look_cases import Runs, imported, saved
from helpers.tokenizer_cases import byte_level, word_piece
from torch import nn

import heedful
from heedful.cli.main import main
from heedful.inside.doctor import CHECKS, FAIL, OK, WARN, Finding, NotApplicable, Patient, examine
from heedful.inside.doctor.tokenizer import excuse
from heedful.interop.formats import load
from heedful.interop.loaded import Loaded
from heedful.models import gpt2
from heedful.parts.cache import GrowingCache, StaticCache, count_on
from heedful.parts.masks import causal, full, window
from heedful.parts.places import Lengths
from heedful.parts.positions.relative import T5Buckets
from heedful.runs.finished import read_run

EVERY = {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS, "vit": (tiny.vit, tiny.VIT)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


def bare(name: str) -> Loaded:
    """A tiny model of a family, without a tokenizer."""
    file, config = EVERY[name]
    special = {"eos": 1, "decoder_start": 0} if name in tiny.ENCODER_DECODERS else {}
    return Loaded(
        file.__name__.rpartition(".")[2], config, tiny.build(EVERY[name], torch.float32), None, special
    )


def findings(loaded: Loaded, *more) -> dict[str, Finding]:
    return {found.name: found for found in examine(loaded, *more) if isinstance(found, Finding)}


def verdicts(found: dict[str, Finding]) -> dict[str, str]:
    return {name: one.verdict for name, one in found.items()}


def check(name: str, loaded: Loaded, *more) -> Finding:
    return CHECKS[name](Patient(loaded, *more))


# Sound models


@pytest.mark.parametrize("name", EVERY)
def test_sound_models_of_every_family_pass_whatever_applies_to_them(name):
    found = findings(bare(name))
    assert FAIL not in verdicts(found).values(), found
    expected = {"weights are finite", "a batch equals its rows", "heads are in use", "first loss near ln V"}
    expected |= {"residual stream is level", "softmax is not saturated"}
    if name != "vit":
        expected |= {"padding changes nothing", "embeddings were trained"}
    if hasattr(EVERY[name][1], "context"):
        expected |= {"positions were trained"}
    if name not in ("vit", *tiny.ENCODERS):
        expected |= {"no leak from the future", "cached equals uncached"}
    assert set(found) == expected
    assert found["no leak from the future"].number == 0 if "no leak from the future" in found else True
    for one in found.values():
        assert one.number is not None and one.summary and one.limit and one.remedy


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "llama", "bert", "t5", "transformer"])
def test_sound_models_with_their_tokenizers_pass(name):
    found = findings(imported(name))
    assert FAIL not in verdicts(found).values(), found
    assert {"tokenizer round trip", "the vocabulary is used"} <= set(found)


@pytest.mark.parametrize("kind", ["translate", "separate", "lm", "bytes", "mlm", "classify", "decoder"])
def test_runs_of_every_task_pass_and_are_better_than_guessing(runs, kind, capsys):
    assert main(["doctor", str(runs(kind))]) == 0
    out = capsys.readouterr().out
    assert "  ok    better than guessing" in out and "fail" not in out.replace("0 failed", "")
    found = findings(load(runs(kind)), runs(kind), read_run(runs(kind))[0])
    assert found["better than guessing"].number < 0


def test_a_run_is_not_changed(runs):
    def state(folder):
        return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    before = state(runs("decoder"))
    main(["doctor", str(runs("decoder"))])
    assert state(runs("decoder")) == before


# Faults


@pytest.mark.parametrize("name", [*tiny.DECODERS, *tiny.ENCODER_DECODERS])
@pytest.mark.parametrize("mask", [full(), causal() | window(2)], ids=["all of it", "one token"])
def test_a_mask_that_lets_the_future_through_is_caught(name, mask):
    loaded = bare(name)
    decoder = getattr(loaded.model, "decoder", loaded.model)
    decoder.masks = (causal(), mask)  # in every second layer
    found = check("no leak from the future", loaded)
    assert found.verdict == FAIL and found.number > 0 and "mask" in found.remedy


def test_a_decoder_that_uses_nothing_of_the_past_is_reported():
    loaded = bare("gpt2")
    for block in loaded.model.stack.blocks:
        nn.init.zeros_(block.attention.layer.out.weight)
    found = check("no leak from the future", loaded)
    assert found.verdict == WARN and "no gradient" in found.summary


@pytest.mark.parametrize("name", EVERY)
def test_a_weight_that_is_not_a_number_is_named_and_no_check_breaks_on_it(name):
    loaded = bare(name)
    path, weight = next(
        (path, weight) for path, weight in loaded.model.named_parameters() if path.endswith("value.weight")
    )
    with torch.no_grad():
        weight.view(-1)[1] = math.nan
    found = findings(loaded)
    assert found["weights are finite"].verdict == FAIL and found["weights are finite"].number == 1
    assert path in found["weights are finite"].summary
    assert (
        found["a batch equals its rows"].verdict == FAIL and found["a batch equals its rows"].number is None
    )
    assert found["heads are in use"].verdict in (FAIL, OK, WARN)
    json.dumps([dataclasses.asdict(one) for one in found.values()], allow_nan=False)


@pytest.mark.parametrize("name", ["bert", "t5", "transformer"])
def test_padding_that_is_attended_to_is_caught(name, monkeypatch):
    loaded = bare(name)
    assert check("padding changes nothing", loaded).verdict == OK
    monkeypatch.setattr(Lengths, "positions", lambda *given, **more: None)  # lengths are forgotten
    found = check("padding changes nothing", loaded)
    assert found.verdict == FAIL and found.number > 1e-3 and "lengths" in found.remedy


class Mixing(nn.Module):
    """A norm over the wrong axis."""

    def forward(self, x_BTD):
        return x_BTD - x_BTD.mean(0, keepdim=True)


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "vit"])
def test_rows_of_a_batch_that_are_mixed_are_caught(name):
    loaded = bare(name)
    getattr(loaded.model, "encoder", loaded.model).stack.norm = Mixing()
    found = check("a batch equals its rows", loaded)
    assert found.verdict == FAIL and found.number > 0.1


@pytest.mark.parametrize("kind", [GrowingCache, StaticCache])
@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "transformer"])
def test_a_cache_that_is_off_by_one_is_caught(name, kind, monkeypatch):
    loaded = bare(name)
    assert check("cached equals uncached", loaded).verdict == OK
    if kind is GrowingCache:

        def next_positions(self, T, lengths_B=None):
            return count_on(self.lengths() - 1, T, None) if self.size else None

    else:

        def next_positions(self, T, lengths_B=None):
            return count_on((self.lengths - 1).clamp(min=0), T, lengths_B)

    monkeypatch.setattr(kind, "next_positions", next_positions)
    found = check("cached equals uncached", loaded)
    assert found.verdict == FAIL and found.number > 1e-3 and "cache" in found.remedy


def test_a_fresh_model_that_does_not_guess_is_caught(monkeypatch):
    loaded = bare("gpt2")
    assert abs(check("first loss near ln V", loaded).number) < 0.2
    build = gpt2.build

    def loud(config):
        model = build(config)
        with torch.no_grad():
            model.inputs.tokens.weight.mul_(50)
        return model

    monkeypatch.setattr(gpt2, "build", loud)
    found = check("first loss near ln V", loaded)
    assert found.verdict == FAIL and found.number > 1


def test_checking_leaves_the_worlds_random_numbers_alone():
    loaded = bare("gpt2")
    torch.manual_seed(8)
    expected = torch.rand(3)
    torch.manual_seed(8)
    findings(loaded)
    assert torch.equal(torch.rand(3), expected)


# Tokenizers


def with_tokenizer(tokenizer: tk.Tokenizer, rows: int | None = None) -> Loaded:
    size = rows or tokenizer.get_vocab_size()
    config = dataclasses.replace(tiny.DECODERS["gpt2"][1], vocab=size)
    return Loaded("gpt2", config, tiny.build((gpt2, config), torch.float32), tokenizer, {})


def test_bytes_come_back_exactly():
    found = check("tokenizer round trip", with_tokenizer(byte_level()))
    assert found.verdict == OK and found.summary == "11 of 11 texts are restored exactly"


def test_what_cannot_come_back_by_construction_is_reported_and_not_failed():
    found = check("tokenizer round trip", with_tokenizer(word_piece()))
    assert found.verdict == OK and "8 have unknown tokens" in found.summary
    lower, known = word_piece(), ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    known += [prefix + chr(c) for c in range(33, 0x180) for prefix in ("", "##")]
    lower.model = tk.models.WordPiece({token: i for i, token in enumerate(known)}, unk_token="[UNK]")
    found = check("tokenizer round trip", with_tokenizer(lower))
    assert (
        found.verdict == OK
        and "except for capital letters" in found.summary
        and "except for white space" in found.summary
    )


def test_a_tokenizer_that_garbles_texts_is_caught():
    tokenizer = byte_level()
    tokenizer.decoder = tk.decoders.Fuse()
    found = check("tokenizer round trip", with_tokenizer(tokenizer))
    assert found.verdict == FAIL and found.number >= 8 and "Ġ" in found.summary


@pytest.mark.parametrize(
    "back, expected",
    [
        ("Où  Zoë", ()),
        ("Où Zoë", ("white space",)),
        ("où  zoë", ("capital letters",)),
        ("ouzoe", ("white space", "capital letters", "accents")),
        ("Où  Zo", None),
    ],
)
def test_the_fewest_excuses_are_found(back, expected):
    assert excuse("Où  Zoë", back) == expected


def test_a_vocabulary_that_is_another_models_is_reported():
    tokenizer = byte_level()
    size = tokenizer.get_vocab_size()
    assert check("the vocabulary is used", with_tokenizer(tokenizer, size + size // 20)).verdict == OK
    found = check("the vocabulary is used", with_tokenizer(tokenizer, 2 * size))
    assert found.verdict == WARN and found.number == size


# Heads


def head_check(loaded: Loaded) -> Finding:
    return check("heads are in use", loaded)


def test_a_head_that_always_looks_at_one_place_is_reported():
    """Only the first position has anything in coordinate 0, and the head's keys are that coordinate."""
    loaded = bare("gpt2")
    model, K = loaded.model, 4
    with torch.no_grad():
        model.inputs.tokens.weight[:, 0] = 0
        model.inputs.position.table[:, 0] = 0
        model.inputs.position.table[0, 0] = 60
        attention = model.stack.blocks[0].attention.layer
        model.stack.blocks[0].attention.norm.bias.zero_()
        for part in (attention.query, attention.key):
            part.weight[:K] = 0
            part.bias[:K] = 0
        attention.query.bias[0] = 100
        attention.key.weight[0, 0] = 10
    found = head_check(loaded)
    assert found.verdict == WARN and found.number >= 1
    assert "all queries attend to one key: self 1.1" in found.summary


def test_a_head_that_looks_everywhere_alike_is_reported():
    loaded = bare("bert")
    attention = loaded.model.encoder.stack.blocks[1].attention.layer
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight[4:8] = 0
            part.bias[4:8] = 0
    found = head_check(loaded)
    assert found.verdict == WARN and "uniform: self 2.2" in found.summary


def test_heads_that_do_the_same_are_reported():
    loaded = bare("t5")
    attention = loaded.model.decoder.stack.blocks[2].cross.layer
    with torch.no_grad():
        for part in (attention.query, attention.key):
            part.weight.mul_(3)
            part.weight[5:10] = part.weight[:5]
    found = head_check(loaded)
    assert found.verdict == WARN and "equal: cross 3.1 and cross 3.2" in found.summary


def test_a_head_that_looks_one_back_is_no_idle_head():
    """It does the same whatever the words are, but for every query it is another place."""
    loaded = bare("llama")
    for block in loaded.model.stack.blocks:
        block.attention.layer.position = position = T5Buckets(6, both_ways=False)
        with torch.no_grad():
            position.table.copy_(torch.randn(32, 6))
            position.table[:, 0] = -100
            position.table[1, 0] = 100
    assert "self 1.1" not in head_check(loaded).summary


# What was learned


def test_a_model_that_is_worse_than_guessing_is_caught(runs):
    for kind in ("translate", "lm", "mlm", "classify"):
        loaded = load(runs(kind))
        with torch.no_grad():
            for weight in loaded.model.parameters():
                weight.mul_(30)
        found = check("better than guessing", loaded, runs(kind), read_run(runs(kind))[0])
        assert found.verdict == FAIL and found.number > 0, kind


def test_held_out_data_that_have_gone_are_not_a_fault(runs, tmp_path):
    recipe = read_run(runs("translate"))[0]
    moved = dataclasses.replace(
        recipe, data=dataclasses.replace(recipe.data, valid_source=str(tmp_path / "gone"))
    )
    with pytest.raises(NotApplicable, match="the held-out data cannot be read: .*gone"):
        check("better than guessing", load(runs("translate")), runs("translate"), moved)


# The command


def test_json_has_every_check_with_its_number(runs, capsys):
    assert main(["doctor", str(runs("lm")), "--json", "--seed", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sound"] is True and found["architecture"] == "gpt2"
    names = [one["name"] for one in found["checks"]]
    assert [*names, *found["not_applicable"]] and set(names) | set(found["not_applicable"]) == set(CHECKS)
    assert all(one["verdict"] in (OK, WARN) and one["number"] is not None for one in found["checks"])


def test_a_folder_whose_model_is_broken_gives_exit_code_3_and_says_what_to_do(tmp_path, capsys):
    loaded = imported("gpt2")
    with torch.no_grad():
        loaded.model.stack.norm.weight[0] = math.inf
    heedful.save(loaded, tmp_path / "m")
    assert main(["doctor", str(tmp_path / "m")]) == 3
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("  fail  weights are finite"))
    assert "stack.norm.weight" in lines[place] and lines[place + 1].startswith("        → ")
    assert main(["doctor", str(tmp_path / "m"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["sound"] is False


def test_a_hugging_face_folder_is_examined(tmp_path, capsys):
    assert main(["doctor", str(saved("bert", tmp_path / "bert"))]) == 0
    out = capsys.readouterr().out
    assert "not checked: no leak from the future (an encoder attends in both directions)" in out
    assert "not checked: better than guessing (only a run has held-out data)" in out


def test_what_is_no_model_is_refused(tmp_path, capsys):
    assert main(["doctor", str(tmp_path)]) == 2
    assert "config.json is missing" in capsys.readouterr().err
