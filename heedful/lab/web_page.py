"""The pages of a report for a browser: one file each, with its figure inside, which opens offline.

The reports of the lab are Markdown of a few kinds of lines: headings, paragraphs, lists, tables and one
picture. These become HTML. Everything else in a line is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby

POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # no script and no network
STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid #8886; }
figure { margin: 1rem 0; overflow-x: auto; }
figure svg { display: block; }
code { background: #8882; padding: 0.1rem 0.3rem; }
"""


def web_page(markdown: str, figures: Mapping[str, str]) -> str:
    """A page of HTML. figures: {file name: SVG} that stand in the page where the text shows them."""
    lines = markdown.splitlines()
    title = next((line[2:] for line in lines if line.startswith("# ")), "")
    body = "\n".join(
        block for kind, some in groupby(lines, kind_of) for block in blocks(kind, list(some), figures)
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def kind_of(line: str) -> str:
    """What a line is: lines of one kind that follow each other are one block."""
    if line.startswith("# "):
        return "heading"
    if line.startswith(("| ", "|-")):
        return "table"
    if line.startswith("- "):
        return "list"
    if line.startswith("!["):
        return "figure"
    return "text" if line else "nothing"


def blocks(kind: str, lines: list[str], figures: Mapping[str, str]) -> Iterator[str]:
    if kind == "heading":
        yield from (f"<h1>{inline(line[2:])}</h1>" for line in lines)
    elif kind == "table":
        yield table(lines)
    elif kind == "list":
        items = (line[2:].replace("[ ]", "\N{BALLOT BOX}", 1) for line in lines)
        yield f"<ul>{''.join(f'<li>{inline(item)}</li>' for item in items)}</ul>"
    elif kind == "figure":
        yield from (f"<figure>{figures[line.rpartition('(')[2].rstrip(')')]}</figure>" for line in lines)
    elif kind == "text":
        yield from (f"<p>{inline(line)}</p>" for line in lines)


def table(lines: list[str]) -> str:
    head, _, *rows = ([inline(cell.strip()) for cell in line.strip("|").split("|")] for line in lines)
    top = "".join(f"<th>{cell}</th>" for cell in head)
    rest = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{rest}</tbody></table>"


def inline(text: str) -> str:
    """Bold, code and links to pages; everything else is text."""
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(text))
    text = re.sub(r"\[([^\]]+)\]\(([a-z]+/page\.html)\)", r'<a href="\2">\1</a>', text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)
