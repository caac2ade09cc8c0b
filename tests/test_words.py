"""Pages, help, messages and docstrings use the field's words, in short sentences, and are spelled right."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST = 32  # words of a sentence: the aim is 25, and a list of things may be longer
PRIVATE = {  # in no text at all
    r"by lot": "at random",
    r"foret(?:old|ells?)|foretelling": "predict",
    r"gaz(?:es?|ing)": "attention",
    r"nats a token": "nats per token",
    r"likeliest": "most likely",
    r"wherefore|whereof|thereof|whence|nought|aught|betwixt": "plain English",
    r"(?:optimis|tokenis|normalis|summaris|initialis|quantis|regularis|generalis|parallelis)[aei]\w*": "-iz-",
    r"colour\w*|modelling|grey|behaviour\w*|neighbour\w*|labelled|centre[ds]?": "American spelling",
}
UNCLEAR = PRIVATE | {  # in no page, help, message or docstring of a public name
    r"told": "reported, given, or shown",
    r"asked for": "requested, or the target",
    r"awkward": "difficult",
    r"theirs": "name the thing",
    r"surprise": "negative log-likelihood",
    r"sow(?:n|ed|s)?": "seed",
    r"riddles?": "plain English",
}
HISTORY = {  # in no page: it describes what the program does today
    r"nowadays|formerly|used to be|at that time": "no history",
    r"(?:earlier|older|previous|first) versions? of heedful": "no history; the changelog has it",
    r"will be (?:added|supported|built)|coming soon|planned for": "no plans",
}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def found_in(text: str, words: dict[str, str]) -> dict[str, str]:
    """{word: what to write instead} of what a text should not have."""
    faults = {match[0] for match in any_of(frozenset(words)).finditer(text)}
    return {
        fault: better
        for fault in faults
        for word, better in words.items()
        if re.fullmatch(word, fault, re.IGNORECASE)
    }


@cache
def any_of(words: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(sorted(words))})\b", re.IGNORECASE)


# Pages.


def prose(page: Path) -> str:
    """A page without code, whose words are the program's."""
    return re.sub(r"`[^`\n]*`", "`x`", FENCED.sub("", page.read_text(encoding="utf-8")))


def sentences(page: Path) -> list[str]:
    """The sentences of a page's paragraphs and lists; tables, headings and formulas have none."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*- )", prose(page))
    texts = [" ".join(block.split()) for block in blocks if block.strip()[:1] not in list("|#<!$")]
    plain = [re.sub(r"\]\([^)]*\)", "]", text) for text in texts]
    return [s for text in plain for s in re.split(r"(?<=[.!?:;])\s+", text)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_no_private_words(page):
    assert found_in(prose(page), UNCLEAR | HISTORY) == {}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_short_sentences_that_do_not_begin_with_of(page):
    said = sentences(page)
    assert [s for s in said if len(re.findall(r"[\w'%-]+", s)) > LONGEST] == []
    assert [s for s in said if s.startswith("Of ")] == []


# What the program says.


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def strings(node: ast.AST) -> Iterator[str]:
    """Every text in a piece of Python."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


SAYING = {"print", "say", "warn", "complain", "BadInput", "Fault", "Choice"}  # calls whose texts people read


def messages(file: Path) -> Iterator[str]:
    """The texts of errors, and what is printed."""
    for node in ast.walk(tree(file)):
        called = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", ""))
        if isinstance(node, ast.Raise) or called in SAYING:
            yield from strings(node)


def helps(file: Path) -> Iterator[str]:
    """The texts of settings and options: notes of types, and docstrings of fields."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Annotated":
            yield from strings(node)
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    yield from strings(text)


def public_docstrings(file: Path) -> Iterator[str]:
    """Docstrings of public functions, classes and methods."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield ast.get_docstring(node) or ""


FILES = sorted((ROOT / "heedful").rglob("*.py"))
FOLDERS = sorted({file.relative_to(ROOT / "heedful").parts[0] for file in FILES})
COMMANDS = "cli"  # its docstrings are help
PUBLIC = ("use", "parts")  # folders of names that other programs call


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_program_has_no_private_words(folder):
    place = ROOT / "heedful" / folder
    faults = {}
    for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
        texts = [(text, PRIVATE) for text in strings(tree(file)) if folder != "corpora"]  # words are its data
        texts += [(text, UNCLEAR) for text in (*messages(file), *helps(file))]
        texts += [(text, UNCLEAR) for text in public_docstrings(file) if folder in (*PUBLIC, COMMANDS)]
        for text, words in texts:
            if found := found_in(text, words):
                faults.setdefault(name_of(file), {}).update(found)
    assert faults == {}


# Spelling.

SPELLED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff")
SPELLED += ("docs", "heedful", "benchmarks", "tools")


def test_nothing_is_misspelled():
    """codespell, whose list of words to let pass is in pyproject.toml."""
    command = [sys.executable, "-m", "codespell_lib", *SPELLED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout


def test_private_words_are_found():
    found = found_in("Theirs is the colour that was drawn by lot.", UNCLEAR)
    assert found.keys() == {"Theirs", "colour", "by lot"}
