"""Plots: lines over two logarithmic axes, as SVG, in the style of inside/look/charts.py.

Each series has a color and a mark of its own and its name at its end, so that a gray print says the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..inside.look.charts import GRID
from ..inside.look.shapes import FAINT, FONT, INK, INKS, MARGIN, PAPER, SMALL, width_of
from ..inside.look.svg import clean, number, of, svg_file

WIDTH, HEIGHT = 380, 260  # of a panel's field
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]  # both numbers above 0


@dataclass(frozen=True)
class PlotPanel:
    """One field with its axes."""

    title: str
    across: str  # what x is
    series: Sequence[Series]
    words: Callable[[float], str]  # a number on the upright axis
    x_words: Callable[[float], str] = "{:,.0f}".format
    x_base: int = 2  # axes have a tick at every power of these
    y_base: int = 10


class Axis:
    """A logarithmic axis: numbers to pixels, and where its ticks are."""

    def __init__(self, numbers: Sequence[float], base: int, start: float, end: float, most: int) -> None:
        low, high = min(numbers), max(numbers)
        self.base, self.start, self.end = base, start, end
        self.low = math.floor(round(math.log(low, base), 6))
        self.high = max(self.low + 1, math.ceil(round(math.log(high, base), 6)))
        self.every = -(-(self.high - self.low) // most)  # powers from one tick to the next

    def place(self, value: float) -> float:
        share = (math.log(value, self.base) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [float(self.base) ** power for power in range(self.low, self.high + 1, self.every)]


def plot(title: str, panels: Sequence[PlotPanel], below: Sequence[str] = ()) -> str:
    """Panels side by side under one title."""
    shapes, right = [text(MARGIN, MARGIN + FONT + 2, title, FONT + 2, bold=True)], float(MARGIN)
    top = 3 * MARGIN + FONT
    for panel in panels:
        drawn, right = draw(panel, right, top)
        shapes += drawn
    bottom = top + HEIGHT + 76
    shapes += [text(MARGIN, bottom + 16 * i, line, SMALL + 1, fill=FAINT) for i, line in enumerate(below)]
    width = max(right, 2 * MARGIN + 1.12 * width_of(title, FONT + 2))
    return svg_file(shapes, width, bottom + 16 * len(below), title)


def draw(panel: PlotPanel, left: float, top: float) -> tuple[list[str], float]:
    """The shapes of a panel, and where it ends."""
    points = [point for series in panel.series for point in series.points]
    if not points:
        return [text(left, top + FONT, f"{panel.title}: nothing was measured", FONT)], left + WIDTH
    x0, y0 = left + 62, top + 24
    x = Axis([p[0] for p in points], panel.x_base, x0, x0 + WIDTH, 9)
    y = Axis([p[1] for p in points], panel.y_base, y0 + HEIGHT, y0, 6)
    shapes = [text(x0, top + 10, panel.title, FONT, bold=True)]
    for value in x.ticks():
        shapes.append(line(x.place(value), y0, x.place(value), y0 + HEIGHT, GRID))
        shapes.append(text(x.place(value), y0 + HEIGHT + 16, panel.x_words(value), SMALL, "middle", FAINT))
    for value in y.ticks():
        shapes.append(line(x0, y.place(value), x0 + WIDTH, y.place(value), GRID))
        shapes.append(text(x0 - 6, y.place(value) + 3.5, panel.words(value), SMALL, "end", FAINT))
    shapes.append(text(x0 + WIDTH / 2, y0 + HEIGHT + 36, panel.across, SMALL + 1, "middle", FAINT))
    ends = apart([y.place(s.points[-1][1]) for s in panel.series if s.points], SMALL + 4)
    for i, series in enumerate(s for s in panel.series if s.points):
        shapes += drawn_series(series, i, x, y, ends[i])
    room = max(width_of(series.name, SMALL) for series in panel.series)
    return shapes, x0 + WIDTH + room + 24


def drawn_series(series: Series, i: int, x: Axis, y: Axis, name_at: float) -> list[str]:
    """A line, its marks, and its name at the end."""
    color = INKS[i % len(INKS)]
    places = [(x.place(a), y.place(b)) for a, b in series.points]
    path = " ".join(f"{number(a)},{number(b)}" for a, b in places)
    shapes = [f'<polyline points="{path}" fill="none" stroke="{of(color)}" stroke-width="1.8"/>']
    shapes += [
        mark(i, a, b, color, f"{series.name}: {n:,.0f}, {v:,.4g}")
        for (a, b), (n, v) in zip(places, series.points, strict=True)
    ]
    return [*shapes, text(places[-1][0] + 8, name_at + 3.5, series.name, SMALL, fill=color, halo=True)]


def apart(places: Sequence[float], least: float) -> list[float]:
    """Places moved so far that words at them do not overlap, in the same order."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    return moved


def mark(i: int, x: float, y: float, color: tuple[int, int, int], title: str) -> str:
    """A circle, a square, a triangle or a diamond; hovering tells the numbers."""
    tooltip, a, b = f"<title>{clean(title)}</title>", number(x), number(y)
    fill = f'fill="{of(color)}"'
    if i % 4 == 0:
        return f'<circle cx="{a}" cy="{b}" r="3.2" {fill}>{tooltip}</circle>'
    corners = {
        1: ((-3, -3), (3, -3), (3, 3), (-3, 3)),
        2: ((0, -4), (4, 3), (-4, 3)),
        3: ((0, -4.2), (4.2, 0), (0, 4.2), (-4.2, 0)),
    }[i % 4]
    points = " ".join(f"{number(x + dx)},{number(y + dy)}" for dx, dy in corners)
    return f'<polygon points="{points}" {fill}>{tooltip}</polygon>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: tuple[int, int, int]) -> str:
    places = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return f'<line {places} stroke="{of(stroke)}"/>'


def text(
    x: float,
    y: float,
    words: str,
    size: float,
    anchor: str = "start",
    fill: tuple[int, int, int] = INK,
    bold: bool = False,
    halo: bool = False,  # readable on top of a line
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    if halo:
        weight += f' paint-order="stroke" stroke="{of(PAPER)}" stroke-width="3"'
    place = f'x="{number(x)}" y="{number(y)}" font-size="{number(size)}" text-anchor="{anchor}"'
    return f'<text {place} fill="{of(fill)}"{weight}>{clean(words)}</text>'
