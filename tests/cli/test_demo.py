"""The demo: trains on the built-in phrasebook and reports honestly, beside what takes no learning."""

import re
import shlex
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from helpers.command_lines import AtOnce, first_pages
from helpers.runs import CPU, Quiet

from heedful.cli import demo as demo_command
from heedful.cli.main import main
from heedful.corpora import phrasebook
from heedful.errors import program
from heedful.inside.look.heat_maps import heat_map
from heedful.interop.formats import FORMATS
from heedful.runs import trainer, training
from heedful.tasks import alignment, recipe


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A demo cut short: enough steps to be a translator of sorts, not enough to be a good one."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    settings = {
        "train.steps": 30,
        "evaluate.every": 30,
        "evaluate.rows": 8,
        "model.width": 32,
        "model.ffn_width": 48,
        "model.positions": demo_command.DEMO["model.positions"],
    }
    return trainer.start(
        recipe.make("translate", "tiny", "phrasebook", settings), folder, Quiet(), CPU
    ), folder


def test_the_report_tells_scores_baselines_and_alignment(trained):
    outcome, folder = trained
    told = demo_command.report(outcome.model, outcome.job.vocab, folder, rows=5)
    figures = [line for line in told.splitlines() if re.match(r"(held|unseen|longer|alignment)", line)]
    assert len(figures) == 4 and {re.match(r".{20} +\d+\.\d+", line).end() for line in figures} == {26, 27}
    for word in (
        "held-out sentences",
        "unseen combinations",
        "longer sentences",
        "exact match",
        "word-for-word baseline",
        "Baseline: each word by its most frequent translation",
        "95 % intervals",
        "BLEU",
        "error rate",
    ):
        assert word in told
    root = ET.fromstring((folder / "alignment.svg").read_text())
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) > 20


def test_the_next_steps_work_as_printed_and_the_export_is_checked(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    outcome, folder = trained
    report = demo_command.report(outcome.model, outcome.job.vocab, folder, rows=5)
    lines = [line for line in report.split("Next:")[1].splitlines() if program() in line]
    steps = [shlex.split(line.split(program())[1]) for line in lines]
    assert [step[0] for step in steps] == ["translate", "look", "export", "train", "export"]
    assert report.splitlines()[-1] == lines[-1]
    for step in (*steps[:3], steps[4]):
        assert main(step) == 0, step
    printed = capsys.readouterr().out
    assert "the same model in transformers" in printed and "as html, float16" in printed


def test_make_demo_installs_what_the_export_is_checked_with():
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(FORMATS["hf"].packages) <= set(extras["demo"])
    installing = (root / "Makefile").read_text().split(".venv/installed: ")[1].split("\n\n")[0]
    assert '-e ".[demo]"' in installing


@pytest.mark.parametrize(
    "words, name", [(["demo"], "demo"), (["train", "--corpus", "phrasebook"], "translate")]
)
def test_a_run_says_where_it_goes_and_how_to_go_on(words, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "Stop", AtOnce)
    monkeypatch.setattr(phrasebook, "split", first_pages)
    for number, remark in (("", ""), ("-2", f" (runs/{name} is there already)")):
        assert main(words) == 75
        told = capsys.readouterr().err.splitlines()
        assert told.count(f"run: runs/{name}{number}{remark}") == 1
        assert told[-1].endswith(f"go on with `heedful train --resume runs/{name}{number}`")
    assert main([*words, "--run", "runs/mine"]) == 75
    assert "run: runs/mine\n" in capsys.readouterr().err


def test_a_run_that_cannot_begin_is_not_told_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "lm", "--text", "gone"]) == 2
    assert capsys.readouterr().err == "error: gone is missing\n" and not list(tmp_path.iterdir())


def test_cross_attention_is_read_at_the_row_that_predicts_each_word(trained):
    outcome, _ = trained
    pair = phrasebook.split("test")[0]
    weights = alignment.cross_attention(outcome.model, outcome.job.vocab, pair.source, pair.target)
    ids = outcome.job.vocab.encode_batch([pair.source, pair.target])
    heads = outcome.job.config.decoder_layers * outcome.job.config.decoder_heads
    assert weights.shape == (heads, len(ids[1]) + 1, len(ids[0]))
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))


def test_tokens_are_mapped_to_words_by_where_they_stand(trained):
    vocab = trained[0].job.vocab
    for pair in phrasebook.split("test")[:50]:
        for text in (pair.source, pair.target):
            found = alignment.word_of_token(vocab, text)
            assert len(found) == len(vocab.encode_batch([text])[0])
            assert found == sorted(found) and set(found) == set(range(len(phrasebook.words(text))))


def test_a_perfect_attention_has_no_alignment_error():
    weights = torch.eye(3)[[2, 0, 1]]
    assert alignment.links_of(weights, [0, 1, 2], [0, 1, 2]) == {(2, 0), (0, 1), (1, 2)}
    split = torch.tensor([[0.3, 0.3, 0.4], [0.1, 0.8, 0.1]])  # two source tokens make one word
    assert alignment.links_of(split, [0, 0, 1], [0, 1]) == {(0, 0), (0, 1)}


def test_word_for_word_is_a_dictionary_in_place():
    train = phrasebook.split("train")
    assert alignment.word_for_word(train, phrasebook.split("test")) <= 0.2
    labels = {"mood": "statement", "tense": "present", "number": "singular"}
    same = [
        phrasebook.Pair("a b", "x y", ((0, 0), (1, 1)), (-1, 0), ("DET", "NOUN"), **labels),
        phrasebook.Pair("b", "y", ((0, 0),), (-1,), ("NOUN",), **labels),
    ]
    assert alignment.word_for_word(same, same) == 1.0


def test_a_picture_is_valid_and_escapes_what_it_shows():
    drawn = heat_map([[0.5, 1.2], [0.0, -1.0]], ["<a>", "b&c"], ["x", '"y"'], "a < b").svg()
    root = ET.fromstring(drawn)
    cells = {
        r[0].text: r.get("fill")
        for r in root.iter("{http://www.w3.org/2000/svg}rect")
        if len(r) and "attends to" in r[0].text
    }
    assert list(cells) == [
        "<a> attends to x: 0.500",
        '<a> attends to "y": 1.200',
        "b&c attends to x: 0.000",
        'b&c attends to "y": -1.000',
    ]
    assert cells['<a> attends to "y": 1.200'] == "#08306b"  # the largest is the darkest
    assert cells["b&c attends to x: 0.000"] == cells['b&c attends to "y": -1.000'] == "#ffffff"
