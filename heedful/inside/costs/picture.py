"""The picture of costs: parameters and FLOPs of every part, and memory by use, as bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..look.drawing import Drawing, heading
from ..look.shapes import FAINT, FRAME, INK, MARGIN, SMALL, Box, TextLabel, width_of
from .part import Part

if TYPE_CHECKING:
    from .estimate import Costs

DEPTH, ROWS = 3, 48  # levels of parts that are shown, and rows at most
HIGH, INDENT, BAR, NUMBER = 19, 14, 130, 62  # pixels
BLUE = (49, 130, 189)
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def costs_picture(found: Costs) -> Drawing:
    """Parts downwards; bars of parameters and FLOPs, whose part between queries and keys is orange."""
    picture = Drawing()
    told = f"{found.parameters:,} parameters; {found.flops_per_token['forward']:,} FLOPs per {found.tokens}"
    sizes = f"batch {found.batch}, length {found.length}"
    sizes += "" if found.source_length is None else f", source {found.source_length}"
    y = heading(picture, f"{finding(found)}\n{told}\n{sizes}, {found.precision}") + 22
    rows = list(parts_below(found.whole))[:ROWS]
    left = MARGIN + max((INDENT * level + width_of(part.name, SMALL + 1) for level, part in rows), default=0)
    columns = [left + 24, left + 24 + NUMBER + BAR + 28]
    for x, title in zip(columns, ("parameters", "FLOPs, forward"), strict=True):
        picture.add(TextLabel(x + NUMBER, y - 8, title, SMALL, fill=FAINT))
    for level, part in rows:
        bold = level == 0
        picture.add(TextLabel(MARGIN + INDENT * level, y + 12, part.name, SMALL + 1, fill=INK, bold=bold))
        bar(picture, columns[0], y, part.parameters, found.whole.parameters)
        bar(picture, columns[1], y, part.flops, found.whole.flops, part.pairs)
        y += HIGH
    y = memory_rows(picture, found, y + 30, left + 24)
    notes = ["orange: products between queries and keys, which grow with the square of the length"]
    notes += ["the forward pass of the whole batch; training costs three times as much"]
    for i, line in enumerate(notes):
        picture.add(TextLabel(MARGIN, y + 16 + 15 * i, line, SMALL + 1, fill=FAINT))
    return picture


def finding(found: Costs) -> str:
    """Which part of the model is the largest."""
    parts = found.whole.parts
    largest = max(parts, key=lambda part: part.parameters, default=found.whole)
    share = largest.parameters / max(1, found.whole.parameters)
    return f"{largest.name} has {share:.0%} of the parameters"


def parts_below(part: Part, level: int = 0) -> Iterator[tuple[int, Part]]:
    """A part and those below it, down to some depth."""
    yield level, part
    for inner in part.parts if level < DEPTH else ():
        if inner.parameters or inner.flops:
            yield from parts_below(inner, level + 1)


def memory_rows(picture: Drawing, found: Costs, y: float, x: float) -> float:
    """Bytes by use; where they end."""
    picture.add(TextLabel(x + NUMBER, y - 8, "bytes", SMALL, fill=FAINT))
    most = max(found.memory.values(), default=0)
    for name, amount in found.memory.items():
        sums = name in ("training", "inference")
        picture.add(TextLabel(MARGIN, y + 12, f"memory: {name}", SMALL + 1, fill=INK, bold=sums))
        bar(picture, x, y, amount, most)
        y += HIGH
    return y


def bar(picture: Drawing, x: float, y: float, amount: int, most: int, special: int = 0) -> None:
    """A number and a bar as long as its share; the special part of it is orange."""
    picture.add(TextLabel(x + NUMBER - 6, y + 12, units(amount), SMALL, "end", INK))
    scale, hint = BAR / max(1, most), f"{amount:,}, {amount / max(1, most):.1%}"
    if amount - special > 0:
        picture.add(Box(x + NUMBER, y + 3, (amount - special) * scale, HIGH - 7, BLUE, title=hint))
    if special > 0:
        start = x + NUMBER + (amount - special) * scale
        picture.add(Box(start, y + 3, special * scale, HIGH - 7, FRAME, title=f"{special:,} of {hint}"))


def units(number: float) -> str:
    """A number in a few characters."""
    for size, name in UNITS:
        if abs(number) >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:,.0f}"
