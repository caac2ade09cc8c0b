"""Markdown out of help texts: what has a meaning in Markdown is escaped, and options become code."""

import re
from collections.abc import Iterable

CODE = re.compile(r"(`[^`\n]+`|(?<![\w-])--[a-z][\w-]*)")
SPECIAL = re.compile(r"([\\*_<>$|\[\]{}~#])")


def prose(text: str) -> str:
    """A text of the program in one line, as Markdown shows it word for word."""
    pieces = CODE.split(" ".join(text.split()))
    return "".join(
        code(piece.strip("`")) if i % 2 else SPECIAL.sub(r"\\\1", piece) for i, piece in enumerate(pieces)
    )


def code(text: str) -> str:
    """A word as code, in a cell of a table too."""
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose cells stand below each other where the screen is narrow (site.css)."""
    lines = [list(titles), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f":::{{container}} looked-up with-{lines[0][1]}\n{text}\n:::\n"
