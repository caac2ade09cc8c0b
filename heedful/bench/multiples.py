"""Attention against length as small multiples: a field for each kind, with reference slopes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..inside.look.charts import GRID
from ..inside.look.shapes import FAINT, FONT, INKS, MARGIN, SMALL, width_of
from ..inside.look.svg import number, of, svg_file
from .plot import Axis, apart, line, mark, text

WIDE, HIGH = 150, 112  # pixels of a field
LEFT, ROOM = 54, 116  # for the numbers of an axis, and for the names at the ends of lines
ACROSS = 3  # fields in a row
SLOPES = {"n": 1.0, "n²": 2.0}
# {title of a field: its kinds, and their names there}
FIELDS: dict[str, dict[str, str]] = {
    "full": {"full": "kernel", "full, open": "formula"},
    "compressed 3 to 1": {"compressed": "kernel", "compressed, open": "formula"},
    "blocks and windows of 256": {"blocks of 256": "blocks", "window of 256": "window"},
    "strided": {
        "strided, two layers": "two layers",
        "strided, gathered": "gathered",
        "strided, merged": "merged",
    },
    "fixed": {"fixed, two layers": "two layers", "fixed, gathered": "gathered", "fixed, merged": "merged"},
    "running sums": {"linear": "linear"},
}
LengthPoint = tuple[int, float, float]  # tokens, seconds, bytes
FROM = 2048  # tokens: below, what a call costs whatever its length hides how it grows


def power(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The slope of log value over log length, by least squares, from 2,048 tokens on if there are two such
    lengths."""
    long = [i for i, n in enumerate(lengths) if n >= FROM]
    kept = long if len(long) > 1 else range(len(lengths))
    x, y = ([math.log(some[i]) for i in kept] for some in (lengths, values))
    mx, my = statistics.mean(x), statistics.mean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum((a - mx) ** 2 for a in x)


@dataclass(frozen=True)
class Quantity:
    """What is on the upright axis of a block of fields: its place in a point, and how numbers are written."""

    title: str
    place: int
    words: Callable[[float], str]
    base: int


TIME = Quantity("Time of a forward and backward pass, in seconds", 1, lambda v: f"{v:g}", 10)
MEMORY = Quantity("Memory, in MiB", 2, lambda v: f"{v / 2**20:,.0f}", 4)


def picture(found: Mapping[str, Sequence[LengthPoint]], where: str, notes: Sequence[str] = ()) -> str:
    """An SVG of all kinds that have points."""
    fields = [(name, {k: v for k, v in kinds.items() if found.get(k)}) for name, kinds in FIELDS.items()]
    there = [(name, kinds) for name, kinds in fields if kinds]
    title = finding(found)
    shapes = [text(MARGIN, MARGIN + FONT + 2, title, FONT + 2, bold=True)]
    shapes.append(text(MARGIN, MARGIN + 2 * FONT + 8, f"attention alone, {where}", SMALL + 1, fill=FAINT))
    y = 3.0 * MARGIN + 2 * FONT
    for quantity in (TIME, MEMORY):
        drawn, y = block(found, there, quantity, y)
        shapes += drawn
    below = ["dashed: growth with n and with n²; after each name, the power of n that was measured", *notes]
    shapes += [text(MARGIN, y + 16 * i, said, SMALL + 1, fill=FAINT) for i, said in enumerate(below)]
    columns = min(ACROSS, len(there))
    widths = [columns * (WIDE + ROOM) + LEFT + MARGIN, MARGIN * 2 + 1.12 * width_of(title, FONT + 2)]
    widths += [2 * MARGIN + width_of(said, SMALL + 1) for said in below]
    return svg_file(shapes, max(widths), y + 16 * len(below), title)


def finding(found: Mapping[str, Sequence[LengthPoint]]) -> str:
    """How the time of the first and of the slowest growing kind grows."""
    long = {name: some for name, some in found.items() if len(some) > 1}
    powers = {name: power([p[0] for p in some], [p[1] for p in some]) for name, some in long.items()}
    if not powers:
        return "Time and memory of attention against the length"
    least = min(powers, key=lambda name: powers[name])
    first = next(iter(powers))
    said = f"The time of {first} attention grows as n^{powers[first]:.1f}"
    return said if first == least else f"{said}, that of {least} as n^{powers[least]:.1f}"


