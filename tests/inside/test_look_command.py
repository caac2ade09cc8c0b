"""heedful look: what the command prints, draws and refuses."""

import dataclasses
import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from helpers import tiny
from helpers.look_cases import imported, saved

import heedful
from heedful.cli.main import main
from heedful.corpora import phrasebook
from heedful.data.images.preprocessing import Preprocessing
from heedful.errors import BadInput, NotFinite
from heedful.inside.look import heads
from heedful.inside.look.attention import look
from heedful.inside.look.heads import MEASURE
from heedful.inside.trace import Trace
from heedful.interop.formats import load
from heedful.interop.loaded import Loaded
from heedful.models import gpt2

TEXT = "The cat sat on the mat."


# The command


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """heedful look in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*args):
        code = main(["look", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


def test_it_prints_the_sentence_and_a_map_and_draws_a_picture(command, runs):
    code, out, err = command(runs("translate"), "ba de fi")
    assert code == 0 and err == "picture: attention.svg\n"
    assert "transformer, cross-attention, 1 layer of 2 heads" in out and "ba de fi  →  " in out
    assert "ba  de  fi" in out
    ET.parse("attention.svg")


def test_words_that_the_model_does_not_know_are_told(command, runs):
    err = command(runs("translate"), "ba xx de yy")[2]
    assert err.startswith("warning: 2 of 4 tokens are not in the vocabulary; the model reads [UNK] instead\n")
    assert "unknown" not in command(runs("translate"), "ba de")[2]


def test_nothing_is_ever_overwritten(command, runs):
    Path("attention.svg").write_text("mine")
    assert command(runs("lm"), "ba de")[2] == "picture: attention-2.svg\n"
    assert command(runs("lm"), "ba de")[2] == "picture: attention-3.svg\n"
    assert Path("attention.svg").read_text() == "mine"
    code, out, err = command(runs("lm"), "ba de", "--output", "attention.svg")
    assert (code, out) == (2, "") and "attention.svg is there already" in err
    assert Path("attention.svg").read_text() == "mine"


def test_everything_is_there_as_json(command, runs):
    code, out, err = command(runs("translate"), "ba de fi", "--query", 2, "--json", "--output", "x.svg")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["which"] == "cross" and found["across"] == ["ba", "de", "fi"] and found["alignment"] is None
    assert found["best"]["by"] == MEASURE and len(found["heads"]) == 1
    head = found["heads"][0]
    seen = look(load(runs("translate")), "ba de fi", head="best")
    torch.testing.assert_close(torch.tensor(head["weights"]), seen.best.weights_TS)
    assert (head["layer"], head["head"]) == (seen.best.layer, seen.best.head)
    assert found["query"]["query"] == 2 and found["query"]["keys"] == found["across"]
    assert sum(found["query"]["weights"]) == pytest.approx(1)
    assert found["picture"] == "x.svg" and Path("x.svg").is_file()
    everything = json.loads(command(runs("translate"), "ba de fi", "--json")[1])
    assert (
        len(everything["heads"]) == 2 and everything["picture"] is None and not Path("attention.svg").exists()
    )


def test_the_phrasebook_has_gold_alignments(command, phrases, monkeypatch, tmp_path):
    """A model that was trained on it is compared with them; one that wrote something else is told how to."""
    from heedful.cli import look as look_command

    loaded, _, pairs = phrases
    monkeypatch.setattr(look_command, "open_model", lambda folder, device: loaded)
    monkeypatch.setattr(heads, "practice", lambda folder: pairs[10:14])
    monkeypatch.setattr(phrasebook, "split", lambda name: pairs[:5])
    pair = pairs[1]
    code, out, _ = command("run", pair.source, "--target", pair.target, "--head", "best")
    assert code == 0 and "the head that aligns best (error rate " in out
    assert "alignment error rate of layer " in out
    told = command("run", pair.source, "--target", pair.target)[1]
    assert (
        re.search(r"sharp    AER\n", told)
        and "\nAER: alignment error rate; 0 is the reference alignment\n" in told
    )
    told = command("run", pair.source, "--target", pair.target, "--head", "mean")[1]
    (drawn,) = re.findall(r"(layer \d, mean of its heads), the most informative layer:", told)
    assert f"alignment error rate of {drawn}: " in told and "the most informative head" not in told
    assert (
        f'compare with it by --target "{pair.target}"' in command("run", pair.source, "--target", "Non.")[1]
    )
    assert "error rate of" not in command("run", pairs[20].source, "--target", pairs[20].target)[1]
    found = json.loads(command("run", pair.source, "--target", pair.target, "--json")[1])
    assert found["alignment"]["gold"] == sorted(map(list, pair.alignment))
    assert all(0 <= head["alignment_error_rate"] <= 1 for head in found["heads"])


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "llama", "bert", "t5", "transformer"])
def test_hugging_face_folders_are_looked_at_too(command, name, tmp_path):
    code, out, err = command(saved(name, tmp_path / name), TEXT, "--query", 3)
    assert (code, err) == (0, "") and "weight × v" in out
    assert not list(Path().glob("*.svg"))  # nobody asked for one
    code, out, err = command(tmp_path / name, TEXT, "--query", 3, "--output", "query.svg")
    assert (code, err) == (0, "picture: query.svg\n") and Path("query.svg").is_file()
    code, out, err = command("--positions", tmp_path / name)
    assert (code, err) == (0, "picture: positions.svg\n")
    assert f"how order enters {tmp_path / name}" in Path("positions.svg").read_text()


def test_a_model_without_a_tokenizer_is_given_numbers(command, tmp_path):
    loaded = dataclasses.replace(imported("transformer"), tokenizer=None)
    heedful.save(loaded, tmp_path / "m")
    code, out, _ = command(tmp_path / "m", "5 3 8", "--target", "4 4")
    assert code == 0 and "5 3 8  →  4 4" in out
    code, _, err = command(tmp_path / "m", "hello")
    assert code == 2 and 'give token numbers from 0 to 78, such as "5 3 8"' in err


@pytest.mark.parametrize(
    "kind, args, sentence",
    [
        ("lm", [], 'look needs a TEXT, such as "Their cat was fast."'),
        ("lm", [""], "the text has no tokens"),
        ("lm", ["ba", "--which", "cross"], "this gpt2 has no cross-attention: look at self"),
        (
            "lm",
            ["ba", "--which", "crass"],
            "--which takes self or cross or encoder, not 'crass'; did you mean",
        ),
        ("lm", ["ba", "--layer", "2"], "there is no layer 2: layers are counted from 1 to 1"),
        ("lm", ["ba", "--layer", "0"], "there is no layer 0"),
        ("lm", ["ba", "--head", "3"], 'there is no head 3: give a number from 1 to 2, "mean" or "best"'),
        ("lm", ["ba", "--head", "bset"], '--head takes a number, mean or best, not "bset"'),
        ("lm", ["ba", "--target", "x"], "--target is for encoder-decoders"),
        (
            "lm",
            ["ba", "--query", "x"],
            "there is no query x: give a number from 1 to 2, or a word; there are b, a",
        ),
        ("translate", ["ba", "--target", "ab", "--query", "x"], "; --target shows another translation"),
        ("lm", ["ba " * 7], "a sequence of 21 tokens does not fit the learned position table of 16"),
        ("translate", ["ba " * 300], "the text has 300 tokens, and at most 256 are shown"),
        ("lm", ["ba", "--output", "x.gif"], "--output x.gif: a picture is an .svg or a .png file"),
        ("lm", ["ba", "--output", "no/x.svg"], "no is no folder"),
        ("lm", ["ba", "--length", "9"], "--length is of --positions"),
        ("lm", ["ba", "--positions"], "--positions looks at no text: leave a text out"),
        ("lm", ["--positions", "--head", "1"], "--positions looks at no text: leave --head out"),
        ("lm", ["--positions", "--length", "1"], "--length must be from 2 to 512 positions, not 1"),
    ],
)
def test_a_mistake_is_one_sentence(command, runs, kind, args, sentence):
    code, out, err = command(runs(kind), *args)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    assert sentence in err and not list(Path().iterdir())


def test_folders_that_hold_no_model_to_look_at_are_refused(command, tmp_path):
    assert "is not a folder" in command("nowhere", "text")[2]
    config = tiny.VIT
    vit = Loaded("vit", dataclasses.replace(config, prediction_heads=("classify",)), None, None, {})
    model = tiny.build((tiny.vit, vit.config), torch.float32)
    vit = dataclasses.replace(vit, model=model, preprocessing=Preprocessing())
    heedful.save(vit, tmp_path / "vit")
    code, _, err = command(tmp_path / "vit", "text")
    assert code == 2 and "text is not there" in err  # it reads pictures: tests/tasks/test_image_classify.py
    with pytest.raises(BadInput, match="a vit reads images, not text"):
        look(vit, "text")


def test_attention_that_is_not_a_number_is_not_drawn():
    loaded = imported("gpt2")
    with torch.no_grad():
        loaded.model.stack.blocks[0].attention.layer.key.weight[0, 0] = math.nan
    with pytest.raises(NotFinite, match="heedful doctor"):
        look(loaded, TEXT)


def test_a_run_is_not_changed(command, runs):
    def state(folder):
        return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    before = state(runs("classify"))
    command(runs("classify"), "ba de")
    command("--positions", runs("classify"))
    assert state(runs("classify")) == before


def test_gpt2_of_another_seed_looks_elsewhere():
    """The weights belong to the model, not to the sentence."""
    a, b = (look(imported("gpt2", seed), TEXT, layer=1, head=1).chosen[0].weights_TS for seed in (1, 2))
    assert (a - b).abs().max() > 0.01
    assert isinstance(imported("gpt2").config, gpt2.GPT2Config)


def test_an_edit_changes_what_is_shown_and_a_trace_is_saved(command, runs):
    run, text = runs("translate"), "ba de fi"
    plain = json.loads(command(run, text, "--target", "FI DE BA", "--json")[1])
    args = (run, text, "--target", "FI DE BA", "--edit", "force:cross.1.1:2>3", "--edit", "zero:cross.1.2")
    code, out, _ = command(*args, "--save", "a.safetensors", "--json")
    found = json.loads(out)
    assert code == 0 and found["edits"] == ["force:cross.1.1:2>3", "zero:cross.1.2"]
    assert found["heads"][0]["weights"][1] == [0.0, 0.0, 1.0] != plain["heads"][0]["weights"][1]
    seen = Trace.load("a.safetensors")
    assert seen.edits == found["edits"] and seen.weights("cross", 1, 1)[1].tolist() == [0.0, 0.0, 1.0]
    code, out, _ = command(run, text, "--edit", "patch:decoder.1<a.safetensors")
    assert code == 0 and "under the edits patch:decoder.1<a.safetensors" in out
    assert "there is no layer 9" in command(run, text, "--edit", "zero:cross.9.1")[2]
    assert "a trace is a .safetensors file" in command(run, text, "--save", "a.npz")[2]


def test_a_head_can_be_replaced_by_its_mean_over_held_out_texts(command, runs):
    run, text = runs("translate"), "ba de fi"
    given = (run, text, "--target", "FI DE BA", "--edit", "mean:cross.1.*")
    code, out, _ = command(*given)
    assert code == 0 and "under the edits mean:cross.1.*" in out
    assert command(*given, "--save", "mean.safetensors")[0] == 0
    assert Trace.load("mean.safetensors").edits == ["mean:cross.1.*"]


def test_a_query_of_the_first_layer_shows_the_parts_of_its_scores(command, runs):
    run, text = runs("translate"), "ba de fi"
    code, out, _ = command(run, text, "--which", "encoder", "--query", "2")
    assert code == 0 and "q·k in four parts" in out
    parts = json.loads(command(run, text, "--which", "encoder", "--query", "2", "--json")[1])["query"]
    total = [sum(numbers) for numbers in zip(*parts["parts"].values(), strict=True)]
    assert total == pytest.approx(parts["scores"], abs=1e-5)
    assert "four parts" not in command(run, text, "--query", "2")[1]  # cross-attention


def test_two_models_stand_beside_each_other(command, runs):
    run, text = runs("translate"), "ba de fi"
    code, out, err = command(run, text, "--beside", run)
    assert code == 0 and err == "picture: beside.svg\n"
    assert "linear CKA of" in out and "log-probability of each token" in out
    found = json.loads(command(run, text, "--beside", run, "--target", "FI DE BA", "--json")[1])
    assert found["tokens"]["tokens"][:3] == ["FI", "DE", "BA"] and set(found["tokens"]["difference"]) == {0.0}
    assert found["layers"]["cka"][1][1] == pytest.approx(1.0) and found["why"] is None
    code, out, _ = command(runs("mlm"), "ba de fi", "--beside", runs("mlm"))
    assert code == 0 and "gives no probability to a token after those before it" in out


@pytest.mark.parametrize(
    "more, sentence",
    [
        (("--lens",), "--lens and --beside are two views: give one of them"),
        (("--head", "1"), "--beside looks at all layers as a whole: leave --head out"),
        (("--query", "1"), "--beside looks at all layers as a whole: leave --query out"),
        (("--edit", "zero:cross.1.1"), "--edit applies to attention, and --beside shows something else"),
    ],
)
def test_what_has_no_meaning_beside_another_model_is_refused(command, runs, more, sentence):
    code, _, err = command(runs("translate"), "ba de fi", "--beside", runs("translate"), *more)
    assert code == 2 and sentence in err
