"""Charts: lines over round axes, each with its name at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .drawing import Drawing
from .shapes import FAINT, FONT, INK, INKS, SMALL, Color, Line, Polyline, TextLabel

GRID = (222, 222, 222)
LEFT, BOTTOM = 58, 34  # pixels for numbers beside and below a field


@dataclass(frozen=True)
class CurveLine:
    """A line of a chart: its points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]
    ink: Color = INKS[0]
    thick: float = 1.8


def chart(
    picture: Drawing,
    lines: Sequence[CurveLine],
    place: tuple[float, float],
    size: tuple[float, float],
    title: str,
    across: str,
    last: float = 0.0,
) -> None:
    """Draw a field with its axes at a place, from 0 to `last` at least. Lines without points are left out."""
    x0, y0 = place[0] + LEFT, place[1] + 22
    wide, high = size
    picture.add(TextLabel(place[0], place[1] + 10, title, FONT - 1, fill=INK, bold=True))
    there = [line for line in lines if line.points]
    if not there:
        picture.add(TextLabel(x0, y0 + 16, "no numbers yet", SMALL, fill=FAINT))
        return
    rows = round_numbers([y for line in there for _, y in line.points], 5)
    columns = round_numbers([0.0, last, *(x for line in there for x, _ in line.points)], 6)

    def at(x: float, y: float) -> tuple[float, float]:
        share = (x - columns[0]) / (columns[-1] - columns[0]), (y - rows[0]) / (rows[-1] - rows[0])
        return x0 + share[0] * wide, y0 + (1 - share[1]) * high

    for y in rows:
        height = at(columns[0], y)[1]
        picture.add(Line(x0, height, x0 + wide, height, GRID))
        picture.add(TextLabel(x0 - 6, height + 3.5, short(y), SMALL, "end", FAINT))
    for x in columns:
        picture.add(TextLabel(at(x, rows[0])[0], y0 + high + 15, short(x), SMALL, "middle", FAINT))
    picture.add(TextLabel(x0 + wide / 2, y0 + high + 30, across, SMALL, "middle", FAINT))
    ends = apart([at(*line.points[-1])[1] for line in there], SMALL + 4)
    for line, end in zip(there, ends, strict=True):
        points = [at(x, y) for x, y in line.points]
        if len(points) == 1:  # a short dash, so that it is seen
            points = [(points[0][0] - 3, points[0][1]), (points[0][0] + 3, points[0][1])]
        hint = f"{line.name}: {short(line.points[-1][1])} at {short(line.points[-1][0])}"
        picture.add(Polyline(points, line.ink, line.thick, hint))
        picture.add(TextLabel(x0 + wide + 8, end + 3.5, line.name, SMALL, fill=line.ink))


def round_numbers(numbers: Sequence[float], most: int) -> list[float]:
    """Round numbers, evenly apart, around all of these."""
    low, high = min(numbers), max(numbers)
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * f for f in (1, 2, 5, 10, 20) if span / (power * f) <= most)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def apart(places: Sequence[float], least: float) -> list[float]:
    """Places moved up so far that words at them do not overlap, in the same order."""
    moved, free = list(places), math.inf
    for i in sorted(range(len(places)), key=lambda i: -places[i]):
        moved[i] = min(moved[i], free)
        free = moved[i] - least
    return moved


def short(number: float) -> str:
    """A number as people read it on an axis."""
    return f"{number:,.0f}" if abs(number) >= 1000 or number == int(number) else f"{number:.3g}"
