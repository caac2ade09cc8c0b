"""Files of the repository on the site: those that are pages of their own, and source files as listings.

A link to CONTRIBUTING.md leads to the page that includes it. A file in backticks leads to its listing:
`heedful/parts/masks.py`, or with a name to its line there, `heedful/parts/masks.py::Causal`. So does a link
with such a target: [causal](heedful/parts/masks.py::Causal). A word after it leads to the line that
assigns it: heedful/parts/masks.py::Causal#strict. A cell of a table shows the name without its file.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = Path(__file__).parents[2]
PAGES = {  # a file outside docs/, and the page that includes it
    "README.md": "index",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contribute",
    "benchmarks/RESULTS.md": "results",
}
SOURCE = re.compile(r"((?:heedful|tests|benchmarks|tools)/[\w/.-]+\.py)(?:::([\w.]+)(?:#(\w+))?)?")
LISTINGS = "source"  # the folder of listings on the site
LISTED = re.compile(rf"(?:\.\./)*{LISTINGS}/(.+\.py)\.html(?:#.*)?")


class LinksToRepository(SphinxPostTransform):
    """Links to included files become links to their pages, before MyST looks for the files."""

    default_priority = 5

    def run(self, **kwargs: object) -> None:
        here = (ROOT / "docs" / self.env.docname).parent
        for link in self.document.findall(pending_xref):
            if link.get("reftype") != "myst":
                continue
            target = link["reftarget"]
            for file, page in PAGES.items():
                if target == file or (here / f"{target}.md").resolve() == ROOT / file:
                    link["refdomain"], link["reftarget"] = "doc", page
                    link.attributes.setdefault("reftargetid", None)


class LinksToSources(SphinxTransform):
    """Names of source files, and links to them, become links to their listings."""

    default_priority = 800

    def apply(self, **kwargs: object) -> None:
        for word in list(self.document.findall(nodes.literal)):
            address = self.address(word.astext())
            if address and not isinstance(word.parent, nodes.reference):
                link = nodes.reference("", "", refuri=address, reftitle=word.astext(), internal=True)
                short = in_cell(word) and "::" in word.astext()
                word.replace_self(link)
                link += short_name(word.astext()) if short else word
        for link in list(self.document.findall(pending_xref)):
            target = link.get("reftarget") or ""
            if address := self.address(target):
                named = {"refuri": address, "reftitle": target, "internal": True}
                link.replace_self(nodes.reference("", "", *link.children, **named))

    def address(self, text: str) -> str | None:
        """The listing of a file, and the line of a name in it."""
        found = SOURCE.fullmatch(text)
        if not found or not (ROOT / found[1]).is_file():
            return None
        line = f"#line-{line_of(*found.groups())}" if found[2] else ""
        return f"{'../' * self.env.docname.count('/')}{LISTINGS}/{found[1]}.html{line}"


def in_cell(node: nodes.Node) -> bool:
    """Whether a node is in a cell of a table."""
    return node is not None and (isinstance(node, nodes.entry) or in_cell(node.parent))


def short_name(text: str) -> nodes.Node:
    """What fits a cell of a table: the name without its file, on one line, and one word for a test."""
    name = text.partition("::")[2]
    return nodes.Text("test") if name.startswith("test_") else nodes.literal("", name, classes=["name"])


def note_sources(app: Sphinx, page: nodes.document) -> None:
    """Remember which listings a page links to, also where Sphinx links to the line of a documented name."""
    for link in page.findall(nodes.reference):
        if found := LISTED.fullmatch(link.get("refuri", "")):
            app.env.metadata[app.env.docname].setdefault("sources", set()).add(found[1])


@cache
def lines(file: str) -> dict[str, int]:
    """{name: its line} of a file: functions, classes, "Class.method", and names that are assigned."""
    found: dict[str, int] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                found[prefix + node.name] = node.lineno
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found.update({prefix + one.id: node.lineno for one in targets if isinstance(one, ast.Name)})

    visit(ast.parse((ROOT / file).read_text(encoding="utf-8")).body, "")
    return found


def line_of(file: str, name: str, word: str | None = None) -> int:
    """The line of a name, or of a word in its source; a name that is not there stops the build."""
    if name not in lines(file):
        raise ValueError(f"{file} has no {name}")
    return line_of_word(file, name, word) if word else lines(file)[name]


def line_of_word(file: str, name: str, word: str) -> int:
    """Where a function or class assigns a name or an attribute, else takes it, else reads it, else begins."""
    nodes_in = list(ast.walk(definition(file, name)))
    uses = [one for one in nodes_in if word in (getattr(one, "id", None), getattr(one, "attr", None))]
    assigned = [one.lineno for one in uses if isinstance(one.ctx, ast.Store)]
    taken = [one.lineno for one in nodes_in if isinstance(one, ast.arg) and one.arg == word]
    return min(assigned or taken or [one.lineno for one in uses], default=lines(file)[name])


def definition(file: str, name: str) -> ast.stmt:
    """A function or class ("Class.method" too)."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    for part in name.split("."):
        node = next(one for one in body if getattr(one, "name", "") == part)
        body = getattr(node, "body", [])
    return node


def listings(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each source file that the site names."""
    named = {file for data in app.env.metadata.values() for file in data.get("sources", ())}
    shape = HtmlFormatter(linenos="inline", lineanchors="line", anchorlinenos=True)
    for file in sorted(named):
        text = (ROOT / file).read_text(encoding="utf-8")
        body = f"<h1>{file}</h1>{highlight(text, PythonLexer(), shape)}"
        told = ast.get_docstring(ast.parse(text)) or f"The source of {file}."
        context = {"title": file, "body": body, "told": told.partition("\n")[0]}
        yield f"{LISTINGS}/{file}", context, "page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(LinksToRepository)
    app.add_transform(LinksToSources)
    app.connect("doctree-read", note_sources, priority=900)  # after sphinx.ext.linkcode
    app.connect("html-collect-pages", listings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
