"""Pictures: tables of numbers as SVG with nothing but the standard library, as PNG through Pillow, and as shades of text.

A `Picture` is a list of boxes, grids, texts and images; it is laid out once and drawn either way. Colors get darker or
lighter all the way, so that a gray print says the same.
"""

from __future__ import annotations

import base64
import contextlib
import io
import math
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import zip_longest
from typing import Any
from xml.sax.saxutils import escape

from ...errors import BadInput

Table = Sequence[Sequence[float]]
Color = tuple[int, int, int]

CELL, FONT, SMALL = 28, 13, 10
MARGIN = 14
WIDEST = 1000  # pixels across, where cells can be made smaller
SLOPE = math.radians(60)  # of the words above columns
FAMILY = "DejaVu Sans, Verdana, Arial, sans-serif"
INK, FAINT, PAPER, FRAME = (34, 34, 34), (110, 110, 110), (255, 255, 255), (217, 95, 2)
LEVELS = 32  # colors of a grid
FONTS = ("DejaVuSans.ttf", "Arial Unicode.ttf", "Arial.ttf", "arial.ttf", "NotoSans-Regular.ttf")  # for PNG
PLAIN = {"→": "->", "␣": "_", "√": "sqrt ", "×": "x", "·": "."}  # for a font without them

# From white to navy, and for numbers with a sign from navy to yellow: each gets steadily darker or lighter.
WEIGHTS: tuple[Color, ...] = ((255, 255, 255), (158, 202, 225), (49, 130, 189), (8, 48, 107))
SIGNED: tuple[Color, ...] = ((0, 32, 76), (87, 92, 109), (165, 156, 116), (255, 234, 70))


def color(share: float, ramp: Sequence[Color] = WEIGHTS) -> Color:
    """A color of the ramp, for a share from 0 to 1."""
    at = min(1.0, max(0.0, share)) * (len(ramp) - 1)
    i = min(int(at), len(ramp) - 2)
    r, g, b = (round(a + (at - i) * (b - a)) for a, b in zip(ramp[i], ramp[i + 1], strict=True))
    return r, g, b


# What a picture is made of.


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
class Words:
    x: float
    y: float  # of the line on which the letters stand
    text: str
    size: float = FONT
    anchor: str = "start"  # or middle, or end
    fill: Color = INK
    bold: bool = False
    rising: bool = False  # at a slope, from its start upwards


@dataclass(frozen=True)
class Grid:
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


Shape = Box | Words | Grid | Raster


@dataclass
class Picture:
    """Shapes on white paper that grows with them."""

    shapes: list[Shape] = field(default_factory=list)
    width: float = 0
    height: float = 0

    def add(self, *shapes: Shape) -> None:
        for shape in shapes:
            right, bottom = reach(shape)
            self.width, self.height = max(self.width, right + MARGIN), max(self.height, bottom + MARGIN)
            self.shapes.append(shape)

    def svg(self) -> str:
        """As the text of an SVG file."""
        width, height = math.ceil(self.width), math.ceil(self.height)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        return "\n".join(
            [
                f'{head} viewBox="0 0 {width} {height}" font-family="{FAMILY}">',
                f'<rect width="{width}" height="{height}" fill="{of(PAPER)}"/>',
                *(SVG[type(shape)](shape) for shape in self.shapes),
                "</svg>\n",
            ]
        )

    def png(self, zoom: float = 2.0) -> bytes:
        """As a PNG file, drawn by Pillow."""
        return drawn(self, zoom)


def reach(shape: Shape) -> tuple[float, float]:
    """How far a shape goes to the right and down."""
    if isinstance(shape, Grid):
        columns = max((len(row) for row in shape.shares), default=0)
        return shape.x + columns * shape.cell_width, shape.y + len(shape.shares) * shape.cell_height
    if isinstance(shape, Box | Raster):
        return shape.x + shape.width, shape.y + shape.height
    share = {"start": 1.0, "middle": 0.5, "end": 0.0}[shape.anchor]
    long = share * width_of(shape.text, shape.size) * (1.12 if shape.bold else 1)
    return shape.x + (long * math.cos(SLOPE) if shape.rising else long), shape.y + 0.25 * shape.size


