"""The picture of a mask for notebooks: queries downwards, keys across, filled where one may attend."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .notebooks import both, framed

CELL, LEFT, TOP, WIDEST = 22, 64, 66, 72  # pixels; characters of the title
PAPER, INK, FAINT = both("#ffffff", "#16181d"), both("#222222", "#e8eaee"), both("#6e6e6e", "#a8adb5")
ALLOWED, EDGE = both("#3182bd", "#5aaae6"), both("#cccccc", "#4b4f57")


def mask_html(allowed: Sequence[Sequence[bool]], title: str, note: str = "") -> str:
    """A table of who may attend to whom, with the positions of queries and keys."""
    rows, columns = len(allowed), len(allowed[0]) if allowed else 0
    name = title if len(title) <= WIDEST else f"{title[: WIDEST - 1]}…"
    below = ["filled: the query may attend to the key", *([note] if note else [])]
    width = max(LEFT + CELL * columns + 16, 16 + 7.9 * len(name), 16 + 6 * max(map(len, below)))
    height = TOP + CELL * rows + 12 + 16 * len(below)
    shapes = [
        f'<rect width="{width:.0f}" height="{height}" style="fill:{PAPER}"/>',
        text(12, 22, name, 13, INK, "start", bold=True),
        text(LEFT, 44, "key position →", 10, FAINT),
        text(12, TOP - 6, "query ↓", 10, FAINT),
        *(text(LEFT + CELL * (k + 0.5), TOP - 6, str(k), 10, FAINT, "middle") for k in range(columns)),
    ]
    for q, row in enumerate(allowed):
        shapes.append(text(LEFT - 7, TOP + CELL * (q + 0.5) + 3.5, str(q), 10, FAINT, "end"))
        shapes += [cell(q, k, bool(yes)) for k, yes in enumerate(row)]
    shapes += [text(12, TOP + CELL * rows + 20 + 16 * i, line, 11, FAINT) for i, line in enumerate(below)]
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    family = "DejaVu Sans, Verdana, Arial, sans-serif"
    return framed(f'<svg {size} font-family="{family}">{"".join(shapes)}</svg>')


def cell(q: int, k: int, yes: bool) -> str:
    """One query and one key."""
    x, y, side = LEFT + CELL * k + 1, TOP + CELL * q + 1, CELL - 2
    fill = ALLOWED if yes else "none"
    hint = f"query {q} may {'' if yes else 'not '}attend to key {k}"
    place = f'x="{x}" y="{y}" width="{side}" height="{side}" rx="2"'
    return f'<rect {place} style="fill:{fill};stroke:{EDGE}"><title>{hint}</title></rect>'


def text(
    x: float, y: float, words: str, size: int, fill: str, anchor: str = "start", bold: bool = False
) -> str:
    """A label; what cannot be printed is replaced."""
    shown = escape("".join(c if c.isprintable() else "�" for c in words))
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}'
    return f'<text {place} style="fill:{fill}">{shown}</text>'
