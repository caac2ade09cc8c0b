"""Pictures in notebooks: one fragment each, safe and self-contained, readable on light and on dark pages."""

import re
import xml.etree.ElementTree as ET

import pytest
import torch
from helpers import page_runs
from helpers.look_cases import imported
from helpers.runs import CPU, Quiet, recipe_for, texts  # noqa: F401 (fixtures)
from helpers.studio_browser import launched

import heedful
from heedful.inside.ablation import HeadName
from heedful.inside.costs import costs
from heedful.inside.head_pictures import HeadCell, head_grid
from heedful.inside.look.heat_maps import heat_map
from heedful.inside.look.shapes import FAINT, INK, INKS, PAPER, WEIGHTS, color
from heedful.inside.look.themes import contrast, dark, ink_on, rgb_of, share_on
from heedful.inside.rollout import rollout_of
from heedful.inside.similar import similar, token_differences
from heedful.inside.spelling import spell
from heedful.inside.trace import trace
from heedful.inside.training_curves import TrainingCurves, curves_of
from heedful.parts import masks
from heedful.parts.notebooks import framed
from heedful.runs import trainer

HOSTILE = '"><script>1</script>&<img src=x> \x07'
TEXT = "Their small cat was a fast animal."
PAIR = re.compile(r"(fill|stroke|color|background):light-dark\((#[0-9a-f]{6}),(#[0-9a-f]{6})\)")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return heedful.load(page_runs.unpack(tmp_path_factory.mktemp("pages")) / "runs" / "demo")


SHOWN = {
    "look, one head": lambda model: model.look(TEXT, head="best"),
    "look, all heads": lambda model: model.look(TEXT),
    "trace": lambda model: model.trace(TEXT),
    "lens": lambda model: model.lens(TEXT),
    "rollout": lambda model: model.rollout(TEXT),
    "beam tree": lambda model: model.beam_tree(TEXT, beam=3),
    "heads": lambda model: model.heads([("The cat sleeps.", "Le chat dort."), (TEXT, "Leur chat dort.")]),
    "similarity": lambda model: similar(model.loaded, model.loaded, [TEXT, "I eat a red apple."]),
    "differences": lambda model: token_differences(
        model.loaded, model.loaded, "The cat sleeps.", "Le chat dort."
    ),
    "costs": lambda model: costs(model.model, length=32),
    "drawing": lambda model: heat_map([[0.9, 0.1]], [HOSTILE], ["a", "b"], HOSTILE),
    "mask": lambda model: masks.causal() & masks.window(3),
    "mask of rows and heads": lambda model: masks.padding(torch.tensor([3, 5])) & masks.causal(),
    "spelling": lambda model: model.spell(TEXT),
    "curves": lambda model: TrainingCurves("demo", {"loss": [(i, 9 / i) for i in range(1, 900)]}),
}


@pytest.mark.parametrize("name", SHOWN)
def test_each_is_one_safe_fragment_with_the_colors_of_both_themes(name, demo):
    shown = SHOWN[name](demo)._repr_html_()
    check_safe(shown)
    assert "light-dark(" in shown
    for mark in ('[data-jp-theme-light="false"]', '[data-jp-theme-light="true"]', ".vscode-dark"):
        assert mark in shown


def check_safe(shown: str) -> None:
    """It is XML, and holds nothing that runs or is fetched."""
    root = ET.fromstring(shown)
    names = {one.tag for one in root.iter()}
    assert names <= {"div", "style", "svg", "g", "rect", "text", "title", "path", "line", "polyline", "image",
                     "circle", "polygon", "pre", "span", "details", "summary"}  # fmt: skip
    for one in root.iter():
        assert not any(name.startswith("on") or name == "src" for name in one.attrib)
        assert one.attrib.get("href", "data:").startswith("data:")
    assert "http:" not in shown and "https:" not in shown and "url(" not in shown and "@import" not in shown


@pytest.mark.parametrize("name", SHOWN)
def test_every_text_can_be_read_in_both_themes(name, demo):
    papers = {"light": rgb_of("ffffff"), "dark": rgb_of("16181d")}
    for one in ET.fromstring(SHOWN[name](demo)._repr_html_()).iter("text"):
        found = {what: (light, dark) for what, light, dark in PAIR.findall(one.attrib.get("style", ""))}
        if "fill" not in found:  # a picture of heads has its colors in its own rules
            continue
        light, other = (rgb_of(hexed[1:]) for hexed in found["fill"])
        behind = rgb_of(one.attrib["data-on"][1:]) if "data-on" in one.attrib else papers["light"]
        behind_dark = dark(behind) if "data-on" in one.attrib else papers["dark"]
        assert contrast(light, behind) >= 4.5 and contrast(other, behind_dark) >= 4.5, one.text


