"""Runs of what came before the Transformer: trained, interrupted, resumed, evaluated, loaded and used."""

import hashlib
import json

import pytest
import torch
from helpers.runs import CPU, Interrupted, Quiet
from helpers.small_runs import SENTENCE, write_files

import heedful
from heedful.cli import main as cli
from heedful.errors import BadInput
from heedful.models.base.shells import Decoder, EncoderDecoder
from heedful.runs import trainer
from heedful.tasks import recipe

SIZES = {
    "model.width": 24,
    "model.dropout": 0.0,
    "train.batch_tokens": 64,
    "train.warmup_steps": 3,
    "train.learning_rate": 2e-2,
    "train.label_smoothing": 0.0,
    "data.tokenizer": "word",
    "evaluate.rows": 4,
    "evaluate.examples": 1,
    "train.steps": 60,
    "evaluate.every": 60,
}
WRITERS = ("rnn", "gru", "lstm")
TRANSLATORS = ("seq2seq", "bahdanau", "luong", "convs2s")
ATTENDING = ("bahdanau", "luong", "convs2s")
every = pytest.mark.parametrize("name", [*WRITERS, *TRANSLATORS])


def recipe_of(name, files, **settings):
    """What a run of this architecture learns by heart."""
    if name in WRITERS:
        task, data = "lm", {"data.text": files["text"], "data.tokenizer": "char", "model.context": 24}
        data |= {"train.batch_tokens": 384, "train.steps": 200, "evaluate.every": 200, "model.layers": 1}
    else:
        task, data = "translate", {"data.source": files["src"], "data.target": files["tgt"]}
        data |= {"data.valid_source": files["src"], "data.valid_target": files["tgt"], "train.steps": 200}
        data |= {"evaluate.every": 200}
    return recipe.make(task, settings={"model.architecture": name, **SIZES, **data, **settings})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, which is trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("before")
    files = write_files(folder)

    def make(name):
        path = folder / name
        if not path.exists():
            with torch.enable_grad():
                trainer.start(recipe_of(name, files), path, Quiet(), CPU)
        return str(path)

    return make


@every
def test_a_run_learns_and_is_used_like_any_other(name, trained, capsys):
    folder = trained(name)
    model = heedful.load(folder)
    assert model.architecture == name
    if name in WRITERS:
        assert model.kind is Decoder and "look" not in model.can
        begun = SENTENCE[: SENTENCE.index("at. the dog")]
        assert model.generate(begun, max_new_tokens=8) == "at. the "
        assert "".join(model.stream(begun, max_new_tokens=8)) == "at. the "
        assert model.generate(begun, max_new_tokens=8, beam=3).n_best
        assert model.generate(begun, max_new_tokens=8, sample=True, temperature=0.1, seed=3) == "at. the "
        assert model.generate(begun, max_new_tokens=8, draft=model, draft_tokens=3) == "at. the "
        assert model.score(begun).total > model.score(begun[::-1]).total
    else:
        assert model.kind is EncoderDecoder and ("look" in model.can) == (name in ATTENDING)
        assert model.translate(["the cat sleeps", "", "i am a student"]) == [
            "le chat dort",
            "",
            "je suis étudiant",
        ]
        assert model.translate("the dog eats a fish", beam=1) == "le chien mange un poisson"
        assert model.translate("the cat sleeps", prefix="le chien") == "le chien dort"
        assert (
            model.score("the cat sleeps", "le chat dort").total
            > model.score("the cat sleeps", "le chien dort").total
        )
    one, two = model.embed(["the cat", "the dog eats a fish"])
    assert one.shape == two.shape and not torch.equal(one, two)
    torch.testing.assert_close(model.embed("the cat"), one)
    for command in (["evaluate", folder, "--json"], ["info", folder, "--json"], ["doctor", folder, "--json"]):
        assert cli.main(command) == 0, capsys.readouterr()
        found = json.loads(capsys.readouterr().out)
        if command[0] == "info":
            assert found["parameters"] == model.parameter_count
        if command[0] == "doctor":
            assert found["sound"], found["checks"]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_looking_shows_attention_where_there_is_some(name, trained):
    model = heedful.load(trained(name))
    if name not in ATTENDING:
        with pytest.raises(BadInput, match="cannot look"):
            model.look("the cat sleeps")
        return
    seen = model.look("the cat sleeps", head="best")
    assert seen.down == ["le", "chat", "dort", "[EOS]"] and seen.across == ["the", "cat", "sleeps"]
    assert all(".cross." in path for path in seen.weights)
    assert len(seen.weights) == (4 if name == "convs2s" else 1)
    torch.testing.assert_close(seen.best.weights_TS.sum(-1), torch.ones(4))
    steps = seen.steps("chat")
    torch.testing.assert_close(steps.masked_S.softmax(-1), steps.weights_S)
    with pytest.raises(BadInput, match="no self-attention"):
        model.look("the cat sleeps", which="self")
    assert model.translate("the cat sleeps", coverage_penalty=0.2) == "le chat dort"


