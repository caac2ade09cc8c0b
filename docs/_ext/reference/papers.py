"""Every paper that the code and the pages cite, with its link and the places that cite it.

papers.toml has the papers. A citation is written as "Vaswani et al. 2017" or "Press, Smith and Lewis (2022)",
and a link to a paper is a citation too. On the site, citations in pages are links to the page of papers.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[3]
FILE = Path(__file__).with_name("papers.toml")
PAGE = "reference/papers"
SHOWN_IN = {"docs/learn/slides.toml": "docs/learn/slide-map.md"}  # a file of facts, and the page with them
YEAR = r"(?:19\d\d|20[0-2]\d)[a-z]?"
SURNAME = r"(?:Le |de |van )?[A-Z][\w-]*[a-zé]"
DATES = {"January", "February", "March", "April", "May", "June", "July", "August", "September", "October"} | {
    *("November", "December", "Nov", "Measured", "From", "On", "In", "Since", "Version")
}
LINK = re.compile(
    r"https?://(?:arxiv\.org|doi\.org|aclanthology\.org|ericmitchell\.ai|joschu\.net)/[^\s)\"'>\]]*"
)


@dataclass(frozen=True)
class Paper:
    """As it is cited, its title, where it can be read, and its topic."""

    cited: str
    title: str
    link: str
    topic: str

    @property
    def key(self) -> tuple[str, str]:
        """(first author, year), which say which paper is meant."""
        return first_author(self.cited), self.cited.split()[-1]

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", " ".join(self.key).lower(), flags=re.ASCII)


@dataclass(frozen=True)
class Citation:
    """Where a paper is cited: in a file, within a function or a class, or within a page."""

    file: str
    name: str
    text: str


@cache
def papers() -> dict[tuple[str, str], Paper]:
    """{(first author, year): paper} in the order of the page."""
    topics = tomllib.loads(FILE.read_text(encoding="utf-8"))
    found = [
        Paper(cited, *entry, topic=topic) for topic, some in topics.items() for cited, entry in some.items()
    ]
    return {paper.key: paper for paper in found}


def first_author(cited: str) -> str:
    """The name before the first comma, "and", "et al." or year."""
    return re.split(r",|\s+(?:and|et\s+al\.|\(?\d{4})", cited)[0].strip()


@cache
def pattern() -> re.Pattern[str]:
    """A citation: names, then a year, over ends of lines too."""
    known = sorted({author for author, _ in papers()}, key=len, reverse=True)
    name = rf"(?:{'|'.join(map(re.escape, known))}|{SURNAME})"
    more = rf"(?:\s+et\s+al\.|(?:,\s+{SURNAME})*\s+and\s+{SURNAME})?"
    return re.compile(rf"(?<![\w-])({name}{more}),?\s+\(?({YEAR})(?![\w-])")


def paper_of(match: re.Match[str]) -> Paper | None:
    return papers().get((first_author(" ".join(match[1].split())), match[2]))


def is_date(match: re.Match[str]) -> bool:
    """Whether a match of the pattern is "November 2026" or the like, not a citation."""
    return first_author(match[1]) in DATES


# Where papers are cited.


def files() -> list[Path]:
    """What is searched: the package with its texts, pages, and results."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.stem != "papers"]
    words = (ROOT / "heedful" / "studio" / "static" / "words").glob("*.js")
    code = (ROOT / "heedful").rglob("*.py")
    facts = map(ROOT.joinpath, SHOWN_IN)
    return sorted([*code, *words, *pages, *facts, ROOT / "README.md", ROOT / "benchmarks" / "RESULTS.md"])


@cache
def citations() -> tuple[list[tuple[Paper, Citation]], list[Citation]]:
    """([(paper, where)], those of no known paper)."""
    known, unknown = [], []
    for path in files():
        text, file = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
        for line, paper, cited in in_text(text):
            where = Citation(SHOWN_IN.get(file, file), name_at(path, line), cited)
            known += [(paper, where)] if paper else []
            unknown += [] if paper else [where]
    return known, unknown


