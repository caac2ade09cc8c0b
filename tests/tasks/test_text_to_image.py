"""The stages of text-to-image: each an ordinary run, in one folder that can be resumed; then paint."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from helpers.runs import CPU, Interrupted, Quiet, state_of

import heedful
from heedful.cli.main import main
from heedful.cli.shared import training
from heedful.corpora import shapes
from heedful.corpora.shapes import parse_caption
from heedful.data.images.files import png_bytes
from heedful.errors import BadInput
from heedful.interop.load import load_run
from heedful.models.dalle import DalleConfig
from heedful.models.dalle import build as build_dalle
from heedful.runs import painting, stages, trainer
from heedful.runs.painting import read_recipe
from heedful.tasks import recipe
from heedful.tasks.captioned import padded
from heedful.tasks.evaluation import EvaluationRequest
from heedful.tasks.recipe.presets import STAGES
from heedful.tasks.text_to_image import decoder, judge, measure
from heedful.use.kinds import Stage

SMALL = {
    "data.image": 8,
    "model.layers": 1,
    "model.width": 12,
    "train.steps": 6,
    "train.batch_tokens": 40,
    "checkpoint.every": 2,
    "evaluate.every": 3,
    "evaluate.rows": 5,
    "train.warmup": 1,
}
TRANSFORMERS = {"model.heads": 3, "model.hidden": 10}
ALL = {**SMALL, **TRANSFORMERS, "model.codes": 9}


@pytest.fixture(autouse=True)
def few_pictures(monkeypatch):
    monkeypatch.setattr(shapes, "COUNTS", {"train": 14, "valid": 6, "test": 5})


def train_all(path, **more):
    return stages.start(stages.recipes_of("tiny", "shapes", {**ALL, **more}, path), path, Quiet(), CPU)


def stage_recipe(stage, codes="", **more):
    own = TRANSFORMERS if stage in ("decoder", "ranker") else {}
    own = {
        **own,
        **({"train.from_folder": codes} if stage == "decoder" else {}),
        **more,
        "train.stage": stage,
    }
    return recipe.make("text-to-image", "tiny", "shapes", {**SMALL, **own})


@pytest.fixture(scope="module")
def painter(tmp_path_factory):
    """A folder of all stages, and a judge."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "COUNTS", {"train": 14, "valid": 6, "test": 5})
        folder = tmp_path_factory.mktemp("painter")
        train_all(folder / "all")
        trainer.start(stage_recipe("judge", **{"train.steps": 2}), folder / "judge", Quiet(), CPU)
    return folder


# Stages


