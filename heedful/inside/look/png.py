"""Shapes as PNG, drawn by Pillow."""

from __future__ import annotations

import contextlib
import io
import math
import unicodedata
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ...errors import BadInput
from .shapes import FONT, LEVELS, PAPER, SLOPE, Box, Line, Polyline, Raster, Shape, TextLabel, color, runs_of

FONTS = ("DejaVuSans.ttf", "Arial Unicode.ttf", "Arial.ttf", "arial.ttf", "NotoSans-Regular.ttf")  # for PNG
PLAIN = {"→": "->", "␣": "_", "√": "sqrt ", "×": "x", "·": "."}  # for a font without them


def pillow() -> tuple[Any, Any, Any]:
    """Pillow's Image, ImageDraw and ImageFont; without Pillow, what to do."""
    try:
        return import_module("PIL.Image"), import_module("PIL.ImageDraw"), import_module("PIL.ImageFont")
    except ImportError:
        raise BadInput("PNG pictures are drawn by Pillow: pip install pillow, or ask for an .svg") from None


def png_of(shapes: Sequence[Shape], width: float, height: float, zoom: float) -> bytes:
    """The bytes of a PNG file."""
    image_of, draw_on, _ = pillow()
    size = math.ceil(width * zoom), math.ceil(height * zoom)
    image = image_of.new("RGB", size, PAPER)
    draw = draw_on.Draw(image)
    known = letters("".join(shape.text for shape in shapes if isinstance(shape, TextLabel)))
    for shape in shapes:
        if isinstance(shape, TextLabel):
            write_text(image, draw, shape, zoom, "".join(known[c] for c in shape.text))
        elif isinstance(shape, Box):
            fill_box(draw, shape, zoom)
        elif isinstance(shape, Raster):
            paste(image, image_of, shape, zoom)
        elif isinstance(shape, Line):
            ends = tuple(round(at * zoom) for at in (shape.x, shape.y, shape.to_x, shape.to_y))
            draw.line(ends, fill=shape.stroke, width=max(1, round(shape.thick * zoom)))
        elif isinstance(shape, Polyline):
            points = [(round(x * zoom), round(y * zoom)) for x, y in shape.points]
            draw.line(points, fill=shape.stroke, width=max(1, round(shape.thick * zoom)))
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


def write_text(image: Any, draw: Any, words: TextLabel, zoom: float, text: str) -> None:
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
