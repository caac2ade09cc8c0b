"""The documentation site is built without a warning, and every page of it can be found.

Its lessons are notebooks too, which run outside the clone.
"""

import ast
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from helpers.pages import has

from heedful.cli.shared import arguments
from heedful.cli.train import recipe_of

ROOT = Path(__file__).parents[1]
LESSONS = sorted((ROOT / "docs" / "learn").glob("[0-9]-*.md"))
CELL = re.compile(r"^```\{code-cell\}\n(?::tags: ([^\n]*)\n\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
OWN = {"genindex.html", "search.html"}  # pages that Sphinx adds; the form of the search leads to the latter


class Links(HTMLParser):
    """What a page links to, the ids it has, its title and its description."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.description = ""
        text = page.read_text(encoding="utf-8")
        self.title = re.search("<title>(.*?)</title>", text, re.DOTALL)[1]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.ids |= {found["id"]} if "id" in found else set()
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "meta" and found.get("name") == "description":
            self.description = found["content"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built from nothing; its build executes the cells of its pages."""
    folder = tmp_path_factory.mktemp("docs")
    options = ["-q", "-j", "2", "-W", "--keep-going", "-b", "html", "-d", str(folder / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(folder / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site):
    found = [page for page in site.rglob("*.html") if "_static" not in page.parts]
    return {str(page.relative_to(site)): Links(page) for page in found if page.name != "translator.html"}


def inside(page: str, link: str) -> tuple[str, str] | None:
    """(file, anchor) of a link within the site."""
    if re.match(r"\w+:", link):
        return None
    path, _, anchor = link.partition("#")
    return str((Path("/") / page).parent.joinpath(path).resolve())[1:] if path else page, anchor


def test_every_link_leads_to_a_file_and_an_anchor_of_the_site(pages, site):
    broken = []
    for page, found in pages.items():
        for link in found.links:
            if target := inside(page, link):
                file, anchor = target
                exists = (site / file).is_file()
                anchored = not anchor or file not in pages or anchor in pages[file].ids
                if not (exists and anchored):
                    broken.append((page, link))
    assert broken == []


def test_every_page_is_reached_from_the_first(pages):
    seen, waiting = set(), ["index.html"]
    while waiting:
        page = waiting.pop()
        if page in pages and page not in seen:
            seen.add(page)
            waiting += [target[0] for link in pages[page].links if (target := inside(page, link))]
    assert pages.keys() - seen <= OWN


def test_every_page_has_a_title_and_a_description(pages):
    shown = {name: page for name, page in pages.items() if name not in OWN}
    titles = [page.title for page in shown.values()]
    assert len(set(titles)) == len(titles)
    assert [name for name, page in shown.items() if len(page.description) < 20] == []


# Lessons


def notebook(site: Path, lesson: Path) -> nbformat.NotebookNode:
    """The notebook of a lesson, as a reader downloads it."""
    return nbformat.read(site / "learn" / f"{lesson.stem}.ipynb", as_version=4)


def is_made(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell makes the runs of a lesson, and is no part of its page."""
    return "runs" in cell.metadata.get("tags", [])


def test_there_are_eight_lessons_and_the_index_names_them():
    index = (ROOT / "docs" / "learn" / "index.md").read_text(encoding="utf-8")
    assert [lesson.stem[0] for lesson in LESSONS] == list("12345678")
    assert [lesson.name for lesson in LESSONS if f"({lesson.name})" not in index] == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_is_a_valid_notebook_with_the_cells_of_its_page(lesson, site):
    found = notebook(site, lesson)
    nbformat.validate(found)
    cells = [cell for cell in found.cells if cell.cell_type == "code" and not is_made(cell)]
    shown = CELL.findall(lesson.read_text(encoding="utf-8"))
    assert [cell.source for cell in cells] == [source.rstrip("\n") for _, source in shown]
    assert [cell.metadata.get("jupyter") is not None for cell in cells] == ["answer" in t for t, _ in shown]
    words = "\n".join(cell.source for cell in found.cells if cell.cell_type == "markdown")
    assert not re.search(r":::|\{\w+\}`|\]\((?!\w+:)", words)  # what only the site can show
    assert (
        words.count("<details>")
        == words.count("</details>")
        == words.count("**1.**") * len(exercises(lesson))
    )


def exercises(lesson: Path) -> list[str]:
    return re.findall(r"^\*\*\d\.\*\* ", lesson.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_notebook_needs_heedful_and_the_runs_that_it_makes_only(lesson, site):
    found = notebook(site, lesson)
    made = [cell.source for cell in found.cells if is_made(cell)]
    sources = [cell.source for cell in found.cells if cell.cell_type == "code" and not is_made(cell)]
    loaded = set(re.findall(r'"(runs/\w+)"', "\n".join(sources)))
    commands = re.findall(r"!heedful (.*)", "\n".join(made))
    assert loaded == {command.rpartition("--run ")[2] for command in commands}
    for command in commands:
        name, *rest = command.split()
        given = arguments.parse(name, rest)
        if name == "train":
            recipe_of(given)  # it would refuse a setting that does not exist
    for source in (*sources, re.sub("!.*", "pass", "\n".join(made))):
        for node in ast.walk(ast.parse(source)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            allowed = ("heedful", "torch", "numpy", *sys.stdlib_module_names)
            assert [
                name for name in modules if name.partition(".")[0] not in allowed or not has(name, "")
            ] == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_hides_its_answers_shows_pictures_and_gives_its_notebook(lesson, site, pages):
    page = (site / "learn" / f"{lesson.stem}.html").read_text(encoding="utf-8")
    outside = re.sub(r"<details.*?</details>", "", page, flags=re.DOTALL)
    assert len(exercises(lesson)) >= 2 and page.count("<summary") >= len(exercises(lesson))
    assert "tag_answer" in page and "tag_answer" not in outside
    assert outside.count('heedful-picture"') >= 1
    assert f"{lesson.stem}.ipynb" in pages[f"learn/{lesson.stem}.html"].links
    assert "Try to break it" in page
    for run in re.findall(r'"(runs/\w+)"', lesson.read_text(encoding="utf-8")):
        assert re.search(rf"Its cells load [^.]*{run}", page)
