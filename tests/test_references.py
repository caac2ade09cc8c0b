"""What one looks up follows from the code: citations have papers, and architectures have entries."""

import ast
import re
import sys
import tomllib
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

import repository
from reference import endpoints, models, papers, versions
from reference.configs import field_rows

import heedful
from heedful.models import FAMILIES, config_class, model_types, preset_families

# Papers.


def test_every_citation_has_its_paper():
    assert [(where.file, where.text) for where in papers.citations()[1]] == []


def test_every_paper_is_cited():
    cited = {paper for paper, _ in papers.citations()[0]}
    assert [paper.cited for paper in papers.papers().values() if paper not in cited] == []


def test_papers_are_in_the_order_of_their_years_and_have_links_of_their_own():
    found = list(papers.papers().values())
    for one, after in pairwise(found):
        assert one.topic != after.topic or one.key[1][:4] <= after.key[1][:4], after
    assert [link for link, count in Counter(paper.link for paper in found).items() if count > 1] == []
    numbers = [paper.link.rpartition("/")[2] for paper in found if "arxiv.org" in paper.link]
    assert [number for number in numbers if not re.fullmatch(r"\d{4}\.\d{4,5}", number)] == []


@pytest.mark.parametrize(
    "text, author, year",
    [
        ("as Vaswani et al. 2017 say", "Vaswani", "2017"),
        ("(Press, Smith and Lewis 2022)", "Press", "2022"),
        ("Wang, Tu, Wang and Shi (2019) add", "Wang", "2019"),
        ("label smoothing (Szegedy et\n    al. 2016)", "Szegedy", "2016"),
        ("(WikiSum, Liu 2018)", "Liu", "2018"),
        ("BLOOM (Le Scao et al. 2022)", "Le Scao", "2022"),
    ],
)
def test_a_citation_is_found_in_every_form(text, author, year):
    (found,) = papers.pattern().finditer(text)
    assert papers.paper_of(found).key == (author, year)


def test_dates_are_no_citations():
    found = list(papers.pattern().finditer("On 2026-11-16, in November 2026"))
    assert found and all(map(papers.is_date, found))


def test_an_arxiv_number_is_at_most_as_young_as_its_paper():
    """A preprint may be older than the paper, by a few years, and never more than a year younger."""
    for paper in papers.papers().values():
        if match := re.search(r"arxiv\.org/abs/(\d\d)", paper.link):
            assert 0 <= int(paper.key[1][:4]) - 2000 - int(match[1]) <= 4, paper


# Models.


@pytest.fixture(scope="module")
def page() -> str:
    """The page without its formats, which take seconds: each preset is described for each of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "exports", lambda name: ())
        return models.models_page()


@pytest.mark.parametrize(
    "name, formats",
    [
        ("modernbert", ["hf", "onnx", "html"]),
        ("mixture", ["html"]),
        ("llama", ["hf", "ctranslate2", "onnx", "gguf", "html"]),
    ],
)
def test_a_model_has_the_formats_that_export_takes(name, formats):
    assert models.exports(name) == formats


def test_every_architecture_preset_and_model_type_is_on_the_page(page):
    named = set(re.findall(r"^### (\S+)$", page, re.MULTILINE))
    assert named == set(FAMILIES)
    shown = set(re.findall(r"`([^`]+)`", page))
    assert preset_families().keys() | model_types().keys() <= shown


def test_what_is_published_cites_its_paper(page):
    """Architectures without a paper are heedful's own."""
    sections = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    without = {text.split()[0] for text in sections if not papers.pattern().search(text)}
    assert without == {"captioner", "decoder", "encoder", "judge", "mixture_transformer"}


# The glossary.

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
OTHER_PAGES = [page for page in (ROOT / "docs").rglob("*.md") if page != GLOSSARY]


