"""A position scheme without a model, drawn as on the slides: positions down, dimensions across."""

from __future__ import annotations

import torch

from ...errors import BadInput
from ...files import one_line
from ...models import nearest
from ...parts.positions import POSITIONS
from ...parts.positions.absolute import Sinusoidal
from ...parts.positions.relative import ALiBi
from ...parts.positions.rotary import Rotary
from .drawing import Drawing, heading
from .positions import PositionLook, absolute, bias, check_length, rotary
from .shapes import FAINT, FONT, MARGIN, SIGNED, SMALL, Box, CellGrid, TextLabel, color, width_of
from .sheets import Sheet, left_of, ticks

WIDTH, HEADS = 128, 8  # unless said otherwise
WIDEST = 1024
WHERE = "without a model"
ACROSS, DOWN = 960, 400  # pixels for the cells
BAR = 32  # colors of the bar
GRAY = (120, 120, 120)


FIXED = ("sinusoidal", "rotary", "alibi")  # the schemes that learn nothing


def scheme(name: str, length: int, width: int | None = None, heads: int | None = None) -> PositionLook:
    """The numbers of a scheme that learns nothing: a table, or for ALiBi the bias of each head.

    width: of the model; for rotary positions, of a head. heads: for ALiBi.
    """
    if name not in POSITIONS:
        raise BadInput(one_line(f'there is no run and no position scheme "{name}"{nearest(name, POSITIONS)}'))
    if name not in FIXED:
        why = "has no numbers" if name == "none" else "is learned"
        raise BadInput(
            f'the position scheme "{name}" {why}: give a RUN, or draw {", ".join(FIXED[:-1])} or {FIXED[-1]}'
        )
    check_length(length)
    idle, useful = ("width", "heads") if name == "alibi" else ("heads", "width")
    for option, value in (("width", width), ("heads", heads)):
        if value is not None and option == idle:
            raise BadInput(f"--{idle} does nothing for {name} positions: give --{useful}, or leave it out")
        if value is not None and not 1 <= value <= WIDEST:
            raise BadInput(f"--{option} must be from 1 to {WIDEST}, not {value}")
    if name == "alibi":
        return bias(WHERE, ALiBi(heads or HEADS), True, length - 1)
    if width is not None and width % 2:
        raise BadInput(f"{name} positions come in pairs of dimensions: --width {width} is odd")
    if name == "rotary":
        return rotary(WHERE, Rotary(width or WIDTH), length)
    return absolute(WHERE, Sinusoidal(width or WIDTH), length, torch.device("cpu"), WIDEST)


def picture_of_scheme(found: PositionLook) -> Drawing:
    """The table with its axes, a title and a color bar."""
    sheet = found.sheets[0]
    rows, columns = sheet.size
    wide, high = max(1.5, min(18.0, ACROSS / columns)), max(4.0, min(18.0, DOWN / rows))
    label = "" if sheet.rows else "position"
    picture = Drawing()
    y = heading(picture, "\n".join(title_of(found)))
    left = MARGIN + max(left_of(sheet), width_of(label, SMALL + 1) + 8)
    top, right, bottom = y + 26, left + columns * wide, y + 26 + rows * high
    low, high_end = ends_of(sheet)
    shares = [[(number - low) / (high_end - low) for number in row] for row in sheet.numbers]
    picture.add(CellGrid(left, top, wide, high, shares, SIGNED))
    picture.add(Box(left, top, right - left, bottom - top, None, GRAY, 0.7))
    picture.add(TextLabel(left - 6, top - 8, label, SMALL + 1, "end"))
    for j, name in (dict(enumerate(sheet.rows)) or {j: str(j) for j in ticks(rows, 0)}).items():
        picture.add(TextLabel(left - 6, top + (j + 0.5) * high + 3.5, name, SMALL, "end", FAINT))
    for i in ticks(columns, sheet.first):
        place = left + (i + 0.5) * wide
        picture.add(TextLabel(place, bottom + 14, str(i + sheet.first), SMALL, "middle", FAINT))
    picture.add(TextLabel((left + right) / 2, bottom + 32, sheet.across, SMALL + 1, "middle"))
    color_bar(picture, right + 18, top, bottom - top, low, high_end)
    picture.add(TextLabel(left, bottom + 58, formula_of(found), FONT - 1, fill=FAINT))
    return picture


def title_of(found: PositionLook) -> tuple[str, str]:
    rows, columns = found.sheets[0].size
    if found.kind == "sinusoidal":
        return "Sinusoidal positions", f"{rows} positions of {columns} dimensions"
    if found.kind == "rotary":
        return (
            "Rotary positions",
            f"cosine of the angle: {rows} positions, {2 * columns} dimensions of a head",
        )
    return "ALiBi", f"added to the score of a query and a key, for each of {rows} heads"


def formula_of(found: PositionLook) -> str:
    rows, columns = found.sheets[0].size
    if found.kind == "sinusoidal":
        angle = f"p / 10000^(2i / {columns})"
        return f"PE(p, 2i) = sin({angle}),   PE(p, 2i + 1) = cos({angle})"
    if found.kind == "rotary":
        return f"pair i of a query or key at position p is turned by p / 10000^(2i / {2 * columns})"
    exact = rows & (rows - 1) == 0  # for other numbers of heads, the paper interpolates
    slope = f"2^(-8h / {rows})" if exact else "a slope of its own"
    return f"head h adds {slope} times (key - query)"


def ends_of(sheet: Sheet) -> tuple[float, float]:
    """The numbers of the darkest and of the lightest color: as far from 0 on both sides, where both occur."""
    numbers = [number for row in sheet.numbers for number in row]
    low, high = min(numbers), max(numbers)
    most = max(-low, high) or 1.0
    return (-most, most) if low < 0 < high else (-most, 0.0)


def color_bar(picture: Drawing, x: float, top: float, tall: float, low: float, high: float) -> None:
    """The colors from the lowest number, at the bottom, to the highest."""
    step = tall / BAR
    for i in range(BAR):
        picture.add(Box(x, top + i * step, 14, step + 0.5, color(1 - (i + 0.5) / BAR, SIGNED)))
    picture.add(Box(x, top, 14, tall, None, GRAY, 0.7))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        number = f"{high - share * (high - low):.3g}"
        picture.add(TextLabel(x + 20, top + share * tall + 3.5, number, SMALL, fill=FAINT))
