"""Shapes as SVG, with nothing but the standard library."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from .shapes import (
    LEVELS,
    PAPER,
    SLOPE,
    Box,
    CellGrid,
    Color,
    Line,
    Polyline,
    Raster,
    Shape,
    TextLabel,
    color,
    runs_of,
)
from .themes import in_both_themes

FAMILY = "DejaVu Sans, Verdana, Arial, sans-serif"


def svg_of(shapes: Sequence[Shape], width: float, height: float, title: str) -> str:
    """The text of an SVG file."""
    return svg_file([SVG[type(shape)](shape) for shape in shapes], width, height, title)


def svg_file(drawn: Sequence[str], width: float, height: float, title: str) -> str:
    """Elements as a file: on paper, with a title for screen readers, and with the colors of both themes.

    Browsers choose the theme by the `color-scheme` of the page that shows the file; other programs show
    the light one.
    """
    width, height = math.ceil(width), math.ceil(height)
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" style="color-scheme:light dark" {size}'
    lines = [
        f'{head} viewBox="0 0 {width} {height}" font-family="{FAMILY}">',
        f"<title>{clean(title)}</title>",
        f'<rect {size} fill="{of(PAPER)}"/>',
        *drawn,
        "</svg>\n",
    ]
    return in_both_themes("\n".join(lines))


def of(rgb: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def number(x: float) -> str:
    return f"{x:.1f}".removesuffix(".0")


def clean(text: str) -> str:
    """Text that XML can hold."""
    return escape("".join(c if c.isprintable() else "�" for c in text))


def svg_box(box: Box) -> str:
    place = " ".join(f'{n}="{number(getattr(box, n))}"' for n in ("x", "y", "width", "height"))
    line = f' stroke="{of(box.stroke)}" stroke-width="{number(box.thick)}"' if box.stroke else ""
    start = f'<rect {place} rx="2" fill="{of(box.fill) if box.fill else "none"}"{line}'
    return f"{start}><title>{clean(box.title)}</title></rect>" if box.title else f"{start}/>"


def svg_text(words: TextLabel) -> str:
    x, y = number(words.x), number(words.y)
    turn = f' transform="rotate(-{math.degrees(SLOPE):.0f} {x} {y})"' if words.rising else ""
    anchor = f' text-anchor="{words.anchor}"' if words.anchor != "start" else ""
    bold = ' font-weight="bold"' if words.bold else ""
    style = f'font-size="{number(words.size)}" fill="{of(words.fill)}"{anchor}{bold}{turn}'
    behind = f' data-on="{of(words.on)}"' if words.on else ""
    return f'<text x="{x}" y="{y}" {style}{behind}>{clean(words.text)}</text>'


def svg_grid(grid: CellGrid) -> str:
    paths = []
    for level, runs in sorted(runs_of(grid).items()):
        ways = "".join(f"M{x} {y}h{n}v1h-{n}z" for x, y, n in runs)
        paths.append(f'<path fill="{of(color(level / (LEVELS - 1), grid.ramp))}" d="{ways}"/>')
    move = f"translate({number(grid.x)} {number(grid.y)})"
    size = f"scale({grid.cell_width:g} {grid.cell_height:g})"
    return f'<g transform="{move} {size}" shape-rendering="crispEdges">{"".join(paths)}</g>'


def svg_raster(raster: Raster) -> str:
    place = " ".join(f'{n}="{number(getattr(raster, n))}"' for n in ("x", "y", "width", "height"))
    data = base64.b64encode(raster.png).decode("ascii")
    return f'<image {place} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'


def svg_line(line: Line) -> str:
    ends = (("x1", line.x), ("y1", line.y), ("x2", line.to_x), ("y2", line.to_y))
    place = " ".join(f'{name}="{number(value)}"' for name, value in ends)
    return f'<line {place} stroke="{of(line.stroke)}" stroke-width="{number(line.thick)}"/>'


def svg_polyline(line: Polyline) -> str:
    points = " ".join(f"{number(x)},{number(y)}" for x, y in line.points)
    start = f'<polyline points="{points}" fill="none" stroke="{of(line.stroke)}"'
    start += f' stroke-width="{number(line.thick)}" stroke-linejoin="round"'
    return f"{start}><title>{clean(line.title)}</title></polyline>" if line.title else f"{start}/>"


SVG: dict[type, Any] = {
    Line: svg_line,
    Polyline: svg_polyline,
    Box: svg_box,
    TextLabel: svg_text,
    CellGrid: svg_grid,
    Raster: svg_raster,
}
