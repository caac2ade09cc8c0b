"""Each page's first paragraph is its description for search engines and link previews."""

from html import escape
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LONGEST = 200  # characters; search engines show about 160


def first_paragraph(page: nodes.document) -> str:
    """The first paragraph that is no part of a table, a list or a note."""
    for found in page.findall(nodes.paragraph):
        if isinstance(found.parent, nodes.section):
            return " ".join(found.astext().split())
    return ""


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST].rpartition(" ")[0].rstrip(",;:") + " …"


def describe(
    app: Sphinx, name: str, template: str, context: dict[str, Any], page: nodes.document | None
) -> None:
    if text := first_paragraph(page) if page else context.get("told", ""):
        context["metatags"] = context.get("metatags", "") + (
            f'\n<meta name="description" content="{escape(shortened(text))}">'
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
