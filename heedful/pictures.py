"""Pictures: a table of weights as an SVG file, with nothing but the standard library."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

CELL, FONT = 28, 13


def heat_map(
    weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], title: str = ""
) -> str:
    """Rows downwards, columns across, the darker the larger (0 to 1); hovering tells the number."""
    left = 16 + round(0.62 * FONT * max((len(word) for word in rows), default=0))
    top = 40 + round(0.62 * FONT * max((len(word) for word in columns), default=0))
    width, height = left + CELL * len(columns) + 60, top + CELL * len(rows) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="{FONT}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for i, word in enumerate(columns):
        x, y = left + CELL * i + CELL // 2, top - 6
        parts.append(f'<text x="{x}" y="{y}" transform="rotate(-60 {x} {y})">{escape(word)}</text>')
    for j, (word, line) in enumerate(zip(rows, weights, strict=True)):
        y = top + CELL * j
        parts.append(f'<text x="{left - 6}" y="{y + CELL // 2 + 5}" text-anchor="end">{escape(word)}</text>')
        for i, weight in enumerate(line):
            shade = round(255 * (1 - min(1.0, max(0.0, weight))))
            label = f"{escape(word)} looks at {escape(columns[i])}: {weight:.3f}"
            parts.append(
                f'<rect x="{left + CELL * i}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" rx="3" '
                f'fill="rgb({shade},{min(255, shade + 40)},255)" stroke="#ccc"><title>{label}</title></rect>'
            )
    return "\n".join([*parts, "</svg>\n"])
