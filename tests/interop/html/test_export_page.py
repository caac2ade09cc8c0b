"""heedful export --to html: names, sizes, the certificate beside the page, and faults."""

import json
import shutil

import pytest
from helpers.html_cases import need
from helpers.page_runs import unpack
from helpers.pages import ROOT

from heedful.cli.main import main
from heedful.interop.html import engines, page, reopen, write
from heedful.interop.html.page import block_of, code


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("runs")) / "runs"


@pytest.fixture(autouse=True)
def node(monkeypatch):
    """Node starts sooner than Chromium, and gives the same answers."""
    need("node")
    monkeypatch.setattr(engines, "BROWSERS", ())


def export(runs, name, out, *more):
    return main(["export", str(runs / name), str(out), "--to", "html", *more])


def test_a_page_and_its_certificate_are_written_and_verified(runs, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert export(runs, "lm", out, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["out"] == str(out) and found["verdict"] == "within the float16 tolerance"
    names = [check["name"] for check in found["checks"]]
    searches = ["greedy", "beam", "agreement", "tokenizer"]
    assert names == ["weights", "outputs", "attention", "embedding", *searches]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "page.html.parity.json"]
    parity = json.loads((tmp_path / "page.html.parity.json").read_text())
    assert parity.keys() <= found.keys() and list(parity["files"]) == ["page.html"]
    assert parity["versions"]["page"].startswith("Node/") and parity["versions"]["page"].endswith(
        "WebAssembly"
    )
    assert main(["verify", str(out)]) == 0
    out.write_text(out.read_text() + "<!-- changed -->")
    assert main(["verify", str(out)]) == 3
    assert "page.html has changed since the certificate was written" in capsys.readouterr().err


def test_a_page_without_its_source_is_not_checked(runs, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert export(runs, "lm", out, "--quantize", "int8") == 0
    noted = json.loads((tmp_path / "page.html.parity.json").read_text())
    noted["source"]["path"] = str(tmp_path / "gone")
    (tmp_path / "page.html.parity.json").write_text(json.dumps(noted))
    assert main(["verify", str(out)]) == 0
    assert "heedful does not read pages: give the model that it was exported from" in capsys.readouterr().err


def test_a_damaged_script_shows_and_the_page_is_kept_elsewhere(runs, tmp_path, monkeypatch, capsys):
    """A mean that is off by a thousandth: nobody would see it in a text."""
    damaged = code().replace("mean /= x.D;", "mean /= x.D * 1.001;")
    assert damaged != code()
    monkeypatch.setattr(page, "code", lambda: damaged)
    assert export(runs, "lm", tmp_path / "page.html") == 3
    printed = capsys.readouterr()
    assert "page.different.html" in printed.err and "logits differ by" in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "page.different.html",
        "page.different.html.parity.json",
    ]
    story = json.loads(block_of((tmp_path / "page.different.html").read_text(), "story"))
    assert story["verdict"] == "different" and story["faults"]


def test_without_an_engine_nothing_is_claimed(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engines, "found", lambda names: None)
    assert export(runs, "lm", tmp_path / "page.html") == 0
    assert "not checked: neither Chromium nor Node is installed" in capsys.readouterr().err
    story = json.loads(block_of((tmp_path / "page.html").read_text(), "story"))
    assert story["verdict"] == "not checked" and story["checks"] == [
        "weights: 36 of 36 tensors equal, bit for bit"
    ]


def test_a_browser_that_does_not_start_says_nothing_about_the_page(runs, tmp_path, monkeypatch, capsys):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(engines, "BROWSERS", (str(broken),))
    assert export(runs, "lm", tmp_path / "page.html", "--json") == 0
    assert json.loads(capsys.readouterr().out)["versions"]["page"].startswith("Node/")
    known = engines.found
    monkeypatch.setattr(engines, "found", lambda names: None if "node" in names else known(names))
    assert export(runs, "lm", tmp_path / "other.html") == 0
    assert "chromium does not open the page" in capsys.readouterr().err


def test_a_script_that_does_not_run_is_a_fault(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(page, "code", lambda: "const broken = ;")
    assert export(runs, "lm", tmp_path / "page.html") == 3
    assert "a browser cannot use it" in capsys.readouterr().err


def test_names_of_pages_are_checked_before_anything_is_read(runs, tmp_path, capsys):
    for out, said in (
        (tmp_path / "page", "give one that ends in .html"),
        (tmp_path / ".html", "give one that ends in .html"),
        (tmp_path, "give one that ends in .html"),
    ):
        assert export(runs, "lm", out) == 2
        assert said in capsys.readouterr().err
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    assert export(runs, "lm", mine) == 2
    assert "mine.html exists: give another name, or --replace" in capsys.readouterr().err
    assert export(runs, "lm", mine, "--replace") == 2
    assert "heedful did not export it: remove it yourself first" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    (tmp_path / "folder.html").mkdir()
    assert export(runs, "lm", tmp_path / "folder.html") == 2
    assert "is a folder, and a page is a file" in capsys.readouterr().err


def test_a_page_can_be_replaced(runs, tmp_path):
    out = tmp_path / "page.html"
    assert export(runs, "lm", out) == 0
    assert export(runs, "mlm", out) == 2
    assert export(runs, "mlm", out, "--replace") == 0
    assert json.loads(block_of(out.read_text(), "story"))["name"] == "mlm"


def test_a_large_page_must_be_asked_for(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(write, "MOST", 200_000)
    assert export(runs, "lm", tmp_path / "page.html") == 2
    assert "give --quantize int8, or --large" in capsys.readouterr().err and not list(tmp_path.iterdir())
    assert export(runs, "lm", tmp_path / "page.html", "--large") == 0


def test_options_of_other_formats_are_refused(runs, tmp_path, capsys):
    assert main(["export", str(runs / "lm"), str(tmp_path / "out"), "--large"]) == 2
    assert "--large is for pages" in capsys.readouterr().err


def test_the_name_of_a_page_needs_the_format_of_pages(runs, tmp_path, capsys):
    """No folder with the name of a page is written by mistake."""
    assert main(["export", str(runs / "lm"), str(tmp_path / "page.html")]) == 2
    assert "give --to html too" in capsys.readouterr().err and not list(tmp_path.iterdir())
    assert export(runs, "lm", tmp_path / "page.html", "--quantize", "bfloat16") == 2
    assert "html stores weights as float16 or int8, not as bfloat16" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"task": "summarize"}, "a run of summarize has no page"),
        ({"task": "choose"}, "a run of choose has no page"),
        (
            {"task": "classify", "data": {"pair_column": "b"}},
            "classifies pairs of texts, and a page reads one",
        ),
    ],
)
def test_runs_that_read_otherwise_are_refused(runs, tmp_path, settings, said, capsys):
    shutil.copytree(runs / "classify", tmp_path / "run")
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(settings))
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "page.html"), "--to", "html"]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_no_page_says_so(tmp_path):
    (tmp_path / "page.html").write_text("<p>hello</p>")
    with pytest.raises(Exception, match="it is no page that heedful has exported"):
        reopen.PageModel(tmp_path / "page.html", engine=Silent()).writes  # noqa: B018


class Silent:
    """An engine that knows its kernels only."""

    version = "Nobody"

    def ask(self, question):
        return "none"


def test_the_page_of_the_documentation_has_the_code_of_today():
    """If not: heedful export runs/demo docs/translator.html --to html --quantize int8 --replace."""
    text = (ROOT / "docs" / "translator.html").read_text(encoding="utf-8")
    assert block_of(text, "code") == code()
    assert json.loads(block_of(text, "story"))["verdict"] == "within the int8 tolerance"
    assert len(text) < 450_000
