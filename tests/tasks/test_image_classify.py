"""Image-classify from files to answers: training, starting from another run, refusals, attention."""

import gzip
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import tiny
from helpers.image_files import by_class, huge_png, idx, put
from helpers.runs import CPU, Quiet

import heedful
from heedful.cli.main import main
from heedful.corpora import shapes
from heedful.data.images.files import png_bytes
from heedful.data.images.prepare import normal, ready_file
from heedful.errors import BadInput
from heedful.inside.look import images as look_images
from heedful.inside.rollout import rollout
from heedful.models import vit
from heedful.runs import setup, trainer
from heedful.tasks import image_classify, recipe
from heedful.tasks.evaluation import EvaluationRequest

SMALL = {
    "model.layers": 2,
    "model.width": 16,
    "model.heads": 2,
    "model.ffn_width": 24,
    "model.patch_size": 4,
    "data.image_size": 8,
    "train.batch_tokens": 60,
    "train.steps": 40,
    "train.learning_rate": 2e-2,
    "train.warmup_steps": 3,
    "evaluate.every": 40,
    "evaluate.examples": 1,
    "train.label_smoothing": 0.0,
}
TUNED = {key: value for key, value in SMALL.items() if not key.startswith("model.")}


def squares(folder, size=9, **counts):
    """Pictures of one color with some noise, by class; and those of a class that are to come later."""
    colors = {"red": (220, 30, 40), "green": (30, 200, 60), "blue": (20, 50, 210)}
    for name, count in counts.items():
        for i in range(count):
            noise = np.random.default_rng(i).integers(-20, 20, (size, size, 3))
            path = folder / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png_bytes((np.array(colors[name]) + noise).clip(0, 255).astype(np.uint8)))
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of pictures, and a run that has learned them."""
    folder = tmp_path_factory.mktemp("pictures")
    squares(folder / "images", red=20, green=12, blue=15)
    asked = recipe.make("image-classify", settings={**SMALL, "data.images": str(folder / "images")})
    talk = Quiet()
    outcome = trainer.start(asked, folder / "run", talk, CPU)
    assert outcome.best.scores["accuracy"] == 1
    (folder / "said").write_text("\n".join(talk.lines))
    return folder


def test_speed_is_told_in_pictures(place):
    said = (place / "said").read_text()
    assert "12 pictures a step" in said and re.search(
        r"speed: \d+ ms a step, [\d,.]+ pictures a second;", said
    )


def test_a_run_learns_its_classes_and_says_what_it_reads(place):
    labels = json.loads((place / "run" / "labels.json").read_text())
    assert list(labels) == ["blue", "green", "red"] and labels["red"] == 18  # two are held out
    model = heedful.load(place / "run")
    assert model.can == ("classify", "look") and model.loaded.labels == ("blue", "green", "red")
    files = [str(place / "images" / name / "0.png") for name in labels]
    found = model.classify(files, batch=2)
    assert found == list(labels) and found[0].probability > 0.5
    assert sum(found[0].probabilities.values()) == pytest.approx(1)
    assert model.classify(files[0]) == "blue"
    with pytest.raises(BadInput, match="one by one: leave out the second ones"):
        model.classify(files, files)
    with pytest.raises(BadInput, match="look_at takes the name of a file"):
        model.look("a text")


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_the_label_is_read_off_the_class_token_or_the_mean(pool, place):
    settings = {**SMALL, "data.images": str(place / "images"), "data.pool": pool}
    config = image_classify.vit_config(recipe.make("image-classify", settings=settings), 3)
    assert config.prediction_heads == ({"class": "classify", "mean": "classify_mean"}[pool],)
    model = vit.build(config)
    torch.nn.init.normal_(next(iter(model.heads.values())).linear.weight)
    images = torch.randn(2, 3, 8, 8)
    hidden = model.encoder(images)
    pooled = hidden[:, 0] if pool == "class" else hidden[:, 1:].mean(1)
    expected = next(iter(model.heads.values())).linear(pooled)
    torch.testing.assert_close(image_classify.scores(model, images), expected)


def test_parts_of_a_step_are_moved_as_the_whole_is(place, tmp_path):
    shutil.copytree(place / "run" / "data", tmp_path / "data")
    settings = SMALL | {
        "data.images": str(place / "images"),
        "data.random_flip": True,
        "data.random_erase": 0.3,
        "data.random_zoom": 0.2,
    }
    jobs = [
        setup.make_job(
            recipe.make("image-classify", settings=settings | {"train.accumulation_steps": parts}),
            tmp_path,
            Quiet(),
        )
        for parts in (1, 3)
    ]
    (whole,), parts = jobs[0].batches(5), jobs[1].batches(5)
    assert len(parts) == 3 and whole.count == 12  # of 60 tokens, five a picture
    for name in ("pixels_BHWC", "labels_B", "moves_B23", "holes_B3"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name)), name
    ranks = [batch for rank in range(2) for batch in jobs[0].batches(5, rank, 2)]
    assert torch.equal(torch.cat([batch.moves_B23 for batch in ranks]), whole.moves_B23)
    assert not torch.equal(jobs[0].batches(6)[0].moves_B23, whole.moves_B23)


# Another resolution


def test_a_run_begins_from_another_with_positions_interpolated(place, tmp_path):
    settings = TUNED | {
        "data.images": str(place / "images"),
        "data.image_size": 12,
        "train.from": str(place / "run"),
    }
    talk = Quiet()
    (tmp_path / "run").mkdir()
    job = setup.make_job(recipe.make("image-classify", settings=settings), tmp_path / "run", talk)
    assert any(
        "positions of 2 x 2 patches are interpolated to 3 x 3; the head is new" in line for line in job.plan
    )
    model = setup.new_model(job, recipe.make("image-classify", settings=settings), CPU)
    job.begin(model)
    before = dict(heedful.load(place / "run").model.named_parameters())
    for name, weight in model.named_parameters():
        if name == "encoder.inputs.position.table":
            torch.testing.assert_close(weight, vit.interpolate(before[name], 3))
        elif name.startswith("heads."):
            assert not torch.equal(weight, before[name]) or (weight == 0).all()
        else:
            assert torch.equal(weight, before[name]), name
    assert (model.heads["classify"].linear.weight == 0).all()
    outcome = trainer.start(
        recipe.make("image-classify", settings=settings | {"train.learning_rate": 5e-3}),
        tmp_path / "fine",
        Quiet(),
        CPU,
    )
    assert outcome.best.scores["accuracy"] == 1
    (place / "run").rename(place / "moved")  # a run that has begun needs it no more
    try:
        assert trainer.resume(tmp_path / "fine", Quiet(), CPU).finished
    finally:
        (place / "moved").rename(place / "run")


def test_architectures_that_read_words_are_no_choice():
    with pytest.raises(BadInput, match="cannot train the architecture bert: it can train vit$"):
        recipe.make("image-classify", settings={"model.architecture": "bert"})


def test_positions_of_the_same_size_stay_as_they_are():
    table = torch.randn(10, 6)
    torch.testing.assert_close(vit.interpolate(table, 3), table)
    ramp = torch.cat([torch.full((1, 1), 7.0), torch.arange(3.0).repeat(3)[:, None]])  # columns count up
    grown = vit.interpolate(ramp, 6)
    assert grown[0, 0] == 7 and grown.shape == (37, 1)
    rows = grown[1:, 0].view(6, 6)
    torch.testing.assert_close(rows, rows[:1].expand(6, 6))  # nothing changes downwards
    assert (rows[0].diff() > 0).all()


def test_what_cannot_be_begun_from_is_refused(place, tmp_path):
    pictures = {"data.images": str(place / "images"), "train.from": str(place / "run")}

    def refused(told, **more):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        with pytest.raises(BadInput, match=re.escape(told)):
            setup.make_job(recipe.make("image-classify", settings=TUNED | pictures | more), folder, Quiet())
        shutil.rmtree(folder)

    refused("reads pictures of colors: set data.color=true", **{"data.color": False})
    refused(
        "data.image_size is 10 pixels, which patches of 4 do not divide: set it to 8 or 12",
        **{"data.image_size": 10},
    )
    heedful.save(heedful_gpt2(), tmp_path / "gpt2")
    refused(
        "is a gpt2: image-classify starts from a Vision Transformer",
        **{"train.from": str(tmp_path / "gpt2")},
    )
    talk = Quiet()
    (tmp_path / "run").mkdir()
    asked = recipe.make("image-classify", settings=TUNED | pictures | {"data.mean": 0.4, "data.std": 0.3})
    setup.make_job(asked, tmp_path / "run", talk)
    learned = json.loads((place / "run" / "recipe.json").read_text())["data"]
    for name, value in {"mean": 0.4, "std": 0.3}.items():
        warned = [line for line in talk.lines if f"data.{name} is {value}, and" in line]
        assert len(warned) == 1 and f"its own {learned[name]}" in warned[0]
    with pytest.raises(BadInput, match="model.width cannot be set with --from: sizes come with the model"):
        recipe.make("image-classify", settings=TUNED | pictures | {"model.width": 8})


def heedful_gpt2():
    from heedful.interop.loaded import Loaded

    entry = tiny.DECODERS["gpt2"]
    return Loaded("gpt2", entry[1], tiny.build(entry).float(), None, {})


def test_a_published_vit_can_be_begun_from(place, tmp_path):
    import transformers as hf

    config = hf.ViTConfig(
        hidden_size=12,
        num_hidden_layers=1,
        num_attention_heads=3,
        intermediate_size=20,
        image_size=12,
        patch_size=4,
    )
    hf.ViTModel(config).save_pretrained(tmp_path / "vit")
    settings = TUNED | {
        "data.images": str(place / "images"),
        "train.from": str(tmp_path / "vit"),
        "train.steps": 2,
    }
    outcome = trainer.start(recipe.make("image-classify", settings=settings), tmp_path / "run", Quiet(), CPU)
    assert outcome.job.config == replace(outcome.job.config, image_size=8, width=12, layers=1, labels=3)


# Commands


def test_evaluate_judges_held_out_pictures_and_ones_own(place, tmp_path, capsys):
    assert main(["evaluate", str(place / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["examples"] == 4 and found["unit"] == "pictures" and found["metrics"]["accuracy"] == 1
    assert found["data"]["part"] == "a tenth"
    squares(tmp_path / "more", red=3, green=5)
    assert main(["evaluate", str(place / "run"), "--images", str(tmp_path / "more"), "--batch", "3"]) == 0
    out = capsys.readouterr().out
    assert "8 pictures" in out and re.search(r"accuracy +100.0%", out)
    by_class(tmp_path / "other", red=2, grene=2)
    assert main(["evaluate", str(place / "run"), "--images", str(tmp_path / "other")]) == 2
    assert 'has the class "grene", which was not learned; did you mean "green"?' in capsys.readouterr().err
    assert main(["evaluate", str(place / "run"), "--data", "x.tsv"]) == 2
    assert "which takes --images FOLDER" in capsys.readouterr().err


def test_evaluate_finds_what_is_wrong_when_something_is(place, tmp_path):
    """The judge itself: pictures in the folder of another class are wrong."""
    squares(tmp_path / "more", red=3, green=5)
    shutil.copy(tmp_path / "more" / "red" / "0.png", tmp_path / "more" / "green" / "9.png")
    made = recipe.make("image-classify", settings=SMALL | {"data.valid_images": str(tmp_path / "more")})
    model = heedful.load(place / "run").model
    with torch.no_grad():
        found = image_classify.measure(model, EvaluationRequest(place / "run", made, own=True))
    assert found.metrics["accuracy"] == pytest.approx(8 / 9) and found.details["confusion"]["green"] == {
        "green": 5,
        "red": 1,
    }


def test_idx_files_are_learned_and_judged_by_their_own_test_part(tmp_path, capsys):
    folder = tmp_path / "digits"
    folder.mkdir()
    for part, count in (("train", 40), ("t10k", 10)):
        labels = np.arange(count, dtype=np.uint8) % 2
        noise = np.random.default_rng(count).integers(0, 40, (count, 8, 8))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(idx((noise + 200 * labels[:, None, None]).astype(np.uint8)))
        )
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    words = [f"--set={key}={value}" for key, value in (SMALL | {"data.color": "false"}).items()]
    assert (
        main(["train", "image-classify", "--images", str(folder), "--run", str(tmp_path / "run"), *words])
        == 0
    )
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--images", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["examples"] == 10 and found["metrics"]["accuracy"] == 1
    assert heedful.load(tmp_path / "run").config.channels == 1


def test_classify_answers_files_by_word_and_by_line(place, tmp_path, capsys, monkeypatch):
    files = [str(place / "images" / name / "1.png") for name in ("green", "red")]
    assert main(["classify", str(place / "run"), *files]) == 0
    assert capsys.readouterr().out == "green\nred\n"
    (tmp_path / "bad.png").write_bytes(b"")
    lines = f"{files[0]}\n{tmp_path / 'bad.png'}\n{files[1]}\n"
    monkeypatch.setattr("sys.stdin", iter(lines.splitlines(keepends=True)))
    assert main(["classify", str(place / "run"), "--batch", "2"]) == 0
    out, err = capsys.readouterr()
    assert (
        out == "green\n\nred\n" and "bad.png: the file is empty" in err and "answered by an empty line" in err
    )
    monkeypatch.setattr("sys.stdin", iter(lines.splitlines(keepends=True)))
    assert main(["classify", str(place / "run"), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row.get("label") for row in rows] == ["green", None, "red"] and "is empty" in rows[1]["error"]
    monkeypatch.setattr("sys.stdin", iter(lines.splitlines(keepends=True)))
    assert main(["classify", str(place / "run"), "--bad-lines", "refuse"]) == 2
    assert main(["classify", str(place / "run"), str(tmp_path / "bad.png")]) == 2
    assert main(["classify", str(place / "run"), str(tmp_path / "none.png")]) == 2
    assert "none.png is not there" in capsys.readouterr().err


BAD = {
    "a damaged image": (
        lambda f: (f / "red" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\nx"),
        "it is no PNG, JPEG",
    ),
    "an empty image": (lambda f: (f / "red" / "1.png").write_bytes(b""), "the file is empty"),
    "a huge image": (lambda f: (f / "red" / "1.png").write_bytes(huge_png(70_000, 70_000)), "pixels"),
    "another file": (lambda f: (f / "red" / "notes.txt").write_text("x"), "notes.txt is no image"),
    "a class with one image": (lambda f: put(f / "owl" / "0.png"), "the class owl has one image"),
    "an unknown class held out": (lambda f: None, 'has the class "blue", which was not learned'),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_pictures_are_one_sentence_and_leave_no_run(name, tmp_path, capsys):
    spoil, told = BAD[name]
    folder = squares(tmp_path / "images", red=3, green=2)
    spoil(folder)
    held_out = (
        ["--valid-images", str(squares(tmp_path / "valid", red=2, blue=2))] if "held out" in name else []
    )
    words = [f"--set={key}={value}" for key, value in (SMALL | {"train.steps": 1}).items()]
    asked = [
        "train",
        "image-classify",
        "--images",
        str(folder),
        *held_out,
        "--run",
        str(tmp_path / "run"),
        *words,
    ]
    assert main(asked) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\nerror: ") + err.startswith("error: ") == 1
    assert not (tmp_path / "run").exists()


def test_bad_pictures_can_be_dropped_and_are_counted(tmp_path, capsys):
    folder = squares(tmp_path / "images", red=5, green=4)
    (folder / "red" / "1.png").write_bytes(b"")
    (folder / "notes.txt").write_text("x")
    words = [
        f"--set={key}={value}"
        for key, value in (SMALL | {"train.steps": 1, "data.bad_lines": "drop"}).items()
    ]
    assert (
        main(["train", "image-classify", "--images", str(folder), "--run", str(tmp_path / "run"), *words])
        == 0
    )
    assert "2 images dropped" in capsys.readouterr().err


# Looking


def test_the_rollout_is_the_product_of_layers_with_their_residuals():
    a, b = (torch.rand(2, 4, 4).softmax(-1) for _ in range(2))
    eye = torch.eye(4)
    found = rollout([a, b]).float()
    torch.testing.assert_close(found, (b.mean(0) + eye) / 2 @ ((a.mean(0) + eye) / 2))
    torch.testing.assert_close(found.sum(-1), torch.ones(4))
    row = torch.tensor([[0.1, 0.2, 0.3, 0.15, 0.25], *[[0.2, 0.4, 0.0, 0.2, 0.2]] * 4])
    torch.testing.assert_close(
        look_images.patch_attention(row, mean=False), torch.tensor([[0.2, 0.3], [0.15, 0.25]])
    )
    torch.testing.assert_close(
        look_images.patch_attention(row, mean=True), torch.tensor([[0.4, 0.0], [0.2, 0.2]])
    )


@pytest.mark.parametrize("light", [0, 200, 255])
def test_what_is_looked_at_is_hot_whatever_its_color(light):
    pixels = np.full((8, 8, 1), light, np.uint8)
    grid = torch.tensor([[0.5, 0.0], [0.0, 0.0]])
    found = look_images.overlaid(pixels, grid)
    heat, gray = found[0, 0].astype(int), found[-1, -1].astype(int)
    assert np.abs(heat - look_images.HEAT).max() < 30 and gray.max() == gray.min() and gray[0] > 130
    assert np.abs(heat - gray).max() > 90
    assert np.array_equal(look_images.overlaid(pixels, None), np.repeat(pixels, 3, -1))


def test_look_shows_the_models_own_weights(place):
    model = heedful.load(place / "run")
    file = str(place / "images" / "red" / "3.png")
    seen = model.look_at(file)
    assert [head.name for head in seen.chosen] == ["layer 1, mean of its heads", "layer 2, mean of its heads"]
    assert seen.labels[0][0] == "red" and seen.through.shape == (2, 2)
    one = model.look_at(file, layer=2, head=1)
    x_BCHW = normal(torch.from_numpy(ready_file(file, model.recipe.data))[None], model.recipe.data)
    with heedful.watch(model.model) as trace, torch.no_grad():
        model.model.encoder(x_BCHW)
    weights = trace["encoder.stack.blocks.1.attention.layer"].weights[-1][0, 0]
    torch.testing.assert_close(one.grid(one.chosen[0]), weights[0, 1:].view(2, 2))
    assert seen.svg().count("<image ") == 4 and "data:image/png;base64," in seen.svg()
    with pytest.raises(BadInput, match="there is no layer 3: layers are counted from 1 to 2"):
        model.look_at(file, layer=3)


def test_look_draws_a_file_and_tells_all_numbers(place, tmp_path, capsys):
    file, run_folder = str(place / "images" / "red" / "3.png"), str(place / "run")
    assert main(["look", run_folder, file, "--output", str(tmp_path / "a.png")]) == 0
    out = capsys.readouterr().out
    assert "→  red" in out and "attention of the class token" in out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert main(["look", run_folder, file, "--json", "--head", "best"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        np.array(found["rollout"]).shape == (2, 2)
        and len(found["heads"]) == 1
        and found["read_off"] == "class"
    )
    for option, told in (("--target", "--target applies to texts"), ("--query", "--query applies to texts")):
        assert main(["look", run_folder, file, option, "x"]) == 2
        assert told in capsys.readouterr().err
    assert main(["look", run_folder, str(tmp_path / "none.png")]) == 2
    assert "none.png is not there" in capsys.readouterr().err


def test_info_and_doctor_know_such_runs(place, capsys):
    assert main(["info", str(place / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] > 1000
    assert main(["doctor", str(place / "run"), "--json"]) in (0, 3)
    checks = json.loads(capsys.readouterr().out)
    assert "better than" in json.dumps(checks)


# The built-in corpus


def test_heads_are_measured_on_held_out_pictures(place, capsys):
    run = str(place / "run")
    model = heedful.load(run)
    table = model.heads(count=5, points=0)
    pixels = torch.stack([each.image_CHW for each in table.samples.samples])
    right = torch.tensor([each.label for each in table.samples.samples])
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(image_classify.scores(model.model, pixels), right)
    assert table.loss == pytest.approx(float(loss), rel=1e-5)
    assert (table.samples.unit, len(table.heads)) == ("images", 4)
    with pytest.raises(BadInput, match="held-out images of a run only"):
        model.heads(["the cat", "the dog"])


def test_the_corpus_is_learned_from_a_few_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shapes, "COUNTS", {"train": 400, "valid": 12, "test": 9})
    words = [
        f"--set={key}={value}" for key, value in (SMALL | {"data.image_size": 16, "train.steps": 2}).items()
    ]
    folder = str(tmp_path / "run")
    assert main(["train", "image-classify", "--corpus", "shapes", "--run", folder, *words]) == 0
    assert set(json.loads((tmp_path / "run" / "labels.json").read_text())) == set(shapes.labels())
    capsys.readouterr()
    assert main(["evaluate", folder, "--split", "long"]) == 2
    assert "shapes has no split long; it has valid, test" in capsys.readouterr().err
    assert main(["train", "image-classify", "--corpus", "facts", "--run", str(tmp_path / "no"), *words]) == 2
    assert 'image-classify has no built-in corpus "facts"; it has shapes' in capsys.readouterr().err
