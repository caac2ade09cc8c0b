"""`heedful heads`: runs of every kind, folders, files, and what it refuses."""

import json
from xml.etree import ElementTree

import pytest
import torch
from helpers.look_cases import imported, saved

import heedful
from heedful.cli.main import main
from heedful.data.report import Report
from heedful.inside.ablation import HeadName
from heedful.inside.corpus import samples_of
from heedful.inside.edits import edit
from heedful.inside.measuring import Measurer
from heedful.tasks import translate, translate_data


def told(capsys, *args):
    """What the command prints as JSON."""
    assert main(["heads", *map(str, args), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("kind", "unit", "measured"),
    [
        ("translate", "pairs", "nats per token of the target"),
        ("lm", "windows of 16 tokens", "nats per token"),
        ("mlm", "windows of 14 tokens", "nats per blank"),
        ("classify", "texts", "nats per label"),
        ("decoder", "texts", "nats per label"),
    ],
)
def test_the_held_out_data_of_a_run_is_measured(runs, capsys, kind, unit, measured):
    found = told(capsys, runs(kind), "--texts", 6)
    assert (found["samples"], found["unit"], found["measured_in"]) == (6, unit, measured)
    assert found["source"] == f"held-out data of {runs(kind)}" and 0 < found["loss"] < 9
    importance = [head["importance"] for head in found["heads"]]
    assert importance == sorted(importance, reverse=True) and max(map(abs, importance)) > 1e-4
    assert all(head["interval"][0] <= head["importance"] <= head["interval"][1] for head in found["heads"])
    assert found["curve"][0]["rise"] == 0 and found["curve"][-1]["removed"] == len(importance)


def test_the_loss_of_a_translator_is_that_of_its_own_task(runs):
    model = heedful.load(runs("translate"))
    table = model.heads(count=7, points=0)
    pairs = [(each.text, each.target) for each in table.samples.samples]
    vocab = translate_data.vocabs_of(runs("translate"), model.recipe)
    with torch.no_grad():
        loss = translate.loss_of(model.model, translate.numbers(vocab, pairs))
    assert set(pairs) <= set(translate_data.pairs_of(model.recipe, "valid", Report("drop")))
    assert table.loss == pytest.approx(float(loss.nll) / loss.count, rel=1e-5)


def test_folders_are_measured_on_built_in_sentences_and_say_so(tmp_path, capsys):
    assert main(["heads", str(saved("gpt2", tmp_path / "gpt2")), "--texts", "5"]) == 0
    printed = capsys.readouterr()
    rows = [line for line in printed.out.splitlines() if line.startswith("self.")]
    assert len(rows) == 6 and "5 texts (built-in English sentences; --data FILE takes others)" in printed.out
    assert printed.err.startswith(f"heads of {tmp_path / 'gpt2'}\n")
    found = told(capsys, saved("transformer", tmp_path / "marian"), "--texts", 3)
    assert "targets are the model's own translations" in found["source"] and len(found["heads"]) == 18


def test_an_encoder_without_predictions_is_measured_by_its_vectors(tmp_path, capsys):
    loaded = imported("bert")
    del loaded.model.heads["masked_lm"]
    samples = samples_of(loaded, count=4)
    measurer = Measurer(loaded, samples.samples)
    assert measurer.objective == "vectors"
    batch, name = measurer.batches[0], HeadName("self", 2, 3)
    (unchanged, changed) = batch.losses([(), {name}])
    ids = torch.tensor([batch.samples[0].ids])
    with torch.no_grad():
        plain = loaded.model.encoder(ids)[0]
        with edit(loaded, ["zero:self.2.3"]):
            other = loaded.model.encoder(ids)[0]
    expected = float(((other - plain).norm(dim=-1) / plain.norm(dim=-1)).sum())
    assert float(changed[0]) == pytest.approx(expected, rel=1e-4) and float(unchanged.abs().max()) < 1e-4


@pytest.mark.parametrize("by", ["zero", "mean"])
def test_removed_heads_are_those_that_an_edit_removes(by):
    loaded = imported("t5")
    samples = samples_of(loaded, texts=[("the cat sat", "a dog"), ("on the mat", "the fish ate")])
    measurer = Measurer(loaded, samples.samples)
    (batch,) = measurer.batches
    means, joined = None, None
    if by == "mean":
        from heedful.inside.ablation import MeanOutputs

        outputs = MeanOutputs(loaded.model)
        batch.collect(outputs)
        means = outputs.means()
        joined = {place: mean_HL.flatten() for place, mean_HL in means.items()}
    sets = [{HeadName("cross", 3, 2)}, {HeadName("encoder", 1, 1), HeadName("self", 2, 3)}]
    found = batch.losses(sets, means)
    for names, losses in zip(sets, found, strict=True):
        batch.forget()  # what the encoder said without edits
        with torch.no_grad(), edit(loaded, [f"{by}:{name}" for name in names], means=joined):
            assert torch.allclose(batch.losses([()])[0], losses, atol=1e-4)
    batch.forget()
    assert (found - batch.losses([()])).abs().min() > 1e-4


def test_a_file_of_trees_a_pattern_and_a_picture(tmp_path, capsys):
    trees = tmp_path / "trees.conllu"
    sentence = (
        "1\tthe\t_\t_\t_\t_\t2\t_\t_\t_\n2\tcat\t_\t_\t_\t_\t3\t_\t_\t_\n3\tsat\t_\t_\t_\t_\t0\t_\t_\t_\n\n"
    )
    trees.write_text(sentence * 3)
    folder = saved("bert", tmp_path / "bert")
    found = told(capsys, folder, "--data", trees, "--pattern", "parent", "--pattern", "offset:-1")
    parent, before = found["patterns"]
    assert parent["pattern"] == "parent" and len(parent["heads"]) == len(before["heads"]) == 6
    head = parent["heads"][0]
    assert len(head["most"]) == len(head["least"]) == 3 and head["most"][0]["text"] == "the cat sat"
    assert main(["heads", str(folder), "--data", str(trees), "--pattern", "words>marks"]) == 0
    assert "share  ± 95 %  shuffled" in capsys.readouterr().out
    picture = tmp_path / "heads.svg"
    assert told(capsys, folder, "--data", trees, "--svg", picture)["svg"] == str(picture)
    cells = [each for each in ElementTree.fromstring(picture.read_text()).iter() if each.tag.endswith("}g")]
    assert len(cells) == 6 and "light-dark(" in picture.read_text()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--texts", "1"], "--texts must be at least 2"),
        (["--data", "nowhere.txt"], "--data nowhere.txt is not there"),
        (["--pattern", "after"], "a pattern is offset:-1"),
        (["--pattern", "gold"], "needs reference alignments"),
        (["--pattern", "same", "--by", "mean"], "leave out --pattern"),
        (["--svg", "heads.png"], "--svg writes a .svg file"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(runs, capsys, args, why):
    assert main(["heads", str(runs("lm")), *args]) == 2
    assert why in capsys.readouterr().err
