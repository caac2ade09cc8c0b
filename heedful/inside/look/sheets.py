"""Sheets: tables of numbers with a sign, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from .drawing import Drawing, heading
from .shapes import FAINT, FONT, MARGIN, SIGNED, SMALL, Box, CellGrid, Table, TextLabel, color, width_of


@dataclass(frozen=True)
class Sheet:
    """A table of numbers, positive and negative, with what its sides are."""

    name: str
    numbers: Table
    down: str  # what the rows are
    across: str
    first: int = 0  # the number of the first column
    rows: Sequence[str] = ()  # names, if the rows have any

    @property
    def size(self) -> tuple[int, int]:
        return len(self.numbers), max(len(row) for row in self.numbers)


def sheets(tables: Sequence[Sequence[Sheet]], title: str, below: Sequence[str] = ()) -> Drawing:
    """Lines of tables side by side, each colored from its own most negative to its own most positive
    number."""
    picture = Drawing()
    y = heading(picture, title)
    starts = [float(MARGIN)]  # of the first table of each line, of the second, ...
    for place in zip_longest(*tables):
        widths = [
            width_of_sheet(s, room_for(line)) for s, line in zip(place, tables, strict=True) if s is not None
        ]
        starts.append(starts[-1] + max(widths) + 28)
    for line in tables:
        y = 14 + max(
            draw_sheet(picture, sheet, x, y, room_for(line)) for sheet, x in zip(line, starts, strict=False)
        )
    for i, text in enumerate(below):
        picture.add(TextLabel(MARGIN, y + 12 + 15 * i, text, SMALL + 1, fill=FAINT))
    return picture


def room_for(line: Sequence[Sheet]) -> float:
    """Pixels across that a table may take among so many."""
    return 560 if len(line) > 1 else 760


def cell_size(sheet: Sheet, room: float) -> tuple[float, float]:
    """How wide and how high the cells of a table are."""
    rows, columns = sheet.size
    high = max(4.0, min(16.0, 300 / rows))
    return (high if rows == columns else max(3.0, min(16.0, room / columns))), high


def left_of(sheet: Sheet) -> float:
    """What the names of the rows take."""
    return max([26.0, *(width_of(word, SMALL - 1) + 8 for word in sheet.rows)])


def width_of_sheet(sheet: Sheet, room: float) -> float:
    cells = sheet.size[1] * cell_size(sheet, room)[0]
    return left_of(sheet) + max(cells, width_of(sheet.name, FONT - 1))


def draw_sheet(picture: Drawing, sheet: Sheet, x: float, y: float, room: float) -> float:
    """A table with its sides and its scale; where it ends, below."""
    rows, columns = sheet.size
    most = max((abs(number) for row in sheet.numbers for number in row), default=0.0) or 1.0
    wide, high = cell_size(sheet, room)
    left, top = x + left_of(sheet), y + 52
    picture.add(TextLabel(left, y + 16, sheet.name, FONT - 1, bold=True))
    picture.add(TextLabel(left, y + 32, f"{sheet.across} →   ({sheet.down} downwards)", SMALL, fill=FAINT))
    shares = [[0.5 + 0.5 * number / most for number in row] for row in sheet.numbers]
    picture.add(CellGrid(left, top, wide, high, shares, SIGNED))
    picture.add(Box(left, top, columns * wide, rows * high, None, (120, 120, 120), 0.7))
    for i in ticks(columns, sheet.first):
        place = left + (i + 0.5) * wide
        picture.add(TextLabel(place, top - 4, str(i + sheet.first), SMALL - 1, "middle", FAINT))
    names = dict(enumerate(sheet.rows)) or {j: str(j) for j in ticks(rows, 0)}
    for j, word in names.items():
        picture.add(TextLabel(left - 5, top + (j + 0.5) * high + 3, word, SMALL - 1, "end", FAINT))
    return signed_scale(picture, left, top + rows * high + 6, most)


def signed_scale(picture: Drawing, left: float, y: float, most: float) -> float:
    low, step = f"-{most:.3g}", 12
    start = left + width_of(low, SMALL) + 6
    picture.add(TextLabel(left, y + 10, low, SMALL, fill=FAINT))
    for i in range(8):
        picture.add(Box(start + i * step, y + 1, step, 11, color((i + 0.5) / 8, SIGNED)))
    picture.add(TextLabel(start + 8 * step + 6, y + 10, f"{most:.3g}", SMALL, fill=FAINT))
    return y + 14


def ticks(count: int, first: int) -> list[int]:
    """Which of so many places get a number: round ones, eight at most or so."""
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 30) if count / s <= 9)
    return [i for i in range(count) if (i + first) % step == 0]