def test_letters_can_be_read_on_every_color():
    every = [color(i / 255) for i in range(256)]
    assert min(contrast(ink_on(one), one) for one in every) >= 4.5
    assert min(contrast(ink_on(dark(one)), dark(one)) for one in every) >= 4.5
    for ink in (INK, FAINT, *INKS):
        assert contrast(ink, PAPER) >= 4.5 and contrast(dark(ink), dark(PAPER)) >= 4.5


def test_what_is_stronger_on_light_paper_is_stronger_on_dark_paper():
    ramp = [dark(color(i / 31)) for i in range(32)]
    assert ramp == sorted(ramp, key=sum) and all(
        share_on(WEIGHTS, color(i / 31)) == pytest.approx(i / 31, abs=0.01) for i in range(32)
    )
    assert share_on(WEIGHTS, (200, 30, 30)) is None


def test_hostile_words_stay_words():
    loaded = imported("gpt2")
    head = HeadCell(HeadName("self", 1, 1), 0.1, HOSTILE, [HOSTILE])
    shown = [
        trace(loaded, HOSTILE)._repr_html_(),
        rollout_of(loaded, HOSTILE)._repr_html_(),
        TrainingCurves(HOSTILE, {"loss": [(1, 2.0)], f"valid_{HOSTILE}": [(1, 2.0)]})._repr_html_(),
        framed(head_grid([head], HOSTILE, HOSTILE)),
        Named()._repr_html_(),
        spell(loaded.tokenizer, HOSTILE)._repr_html_(),
    ]
    for one in shown:
        check_safe(one)
        assert "<script" not in one and "<img" not in one and "&lt;" in one


class Named(masks.Full):
    def __repr__(self) -> str:
        return HOSTILE


def test_a_mask_shows_the_positions_of_queries_and_keys():
    shown = ET.fromstring(masks.causal().html(size=3))
    words = [one.text for one in shown.iter("text")]
    assert words[:3] == ["Causal(strict=False)", "key position →", "query ↓"]
    assert words[3:9] == ["0", "1", "2", "0", "1", "2"]
    hints = [one.text for one in shown.iter("title")]
    assert hints[0] == "Causal(strict=False)"
    assert hints[2] == "query 0 may not attend to key 1" and hints[4] == "query 1 may attend to key 0"
    batched = masks.padding(torch.tensor([3, 5])).html(row=1)
    assert "row 1 of 2" in batched


def test_curves_of_a_run_are_those_of_its_metrics(texts, tmp_path):
    trainer.start(recipe_for("translate", texts), tmp_path / "run", Quiet(), CPU)
    found = curves_of(tmp_path / "run")
    assert [step for step, _ in found.figures["loss"]] == list(range(1, 13)) and found.steps == 12
    assert [step for step, _ in found.figures["valid_bleu"]] == [5, 10, 12]
    check_safe(found._repr_html_())
    assert "valid_loss" in found.text() and "▁" in found.text()
    model = heedful.load(tmp_path / "run")
    assert model.curves() == found
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(heedful.BadInput, match="once a run has begun to train"):
        model.curves()


def test_two_pictures_share_one_rule_and_no_name():
    first, second = masks.causal()._repr_html_(), masks.full()._repr_html_()
    rules = [ET.fromstring(one).find("style").text for one in (first, second)]
    assert rules[0] == rules[1] and "id=" not in first + second


@pytest.mark.browser
def test_the_theme_is_that_of_the_browser_or_of_the_notebook_around_it(demo):
    shown = demo.look(TEXT, head="best")._repr_html_()
    around = {
        "": lambda scheme: scheme,
        'data-jp-theme-light="true"': lambda scheme: "light",
        'data-jp-theme-light="false"': lambda scheme: "dark",
        'class="vscode-light"': lambda scheme: "light",
        'class="vscode-dark"': lambda scheme: "dark",
    }
    papers = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 29)"}
    with launched() as browser:
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            for mark, expected in around.items():
                page.set_content(f"<!doctype html><body {mark}>{shown}</body>")
                paper = page.evaluate("getComputedStyle(document.querySelector('svg rect')).fill")
                assert paper == papers[expected(scheme)], (scheme, mark)
