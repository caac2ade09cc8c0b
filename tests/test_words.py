"""The pages use the field's words: no private vocabulary, and short sentences."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST = 32  # words of a sentence: the aim is 25, and a list of things may be longer
PRIVATE = {
    r"by lot": "at random",
    r"foret(?:old|ells?)": "predict",
    r"gazes?": "attention",
    r"told": "reported",
    r"nats a token": "nats per token",
    r"asked for": "requested, or the target",
    r"awkward": "difficult",
    r"likeliest": "most likely",
    r"(?:optimis|tokenis|normalis|summaris|initialis|quantis)\w*": "American spelling",
    r"colour\w*|modelling|grey": "American spelling",
}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def prose(page: Path) -> str:
    """A page without code, whose words are the program's."""
    return re.sub(r"`[^`\n]*`", "`x`", FENCED.sub("", page.read_text(encoding="utf-8")))


def sentences(page: Path) -> list[str]:
    """The sentences of a page's paragraphs and lists; tables, headings and formulas have none."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*- )", prose(page))
    texts = [" ".join(block.split()) for block in blocks if block.strip()[:1] not in list("|#<!$")]
    plain = [re.sub(r"\]\([^)]*\)", "]", text) for text in texts]
    return [s for text in plain for s in re.split(r"(?<=[.!?:;])\s+", text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_private_words(page):
    found = {
        match[0]: better
        for word, better in PRIVATE.items()
        for match in re.finditer(rf"\b(?:{word})\b", prose(page), re.IGNORECASE)
    }
    assert found == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_short_sentences_that_do_not_begin_with_of(page):
    said = sentences(page)
    assert [s for s in said if len(re.findall(r"[\w'%-]+", s)) > LONGEST] == []
    assert [s for s in said if s.startswith("Of ")] == []


# What the program says.


def strings(file: Path) -> list[str]:
    """Every text in a file of Python: help, messages and docstrings."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


SPOKEN = [word for word in PRIVATE if word not in ("asked for", "awkward")]
SPEAKING = ("cli", "inside", "interop", "compare", "bench", "lab")  # folders whose texts people read


@pytest.mark.parametrize("folder", SPEAKING)
def test_the_program_has_no_private_words(folder):
    private = re.compile(rf"\b(?:{'|'.join(SPOKEN)})\b", re.IGNORECASE)
    found = {
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in (ROOT / "heedful" / folder).rglob("*.py")
        for text in strings(file)
        for match in private.finditer(text)
    }
    assert found == set()
