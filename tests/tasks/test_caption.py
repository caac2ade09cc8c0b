"""Captions from files to sentences: one vector or a grid, training, evaluation, refusals, attention."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
import torch
from helpers.caption_cases import CONFIG, SMALL, built, write_pictures
from helpers.runs import CPU, Quiet

import heedful
from heedful.cli.main import main
from heedful.corpora import shapes
from heedful.data.images.augment import moved
from heedful.data.images.prepare import normal, ready_file
from heedful.data.images.preprocessing import Preprocessing
from heedful.decode.turns import finish
from heedful.errors import BadInput
from heedful.inside.doctor import FAIL, examine
from heedful.inside.look.captions import look_at_caption
from heedful.inside.look.layers import paths_of
from heedful.interop.loaded import Captioner
from heedful.parts.places import Source
from heedful.runs import setup, trainer
from heedful.tasks import caption, recipe
from heedful.tasks.caption import CaptionData
from heedful.tasks.evaluation import EvaluationRequest
from heedful.use import caption as use_caption
from heedful.use.model import recipe_of

# A run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of pictures, held-out ones, and a run that has learned them."""
    folder = tmp_path_factory.mktemp("captions")
    write_pictures(folder / "images")
    write_pictures(folder / "more", each=1, kind="jsonl")
    files = {"data.images": str(folder / "images"), "data.valid_images": str(folder / "more")}
    outcome = trainer.start(recipe.make("caption", settings=SMALL | files), folder / "run", Quiet(), CPU)
    assert outcome.best.scores["exact"] == 1
    return folder


def names(place):
    return sorted(map(str, (place / "more").glob("*.png")))


def test_a_run_writes_captions_of_files(place):
    model = heedful.load(place / "run")
    assert model.can == ("caption", "look") and model.kind is Captioner
    files = names(place)
    found = model.caption(files)
    assert (
        found[2] == "blue above red" and found[0] == "all blue" and isinstance(model.caption(files[1]), str)
    )
    greedily, data = model.caption(files, beam=1, batch=2), recipe_of(place / "run").data
    pixels = torch.from_numpy(np.stack([ready_file(name, data) for name in files]))
    vocab = EvaluationRequest(place / "run", recipe.make("caption")).vocab()
    assert greedily == caption.caption(model.model, vocab, data, pixels)
    answer = model.caption(files[2], n_best=2, coverage_penalty=0.1)
    assert len(answer.n_best) == 2 and answer.ended and answer.tokens[-1] == "[EOS]"
    assert model.caption(files[2], prefix="red").startswith("red")
    assert model.caption(files[2], max_new_tokens=1, beam=1) == "blue"
    assert model.caption(files, sample=True, temperature=0.01, seed=4) == found
    assert heedful.load(place / "run", weights="int8").caption(files) == found
    given = model, use_caption.encode(model, files), model.decoding("caption", {}), range(len(files))
    turns = use_caption.write_in_turns(*given)
    next(turns), turns.close()
    assert finish(use_caption.write_in_turns(*given)) == found


def test_what_a_captioner_does_not_do_is_said(place):
    model = heedful.load(place / "run")
    with pytest.raises(BadInput, match="is a captioner, which cannot translate; it can caption and look"):
        model.translate("x")
    with pytest.raises(BadInput, match="reads pictures: look_at takes the name of a file"):
        model.look("x")
    with pytest.raises(BadInput, match="`draft` is an option of generate and not of caption"):
        model.caption("x.png", draft=model)
    with pytest.raises(BadInput, match="x.png is not there"):
        model.caption("x.png")
    with pytest.raises(BadInput, match="captioner has no Hugging Face counterpart"):
        heedful.save(model, place / "theirs")