def block(
    found: Mapping[str, Sequence[LengthPoint]],
    fields: Sequence[tuple[str, Mapping[str, str]]],
    quantity: Quantity,
    top: float,
) -> tuple[list[str], float]:
    """The fields of one quantity, with shared axes, and where they end."""
    points = [point for _, kinds in fields for kind in kinds for point in found[kind]]
    shapes = [text(MARGIN, top + FONT, quantity.title, FONT, bold=True)]
    top += 2 * FONT
    rows = -(-len(fields) // ACROSS)
    for i, (name, kinds) in enumerate(fields):
        row, column = divmod(i, ACROSS)
        x0, y0 = LEFT + column * (WIDE + ROOM), top + row * (HIGH + 44) + 18
        x = Axis([p[0] for p in points], 2, x0, x0 + WIDE, 4)
        y = Axis([p[quantity.place] for p in points], quantity.base, y0 + HIGH, y0, 6)
        shapes += axes(x, y, quantity, name, last=i + ACROSS >= len(fields), first=column == 0)
        some = {own: [(p[0], p[quantity.place]) for p in found[kind]] for kind, own in kinds.items()}
        shapes += [*references(next(iter(some.values())), x, y), *lines(some, x, y)]
    return shapes, top + rows * (HIGH + 44) + 34


def axes(x: Axis, y: Axis, quantity: Quantity, name: str, last: bool, first: bool) -> list[str]:
    """The grid of a field; numbers stand at the left of each row and below each column."""
    shapes = [text(x.start, y.end - 6, name, SMALL + 1, bold=True)]
    for value in x.ticks():
        at = x.place(value)
        shapes.append(line(at, y.end, at, y.start, GRID))
        shapes += [text(at, y.start + 14, f"{value:,.0f}", SMALL, "middle", FAINT)] if last else []
    for value in y.ticks():
        at = y.place(value)
        shapes.append(line(x.start, at, x.end, at, GRID))
        shapes += [text(x.start - 6, at + 3.5, quantity.words(value), SMALL, "end", FAINT)] if first else []
    if last:
        shapes.append(text((x.start + x.end) / 2, y.start + 28, "tokens", SMALL, "middle", FAINT))
    return shapes


def references(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> list[str]:
    """Dashed lines of known growth, from where the first line of a field begins."""
    shapes, (n0, v0) = [], points[0]
    for name, slope in SLOPES.items():
        most = float(y.base) ** y.high
        n1 = min(float(x.base) ** x.high, n0 * (most / v0) ** (1 / slope))  # up to the edge of the field
        ends = [(x.place(n), y.place(v0 * (n / n0) ** slope)) for n in (n0, n1)]
        (x0, y0), (x1, y1) = ends
        place = f'x1="{number(x0)}" y1="{number(y0)}" x2="{number(x1)}" y2="{number(y1)}"'
        shapes.append(f'<line {place} stroke="{of(FAINT)}" stroke-width="1" stroke-dasharray="3 3"/>')
        at = x0 + 0.8 * (x1 - x0), y0 + 0.8 * (y1 - y0) + 3
        shapes.append(text(*at, name, SMALL, "middle", FAINT, halo=True))
    return shapes


def lines(some: Mapping[str, Sequence[tuple[float, float]]], x: Axis, y: Axis) -> list[str]:
    """Each kind as a line with its marks, and with its name and its power at the end."""
    shapes = []
    names = apart([y.place(points[-1][1]) for points in some.values()], SMALL + 3)
    for i, (name, points) in enumerate(some.items()):
        ink = INKS[i % len(INKS)]
        places = [(x.place(a), y.place(b)) for a, b in points]
        path = " ".join(f"{number(a)},{number(b)}" for a, b in places)
        shapes.append(f'<polyline points="{path}" fill="none" stroke="{of(ink)}" stroke-width="1.8"/>')
        for (a, b), (n, v) in zip(places, points, strict=True):
            shapes.append(mark(i, a, b, ink, f"{name}: {n:,} tokens, {v:,.4g}"))
        lengths, values = [round(n) for n, _ in points], [v for _, v in points]
        grows = f" n^{power(lengths, values):.2f}" if len(points) > 1 else ""
        shapes.append(text(places[-1][0] + 7, names[i] + 3.5, name + grows, SMALL, fill=ink, halo=True))
    return shapes