def entries() -> dict[str, dict[str, str]]:
    """{heading: {term: what the glossary says of it}}."""
    sections = re.split(r"^## ", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {
        text.partition("\n")[0]: dict(re.findall(r"^(\S.*)\n((?:  .*\n)+)", text, re.MULTILINE))
        for text in sections
    }


TERMS = [(term, text) for some in entries().values() for term, text in some.items()]


def test_the_glossary_has_eighty_terms_of_the_field_in_order():
    field, own = entries().values()
    assert len(field) >= 80
    assert not field.keys() & own.keys()
    for some in (field, own):
        names = [re.sub(r"[^a-z]", "", term.lower()) for term in some]
        assert names == sorted(names)


@pytest.mark.parametrize("term, text", TERMS, ids=[term for term, _ in TERMS])
def test_a_term_has_two_sentences_and_leads_to_the_code_or_page_that_shows_it(term, text):
    links = re.findall(r"\[[^\]]+\]\(([^)]+)\)", text)
    sources = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)
    assert links or sources
    for file, name in sources:
        assert (ROOT / file).is_file()
        assert not name or name in repository.lines(file)
    for link in links:
        page, _, anchor = link.partition("#")
        target = (GLOSSARY.parent / page).resolve()
        assert target.is_file()
        assert not anchor or anchor in anchors(target), link
    said = re.sub(
        r"(, |\s)(\[[^\]]+\]\([^)]+\)|`heedful/[^`]+`)(?=[,.])",
        "",
        papers.pattern().sub("", text.replace("\n  ", " ")),
    )
    assert 1 <= len(re.findall(r"[\w`\")]\.(?=[\s.]|$)", said)) <= 2, said


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub has them; those of the code are in its generated parts."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Words of the pages that mean something of heedful's own.
OWN = {"certificate", "claim", "doctor", "fate", "lab", "plan", "preset", "recipe", "run folder", "studio"}
OWN |= {"task", "trace", "twin", "variant", "verdict", "view", "watch", "worker"}


def test_private_words_have_an_entry_and_every_entry_is_used():
    _, own = entries().values()
    assert OWN <= own.keys()
    pages = " ".join(page.read_text(encoding="utf-8") for page in OTHER_PAGES).lower()
    stems = {term: term.removesuffix("corpus").removesuffix("y") for term in own}
    assert [term for term, stem in stems.items() if not re.search(rf"\b{stem}", pages)] == []


# Configs and requests.


@pytest.mark.parametrize("architecture", FAMILIES)
def test_every_field_of_a_config_is_explained(architecture):
    assert [name for name, _, meaning in field_rows(config_class(architecture)) if not meaning] == []


def test_every_field_of_a_request_is_explained():
    assert re.findall(r"^.*\|\s*\|$", endpoints(), re.MULTILINE) == []


# Troubleshooting.

FAQ = ROOT / "docs" / "reference" / "faq.md"


def said() -> str:
    """Every text in the code, with "…" for what is put in; one a line."""
    found = []
    for file in (ROOT / "heedful").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_every_message_that_is_explained_is_a_message_of_the_program():
    rows = re.findall(r"^\| (.+?) \|", FAQ.read_text(encoding="utf-8").partition("| --- |")[0], re.MULTILINE)
    messages = [row for row in rows if row != "message" and not set(row) <= set("-|")]
    assert len(messages) >= 15
    texts = said()
    pieces = {piece.strip(" :;") for message in messages for piece in message.split("…")}
    assert sorted(piece for piece in pieces if len(piece) > 3 and piece not in texts) == []


def test_there_are_25_to_35_questions():
    questions = re.findall(r"^### (.*)$", FAQ.read_text(encoding="utf-8"), re.MULTILINE)
    assert 25 <= len(questions) <= 35
    assert [question for question in questions if not question.endswith("?")] == []


# How to cite.

NEEDED = {"cff-version", "message", "title", "authors"}  # by the Citation File Format 1.2.0
ALLOWED = NEEDED | {"abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords"}
ALLOWED |= {"license", "license-url", "preferred-citation", "references", "repository", "repository-artifact"}
ALLOWED |= {"repository-code", "type", "url", "version"}


def test_the_citation_is_a_citation_file_of_this_version():
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert NEEDED <= found.keys() <= ALLOWED
    assert found["cff-version"] == "1.2.0"
    assert found["type"] in ("software", "dataset")
    assert all(("name" in author) != ("family-names" in author) for author in found["authors"])
    assert found["version"] == heedful.__version__
    assert found["license"] == project["license"]
    assert len(set(found["keywords"])) == len(found["keywords"])


def test_bibtex_follows_from_the_citation_file():
    entry = versions.bibtex()
    assert entry.count("{") == entry.count("}")
    assert f"version  = {{{heedful.__version__}}}" in entry
    assert "@software{heedful," in entry


def test_the_versions_are_those_of_the_project():
    shown = versions.versions_table()
    assert "| `Python` | ≥ 3.11 |" in shown
    assert f"| `torch` | ≥ 2.11 | {re.sub('[+].*', '', torch.__version__)} |" in shown
