"""Every public name with its first sentence, as links into the pages of the API reference."""

import re

from helpers.public_names import PAGES, PublicName, public_names

from .markdown import prose, table

TITLE = re.compile(r"^# (.*)$", re.MULTILINE)


def index() -> str:
    found: dict[str, list[PublicName]] = {}
    for one in public_names():
        found.setdefault(one.page, []).append(one)
    return "\n".join(section(page, names) for page, names in found.items())


def section(page: str, names: list[PublicName]) -> str:
    title = TITLE.search((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    assert title is not None
    rows = ((f"{{py:obj}}`{one.name} <{one.full}>`", prose(one.summary)) for one in names)
    return f"## {title[1]}\n\n[The page]({page}.md) has parameters and examples.\n\n" + table(
        ("name", "meaning"), rows
    )
