"""The page of claims has each with its verdict and figure, as tools/claims_page.py wrote them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from heedful.lab.claim import find_claim
from heedful.lab.contents import claim_files, claim_texts, last_report
from heedful.lab.rules import VERDICTS

DOCS = Path(__file__).parents[2] / "docs" / "explain"
PAGE = (DOCS / "claims.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## [a-z] (\w+): (\w+)$", PAGE, re.MULTILINE))


def test_the_page_has_all_twenty_claims_in_their_order():
    assert list(SECTIONS) == list(claim_files()) and len(SECTIONS) == 20


@pytest.mark.parametrize("name", claim_files())
def test_the_page_says_what_the_claim_says(name):
    claim = find_claim(name)
    section = PAGE.partition(f"## {claim.letter} {name}: ")[2].partition("\n## ")[0]
    assert SECTIONS[name] in VERDICTS
    assert SECTIONS[name] == claim.expected or "not the verdict that was predicted" in section
    for text in (claim.says, claim.predicts, claim.changes, *(part.says for part in claim.parts)):
        assert text in section or "not the verdict that was predicted" in section
    assert section.count(" (control) | ") == sum(part.control for part in claim.parts)
    assert f"`heedful lab run {claim.letter} --standard" in section
    assert f"(claims/{name}.svg)" in section
    ElementTree.parse(DOCS / "claims" / f"{name}.svg")


def test_texts_of_claims_are_read_without_importing_them():
    for text in claim_texts():
        claim = find_claim(text.name)
        assert (text.letter, text.says, text.lecture) == (claim.letter, claim.says, claim.lecture)
        assert text.minutes == claim.minutes
        assert claim.minutes["quick"] <= 1 and claim.minutes["standard"] <= 5


def test_a_missing_or_damaged_report_is_no_report(tmp_path):
    assert last_report(tmp_path) == {}
    (tmp_path / "report.json").write_text("{")
    assert last_report(tmp_path) == {}
    (tmp_path / "report.json").write_text("[1]")
    assert last_report(tmp_path) == {}