def width_of(text: str, size: float) -> float:
    """About how wide a text is; Chinese characters are square."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return size * (0.58 * (len(text) - wide) + 1.05 * wide)


# SVG


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


def svg_words(words: Words) -> str:
    x, y = number(words.x), number(words.y)
    turn = f' transform="rotate(-{math.degrees(SLOPE):.0f} {x} {y})"' if words.rising else ""
    anchor = f' text-anchor="{words.anchor}"' if words.anchor != "start" else ""
    bold = ' font-weight="bold"' if words.bold else ""
    style = f'font-size="{number(words.size)}" fill="{of(words.fill)}"{anchor}{bold}{turn}'
    return f'<text x="{x}" y="{y}" {style}>{clean(words.text)}</text>'


def svg_grid(grid: Grid) -> str:
    paths = []
    for level, runs in sorted(runs_of(grid).items()):
        ways = "".join(f"M{x} {y}h{n}v1h-{n}z" for x, y, n in runs)
        paths.append(f'<path fill="{of(color(level / (LEVELS - 1), grid.ramp))}" d="{ways}"/>')
    move = f"translate({number(grid.x)} {number(grid.y)})"
    size = f"scale({grid.cell_width:g} {grid.cell_height:g})"
    return f'<g transform="{move} {size}" shape-rendering="crispEdges">{"".join(paths)}</g>'


def runs_of(grid: Grid) -> dict[int, list[tuple[int, int, int]]]:
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


def svg_raster(raster: Raster) -> str:
    place = " ".join(f'{n}="{number(getattr(raster, n))}"' for n in ("x", "y", "width", "height"))
    data = base64.b64encode(raster.png).decode("ascii")
    return f'<image {place} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>'


SVG: dict[type, Any] = {Box: svg_box, Words: svg_words, Grid: svg_grid, Raster: svg_raster}


# PNG


def pillow() -> tuple[Any, Any, Any]:
    """Pillow's Image, ImageDraw and ImageFont; without Pillow, what to do."""
    try:
        return tuple(import_module(f"PIL.{name}") for name in ("Image", "ImageDraw", "ImageFont"))  # type: ignore[return-value]
    except ImportError:
        raise BadInput("PNG pictures are drawn by Pillow: pip install pillow, or ask for an .svg") from None


def drawn(picture: Picture, zoom: float) -> bytes:
    image_of, draw_on, _ = pillow()
    size = math.ceil(picture.width * zoom), math.ceil(picture.height * zoom)
    image = image_of.new("RGB", size, PAPER)
    draw = draw_on.Draw(image)
    known = letters("".join(shape.text for shape in picture.shapes if isinstance(shape, Words)))
    for shape in picture.shapes:
        if isinstance(shape, Words):
            write_words(image, draw, shape, zoom, "".join(known[c] for c in shape.text))
        elif isinstance(shape, Box):
            fill_box(draw, shape, zoom)
        elif isinstance(shape, Raster):
            paste(image, image_of, shape, zoom)
        else:
            for level, runs in runs_of(shape).items():
                fill = color(level / (LEVELS - 1), shape.ramp)
                for x, y, n in runs:
                    left, top = shape.x + x * shape.cell_width, shape.y + y * shape.cell_height
                    fill_box(draw, Box(left, top, n * shape.cell_width, shape.cell_height, fill), zoom)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def paste(image: Any, image_of: Any, raster: Raster, zoom: float) -> None:
    """Every pixel as a square."""
    size = round(raster.width * zoom), round(raster.height * zoom)
    found = image_of.open(io.BytesIO(raster.png), formats=("PNG",)).convert("RGB").resize(size, 0)
    image.paste(found, (round(raster.x * zoom), round(raster.y * zoom)))


def font_of(size: float) -> Any:
    """A usual font of the machine; without any, Pillow's own, which knows no accents."""
    fonts = pillow()[2]
    for name in FONTS:
        with contextlib.suppress(OSError):
            return fonts.truetype(name, size)
    return fonts.load_default(size)


