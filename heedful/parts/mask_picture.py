"""The picture of a mask: queries downwards, keys across, filled where one may attend."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .notebooks import NAMESPACE, both

CELL, LEFT, TOP, WIDEST = 22, 64, 66, 72  # pixels; characters of the title
PAPER, INK, FAINT = ("#ffffff", "#16181d"), ("#222222", "#e8eaee"), ("#6e6e6e", "#a8adb5")
ALLOWED, EDGE, EMPTY = ("#3182bd", "#5aaae6"), ("#cccccc", "#4b4f57"), ("none", "none")


def painted(**colors: tuple[str, str]) -> str:
    """The fill and the stroke on light and on dark pages; programs without both show the light one."""
    plain = " ".join(f'{name}="{light}"' for name, (light, _) in colors.items())
    styles = [f"{name}:{both(*pair)}" for name, pair in colors.items() if pair != EMPTY]
    return f'{plain} style="{";".join(styles)}"'


def mask_svg(allowed: Sequence[Sequence[bool]], title: str, note: str = "", words: Sequence[str] = ()) -> str:
    """A table of who may attend to whom, with the positions of queries and keys, or with their words."""
    rows, columns = len(allowed), len(allowed[0]) if allowed else 0
    names = words or [str(place) for place in range(max(rows, columns))]
    name = title if len(title) <= WIDEST else f"{title[: WIDEST - 1]}…"
    below = ["filled: the query may attend to the key", *([note] if note else [])]
    longest = max(map(len, words), default=0)
    left, top = max(LEFT, 20 + 7 * longest), TOP + 6 * longest  # words stand upright above their columns
    width = max(left + CELL * columns + 16, 16 + 7.9 * len(name), 16 + 6 * max(map(len, below)))
    height = top + CELL * rows + 12 + 16 * len(below)
    shapes = [
        f'<rect width="{width:.0f}" height="{height}" {painted(fill=PAPER)}/>',
        text(12, 22, name, 13, INK, "start", bold=True),
        text(left, 44, f"key{'' if words else ' position'} →", 10, FAINT),
        text(12, top - 6, "query ↓", 10, FAINT),
    ]
    for k in range(columns):
        x, y = left + CELL * (k + 0.5), top - 6
        if words:
            upright = text(0, 3.5, names[k], 10, FAINT)
            shapes.append(f'<g transform="translate({x:g} {y}) rotate(-90)">{upright}</g>')
        else:
            shapes.append(text(x, y, names[k], 10, FAINT, "middle"))
    for q, row in enumerate(allowed):
        shapes.append(text(left - 7, top + CELL * (q + 0.5) + 3.5, names[q], 10, FAINT, "end"))
        shapes += [
            cell(left + CELL * k, top + CELL * q, names[q], names[k], yes) for k, yes in enumerate(row)
        ]
    shapes += [text(12, top + CELL * rows + 20 + 16 * i, line, 11, FAINT) for i, line in enumerate(below)]
    size = f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
    look = 'role="img" font-family="DejaVu Sans, Verdana, Arial, sans-serif" style="color-scheme:light dark"'
    return f"<svg{NAMESPACE} {size} {look}><title>{clean(title)}</title>{''.join(shapes)}</svg>"


def cell(x: float, y: float, query: str, key: str, yes: bool) -> str:
    """One query and one key."""
    colors = painted(fill=ALLOWED if yes else EMPTY, stroke=EDGE)
    hint = clean(f"query {query} may {'' if yes else 'not '}attend to key {key}")
    place = f'x="{x + 1:g}" y="{y + 1:g}" width="{CELL - 2}" height="{CELL - 2}" rx="2"'
    return f"<rect {place} {colors}><title>{hint}</title></rect>"


def text(
    x: float,
    y: float,
    words: str,
    size: int,
    fill: tuple[str, str],
    anchor: str = "start",
    bold: bool = False,
) -> str:
    """A label."""
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}'
    return f"<text {place} {painted(fill=fill)}>{clean(words)}</text>"


def clean(words: str) -> str:
    """Text that XML can hold: what cannot be printed is replaced."""
    return escape("".join(c if c.isprintable() else "�" for c in words))
