"""Figures: every seed a dot, means and intervals beside it, axes with units; colors for light and dark pages.

A figure is a row of panels. Each series has its name beside it and a shade of its own, so that a gray print
says the same.
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..inside.look.charts import GRID, apart, round_numbers, short
from ..inside.look.drawing import Drawing, heading
from ..inside.look.shapes import (
    FAINT,
    FONT,
    FRAME,
    INKS,
    MARGIN,
    SIGNED,
    SMALL,
    WEIGHTS,
    Box,
    CellGrid,
    Color,
    Line,
    Polyline,
    Table,
    TextLabel,
    color,
    width_of,
)
from ..tasks.student import mean_interval

LEFT, BETWEEN = 62, 34  # pixels for the numbers of an axis, and from one panel to the next
DOT = 5
STEP = 24  # from one row of dots to the next


class FigureAxis(ABC):
    """From numbers to a share of a length, and where numbers are written."""

    ticks: list[float]

    @abstractmethod
    def share(self, value: float) -> float:
        """0 at the start of the axis, 1 at its end."""


class EvenScale(FigureAxis):
    """An axis of round numbers, evenly apart."""

    def __init__(self, numbers: Sequence[float], most: int) -> None:
        self.ticks = round_numbers(numbers, most)

    def share(self, value: float) -> float:
        return (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])


class PowerScale(FigureAxis):
    """A logarithmic axis with a tick at powers of 2 or 10. What is 0 stands at its start."""

    def __init__(self, numbers: Sequence[float], most: int) -> None:
        there = [value for value in numbers if value > 0] or [1.0]
        base = 2 if max(there) / min(there) < 5000 else 10
        low = math.floor(round(math.log(min(there), base), 6))
        high = max(low + 1, math.ceil(round(math.log(max(there), base), 6)))
        every = -(-(high - low) // most)
        self.low, self.high, self.base = low, low + -(-(high - low) // every) * every, base
        self.ticks = [float(base) ** power for power in range(self.low, self.high + 1, every)]

    def share(self, value: float) -> float:
        if value <= 0:
            return 0.0
        return min(1.0, max(0.0, (math.log(value, self.base) - self.low) / (self.high - self.low)))


def axis_of(numbers: Sequence[float], logarithmic: bool, most: int) -> FigureAxis:
    return PowerScale(numbers, most) if logarithmic else EvenScale(numbers, most)


def written(value: float) -> str:
    """A number of an axis."""
    return short(value) if value == 0 or 1e-3 <= abs(value) < 1e6 else f"{value:.0e}".replace("e-0", "e-")


class FigurePanel(ABC):
    """One field of a figure."""

    title: str

    @abstractmethod
    def draw(self, picture: Drawing, x: float, y: float) -> None:
        """Draw the panel with its upper left corner there."""


@dataclass(frozen=True)
class DotPanel(FigurePanel):
    """A row for each arm: every seed a dot, the mean a bar, the 95 % interval a line."""

    title: str
    across: str  # what is measured, with its unit
    arms: Mapping[str, Sequence[float]]
    logarithmic: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)  # upright lines with a name
    wide: float = 260
    dot: str = "seed"  # what a dot is

    def draw(self, picture: Drawing, x: float, y: float) -> None:
        left = x + max((width_of(arm, SMALL + 1) for arm in self.arms), default=0) + 10
        top, bottom = y + 26, y + 26 + STEP * len(self.arms)
        values = [value for some in self.arms.values() for value in some]
        axis = axis_of([*values, *self.marks.values()], self.logarithmic, 5)
        picture.add(TextLabel(x, y + 10, self.title, FONT - 1, bold=True))
        for tick in axis.ticks:
            at = left + axis.share(tick) * self.wide
            picture.add(Line(at, top, at, bottom, GRID))
            picture.add(TextLabel(at, bottom + 14, written(tick), SMALL, "middle", FAINT))
        for name, value in self.marks.items():
            at = left + axis.share(value) * self.wide
            picture.add(Line(at, top - 4, at, bottom, FRAME, 1.5))
            picture.add(TextLabel(at + 3, top - 1, name, SMALL - 1, fill=FRAME))
        picture.add(TextLabel(left + self.wide / 2, bottom + 30, self.across, SMALL, "middle", FAINT))
        for i, (arm, some) in enumerate(self.arms.items()):
            self.row(picture, axis, left, top + (i + 0.5) * STEP, arm, some, INKS[i % len(INKS)])

    def row(
        self,
        picture: Drawing,
        axis: FigureAxis,
        left: float,
        y: float,
        arm: str,
        some: Sequence[float],
        ink: Color,
    ) -> None:
        picture.add(TextLabel(left - 8, y + 4, arm, SMALL + 1, "end"))
        if len(some) > 1:
            low, high = (left + axis.share(end) * self.wide for end in mean_interval(some))
            picture.add(Line(max(left, low), y, min(left + self.wide, high), y, ink, 1.5))
        mean = statistics.fmean(some)
        at = left + axis.share(mean) * self.wide
        picture.add(Box(at - 1, y - 8, 2, 16, ink, title=f"{arm}: mean {mean:.4g}"))
        for seed, value in enumerate(some):
            at = left + axis.share(value) * self.wide
            hint = f"{arm}, {self.dot} {seed}: {value:.4g}"
            picture.add(Box(at - DOT / 2, y - DOT / 2, DOT, DOT, ink, title=hint))


@dataclass(frozen=True)
class LinePanel(FigurePanel):
    """A line through the means of each arm over x, every seed a dot, the 95 % interval an upright line."""

    title: str
    across: str
    arms: Mapping[str, Mapping[float, Sequence[float]]]  # {arm: {x: values}}
    logarithmic: tuple[bool, bool] = (True, True)  # across, upwards
    marks: Mapping[str, float] = field(default_factory=dict)  # upright lines with a name
    size: tuple[float, float] = (300, 190)
    slopes: Mapping[str, float] = field(default_factory=dict)  # {name: power} from the lowest start, both log

    def draw(self, picture: Drawing, x: float, y: float) -> None:
        (wide, high), x0, y0 = self.size, x + LEFT, y + 26
        xs = [at for series in self.arms.values() for at in series]
        ys = [value for series in self.arms.values() for some in series.values() for value in some]
        picture.add(TextLabel(x, y + 10, self.title, FONT - 1, bold=True))
        if not ys:
            picture.add(TextLabel(x0, y0 + 16, "nothing was measured", SMALL, fill=FAINT))
            return
        columns = axis_of([*xs, *self.marks.values()], self.logarithmic[0], 6)
        rows = axis_of(ys, self.logarithmic[1], 6)

        def place(a: float, b: float) -> tuple[float, float]:
            up = min(1.0, max(0.0, rows.share(b)))  # an interval may reach beyond the axis
            return x0 + columns.share(a) * wide, y0 + (1 - up) * high

        for tick in rows.ticks:
            at = y0 + (1 - rows.share(tick)) * high
            picture.add(Line(x0, at, x0 + wide, at, GRID))
            picture.add(TextLabel(x0 - 6, at + 3.5, written(tick), SMALL, "end", FAINT))
        for tick in columns.ticks:
            at = x0 + columns.share(tick) * wide
            picture.add(TextLabel(at, y0 + high + 14, written(tick), SMALL, "middle", FAINT))
        for name, value in self.marks.items():
            at = x0 + columns.share(value) * wide
            picture.add(Line(at, y0, at, y0 + high, FRAME, 1.5))
            picture.add(TextLabel(at + 3, y0 - 4, name, SMALL - 1, fill=FRAME))
        picture.add(TextLabel(x0 + wide / 2, y0 + high + 30, self.across, SMALL, "middle", FAINT))
        self.powers(picture, place, xs, rows.ticks[-1])
        self.lines(picture, place, x0 + wide)

    def powers(
        self,
        picture: Drawing,
        place: Callable[[float, float], tuple[float, float]],
        xs: Sequence[float],
        top: float,
    ) -> None:
        """A thin line for each slope, from where the lowest series begins to the end of the field."""
        first, last = min(xs), max(xs)
        starts = [min(series[first]) for series in self.arms.values() if first in series]
        for name, power in self.slopes.items():
            end = min(last, first * (top / min(starts)) ** (1 / power))
            (a, b), (c, d) = place(first, min(starts)), place(end, min(starts) * (end / first) ** power)
            picture.add(Line(a, b, c, d, FAINT, 0.8))
            picture.add(TextLabel(c - 4, d + 11, name, SMALL, "end", FAINT))

    def lines(
        self, picture: Drawing, place: Callable[[float, float], tuple[float, float]], right: float
    ) -> None:
        means = {
            arm: [(at, statistics.fmean(some)) for at, some in series.items()]
            for arm, series in self.arms.items()
        }
        names = apart([place(*points[-1])[1] for points in means.values()], SMALL + 3)
        for i, (arm, points) in enumerate(means.items()):
            ink = INKS[i % len(INKS)]
            picture.add(Polyline([place(*point) for point in points], ink, 1.8, arm))
            for at, some in self.arms[arm].items():
                if len(some) > 1:
                    (a, low), (_, high) = (place(at, end) for end in mean_interval(some))
                    picture.add(Line(a, low, a, high, ink))
                for seed, value in enumerate(some):
                    a, b = place(at, value)
                    hint = f"{arm}, seed {seed}, at {at:g}: {value:.4g}"
                    picture.add(Box(a - 2, b - 2, 4, 4, ink, title=hint))
            picture.add(TextLabel(right + 8, names[i] + 3.5, arm, SMALL, fill=ink))


@dataclass(frozen=True)
class MapPanel(FigurePanel):
    """A table of numbers: from 0 on, or from the most negative to the most positive if some are below 0."""

    title: str
    across: str
    numbers: Table
    most: float = 1.0
    cell: float = 6

    def draw(self, picture: Drawing, x: float, y: float) -> None:
        signed = any(value < 0 for row in self.numbers for value in row)
        least, ramp = (-self.most, SIGNED) if signed else (0.0, WEIGHTS)
        shares = [[(value - least) / (self.most - least) for value in row] for row in self.numbers]
        wide, high = self.cell * len(shares[0]), self.cell * len(shares)
        picture.add(TextLabel(x, y + 10, self.title, FONT - 1, bold=True))
        picture.add(CellGrid(x, y + 26, self.cell, self.cell, shares, ramp))
        picture.add(Box(x, y + 26, wide, high, None, GRID))
        below = y + 26 + high
        picture.add(TextLabel(x, below + 14, self.across, SMALL, fill=FAINT))
        picture.add(TextLabel(x, below + 32, f"{least:g}", SMALL, fill=FAINT))
        for i in range(8):
            picture.add(Box(x + 22 + 10 * i, below + 23, 10, 10, color((i + 0.5) / 8, ramp), GRID, 0.5))
        picture.add(TextLabel(x + 108, below + 32, f"{self.most:g}", SMALL, fill=FAINT))


def figure(title: str, panels: Sequence[FigurePanel], below: Sequence[str] = ()) -> Drawing:
    """Panels side by side under one title, and sentences under them."""
    picture = Drawing()
    y, x = heading(picture, title) + 8, float(MARGIN)
    for panel in panels:
        alone = Drawing()
        panel.draw(alone, x, y)
        picture.add(*alone.shapes)
        x = alone.width + BETWEEN - MARGIN
    bottom = picture.height + 6
    for i, line in enumerate(below):
        picture.add(TextLabel(MARGIN, bottom + 15 * i, line, SMALL + 1, fill=FAINT))
    return picture