@pytest.mark.parametrize("stage", ["codes", "decoder", "ranker", "judge"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_stage_resumed_equals_uninterrupted_byte_for_byte(stage, accumulate, painter, tmp_path):
    asked = stage_recipe(stage, str(painter / "all" / "codes"), **{"train.accumulate": accumulate})
    trainer.start(asked, tmp_path / "whole", Quiet(), CPU)
    for step in (1, 4):
        with pytest.raises(Interrupted):
            trainer.start(asked, tmp_path / f"cut-{step}", Quiet(until=step), CPU)
        assert trainer.resume(tmp_path / f"cut-{step}", Quiet(), CPU).finished
        assert state_of(tmp_path / f"cut-{step}") == state_of(tmp_path / "whole")


@pytest.mark.parametrize("stage", ["codes", "decoder", "ranker", "judge"])
def test_every_stage_says_its_baseline_and_is_measured_on_all_held_out_pictures(stage, painter):
    path = painter / "judge" if stage == "judge" else painter / "all" / stage
    rules = painting.read_recipe(path)
    model = painting.load_run(path, CPU, torch.float32).model
    with torch.no_grad():
        found = measure(model, EvaluationRequest(path, rules, "test"))
    assert found.examples == 5 and found.unit == "pictures"
    assert all(math.isfinite(score) for score in found.metrics.values()) and "loss" in found.metrics
    status = json.loads((path / "status.json").read_text())
    assert status["best"].keys() == found.metrics.keys()


class Counting(Quiet):
    """Keeps what was seen in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, str]] = []

    def step(self, progress, steps):
        self.seen.append(progress.seen)


@pytest.mark.parametrize("stage", ["codes", "decoder", "ranker", "judge"])
def test_the_speed_of_every_stage_is_told_in_pictures(stage, painter, tmp_path):
    more = {"train.steps": 1, "train.accumulate": 2}
    talk = Counting()
    trainer.start(stage_recipe(stage, str(painter / "all" / "codes"), **more), tmp_path / "run", talk, CPU)
    (planned,) = re.findall(r"(\d+) (?:captions and )?pictures a step", "\n".join(talk.lines))
    assert talk.seen == [(int(planned), "pictures")]


class UntilStage(Quiet):
    """Stops at a step of one stage."""

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage

    def step(self, progress, steps):
        super().step(progress, steps)
        newest = [line for line in self.lines if line.startswith("stage ")][-1]
        if progress.step == 3 and newest.endswith(f", {self.stage}"):
            raise Interrupted


def test_stages_are_trained_in_order_and_a_stopped_folder_goes_on_to_the_same_bytes(painter, tmp_path):
    path = tmp_path / "cut"
    asked = stages.recipes_of("tiny", "shapes", ALL, path)
    with pytest.raises(Interrupted):
        stages.start(asked, path, UntilStage("codes"), CPU)
    for stage in ("decoder", "ranker"):
        with pytest.raises(Interrupted):
            stages.resume(path, UntilStage(stage), CPU)
        assert stages.is_done(path / "codes") and not stages.is_done(path / stage)
    talk = Quiet()
    assert stages.resume(path, talk, CPU).finished
    assert [line for line in talk.lines if line.startswith("stage ")] == [
        "stage 1 of 3, codes: done already",
        "stage 2 of 3, decoder: done already",
        "stage 3 of 3, ranker",
    ]
    for stage in STAGES:
        assert state_of(path / stage) == state_of(painter / "all" / stage)


def test_a_folder_that_was_moved_goes_on(tmp_path):
    path = tmp_path / "old"
    with pytest.raises(Interrupted):
        stages.start(stages.recipes_of("tiny", "shapes", ALL, path), path, UntilStage("codes"), CPU)
    (tmp_path / "old").rename(tmp_path / "new")
    assert stages.resume(tmp_path / "new", Quiet(), CPU).finished


def test_pictures_are_made_ready_once(painter):
    made = painter / "all" / "pictures" / "data" / "train"
    for stage in STAGES:
        for file in made.iterdir():
            assert (painter / "all" / stage / "data" / "train" / file.name).samefile(file)


def test_a_setting_is_for_every_stage_that_has_a_use_for_it_or_for_the_one_it_names(tmp_path):
    asked = {
        "train.steps": 9,
        "decoder.train.steps": 4,
        "model.codes": 33,
        "data.image": 16,
        "ranker.model.patch": 8,
    }
    found = stages.recipes_of("tiny", "shapes", asked, tmp_path / "run")
    assert [r.train.steps for r in found.values()] == [9, 4, 9]
    assert found["codes"].model.codes == 33 and {r.data.image for r in found.values()} == {16}
    assert found["ranker"].model.patch == 8 and found["decoder"].train.from_folder == str(
        tmp_path / "run" / "codes"
    )
    for wrong, told in {
        "codes.data.image": "set data.image, not codes.data.image",
        "train.from_folder": "leave it out",
        "data.flip": "leave it out",
        "decoder.model.codes": "model.codes does nothing at the stage decoder of text-to-image: "
        "it is for codes",
        "codes.model.widht": 'no setting "model.widht"',
    }.items():
        with pytest.raises(BadInput, match=told.replace("(", r"\(")):
            stages.recipes_of("tiny", "shapes", {wrong: 8}, tmp_path / "run")


def test_what_was_asked_for_in_vain_leaves_nothing_behind(tmp_path):
    for more, told in (
        ({"data.image": 10}, "cells of 4 do not divide"),
        ({"data.corpus": "facts"}, "no corpus"),
    ):
        with pytest.raises(BadInput, match=told):
            train_all(tmp_path / "runs" / "new", **more)
        assert not (tmp_path / "runs").exists()


def test_a_decoder_needs_codes(tmp_path):
    with pytest.raises(BadInput, match="give --from RUN, that of its codes"):
        trainer.start(stage_recipe("decoder"), tmp_path / "run", Quiet(), CPU)


def test_a_decoder_is_not_begun_with_another_model_of_codes(painter, tmp_path):
    with pytest.raises(BadInput, match="is a clip: codes are written by the stage codes"):
        trainer.start(
            stage_recipe("decoder", str(painter / "all" / "ranker")), tmp_path / "run", Quiet(), CPU
        )


# Losses


def test_the_caption_counts_an_eighth_and_the_picture_the_rest():
    torch.manual_seed(0)
    sizes = dict.fromkeys(("rows", "columns", "layers"), 2)
    model = build_dalle(
        DalleConfig(vocab=6, text=3, codes=5, width=8, heads=2, hidden=9, kernel=3, dropout=0.0, **sizes)
    )
    words_BL, lengths_B = padded([[1, 2], [3, 4, 5], [0]], 3)
    codes_BN = torch.randint(5, (3, 4))
    batch = decoder.StreamBatch(
        words_BL=words_BL, lengths_B=lengths_B, codes_BN=codes_BN, length=8, ids=(0, 1, 2)
    )
    tokens_BT = model.stream(words_BL, lengths_B, codes_BN)
    log_p = model(tokens_BT[:, :-1]).log_softmax(-1).gather(-1, tokens_BT[:, 1:, None])[..., 0]
    text, picture = -log_p[:, :3].mean(), -log_p[:, 3:].mean()
    loss = decoder.stream_loss(model, batch, 1 / 8)
    assert loss.count == 12 and torch.allclose(loss.total / 12, text / 8 + 7 * picture / 8, atol=1e-6)


# The judge


def test_answers_say_what_a_caption_says_in_one_way():
    for text in (
        "a small red circle above a blue square",
        "a large blue square right of a black cross",
        "a green diamond",
    ):
        said = parse_caption(text)
        answers = judge.answers_of(said)
        assert judge.said_by([max(0, a) for a in answers]) == said.plain
        assert [a < 0 for a in answers] == [False] * 4 + [not said.relation] * 3


@pytest.mark.parametrize(
    "found, things, relation",
    [
        ("a red circle above a blue square", True, True),
        ("a blue square below a large red circle", True, True),  # the same, and sizes are not asked for
        ("a red circle below a blue square", True, False),
        ("a blue square above a red circle", True, False),
        ("a red circle left of a blue square", True, False),
        ("a red circle above a red square", False, False),
        ("a red circle", False, False),
    ],
)
def test_a_picture_is_right_if_its_things_and_where_they_are_are(found, things, relation):
    right = judge.compare(parse_caption(found), parse_caption("a red circle above a blue square"))
    assert (right.things, right.relation) == (things, relation)


def test_choosing_gains_what_it_gains_caption_by_caption():
    right = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0]])
    fits = np.array([[3, 1, 2], [1, 2, 3], [3, 2, 1], [1, 2, 3]])
    found = painting.share_of(right, fits)
    gains = [1 - 1 / 3, 1 - 1 / 3, 0 - 2 / 3, 0]
    assert (found.one, found.best, found.captions) == (pytest.approx(4 / 12), 0.5, 4)
    assert found.gain == pytest.approx(np.mean(gains)) == pytest.approx(found.best - found.one)
    half = 1.96 * np.std(gains, ddof=1) / 2
    assert found.interval == (pytest.approx(found.gain - half), pytest.approx(found.gain + half))


# The commands


def test_train_runs_all_stages_and_goes_on(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "QUIET", -1.0)  # a line for every step
    folder = str(tmp_path / "it's a run")
    words = [word for key, value in {**ALL, "train.steps": 1}.items() for word in ("--set", f"{key}={value}")]
    assert (
        main(["train", "text-to-image", "--corpus", "shapes", "--size", "tiny", "--run", folder, *words]) == 0
    )
    out, err = capsys.readouterr()
    assert [line.split(":")[0] for line in out.splitlines()[:3]] == ["codes", "decoder", "ranker"]
    assert err.count(" pictures/s, ") == 3 and "tokens/s" not in err
    assert main(["train", "--resume", folder]) == 0
    assert capsys.readouterr().err.count("done already") == 3
    assert main(["train", "text-to-image", "--corpus", "shapes", "--run", folder]) == 2
    assert "holds a run: go on with" in capsys.readouterr().err
    assert main(["train", "text-to-image", "--corpus", "shapes", "--find-rate"]) == 2
    assert "--find-rate is for one stage" in capsys.readouterr().err


def test_paint_writes_the_pictures_that_fit_best_and_a_sheet(painter, tmp_path, capsys):
    words = [
        "paint",
        str(painter / "all"),
        "a red circle & a <cross>",
        "--candidates",
        "7",
        "--pictures",
        "3",
        "--scale",
        "2",
    ]
    found = []
    for name, more in (("a", []), ("b", []), ("c", ["--seed", "1"])):
        assert main([*words, "--output", str(tmp_path / name), "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out))
    fits = [picture["fit"] for picture in found[0]["pictures"]]
    assert len(fits) == 3 and fits == sorted(fits, reverse=True)
    assert (
        fits
        == [picture["fit"] for picture in found[1]["pictures"]]
        != [p["fit"] for p in found[2]["pictures"]]
    )
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["1.png", "2.png", "3.png", "sheet.svg"]
    header = (tmp_path / "a" / "1.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n" and header[16:] == (16).to_bytes(4, "big") * 2
    sheet = (tmp_path / "a" / "sheet.svg").read_text()
    assert sheet.count("<image") == 3 and "a red circle &amp; a &lt;cross&gt;" in sheet
    assert all(f">{fit:.3f}<" in sheet for fit in fits)
    assert main([*words, "--output", str(tmp_path / "a")]) == 2
    assert "is there already" in capsys.readouterr().err


def test_paint_warns_of_words_that_it_has_never_seen(painter, tmp_path, capsys):
    words = ["--candidates", "1", "--pictures", "1", "--output", str(tmp_path / "a")]
    assert main(["paint", str(painter / "all"), "a red zebra", *words]) == 0
    captured = capsys.readouterr()
    assert "never seen 'zebra'" in captured.err and captured.out.startswith(str(tmp_path / "a" / "1.png"))


def test_pictures_do_not_depend_on_how_many_are_drawn_together(painter, monkeypatch):
    brush = painting.Painter(painter / "all", CPU)
    captions = ["a red circle", "a blue cross above a green square"]
    together = brush.draw(captions, 3, seed=2)
    monkeypatch.setattr(painting, "AT_ONCE", 2)
    apart = brush.draw(captions, 3, seed=2)
    for one, other in zip(together, apart, strict=True):
        assert all(np.array_equal(a.pixels_HWC, b.pixels_HWC) for a, b in zip(one, other, strict=True))
        assert [a.fit for a in one] == pytest.approx([b.fit for b in other], abs=1e-5)


def test_evaluate_judges_what_was_drawn(painter, capsys):
    folder, judge = str(painter / "all"), str(painter / "judge")
    assert main(["evaluate", folder, "--judge", judge, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["captions"] == 6 and found["things"]["captions"] == 6 >= found["relation"]["captions"] >= 1
    for name in ("things", "relation"):
        share = found[name]
        assert 0 <= share["one"] <= 1 and share["gain"] == pytest.approx(share["best"] - share["one"])
    assert main(["evaluate", folder, "--judge", judge, "--split", "test"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("5 captions of test, 8 pictures of each") and "choosing gains" in out


BROKEN = {
    "no judge": (["evaluate", "{all}"], "give --judge RUN"),
    "a judge that is none": (["evaluate", "{all}", "--judge", "{all}/codes"], "is no judge"),
    "a judge of one stage": (["evaluate", "{all}/codes", "--judge", "{judge}"], "--judge is for all stages"),
    "files of one's own": (["evaluate", "{all}", "--judge", "{judge}", "--data", "x"], "--data does not fit"),
    "paint with a stage": (
        ["paint", "{all}/decoder", "a red circle"],
        "/decoder is no run of text-to-image but a stage of one: give {all}",
    ),
    "paint with a judge": (
        ["paint", "{judge}", "a red circle"],
        "is no run of text-to-image: train one with",
    ),
    "paint with nothing": (["paint", "{all}/gone", "a red circle"], "is not there"),
    "no caption": (["paint", "{all}", " "], "the caption is empty"),
    "more than are drawn": (
        ["paint", "{all}", "a", "--pictures", "9", "--candidates", "8"],
        "draw more, or choose fewer",
    ),
    "no pictures": (["paint", "{all}", "a", "--pictures", "0"], "--pictures must be at least 1, not 0"),
    "no heat": (["paint", "{all}", "a", "--temperature", "0"], "--temperature must be a number above 0"),
    "no codes": (["paint", "{all}", "a", "--top-k", "0"], "--top-k must be at least 1, not 0"),
    "a huge picture": (["paint", "{all}", "a", "--scale", "65"], "--scale must be at most 64"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_is_refused_in_one_sentence(case, painter, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words, told = BROKEN[case]
    places = {"all": painter / "all", "judge": painter / "judge"}
    assert main([word.format(**places) for word in words]) == 2
    err = capsys.readouterr().err
    assert told.format(**places) in err and err.startswith("error: ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


TEXTS = ("generate", "translate", "fill", "tag", "parse", "embed", "summarize", "classify", "caption", "look")


@pytest.mark.parametrize(
    "stage, what",
    [(s, w) for s in ("codes", "decoder", "ranker") for w in TEXTS if (s, w) != ("codes", "look")],
)
def test_a_stage_alone_says_that_all_of_them_paint(stage, what, painter, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = painter / "all" / stage
    assert main([what, str(folder), "a.png" if what == "caption" else "a red circle"]) == 2
    assert capsys.readouterr().err == (
        f"error: {folder} is a stage of text-to-image, which cannot {what}; all stages together draw: "
        f"`heedful paint {painter / 'all'} 'a red circle'`\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_codes_can_be_looked_at(painter, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = painter / "all" / "codes"
    model = load_run(folder, "cpu", torch.float32).model
    side = read_recipe(folder).data.image
    pixels = np.random.default_rng(1).integers(0, 256, (side, side, 3), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(png_bytes(pixels))
    x = torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255
    codes = model.encode(x)
    again = (model.decode(codes) * 255).round() / 255

    assert main(["look", str(folder), "a.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["codes"] == codes[0].tolist() and found["of"] == model.config.codes and found["picture"] is None
    )
    assert found["off"] == pytest.approx((again - x).abs().mean().item(), abs=1e-6)

    assert main(["look", str(folder), "a.png", "--output", "codes.svg"]) == 0
    out = capsys.readouterr().out
    assert f"pixels off by {found['off']:.4f}" in out
    assert [[int(code) for code in line.split()] for line in out.splitlines()[-len(codes[0]) :]] == found[
        "codes"
    ]
    drawn = (tmp_path / "codes.svg").read_text()
    assert drawn.count("<image") == 2 and drawn.count(f">{found['codes'][0][0]}<") >= 1

    seen = heedful.load(folder).look_at("a.png")
    assert seen.codes == found["codes"] and seen.off == found["off"] and seen.svg() == drawn

    for option in (
        ["--layer", "1"],
        ["--head", "mean"],
        ["--target", "a"],
        ["--query", "a"],
        ["--which", "self"],
    ):
        assert main(["look", str(folder), "a.png", *option]) == 2
        assert (
            f"error: {option[0]} is of attention, and {folder} has none: leave it out"
            in capsys.readouterr().err
        )
    assert main(["look", str(folder), "gone.png"]) == 2
    assert "gone.png" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["generate", "classify", "look", "doctor"])
def test_a_judge_says_what_it_is_for(what, painter, capsys):
    assert main([what, str(painter / "judge"), *([] if what == "doctor" else ["a red circle"])]) == 2
    told = "be examined" if what == "doctor" else what
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == (
        f"error: {painter / 'judge'} is a stage of text-to-image, which cannot {told}; it tells what "
        "pictures show: "
        f"`heedful evaluate RUN --judge {painter / 'judge'}`\n"
    )


def test_a_stage_in_python_can_nothing_alone(painter):
    model = heedful.load(painter / "all" / "decoder")
    assert model.kind is Stage and model.can == ()
    for use in (lambda: model.embed("a"), lambda: model.look("a"), lambda: model.look_at("a.png")):
        with pytest.raises(BadInput, match="all stages together draw"):
            use()


@pytest.mark.parametrize("what", [*TEXTS, "info", "doctor"])
def test_the_folder_of_all_stages_says_how_to_paint(what, painter, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = {"info": [], "doctor": [], "caption": ["a.png"]}.get(what, ["a red circle"])
    folder = painter / "all"
    assert main([what, str(folder), *text]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith(f"error: {folder} holds the stages of text-to-image: ")
    assert (
        f"draw with `heedful paint {folder} 'a red circle'`, or give one of {folder / 'codes'}, "
        in captured.err
    )


@pytest.mark.parametrize("stage", ["codes", "decoder", "ranker", "judge"])
def test_info_tells_the_sizes_of_every_stage(stage, painter, capsys):
    assert main(["info", str(painter / "judge" if stage == "judge" else painter / "all" / stage)]) == 0
    names = {"codes": "dvae", "decoder": "dalle", "ranker": "clip", "judge": "judge"}
    assert names[stage] in capsys.readouterr().out.splitlines()[0]


def test_paint_from_inside_the_run(painter, tmp_path, monkeypatch):
    monkeypatch.chdir(painter / "all")
    assert (
        main(
            [
                "paint",
                ".",
                "a red circle",
                "--candidates",
                "2",
                "--pictures",
                "1",
                "--output",
                str(tmp_path / "p"),
            ]
        )
        == 0
    )
    assert (tmp_path / "p" / "1.png").is_file()


def test_a_folder_that_is_not_done_is_not_painted_with(painter, tmp_path, capsys):
    shutil.copytree(painter / "all", tmp_path / "part")
    shutil.rmtree(tmp_path / "part" / "ranker")
    assert main(["paint", str(tmp_path / "part"), "a red circle"]) == 2
    assert "the stage ranker of" in capsys.readouterr().err
