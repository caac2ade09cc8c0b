"""Lessons: their answers lie in dropdowns, and each is also a Jupyter notebook that readers can download.

A lesson is a page with cells in docs/learn/ whose name begins with a number. A cell with the tag `answer`
moves into the dropdown above it. The notebook has the cells of the page, without their outputs, after a cell
that makes the runs which the lesson loads.
"""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import nbformat
from docutils import nodes
from nbformat import NotebookNode, v4
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

LESSON = re.compile(r"learn/\d-[\w-]+")
ANSWER = "answer"
DROPDOWN = re.compile(r"^:::\{dropdown\} *(.*?)\n(.*?)^:::$", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"\[([^]]+)\]\((?!\w+:)[^)]+\)")  # links that only the site has
RUNS = re.compile(r'"runs/(\w+)"')

ENGLISH = """from heedful.corpora import phrasebook

lines = [pair.source for pair in phrasebook.split("train")]
Path("english.txt").write_text("\\n".join(lines), encoding="utf-8")"""
COMMANDS = {  # as in docs/howto/decoding.md, where the outputs of these runs are shown
    "demo": "heedful demo --run runs/demo",
    "lm": "heedful train lm --text english.txt --size tiny --steps 600 --set data.tokenizer=word"
    " --set model.context=32 --run runs/lm",
    "mlm": "heedful train mlm --text english.txt --size tiny --steps 800 --set data.tokenizer=word"
    " --set model.layers=1 --set model.context=16 --set model.dropout=0 --run runs/mlm",
}


class AnswersIntoDropdowns(SphinxTransform):
    """Cells that are answers move into the dropdown before them."""

    default_priority = 20

    def apply(self, **kwargs: object) -> None:
        for cell in list(self.document.findall(is_answer)):
            place = cell.parent.index(cell)
            before = cell.parent[place - 1]
            if before.get("design_component") != "dropdown":
                raise ValueError(f"{self.env.docname}: no dropdown before the answer {cell.astext()[:60]!r}")
            cell.parent.remove(cell)
            before += cell


def is_answer(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and ANSWER in node.get("cell_metadata", {}).get("tags", [])


class LinkToNotebook(SphinxTransform):
    """The line under the title of a lesson that leads to its notebook."""

    default_priority = 790

    def apply(self, **kwargs: object) -> None:
        if not LESSON.fullmatch(self.env.docname):
            return
        name = f"{Path(self.env.docname).name}.ipynb"
        link = nodes.reference("", "Download this lesson as a Jupyter notebook", refuri=name, internal=True)
        title = next(iter(self.document.findall(nodes.title)))
        first = next(node for node in title.parent.children if isinstance(node, nodes.paragraph))
        told = nodes.Text(f".{said_of_runs(runs_of(self.document))}")
        title.parent.insert(title.parent.index(first) + 1, nodes.paragraph("", "", link, told))


def runs_of(document: nodes.document) -> list[str]:
    """The runs that the cells of a page load."""
    cells = [node.astext() for node in document.findall(nodes.literal_block)]
    return list(dict.fromkeys(RUNS.findall("\n".join(cells))))


def said_of_runs(runs: list[str]) -> str:
    """Where the runs that a lesson loads come from."""
    names = " and ".join(f"runs/{run}" for run in runs)
    if "demo" in runs:
        told = "which the command heedful demo trains in a few minutes"
        return f" Its cells load {names}, {told}. The page shows a smaller model, so your numbers differ."
    return f" Its cells load {names}; the notebook trains them first." if runs else ""


def notebook(page: Path) -> NotebookNode:
    """A lesson as a notebook that runs wherever heedful is installed."""
    found = jupytext.reads(page.read_text(encoding="utf-8"), fmt="md:myst")
    for cell in found.cells:
        if cell.cell_type == "markdown":
            cell.source = DROPDOWN.sub(details, ELSEWHERE.sub(r"\1", cell.source))
        elif ANSWER in cell.metadata.get("tags", []):
            cell.metadata["jupyter"] = {"source_hidden": True}
    runs = RUNS.findall("\n".join(cell.source for cell in found.cells if cell.cell_type == "code"))
    found.cells[1:1] = preparation(list(dict.fromkeys(runs)))
    for i, cell in enumerate(found.cells):  # not random: one page, one file
        cell.id = f"cell-{i}"
    found.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return found


def details(found: re.Match[str]) -> str:
    """A dropdown as plain HTML, which notebooks show."""
    body = re.sub(r"^:[\w-]+:.*\n", "", found[2], flags=re.MULTILINE).strip()
    return f"<details><summary>{found[1]}</summary>\n\n{body}\n\n</details>"


def preparation(runs: list[str]) -> list[NotebookNode]:
    """What a reader needs before the lesson: heedful, and the runs that it loads."""
    told = "This notebook needs heedful: `pip install -c constraints.txt -e .` in a clone of it installs it."
    if not runs:
        return [v4.new_markdown_cell(told)]
    names = " and ".join(f"`runs/{run}`" for run in runs)
    told += f" The next cell trains {names}, once. It takes a few minutes on a laptop, and figures differ"
    told += " from those of the page, whose runs are smaller."
    lines = ["from pathlib import Path", *([f"\n{ENGLISH}"] if {*runs} - {"demo"} else [])]
    for run in runs:
        lines += [f'if not Path("runs/{run}").exists():', f"    !{COMMANDS[run]}"]
    return [v4.new_markdown_cell(told), v4.new_code_cell("\n".join(lines), metadata={"tags": ["runs"]})]


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """The notebooks, beside the pages."""
    if error or app.builder.format != "html":
        return
    for name in filter(LESSON.fullmatch, app.env.found_docs):
        text = nbformat.writes(notebook(Path(app.srcdir) / f"{name}.md"))
        (Path(app.outdir) / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(AnswersIntoDropdowns)
    app.add_transform(LinkToNotebook)
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
