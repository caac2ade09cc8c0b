"""Shapes: the boxes, labels, cells and images that a drawing consists of, and their colors.

Colors get darker or lighter all the way, so that a gray print says the same.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

Table = Sequence[Sequence[float]]
Color = tuple[int, int, int]

CELL, FONT, SMALL = 28, 13, 10
MARGIN = 14
WIDEST = 1000  # pixels across, where cells can be made smaller
SLOPE = math.radians(60)  # of the words above columns
INK, FAINT, PAPER, FRAME = (34, 34, 34), (110, 110, 110), (255, 255, 255), (217, 95, 2)
LEVELS = 32  # colors of a grid

# From white to navy, and for numbers with a sign from navy to yellow: each gets steadily darker or lighter.
WEIGHTS: tuple[Color, ...] = ((255, 255, 255), (158, 202, 225), (49, 130, 189), (8, 48, 107))
SIGNED: tuple[Color, ...] = ((0, 32, 76), (87, 92, 109), (165, 156, 116), (255, 234, 70))

# Inks of lines and letters, in the order in which they are used. On light and on dark paper, each can be read
# as text, and any two can be told apart with deuteranopia, protanopia and tritanopia. Orange, teal and purple
# follow Okabe and Ito (2008), darkened until letters can be read.
INKS: tuple[Color, ...] = (
    (30, 70, 225),
    (170, 40, 0),
    (20, 131, 122),
    (130, 10, 147),
    (76, 76, 76),
    (119, 121, 7),
    (0, 54, 89),
    (91, 11, 20),
)


def color(share: float, ramp: Sequence[Color] = WEIGHTS) -> Color:
    """A color of the ramp, for a share from 0 to 1."""
    at = min(1.0, max(0.0, share)) * (len(ramp) - 1)
    i = min(int(at), len(ramp) - 2)
    r, g, b = (round(a + (at - i) * (b - a)) for a, b in zip(ramp[i], ramp[i + 1], strict=True))
    return r, g, b


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    fill: Color | None
    stroke: Color | None = None
    thick: float = 1.0
    title: str = ""  # shown where the mouse rests


@dataclass(frozen=True)
class TextLabel:
    x: float
    y: float  # of the line on which the letters stand
    text: str
    size: float = FONT
    anchor: str = "start"  # or middle, or end
    fill: Color = INK
    bold: bool = False
    rising: bool = False  # at a slope, from its start upwards
    on: Color | None = None  # the color of the cell that it stands on


@dataclass(frozen=True)
class CellGrid:
    """Many small cells without words: one path a color, so that a hundred heads are a small file."""

    x: float
    y: float
    cell_width: float
    cell_height: float
    shares: Table  # 0 to 1
    ramp: Sequence[Color] = WEIGHTS


@dataclass(frozen=True)
class Raster:
    """A picture of pixels, as the bytes of a PNG file."""

    x: float
    y: float
    width: float
    height: float
    png: bytes


@dataclass(frozen=True)
class Line:
    """A straight line from one point to another."""

    x: float
    y: float
    to_x: float
    to_y: float
    stroke: Color
    thick: float = 1.0


@dataclass(frozen=True)
class Polyline:
    """A line through many points."""

    points: Sequence[tuple[float, float]]
    stroke: Color
    thick: float = 1.5
    title: str = ""  # shown where the mouse rests


Shape = Box | TextLabel | CellGrid | Raster | Line | Polyline


def reach(shape: Shape) -> tuple[float, float]:
    """How far a shape goes to the right and down."""
    if isinstance(shape, CellGrid):
        columns = max((len(row) for row in shape.shares), default=0)
        return shape.x + columns * shape.cell_width, shape.y + len(shape.shares) * shape.cell_height
    if isinstance(shape, Polyline):
        return max((x for x, _ in shape.points), default=0), max((y for _, y in shape.points), default=0)
    if isinstance(shape, Line):
        return max(shape.x, shape.to_x), max(shape.y, shape.to_y)
    if isinstance(shape, Box | Raster):
        return shape.x + shape.width, shape.y + shape.height
    share = {"start": 1.0, "middle": 0.5, "end": 0.0}[shape.anchor]
    long = share * width_of(shape.text, shape.size) * (1.12 if shape.bold else 1)
    return shape.x + (long * math.cos(SLOPE) if shape.rising else long), shape.y + 0.25 * shape.size


def width_of(text: str, size: float) -> float:
    """About how wide a text is; Chinese characters are square."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.58 * (len(text) - wide) + 1.05 * wide)


def runs_of(grid: CellGrid) -> dict[int, list[tuple[int, int, int]]]:
    """{level of color: [(x, y, how many cells in a row have it)]}; what is white as paper is left out."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for y, row in enumerate(grid.shares):
        levels = [round(min(1.0, max(0.0, share)) * (LEVELS - 1)) for share in row]
        x = 0
        while x < len(levels):
            end = x + 1
            while end < len(levels) and levels[end] == levels[x]:
                end += 1
            if color(levels[x] / (LEVELS - 1), grid.ramp) != PAPER:
                found.setdefault(levels[x], []).append((x, y, end - x))
            x = end
    return found
