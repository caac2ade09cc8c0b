"""Text-to-image from the command line: train all stages, paint, evaluate, look, and what is refused."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers.painters import ALL, few_pictures, painter  # noqa: F401 (fixtures)
from helpers.runs import CPU

import heedful
from heedful.cli.main import main
from heedful.cli.shared import training
from heedful.data.images.files import png_bytes
from heedful.errors import BadInput
from heedful.interop.formats import load_run
from heedful.interop.loaded import Stage
from heedful.runs import painting
from heedful.runs.painting import read_recipe

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
    *before, last = err.splitlines()
    assert told.format(**places) in last and last.startswith("error: ")
    assert all(line.startswith("evaluating ") for line in before)
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
    side = read_recipe(folder).data.image_size
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
            f"error: {option[0]} applies to attention, and {folder} has none: leave it out"
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