def letters(text: str) -> dict[str, str]:
    """{character: what is drawn for it}: itself, or if the font lacks it, something like it."""
    font = font_of(FONT)

    def shape(c: str) -> bytes:
        return bytes(font.getmask(c))

    lacking = shape("\U0010fffd")  # a character that no font has

    def drawable(c: str) -> str:
        if c.isprintable() and (c == " " or shape(c) != lacking):
            return c
        plain = unicodedata.normalize("NFKD", c)[0]
        return PLAIN.get(c) or (plain if plain.isascii() and plain.isprintable() else "?")

    return {c: drawable(c) for c in set(text)}


def fill_box(draw: Any, box: Box, zoom: float) -> None:
    left, top = round(box.x * zoom), round(box.y * zoom)
    right, bottom = round((box.x + box.width) * zoom) - 1, round((box.y + box.height) * zoom) - 1
    if right >= left and bottom >= top:
        corners, thick = (left, top, right, bottom), max(1, round(box.thick * zoom))
        draw.rectangle(corners, fill=box.fill, outline=box.stroke, width=thick if box.stroke else 0)


def write_words(image: Any, draw: Any, words: Words, zoom: float, text: str) -> None:
    anchor, font = {"start": "ls", "middle": "ms", "end": "rs"}[words.anchor], font_of(words.size * zoom)
    x, y, heavy = words.x * zoom, words.y * zoom, zoom / 2 if words.bold else 0
    how = {"fill": words.fill, "font": font, "stroke_width": heavy / 2, "stroke_fill": words.fill}
    if not words.rising:
        draw.text((x, y), text, anchor=anchor, **how)
        return
    image_of, draw_on, _ = pillow()
    half = math.ceil(draw.textlength(text, font=font) + 2 * words.size * zoom)
    tile = image_of.new("L", (2 * half, 2 * half), 0)
    draw_on.Draw(tile).text((half, half), text, fill=255, font=font, anchor="ls")
    tile = tile.rotate(math.degrees(SLOPE), resample=image_of.Resampling.BICUBIC)
    image.paste(words.fill, (round(x) - half, round(y) - half), tile)


# Heat maps


def heat_map(
    weights: Table,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    below: Sequence[str] = (),
    allowed: Sequence[Sequence[bool]] | None = None,
    marked: Collection[tuple[int, int]] = (),
) -> str:
    """`map_of` as SVG: rows downwards, columns across, the darker the larger; hovering tells the number."""
    return map_of(weights, rows, columns, title, below=below, allowed=allowed, marked=marked).svg()