def test_the_command_answers_files_and_lines(place, capsys, monkeypatch):
    folder, files = str(place / "run"), names(place)
    assert main(["caption", folder, *files[:3]]) == 0
    assert capsys.readouterr().out == "all blue\nblue above green\nblue above red\n"
    assert main(["caption", folder, files[1], "--json", "--beam", "3", "--n-best", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == files[1] and told["answers"][0]["text"] == "blue above green"
    assert told["answers"][0]["score"] > told["answers"][1]["score"]
    assert main(["caption", folder, files[1], "--n-best", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split("\t")[1] == "blue above green"
    lines = f"{files[0]}\nno.png\n{files[2]}\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main(["caption", folder]) == 0
    out, err = capsys.readouterr()
    assert out == "all blue\n\nblue above red\n" and "no.png is not there; answered by an empty line" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main(["caption", folder, "--json"]) == 0
    assert [set(json.loads(line)) for line in capsys.readouterr().out.splitlines()][1] == {"file", "error"}
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main(["caption", folder, "--bad-lines", "refuse"]) == 2
    assert "no.png is not there" in capsys.readouterr().err
    assert main(["caption", folder, files[0], "--length-alpha", "1", "--beam", "1"]) == 2
    assert "--length-alpha has no effect without --beam" in capsys.readouterr().err


def test_a_run_is_evaluated_on_its_own_and_on_other_pictures(place, tmp_path, capsys):
    folder = str(place / "run")
    assert main(["evaluate", folder, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["examples"] == 9 and told["metrics"]["exact"] == 1 and told["metrics"]["chrf"] == 100
    assert told["baselines"]["exact"]["score"] == pytest.approx(1 / 9)
    assert "things" not in told["metrics"] and told["signature"]["exact"] == "the same to the letter"
    written = tmp_path / "captions.txt"
    words = ["--images", str(place / "images"), "--output", str(written), "--batch", "7"]
    assert main(["evaluate", folder, *words]) == 0
    assert "exact match" in capsys.readouterr().out and written.read_text().startswith(
        "all red\nred above green\n"
    )
    assert len(written.read_text().splitlines()) == 54


def test_a_run_is_sound(place):
    loaded = heedful.load(place / "run").loaded
    found = list(examine(loaded, place / "run", recipe_of(place / "run")))
    made = {one.name: one.verdict for one in found if not isinstance(one, tuple)}
    assert [name for name, verdict in made.items() if verdict == FAIL] == []
    left = dict(one for one in found if isinstance(one, tuple))
    checks = ("padding changes nothing", "positions were trained")
    assert left == dict.fromkeys(checks, "all images have the same size")


def test_speed_is_told_in_pictures(place, tmp_path):
    class Talk(Quiet):
        def step(self, progress, steps):
            self.lines.append(f"{progress.seen.number} {progress.seen.unit} seen")

    asked = recipe.make("caption", settings={**SMALL, "data.images": str(place / "images"), "train.steps": 1})
    talk = Talk()
    trainer.start(asked, tmp_path / "run", talk, CPU)
    (seen,) = (line for line in talk.lines if line.endswith(" seen"))
    assert any(line.split("; ")[-1].startswith(seen.removesuffix(" seen") + " a step") for line in talk.lines)


def test_batches_are_a_function_of_seed_and_step(place, tmp_path):
    settings = SMALL | {
        "data.images": str(place / "images"),
        "data.random_shift": 0.2,
        "train.accumulation_steps": 3,
    }
    jobs = [
        setup.make_job(recipe.make("caption", settings=settings), tmp_path / "run", Quiet()) for _ in range(2)
    ]
    for step in (0, 4):
        one, other = (job.batches(step) for job in jobs)
        assert len(one) == 3 and [batch.ids for batch in one] == [batch.ids for batch in other]
        assert all(torch.equal(a.moves_B23, b.moves_B23) for a, b in zip(one, other, strict=True))
        assert all(torch.equal(a.target_BT, b.target_BT) for a, b in zip(one, other, strict=True))
    batch, data = jobs[0].batches(0)[0], recipe.make("caption", settings=settings).data
    still = caption.caption_loss(
        setup.new_model(jobs[0], recipe.make("caption", settings=settings), CPU), batch, data
    )
    assert not torch.equal(
        moved(normal(batch.pixels_BHWC, data), batch.moves_B23), normal(batch.pixels_BHWC, data)
    )
    assert still.count == batch.count == int((batch.answers_BT >= 0).sum())


# Right and wrong


def test_a_caption_of_shapes_is_right_if_it_says_the_same():
    shapes, other = CaptionData(corpus="shapes"), CaptionData(lowercase=False)
    told, turned = "a red circle left of a small blue square", "a small blue square right of a red circle"
    wrong = "a red circle right of a small blue square"
    assert caption.exact([turned, wrong, told], [told] * 3, shapes) == pytest.approx(2 / 3)
    assert caption.exact([turned, told], [told] * 2, other) == 0.5
    assert caption.exact(["A  Dog"], ["a dog"], CaptionData(lowercase=True)) == 1
    found = [turned, wrong, "a red circle left of a blue square", "a red circle", "red red", "a blue cross"]
    parts = caption.parts_right(found, [told] * 5 + ["a blue cross"], shapes)
    assert parts == {"things": pytest.approx(4 / 6), "relation": pytest.approx(2 / 5)}
    assert caption.parts_right(found, found, other) == {}


def test_captions_that_are_too_long_are_left_out_and_counted(place, tmp_path):
    folder = shutil.copytree(place / "images", tmp_path / "images")
    settings = SMALL | {"data.images": str(folder), "data.max_length": 3}
    job = setup.make_job(recipe.make("caption", settings=settings), tmp_path / "a", Quiet())
    assert job.steps_per_epoch == 1 and any("over data.max_length, 3 tokens" in line for line in job.plan)
    assert all(batch.target_BT.shape[1] == 3 for batch in job.batches(0))
    with pytest.raises(BadInput, match="captions are over data.max_length, 2 tokens: raise it"):
        settings |= {"data.max_length": 2}
        setup.make_job(recipe.make("caption", settings=settings), tmp_path / "b", Quiet())


def test_pictures_without_captions_are_refused_in_one_sentence(place, tmp_path, capsys):
    def refused(*words):
        folder = str(tmp_path / "images")
        assert main(["train", "caption", "--images", folder, "--run", str(tmp_path / "run"), *words]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    folder = shutil.copytree(place / "images", tmp_path / "images")
    lines = (folder / "captions.tsv").read_text().splitlines()
    (folder / "captions.tsv").unlink()
    assert "has no captions: put one there, captions.tsv or captions.jsonl" in refused()
    (folder / "captions.tsv").write_text("\n".join(lines[1:]))
    assert "has no caption in captions.tsv" in refused()
    (folder / "captions.tsv").write_text("\n".join([lines[0].partition("\t")[0] + "\t  ", *lines[1:]]))
    assert "has no caption: write one, or remove the line" in refused()
    (folder / "captions.tsv").write_text("\n".join([lines[0].partition("\t")[0], *lines[1:]]))
    assert "there is no tab" in refused()
    (folder / "captions.tsv").write_text("")
    assert "names no image" in refused("--set", "data.bad_lines=drop")
    (folder / "captions.tsv").write_text("\n".join(lines))
    assert 'caption has no setting "data.pool"' in refused("--set", "data.pool=mean")
    assert "an image of 32 pixels cannot be cut into patches of 5" in refused("--set", "model.patch_size=5")
    assert (
        main(
            [
                "train",
                "caption",
                "--corpus",
                "shapes",
                "--set",
                "data.random_flip=true",
                "--run",
                str(tmp_path / "r"),
            ]
        )
        == 2
    )
    assert "leave out data.random_flip, which swaps them" in capsys.readouterr().err


# Where words look


def test_each_word_looks_at_patches(place, tmp_path, capsys, monkeypatch):
    model, name = heedful.load(place / "run"), names(place)[2]
    seen = model.look_at(name)
    assert seen.caption == "blue above red" and seen.words == ["blue", "above", "red"]
    assert [head.weights_TS.shape for head in seen.chosen] == [(3, 4)] and len(seen.heads) == 2
    assert all(float(seen.grid(seen.chosen[0], t).sum()) == pytest.approx(1, abs=1e-5) for t in range(3))
    assert seen.svg().count("<image") == 1 + 3
    both = model.look_at(name, layer=1, target="red")
    assert both.caption == "red" and both.words == ["red"] and both.svg().count("<image") == 1 + 2
    monkeypatch.chdir(tmp_path)
    assert main(["look", str(place / "run"), name]) == 0
    out = capsys.readouterr().out
    assert "→  blue above red" in out and "row " in out and (tmp_path / "attention.svg").is_file()
    assert main(["look", str(place / "run"), name, "--json", "--head", "best", "--target", "all red"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["words"] == ["all", "red"] and np.shape(told["heads"][0]["weights"]) == (2, 2, 2)
    for words, why in {
        ("--layer", "2"): "there is no layer 2",
        ("--which", "self"): "--which applies to texts",
    }.items():
        assert main(["look", str(place / "run"), name, *words]) == 2
        assert why in capsys.readouterr().err


def test_the_weights_of_a_word_are_those_by_which_it_was_chosen():
    """softmax(q k / sqrt(K)) of the state that predicts the word, patch by patch."""
    model = built().float()
    loaded = heedful.Model(
        heedful.interop.loaded.Loaded("captioner", CONFIG, model, FakeTokenizer(), {"bos": 1, "eos": 2})
    ).loaded
    pixels = np.random.default_rng(3).integers(256, size=(12, 12, 3), dtype=np.uint8)
    data = CaptionData(image_size=12)
    seen = look_at_caption(loaded, pixels, Preprocessing(), target="5 6 7")
    layer = model.get_submodule(paths_of(model, "cross")[1])
    given = []
    hook = layer.register_forward_pre_hook(
        lambda module, args, kwargs: given.append(args[0]), with_kwargs=True
    )
    x = normal(torch.from_numpy(pixels[None]), data)
    memory = model.encoder(x)
    model.decoder(torch.tensor([[1, 5, 6]]), source=Source(memory))
    hook.remove()
    q = layer.query(given[0]).unflatten(-1, (3, 4)).transpose(1, 2)
    k = layer.key(memory).unflatten(-1, (3, 4)).transpose(1, 2)
    weights = (q @ k.mT / 2).softmax(-1)[0]
    found = torch.stack([head.weights_TS for head in seen.heads if head.layer == 1])
    torch.testing.assert_close(found, weights.detach())


class FakeTokenizer:
    """Numbers are words."""

    def encode(self, text, add_special_tokens):
        return type("Encoded", (), {"ids": [int(word) for word in text.split()]})

    def decode(self, ids, skip_special_tokens):
        return " ".join(map(str, ids))


def test_one_vector_is_not_looked_at(place, tmp_path):
    settings = SMALL | {"data.images": str(place / "images"), "model.source": "mean", "train.steps": 2}
    outcome = trainer.start(recipe.make("caption", settings=settings), tmp_path / "run", Quiet(), CPU)
    assert outcome.job.config.source == "mean" and outcome.job.config.source_length == 1
    model = heedful.load(tmp_path / "run")
    assert isinstance(model.caption(names(place)[0], max_new_tokens=3), str)
    with pytest.raises(BadInput, match=r"one vector \(mean\), so its words have nothing to choose from"):
        model.look_at(names(place)[0])


def test_the_corpus_shapes_is_captioned(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shapes, "COUNTS", {"train": 20, "valid": 6, "test": 7})
    settings = SMALL | {"data.image_size": 16, "train.steps": 2, "model.patch_size": 8}
    outcome = trainer.start(
        recipe.make("caption", "tiny", "shapes", settings), tmp_path / "run", Quiet(), CPU
    )
    assert outcome.finished
    assert main(["evaluate", str(tmp_path / "run"), "--split", "test", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["examples"] == 7 and {"exact", "things", "relation", "loss"} <= told["metrics"].keys()
    assert told["signature"]["exact"] == "says what the true caption says"
