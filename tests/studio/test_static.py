"""The studio's static files: their size and form, and vendored files that are what was published."""

import hashlib
import json
import re
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "heedful" / "studio" / "static"
OWN = sorted(path for path in STATIC.rglob("*.js") if "vendor" not in path.parts)
IMPORT = re.compile(r"import \{ [\w, ]+ \} from '(\.{1,2}/[\w./-]+\.js)';")
LAZY = re.compile(r"\bimport\('(\.{1,2}/[\w./-]+\.js)'\)")


def name(path):
    return str(path.relative_to(STATIC))


def test_vendored_files_are_those_that_were_recorded():
    records = json.loads((STATIC / "vendor" / "vendor.json").read_text())
    recorded = {file: digest for record in records for file, digest in record["files"].items()}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (STATIC / "vendor").iterdir()
        if path.suffix in (".js", ".css")
    }
    assert found == recorded
    licenses = (STATIC / "vendor" / "LICENSES").read_text()
    assert all(f"{record['npm']} {record['version']}" in licenses for record in records)


def test_all_static_files_together_are_small():
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) <= 260_000


@pytest.mark.parametrize("path", OWN, ids=name)
def test_a_module_is_short_and_has_the_form_that_an_export_rewrites(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    body = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for line in body.splitlines():
        if re.match(r"\s*import\b(?!\()", line):
            assert IMPORT.fullmatch(line), line
        if re.match(r"\s*export\b", line):
            assert re.match(r"export (?:async )?(?:function\*?|const) \w+", line), line
    for target in [*IMPORT.findall(body), *LAZY.findall(body)]:
        assert (path.parent / target).resolve().is_file(), target
    assert len(re.findall(r"\bimport\(", body)) == len(LAZY.findall(body)), "import() takes a literal path"


@pytest.mark.parametrize("path", OWN, ids=name)
def test_a_module_writes_text_only_as_text(path):
    unsafe = r"(?:inner|outer|insertAdjacent|dangerouslySetInner)HTML|document\.write|\beval\(|new Function"
    assert re.findall(unsafe, path.read_text(encoding="utf-8")) == []


def test_the_page_has_no_script_or_style_of_its_own():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page) == []