def map_of(
    weights: Table,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    *,
    below: Sequence[str] = (),
    allowed: Sequence[Sequence[bool]] | None = None,
    marked: Collection[tuple[int, int]] = (),
) -> Picture:
    """One table with its words. allowed: cells to draw (a mask hides the others); marked: cells in a frame.

    below: sentences under the picture, which say what is seen.
    """
    picture, most = Picture(), largest(weights)
    cell = max(5, min(CELL, WIDEST // max(1, len(columns))))
    font = min(FONT, 0.72 * cell)
    left = MARGIN + max((width_of(word, font) for word in rows), default=0) + 8
    top = heading(picture, title) + rise(columns, font) + 8
    for i, word in enumerate(columns):
        picture.add(Words(left + cell * (i + 0.55), top - 6, word, font, rising=True))
    for j, (word, line) in enumerate(zip(rows, weights, strict=True)):
        picture.add(Words(left - 8, top + cell * (j + 0.5) + 0.36 * font, word, font, "end"))
        for i, weight in enumerate(line):
            if allowed is None or allowed[j][i]:
                told = f"{word} looks at {columns[i]}: {weight:.3f}"
                place = left + cell * i, top + cell * j
                picture.add(*cell_of(weight, weight / most, place, cell, told, (j, i) in marked))
    notes(picture, left, top + cell * len(rows) + 14, most, below)
    return picture


def cell_of(
    weight: float, share: float, place: tuple[float, float], cell: float, told: str, marked: bool
) -> list[Shape]:
    """A cell: its color, its number where there is room for one, and a frame if it is marked."""
    x, y = place
    gap = 1 if cell > 10 else 0.25
    size = cell - 2 * gap
    edge = FRAME if marked else (204, 204, 204) if cell > 10 else None
    box = Box(
        x + gap, y + gap, size, size, color(share), edge, (2.5 if marked else 1) * min(1, cell / CELL), told
    )
    if cell < CELL or weight < 0.095:
        return [box]
    ink = PAPER if share > 0.55 else INK
    text = f"{weight:.1f}" if weight > 0.995 else f"{weight:.2f}"[1:]
    return [box, Words(x + cell / 2, y + cell / 2 + 3.5, text, SMALL, "middle", ink)]


def heading(picture: Picture, title: str) -> float:
    """The title's lines; where what comes next may begin."""
    y = 10.0
    for i, line in enumerate(title.splitlines()):
        y += 18
        picture.add(Words(MARGIN, y, line, FONT, bold=i == 0))
    return y + 8


def rise(words: Sequence[str], font: float) -> float:
    """How high the words above columns reach."""
    return max((width_of(word, font) for word in words), default=0) * math.sin(SLOPE) + 0.5 * font


def notes(picture: Picture, left: float, y: float, most: float, below: Sequence[str]) -> None:
    """The scale of colors from 0 to the largest number, and sentences under it."""
    step = 12
    picture.add(Words(left, y + 10, "0", SMALL, fill=FAINT))
    for i in range(8):
        picture.add(Box(left + 12 + i * step, y + 1, step, 11, color((i + 0.5) / 8), (204, 204, 204), 0.5))
    picture.add(Words(left + 12 + 8 * step + 6, y + 10, f"{most:.2f}", SMALL, fill=FAINT))
    for i, line in enumerate(below):
        picture.add(Words(MARGIN, y + 32 + 15 * i, line, SMALL + 1, fill=FAINT))


def largest(*tables: Table) -> float:
    """The largest number of all, by which colors are scaled."""
    return max((x for table in tables for row in table for x in row), default=0.0) or 1.0


# Small multiples


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
) -> Picture:
    """Many maps of the same words, so many across, all on one scale of colors."""
    picture, most, gap = Picture(), largest(*(panel.weights for panel in panels)), 16
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
                picture.add(Words(at, top - titles - 2, word, font, rising=True))
    for k, panel in enumerate(panels):
        x, y = left + (k % across) * step_x, top + (k // across) * step_y
        picture.add(Words(x, y - 4, panel.name, SMALL, bold=panel.strong))
        picture.add(Grid(x, y, cell, cell, [[w / most for w in row] for row in panel.weights]))
        edge, thick = (FRAME, 2.0) if panel.strong else ((170, 170, 170), 0.7)
        picture.add(Box(x, y, len(columns) * cell, len(rows) * cell, None, edge, thick))
        if named and k % across == 0:
            for j, word in enumerate(rows):
                picture.add(Words(left - 5, y + cell * (j + 0.5) + 0.36 * font, word, font, "end"))
    bottom = top + math.ceil(len(panels) / across) * step_y - titles
    notes(picture, left, bottom, most, below)
    return picture


# Tables of numbers with a sign


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


def sheets(tables: Sequence[Sequence[Sheet]], title: str, below: Sequence[str] = ()) -> Picture:
    """Lines of tables side by side, each colored from its own most negative to its own most positive number."""
    picture = Picture()
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
        picture.add(Words(MARGIN, y + 12 + 15 * i, text, SMALL + 1, fill=FAINT))
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


def draw_sheet(picture: Picture, sheet: Sheet, x: float, y: float, room: float) -> float:
    """A table with its sides and its scale; where it ends, below."""
    rows, columns = sheet.size
    most = max((abs(number) for row in sheet.numbers for number in row), default=0.0) or 1.0
    wide, high = cell_size(sheet, room)
    left, top = x + left_of(sheet), y + 52
    picture.add(Words(left, y + 16, sheet.name, FONT - 1, bold=True))
    picture.add(Words(left, y + 32, f"{sheet.across} →   ({sheet.down} downwards)", SMALL, fill=FAINT))
    shares = [[0.5 + 0.5 * number / most for number in row] for row in sheet.numbers]
    picture.add(Grid(left, top, wide, high, shares, SIGNED))
    picture.add(Box(left, top, columns * wide, rows * high, None, (120, 120, 120), 0.7))
    for i in ticks(columns, sheet.first):
        place = left + (i + 0.5) * wide
        picture.add(Words(place, top - 4, str(i + sheet.first), SMALL - 1, "middle", FAINT))
    names = dict(enumerate(sheet.rows)) or {j: str(j) for j in ticks(rows, 0)}
    for j, word in names.items():
        picture.add(Words(left - 5, top + (j + 0.5) * high + 3, word, SMALL - 1, "end", FAINT))
    return signed_scale(picture, left, top + rows * high + 6, most)


def signed_scale(picture: Picture, left: float, y: float, most: float) -> float:
    low, step = f"-{most:.3g}", 12
    start = left + width_of(low, SMALL) + 6
    picture.add(Words(left, y + 10, low, SMALL, fill=FAINT))
    for i in range(8):
        picture.add(Box(start + i * step, y + 1, step, 11, color((i + 0.5) / 8, SIGNED)))
    picture.add(Words(start + 8 * step + 6, y + 10, f"{most:.3g}", SMALL, fill=FAINT))
    return y + 14


def ticks(count: int, first: int) -> list[int]:
    """Which of so many places get a number: round ones, eight at most or so."""
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 30) if count / s <= 9)
    return [i for i in range(count) if (i + first) % step == 0]


