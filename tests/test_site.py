"""The documentation site is built without a warning, and every page of it can be found."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