def in_text(text: str) -> Iterator[tuple[int, Paper | None, str]]:
    """(line, paper, as it is written) of every citation and of every link to a paper."""
    linked = {paper.link: paper for paper in papers().values()}
    plain = re.sub(r"\n[ \t]*# ?", "\n", text)  # comments of several lines
    for match in pattern().finditer(plain):
        if not is_date(match):
            yield text.count("\n", 0, match.start()) + 1, paper_of(match), " ".join(match[0].split())
    for match in LINK.finditer(text):
        link = match[0].rstrip(".,;:`")
        yield text.count("\n", 0, match.start()) + 1, linked.get(link), link


@cache
def spans(path: Path) -> list[tuple[int, int, str]]:
    """(first line, last line, name) of the functions, classes and methods ("Class.method") of a file."""
    found: list[tuple[int, int, str]] = []

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                found.append((node.lineno, node.end_lineno or node.lineno, prefix + node.name))
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def name_at(path: Path, line: int) -> str:
    """The innermost function or class at a line; "" for the file itself, and in pages."""
    if path.suffix != ".py":
        return ""
    inside = [(last - first, name) for first, last, name in spans(path) if first <= line <= last]
    return min(inside)[1] if inside else ""


# The page, and the links to it.


def papers_page() -> str:
    """A section for each topic, with its papers and the places that cite them."""
    places: dict[Paper, list[str]] = {}
    for paper, where in citations()[0]:
        found = places.setdefault(paper, [])
        found += [place] if (place := shown(where)) not in found else []
    text, topic = "", ""
    for paper in papers().values():
        text += f"## {paper.topic}\n\n" if paper.topic != topic else ""
        topic = paper.topic
        used = ", ".join(places.get(paper, []))
        title = f"[{paper.title}]({paper.link})"
        text += f"({paper.anchor})=\n**{paper.cited}.** {title}.\\\nCited in {used}.\n\n"
    return text


def shown(where: Citation) -> str:
    """A place as a link: a source file with its function or class, or a page with its title."""
    path = ROOT / where.file
    if path.suffix != ".md":
        return f"`{where.file}{'::' if where.name else ''}{where.name}`"
    title = re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    page = path.relative_to(ROOT / "docs") if path.is_relative_to(ROOT / "docs") else path.relative_to(ROOT)
    up = "../" if path.is_relative_to(ROOT / "docs") else "../../"
    return f"[{title[1] if title else where.file}]({up}{page})"


class LinksToPapers(SphinxTransform):
    """Citations in pages become links to the page of papers."""

    default_priority = 810

    def apply(self, **kwargs: object) -> None:
        if self.env.docname == PAGE:
            return
        up = "../" * self.env.docname.count("/")
        for text in list(self.document.findall(nodes.Text)):
            if not inside(text, nodes.reference, nodes.literal, nodes.title, nodes.FixedTextElement):
                pieces = linked(text.astext(), f"{up}{PAGE}.html")
                if len(pieces) > 1:
                    text.parent.replace(text, pieces)


def inside(node: nodes.Node, *kinds: type[nodes.Node]) -> bool:
    """Whether a node lies in one of these kinds."""
    while (parent := node.parent) is not None:
        if isinstance(parent, kinds):
            return True
        node = parent
    return False


def linked(text: str, page: str) -> list[nodes.Node]:
    """A text with its citations as links."""
    pieces: list[nodes.Node] = []
    end = 0
    for match in pattern().finditer(text):
        if paper := paper_of(match):
            pieces += [nodes.Text(text[end : match.start()])]
            link = nodes.reference("", match[0], refuri=f"{page}#{paper.anchor}", internal=True)
            pieces += [link]
            end = match.end()
    return [*pieces, nodes.Text(text[end:])]