# Shades of text


SHADES = "·░▒▓█"  # from next to nothing to the most; what a mask hides is blank


def shades(
    weights: Table,
    rows: Sequence[str],
    columns: Sequence[str],
    width: int = 100,
    allowed: Sequence[Sequence[bool]] | None = None,
) -> str:
    """A map for a terminal of so many characters; beside each row, where its largest weight is.

    Words stand above their columns; where there is no room for that, they are written downwards.
    """
    most, left = largest(weights), max(map(columns_of, rows), default=0)
    ends = [best_of(row, columns) for row in weights]
    room = width - left - 1 - max(map(columns_of, ends), default=0) - 2
    across = [max(3, columns_of(word)) + 1 for word in columns]
    upright = sum(across) > room
    if upright:
        across = [2] * len(columns)
    fitting = max(1, min(len(columns), room // 2)) if upright else len(columns)
    lines = [" " * (left + 1) + line for line in heads_of(columns[:fitting], across, upright)]
    for j, (word, row) in enumerate(zip(rows, weights, strict=True)):
        cells = [
            shade(weight / most, allowed is None or allowed[j][i], across[i], 0 if upright else 1)
            for i, weight in enumerate(row[:fitting])
        ]
        lines.append(f"{' ' * (left - columns_of(word))}{word} {''.join(cells)} {ends[j]}".rstrip())
    if fitting < len(columns):
        lines.append(f"({len(columns) - fitting} more columns: the picture has them)")
    return "\n".join(lines)


def best_of(row: Sequence[float], columns: Sequence[str]) -> str:
    if not row or max(row) <= 0:
        return ""
    place = max(range(len(row)), key=lambda i: row[i])
    return f"{row[place]:.2f} {columns[place]}"


def heads_of(columns: Sequence[str], across: Sequence[int], upright: bool) -> list[str]:
    """The words above the columns: side by side, or each written downwards."""
    if not upright:
        return ["".join(padded(word, wide) for word, wide in zip(columns, across, strict=False)).rstrip()]
    tall = max(map(len, columns), default=0)
    letters = [f"{word:>{tall}}" for word in columns]
    return ["".join(padded(word[i], 2) for word in letters).rstrip() for i in range(tall)]


def shade(share: float, seen: bool, width: int, gap: int) -> str:
    """A cell of so many characters; next to nothing is a single dot."""
    level = round(min(1.0, max(0.0, share)) * (len(SHADES) - 1))
    filled = SHADES[level] * (width - gap if level else 1) if seen else ""
    return f"{filled:<{width}}"


def columns_of(text: str) -> int:
    """Places that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def padded(text: str, width: int) -> str:
    return text + " " * max(0, width - columns_of(text))
