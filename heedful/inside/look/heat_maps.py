"""Heat maps: a table of weights with its words, or many of them as small multiples."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .drawing import Drawing, heading, largest, notes, rise
from .shapes import (
    CELL,
    FONT,
    FRAME,
    MARGIN,
    SMALL,
    WIDEST,
    Box,
    CellGrid,
    Shape,
    Table,
    TextLabel,
    color,
    width_of,
)
from .themes import ink_on


def heat_map(
    weights: Table,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    below: Sequence[str] = (),
    allowed: Sequence[Sequence[bool]] | None = None,
    marked: Collection[tuple[int, int]] = (),
    verb: str = "attends to",
) -> Drawing:
    """One table with its words: rows downwards, columns across, the darker the larger; hovering shows the
    weight.

    allowed: cells to draw (a mask hides the others); marked: cells in a frame; verb: between a row and a
    column, where the mouse rests. below: sentences under the picture, which say what is seen.
    """
    picture, most = Drawing(), largest(weights)
    cell = max(5, min(CELL, WIDEST // max(1, len(columns))))
    font = min(FONT, 0.72 * cell)
    left = MARGIN + max((width_of(word, font) for word in rows), default=0) + 8
    top = heading(picture, title) + rise(columns, font) + 8
    for i, word in enumerate(columns):
        picture.add(TextLabel(left + cell * (i + 0.55), top - 6, word, font, rising=True))
    for j, (word, line) in enumerate(zip(rows, weights, strict=True)):
        picture.add(TextLabel(left - 8, top + cell * (j + 0.5) + 0.36 * font, word, font, "end"))
        for i, weight in enumerate(line):
            if allowed is None or allowed[j][i]:
                hint = f"{word} {verb} {columns[i]}: {weight:.3f}"
                place = left + cell * i, top + cell * j
                picture.add(*cell_of(weight, weight / most, place, cell, hint, (j, i) in marked))
    notes(picture, left, top + cell * len(rows) + 14, most, below)
    return picture


def cell_of(
    weight: float, share: float, place: tuple[float, float], cell: float, hint: str, marked: bool
) -> list[Shape]:
    """A cell: its color, its number where there is room for one, and a frame if it is marked."""
    x, y = place
    gap = 1 if cell > 10 else 0.25
    size = cell - 2 * gap
    edge = FRAME if marked else (204, 204, 204) if cell > 10 else None
    box = Box(
        x + gap, y + gap, size, size, color(share), edge, (2.5 if marked else 1) * min(1, cell / CELL), hint
    )
    if cell < CELL or weight < 0.095:
        return [box]
    behind = color(share)
    text = f"{weight:.1f}" if weight > 0.995 else f"{weight:.2f}"[1:]
    return [
        box,
        TextLabel(x + cell / 2, y + cell / 2 + 3.5, text, SMALL, "middle", ink_on(behind), on=behind),
    ]


# Small multiples.


@dataclass(frozen=True)
class Panel:
    """One of many maps that share their rows and columns."""

    name: str
    weights: Table
    strong: bool = False  # worth a frame


def small_multiples(
    panels: Sequence[Panel],
    across: int,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    below: Sequence[str] = (),
) -> Drawing:
    """Many maps of the same words, so many across, all on one scale of colors."""
    picture, most, gap = Drawing(), largest(*(panel.weights for panel in panels)), 16
    name = width_of(max((panel.name for panel in panels), key=len), SMALL)
    room = max((WIDEST - 100) / across - gap, name)  # of one map: no narrower than its name
    cell = max(2.0, min(14.0, room / max(1, len(columns))))
    font, titles = min(SMALL, 0.9 * cell), 16
    named = cell >= 8  # words smaller than that cannot be read
    left = MARGIN + (max(width_of(word, font) for word in rows) + 6 if named else 0)
    top = heading(picture, title) + (rise(columns, font) + 4 if named else 0) + titles
    step_x = max(len(columns) * cell, name) + gap
    step_y = len(rows) * cell + gap + titles
    if named:
        for k in range(min(across, len(panels))):
            for i, word in enumerate(columns):
                at = left + k * step_x + cell * (i + 0.6)
                picture.add(TextLabel(at, top - titles - 2, word, font, rising=True))
    for k, panel in enumerate(panels):
        x, y = left + (k % across) * step_x, top + (k // across) * step_y
        picture.add(TextLabel(x, y - 4, panel.name, SMALL, bold=panel.strong))
        picture.add(CellGrid(x, y, cell, cell, [[w / most for w in row] for row in panel.weights]))
        edge, thick = (FRAME, 2.0) if panel.strong else ((170, 170, 170), 0.7)
        picture.add(Box(x, y, len(columns) * cell, len(rows) * cell, None, edge, thick))
        if named and k % across == 0:
            for j, word in enumerate(rows):
                picture.add(TextLabel(left - 5, y + cell * (j + 0.5) + 0.36 * font, word, font, "end"))
    bottom = top + math.ceil(len(panels) / across) * step_y - titles
    notes(picture, left, bottom, most, below)
    return picture
