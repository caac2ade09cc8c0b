"""Runs of ELMo and of what reads it: trained, interrupted, resumed, evaluated, loaded and used."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from helpers.runs import CPU, Interrupted, Quiet, state_of
from helpers.small_runs import FILMS, TREEBANK, write_files

import heedful
from heedful.cli import main as cli
from heedful.data.letters import SpelledVocab
from heedful.data.vocab import train_vocab
from heedful.errors import BadInput
from heedful.interop.hf.weights import find_weights, read_tensors
from heedful.models.base.shells import Encoder
from heedful.runs import trainer
from heedful.tasks import elmo, recipe, tag, words

BILM = {
    "model.layers": 2,
    "model.width": 10,
    "model.cell_width": 14,
    "model.max_characters": 12,
    "model.context": 9,
    "model.dropout": 0.0,
    "data.vocab_size": 13,
    "data.tokenizer": "spaced",
    "train.batch_tokens": 64,
    "train.warmup_steps": 3,
    "train.learning_rate": 2e-2,
    "train.steps": 90,
    "evaluate.every": 90,
    "evaluate.examples": 1,
    "evaluate.rows": 5,
}
READER = {
    "model.reader_layers": 1,
    "model.reader_width": 12,
    "model.reader_dropout": 0.0,
    "train.batch_tokens": 64,
    "train.warmup_steps": 3,
    "train.learning_rate": 2e-2,
    "train.steps": 150,
    "evaluate.every": 50,
    "evaluate.examples": 1,
    "train.label_smoothing": 0.0,
    "model.at_output": True,
}
SENTENCES = [" ".join(line.split()[1::5]) for line in TREEBANK.splitlines()]


def bilm_recipe(files, **more):
    return recipe.make(
        "elmo", settings={**BILM, "data.text": files["words"], "data.valid_text": files["words"], **more}
    )


def reader_recipe(task, files, origin, **more):
    file = files["trees.conllu" if task == "tag" else "films.tsv"]
    data = {"data.table": file, "data.valid_table": file, "train.from": origin}
    return recipe.make(task, settings={**READER, **data, **more})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elmo")
    found = write_files(folder)
    (folder / "words").write_text("\n".join([*SENTENCES, *FILMS] * 5) + "\n")
    return found | {"words": str(folder / "words"), "folder": str(folder)}


@pytest.fixture(scope="module")
def trained(files, tmp_path_factory):
    """A biLM of letters, one of pieces, and a tagger and a classifier that read the first."""
    folder = tmp_path_factory.mktemp("runs")

    def make(name):
        path = folder / name
        if not path.exists():
            with torch.enable_grad():
                if name in ("letters", "pieces"):
                    kind = {"letters": {}, "pieces": {"model.input": "pieces", "data.tokenizer": "word"}}[
                        name
                    ]
                    if name == "pieces":
                        kind |= {"model.max_characters": 50}
                    asked = bilm_recipe(files, **kind)
                else:
                    asked = reader_recipe(name, files, make("letters"))
                trainer.start(asked, path, Quiet(), CPU)
        return str(path)

    return make


def weights_in(folder):
    return dict(read_tensors(find_weights(Path(folder))))


def printed(capsys, *command):
    assert cli.main(list(command)) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["letters", "pieces"])
def test_a_language_model_of_both_directions_is_trained_and_judged(name, trained, files, capsys):
    folder = trained(name)
    found = printed(capsys, "evaluate", folder, "--json")
    metrics = found["metrics"]
    assert found["unit"] == "sentences" and found["examples"] == 60 and found["data"]["words"] == 170
    assert metrics["loss"] < 0.75 * found["baselines"]["loss"]["score"]
    assert metrics["perplexity"] ** 2 == pytest.approx(metrics["forward"] * metrics["backward"])
    assert metrics["unknown"] > 0
    own = printed(capsys, "evaluate", folder, "--json", "--text", files["words"])
    assert own["metrics"] == pytest.approx(metrics)
    model = heedful.load(folder)
    assert model.kind is Encoder and model.can == ("embed",)
    info = printed(capsys, "info", folder, "--json")
    assert info["parameters"] == model.parameter_count and info["flops_per_token"]["forward"] > 0
    assert printed(capsys, "doctor", folder, "--json")["sound"]


def test_unknown_words_are_read_by_their_letters(trained):
    model = heedful.load(trained("letters"))
    assert model.unknown_words(["zebra"]) == [[]]
    one, other, again = model.embed(["the zebra", "the yak", "the zebra"])
    assert torch.equal(one, again) and not torch.equal(one, other)
    pieces = heedful.load(trained("pieces"))
    assert pieces.unknown_words(["the zebra"]) == [["zebra"]]
    torch.testing.assert_close(*pieces.embed(["the zebra", "the yak"]))


@pytest.mark.parametrize("task", ["tag", "classify"])
def test_what_reads_elmo_leaves_it_as_it_is_and_needs_it_no_more(task, trained, tmp_path, capsys):
    origin, folder = trained("letters"), trained(task)
    before, after = weights_in(origin), weights_in(folder)
    frozen = {n.removeprefix("encoder.features.model."): w for n, w in after.items() if ".features." in n}
    assert frozen.keys() == {n.removeprefix("encoder.") for n in before if n.startswith("encoder.")}
    for name, weight in frozen.items():
        assert torch.equal(weight, before[f"encoder.{name}"]), name
    assert any((after[name] != 0).any() for name in ("encoder.mix.weights", "encoder.output.weights"))
    moved = shutil.copytree(folder, tmp_path / "moved")
    away = shutil.move(origin, tmp_path / "away")
    try:
        model = heedful.load(moved)
        assert model.can == (task, "embed")
        if task == "tag":
            assert model.tag("the cat sleeps") == "the/DET cat/NOUN sleeps/VERB"
            assert len(model.tag(["the zebra sleeps", "a"])[0].tags) == 3
        else:
            assert model.classify(["a good film", "a very bad story"]) == ["positive", "negative"]
        found = printed(capsys, "evaluate", str(moved), "--json")
        assert found["metrics"]["accuracy"] == 1
        assert printed(capsys, "info", str(moved), "--json")["parameters"] == model.parameter_count
        assert printed(capsys, "doctor", str(moved), "--json")["sound"]
        assert cli.main(["train", "--resume", str(moved)]) == 0
        capsys.readouterr()
    finally:
        shutil.move(away, origin)


def test_commands_read_lines_and_write_lines(trained, monkeypatch, capsys):
    assert cli.main(["tag", trained("tag"), "the cat sleeps"]) == 0
    assert capsys.readouterr().out == "the/DET cat/NOUN sleeps/VERB\n"
    assert cli.main(["classify", trained("classify"), "a good film"]) == 0
    assert capsys.readouterr().out == "positive\n"


def test_a_run_that_is_saved_and_loaded_gives_the_same_bytes(trained):
    one, other = (heedful.load(trained("tag")) for _ in range(2))
    assert all(
        torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True)
    )
    assert one.tag(SENTENCES) == other.tag(SENTENCES)
    assert torch.equal(one.embed(SENTENCES), other.embed(SENTENCES))
    with pytest.raises(BadInput, match="elmo_reader has no Hugging Face counterpart"):
        heedful.save(one, trained("tag") + "-saved")


@pytest.mark.parametrize("task", ["elmo", "tag", "classify"])
def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(task, trained, files, tmp_path):
    """Bytes, and with dropout; what is read is not needed to go on."""
    few = {"train.steps": 7, "evaluate.every": 5, "checkpoint.every": 3}
    origin = str(tmp_path / "origin")
    if task == "elmo":
        asked = bilm_recipe(files, **few, **{"model.dropout": 0.1})
    else:
        shutil.copytree(trained("letters"), origin)
        asked = reader_recipe(task, files, origin, **few, **{"model.reader_dropout": 0.1})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(until=5), CPU)
    shutil.rmtree(origin, ignore_errors=True)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    assert state_of(tmp_path / "cut") == state_of(tmp_path / "whole")


def test_numbers_on_disk_stand_for_the_same_words_when_a_run_goes_on(trained, files):
    folder = trained("letters")
    vocab, train, valid, _ = elmo.prepare(bilm_recipe(files), Path(folder))
    assert isinstance(vocab, SpelledVocab) and vocab.unknown
    told = [" ".join(elmo.word_of(vocab, int(n)) for n in train.row("text", i)) for i in range(3)]
    assert told == SENTENCES[:3]
    assert len(train) == len(valid) == 60


def test_a_long_line_is_several_rows_and_an_endless_one_is_cut(monkeypatch):
    vocab = train_vocab("spaced", ["a b c"], 10)
    assert list(elmo.rows_of(["a b c a b", "c"], vocab, 4)) == [
        vocab.encode_batch([some])[0] for some in ("a b", "c a", "b", "c")
    ]
    assert list(elmo.lines_of(["a b", " c\nd", "\n", "e"])) == ["a b c", "d", "e"]
    monkeypatch.setattr(elmo, "LONGEST", 8)
    assert list(elmo.lines_of(["abc", "def", "ghi\nj"])) == ["abcdef", "ghi", "j"]


def test_both_baselines_and_both_guesses_are_told(files, tmp_path):
    quiet = Quiet()
    outcome = trainer.start(bilm_recipe(files), tmp_path / "run", quiet, CPU)
    assert set(outcome.best.scores) == {"loss", "perplexity", "forward", "backward"}
    said = "\n".join(quiet.lines)
    assert "at most 12 letters of a word, by 40 filters of 7 widths" in said
    assert "from the left:" in said and "from the right:" in said and "forward perplexity" in said


# What cannot be


def wrong(files, trained, tmp_path):
    """{what: (command, what is said)}."""
    tree, table = (
        ("--data", files["trees.conllu"], "--valid-data", files["trees.conllu"]),
        (
            "--data",
            files["pairs.tsv"],
            "--valid-data",
            files["pairs.tsv"],
            "--set",
            "data.pair_column=second",
        ),
    )
    text, letters = ("--text", files["words"]), trained("letters")
    return {
        "a tagger to read": (
            ["tag", *tree, "--from", trained("tag")],
            "was trained for tags or labels: start from what it started from",
        ),
        "a folder that is none": (["tag", *tree, "--from", str(tmp_path)], "config.json is missing"),
        "a tagger to classify with": (
            [
                "classify",
                "--data",
                files["films.tsv"],
                "--valid-data",
                files["films.tsv"],
                "--from",
                trained("tag"),
            ],
            "was trained for tags or labels: start from what it started from",
        ),
        "pairs": (
            ["classify", *table, "--from", letters],
            "reads sentences one by one: it cannot read pairs",
        ),
        "a mix of nothing": (
            ["tag", *tree, "--set", "model.at_output=true"],
            'tag with syntax has no setting "model.at_output"; ',
        ),
        "heads beside elmo": (
            ["tag", *tree, "--from", letters, "--set", "model.heads=2"],
            'tag with elmo_reader has no setting "model.heads"; it is for --architecture syntax',
        ),
        "a parser": (
            ["parse", *tree, "--from", letters],
            "parse cannot start from a model: leave out --from",
        ),
        "letters of another model": (
            ["lm", "--text", files["words"], "--set", "model.max_characters=9"],
            'lm with gpt2 has no setting "model.max_characters"; ',
        ),
        "heads": (["elmo", *text, "--set", "model.heads=2"], 'elmo has no setting "model.heads"; model has '),
        "too few letters": (
            ["elmo", *text, "--set", "model.max_characters=3"],
            "elmo: a word of 3 letters is too short for its filters",
        ),
        "fewer cells than numbers": (
            ["elmo", *text, "--set", "model.cell_width=16", "--set", "model.width=16"],
            "elmo: 16 cells are projected to fewer numbers, not to 16",
        ),
        "no room": (
            ["elmo", *text, "--set", "model.context=2"],
            "model.context is 2, which leaves no room for words",
        ),
        "no text": (["elmo"], "give --text"),
    }


def test_bad_input_is_told_in_one_sentence(files, trained, tmp_path, capsys):
    for what, (command, said) in wrong(files, trained, tmp_path).items():
        assert (
            cli.main(["train", *command, "--size", "tiny", "--steps", "2", "--run", str(tmp_path / "run")])
            == 2
        ), what
        told = capsys.readouterr().err.strip()
        assert said in told and told.splitlines()[-1].startswith("error: "), (what, told)
        assert not (tmp_path / "run").exists(), what


def test_unknown_words_that_are_gone_are_named(trained, files, tmp_path):
    cut = shutil.copytree(trained("tag"), tmp_path / "cut")
    (cut / "unknown.json").unlink()
    with pytest.raises(BadInput, match="unknown.json is missing"):
        trainer.resume(cut, Quiet(), CPU)
    (cut / "unknown.json").write_text('{"words": [3]}')
    with pytest.raises(BadInput, match="unknown.json is damaged"):
        trainer.resume(cut, Quiet(), CPU)
    assert heedful.load(cut).tag("the cat sleeps") == "the/DET cat/NOUN sleeps/VERB"


def test_a_lone_half_of_a_character_is_refused(trained):
    with pytest.raises(BadInput, match="half a character"):
        heedful.load(trained("tag")).tag("the \ud800")
    with pytest.raises(BadInput, match="has no word"):
        heedful.load(trained("tag")).tag(" ")


def test_there_is_no_attention_to_look_at(trained, capsys):
    for name in ("letters", "tag"):
        assert cli.main(["look", trained(name), "the cat"]) == 2
        assert "has no attention to look at" in capsys.readouterr().err


def test_what_is_learned_of_words_is_of_the_first_piece_of_each(trained):
    vocab = words.vocab_in(Path(trained("tag")))
    rows = words.rows_of(vocab, words.Labels({}, {}), [tag.Sentence(("the", "zebra", "sleeps"))])
    batch = words.collate(vocab, rows)
    assert batch.tokens_BT.shape == (1, 5, 13) and batch.firsts_BW.tolist() == [[1, 2, 3]]
