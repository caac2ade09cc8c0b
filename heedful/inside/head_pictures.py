"""A grid of heads colored by importance: one row a layer, one column a head, readable in light and dark."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from ..parts.notebooks import both
from .ablation import HeadName
from .look.svg import FAMILY, clean

CELL, GAP, LEFT, TOP = 46, 3, 86, 66
WIDEST = 96  # characters of a line under the picture
COLORS = {
    "paper": ("#ffffff", "#16181d"),
    "ink": ("#1a1a1a", "#ececec"),
    "faint": ("#595959", "#a8acb3"),
    "more": ("#b2182b", "#ff6b6b"),
    "less": ("#2166ac", "#62a8ff"),
    "edge": ("#bbbbbb", "#555555"),
}
STYLE = (
    f"""
.hh{{color-scheme:light dark;{";".join(f"--{name}:{light}" for name, (light, _) in COLORS.items())}}}
@supports (color:light-dark(#000,#fff)){{
.hh{{{";".join(f"--{name}:{both(*pair)}" for name, pair in COLORS.items())}}}}}
"""
    + """
.hh .paper{fill:var(--paper)}.hh text{fill:var(--ink)}.hh .faint{fill:var(--faint)}
.hh .more{fill:var(--more)}.hh .less{fill:var(--less)}.hh .edge{fill:none;stroke:var(--edge)}
"""
)
KINDS = {"cross": "cross", "self": "self", "encoder": "encoder"}


@dataclass(frozen=True)
class HeadCell:
    """A head with its importance."""

    name: HeadName
    importance: float
    interval: str
    labels: list[str]


def head_grid(cells: Sequence[HeadCell], title: str, sentence: str) -> str:
    """The text of an SVG file. Colors grow with the square root of the importance."""
    rows = list(dict.fromkeys((cell.name.kind, cell.name.layer) for cell in cells))
    most = max((abs(cell.importance) for cell in cells if math.isfinite(cell.importance)), default=0) or 1.0
    columns = max(cell.name.head for cell in cells)
    drawn = [column_name(head) for head in range(1, columns + 1)]
    y = TOP
    for i, (kind, layer) in enumerate(rows):
        if i and rows[i - 1][0] != kind:
            y += 14
        middle = y + CELL / 2 + 4
        drawn.append(
            f'<text x="{LEFT - 8}" y="{middle:g}" text-anchor="end" font-size="12">{kind}.{layer}</text>'
        )
        for cell in cells:
            if (cell.name.kind, cell.name.layer) == (kind, layer):
                drawn.append(cell_svg(cell, LEFT + (cell.name.head - 1) * (CELL + GAP), y, most))
        y += CELL + GAP
    notes = ["color: red raises the loss when removed, blue lowers it; it grows with the square root"]
    notes += textwrap.wrap(sentence, WIDEST)
    for i, line in enumerate(notes):
        drawn.append(f'<text class="faint" x="16" y="{y + 24 + 16 * i}" font-size="11">{clean(line)}</text>')
    width = max(LEFT + columns * (CELL + GAP) + 16, 16 + 6.4 * max(map(len, notes)))
    height = y + 24 + 16 * len(notes)
    wide, high = math.ceil(width), math.ceil(height)
    start, named = '<svg xmlns="http://www.w3.org/2000/svg"', clean(title).replace('"', "&quot;")
    size = f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    return "\n".join(
        [
            f'{start} class="hh" role="img" aria-label="{named}" {size} font-family="{FAMILY}">',
            f"<style>{STYLE}</style>",
            '<rect class="paper" width="100%" height="100%"/>',
            f'<text x="16" y="28" font-size="13" font-weight="bold">{clean(title)}</text>',
            *drawn,
            "</svg>\n",
        ]
    )


def column_name(head: int) -> str:
    x = LEFT + (head - 1) * (CELL + GAP) + CELL / 2
    return f'<text class="faint" x="{x:g}" y="{TOP - 8}" text-anchor="middle" font-size="11">{head}</text>'


def cell_svg(cell: HeadCell, x: float, y: float, most: float) -> str:
    """A head: its color, its number, and all about it on hover."""
    known = math.isfinite(cell.importance)
    share = math.sqrt(abs(cell.importance) / most) if known else 0.0
    side = "more" if cell.importance > 0 else "less"
    place = f'x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" rx="3"'
    labels = f"; {', '.join(cell.labels)}" if cell.labels else ""
    hint = clean(f"{cell.name}: {cell.importance:+.4f} (95 %: {cell.interval}){labels}")
    middle = f'x="{x + CELL / 2:g}" y="{y + CELL / 2 + 4:g}" text-anchor="middle" font-size="10"'
    return (
        f'<g><title>{hint}</title><rect class="{side}" {place} fill-opacity="{0.6 * share:.3f}"/>'
        f'<rect class="edge" {place}/><text {middle}>{short(cell.importance)}</text></g>'
    )


def short(number: float) -> str:
    """A number in five characters or so."""
    if not math.isfinite(number):
        return "?"
    return (
        f"{number:+.2f}" if abs(number) >= 0.005 else f"{number:+.0e}".replace("e-0", "e-") if number else "0"
    )
