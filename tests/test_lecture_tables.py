"""The lectures' tables beside heedful: a lecture's figure stands in one place, and ours are measured."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from reference import lectures

from heedful.planner.published import generations

PAGE = ROOT / "docs" / "explain" / "lecture-tables.md"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
TEXT = PAGE.read_text(encoding="utf-8")
WIKISUM = ["seq2seq-attention", "Transformer-ED", "Transformer-D"]
WIKISUM += ["Transformer-DMCA, no MoE", "Transformer-DMCA, MoE-128", "Transformer-DMCA, MoE-256"]


def rows(text: str) -> list[list[str]]:
    """The cells of every table line."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("|- ")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def section(heading: str) -> str:
    return TEXT.partition(f"\n## {heading}")[2].partition("\n## ")[0]


# The table of GPT comes from the planner's.


def test_the_table_of_gpt_is_that_of_the_planner():
    assert "<!-- generated: gpt -->" in section("The sizes of GPT")
    _, *found = rows(lectures.gpt_table())
    assert [row[:2] for row in found] == [[one.name, str(one.year)] for one in generations()]
    for one, row in zip(generations(), found, strict=True):
        assert one.data in row[-2] and one.cost.partition(" (")[0] in row[-2]
        assert ("-" in row[3:7]) == (one.preset is None), "only models with a preset have figures of heedful"


@pytest.mark.parametrize(
    "name, known",
    [
        ("GPT-2", "cost: the slide's"),
        ("GPT-3", "published"),
        ("GPT-3.5", "size: the slide's"),
    ],
)
def test_what_nobody_published_is_marked(name, known):
    (one,) = [one for one in generations() if one.name == name]
    assert lectures.what_is_known(one) == known


def test_the_page_prints_no_figure_of_the_planners_table():
    """Neither sizes nor costs: they would be kept twice."""
    written = set(re.findall(r"\d[\d.,]*\d|\d", section("The sizes of GPT")))
    costs = {one.cost.split()[0] for one in generations() if one.training}
    assert not costs & written


# The other two stand on this page alone.


def test_no_other_file_repeats_a_lectures_perplexity_or_score():
    perplexities = set(re.findall(r"\b\d\.\d{5}\b", section("Document generation: WikiSum")))
    assert len(perplexities) == 6
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "heedful").rglob("*.py"), ROOT / "README.md", RESULTS]
    others = {file: file.read_text(encoding="utf-8") for file in files if file != PAGE}
    assert [file for file, text in others.items() if any(one in text for one in perplexities)] == []


def test_rows_of_the_lectures_are_in_their_order():
    """From L5: each row of WikiSum has a lower perplexity, and the leaders of GLUE are ranked."""
    found = [row for row in rows(section("Document generation: WikiSum")) if len(row) == 5]
    wikisum = [row for row in found if re.fullmatch(r"\d\.\d{5}", row[2])]
    assert [row[0] for row in wikisum] == WIKISUM
    perplexities = [float(row[2]) for row in wikisum]
    assert perplexities == sorted(perplexities, reverse=True)
    scores = [float(row[1]) for row in rows(section("GLUE")) if re.fullmatch(r"\d\d\.\d", row[1])]
    assert scores == sorted(scores, reverse=True) and len(scores) == 6


# What heedful reaches is recorded with its conditions.


def ours() -> list[str]:
    """Every percentage and ROUGE of heedful's own tables on the page."""
    found = []
    for heading, title in (("Document generation: WikiSum", "model"), ("GLUE", "heedful on SST-2")):
        mine = False
        for row in rows(section(heading)):
            mine = row[0] == title or (mine and not row[0].startswith("L5"))
            found += re.findall(r"\b\d\d\.\d\b", " ".join(row[1:])) if mine else []
    return found


def test_figures_of_heedful_stand_in_the_results():
    recorded = RESULTS.read_text(encoding="utf-8")
    assert len(ours()) >= 8
    assert [figure for figure in ours() if not re.search(rf"\b{re.escape(figure)}\b", recorded)] == []