@every
def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(name, tmp_path):
    """Bytes, and with dropout: what is drawn depends on the step and not on what came before it."""
    files = write_files(tmp_path)
    few = {
        "train.steps": 9,
        "evaluate.every": 5,
        "checkpoint.every": 4,
        "model.dropout": 0.1,
        "train.average_checkpoints": 2,
    }
    asked = recipe_of(name, files, **few)
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    with pytest.raises(Interrupted):
        trainer.start(asked, tmp_path / "cut", Quiet(6), CPU)
    trainer.resume(tmp_path / "cut", Quiet(), CPU)
    sums = [
        hashlib.sha256((tmp_path / each / "model.safetensors").read_bytes()).hexdigest()
        for each in ("whole", "cut")
    ]
    assert sums[0] == sums[1]


@pytest.mark.parametrize("name", ["lstm", "bahdanau", "convs2s"])
@pytest.mark.parametrize(
    "settings", [{"train.precision": "bf16"}, {"train.optimizer": "muon"}, {"train.ema_decay": 0.9}]
)
def test_other_ways_to_train(name, settings, tmp_path):
    files = write_files(tmp_path)
    made = trainer.start(
        recipe_of(name, files, **settings, **{"train.steps": 4}), tmp_path / "run", Quiet(), CPU
    )
    assert made.finished and made.best.scores["loss"] < 20


def test_separate_vocabularies_and_packed_documents(tmp_path):
    files = write_files(tmp_path)
    few = {"train.steps": 3, "evaluate.every": 3}
    for name in TRANSLATORS:
        trainer.start(recipe_of(name, files, **few, **{"data.joint": False}), tmp_path / name, Quiet(), CPU)
        model = heedful.load(tmp_path / name)
        assert not model.config.share_embeddings and model.target_tokenizer is not None
        assert model.tokenizer.to_str() != model.target_tokenizer.to_str()
        assert isinstance(model.translate("the cat sleeps"), str)
    for name in WRITERS:
        trainer.start(
            recipe_of(name, files, **few, **{"data.pack": "documents"}), tmp_path / name, Quiet(), CPU
        )


def test_settings_of_other_architectures_are_refused():
    with pytest.raises(BadInput, match='lm with gru has no setting "model.heads"; model has context, layers'):
        recipe.make("lm", settings={"model.architecture": "gru", "model.heads": 2})
    with pytest.raises(
        BadInput,
        match='translate with luong has no setting "model.kernel_size"; it is for --architecture convs2s',
    ):
        recipe.make("translate", settings={"model.architecture": "luong", "model.kernel_size": 3})
    with pytest.raises(BadInput, match="translate cannot train the architecture gru: it can train transform"):
        recipe.make("translate", settings={"model.architecture": "gru"})
    with pytest.raises(BadInput, match="lm cannot train the architecture luong: it can train gpt2, llama"):
        recipe.make("lm", settings={"model.architecture": "luong"})
    assert recipe.make("lm", settings={"model.architecture": "gru", "model.width": 150}).model.width == 150


def test_fewer_bits_are_for_blocks_of_attention(trained):
    with pytest.raises(BadInput, match="is for blocks of attention, and a gru has none"):
        heedful.load(trained("gru"), weights="int8")


def test_a_sentence_that_is_too_long_is_named(trained, capsys):
    folder = trained("convs2s")
    assert cli.main(["translate", folder, "the cat " * 600]) == 2
    assert "the text has 1,200 tokens, and the model reads at most 256" in capsys.readouterr().err
