"""A drawing: shapes that are laid out once and drawn as SVG or PNG; its title, and the notes under it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...parts.notebooks import framed
from .png import png_of
from .shapes import FAINT, FONT, MARGIN, SLOPE, SMALL, Box, Shape, Table, TextLabel, color, reach, width_of
from .svg import svg_of


@dataclass
class Drawing:
    """Shapes that are laid out once and drawn as SVG or PNG. It is a picture in a notebook.

    Attributes:
        shapes: The shapes, in the order in which they are drawn.
        width: Width in pixels; it grows with the shapes.
        height: Height in pixels.
        title: What screen readers say; without it, the first label.

    Example:
        >>> drawing = heedful.load("runs/demo").look("The cat sleeps.").picture()
        >>> drawing.svg()[:4], drawing.png()[1:4], drawing.width > 0
        ('<svg', b'PNG', True)
    """

    shapes: list[Shape] = field(default_factory=list)
    width: float = 0
    height: float = 0
    title: str = ""

    def add(self, *shapes: Shape) -> None:
        for shape in shapes:
            right, bottom = reach(shape)
            self.width, self.height = max(self.width, right + MARGIN), max(self.height, bottom + MARGIN)
            self.shapes.append(shape)

    def svg(self) -> str:
        """The drawing as the text of an SVG file, readable on light and on dark pages.

        Returns:
            The text.
        """
        first = next((shape.text for shape in self.shapes if isinstance(shape, TextLabel)), "picture")
        return svg_of(self.shapes, self.width, self.height, self.title or first)

    def html(self) -> str:
        """The drawing for a notebook, readable on light and on dark pages."""
        return framed(self.svg())

    def png(self, zoom: float = 2.0) -> bytes:
        """The drawing as a PNG file, drawn by Pillow.

        Args:
            zoom: Pixels of the file for a pixel of the drawing.

        Returns:
            The bytes of the file.
        """
        return png_of(self.shapes, self.width, self.height, zoom)

    def _repr_html_(self) -> str:
        return self.html()


class Pictured(ABC):
    """What has a picture, which notebooks show. Most results below are one.

    Example:
        >>> from pathlib import Path
        >>> seen = heedful.load("runs/demo").look("The cat sleeps.")
        >>> isinstance(seen, Pictured), seen.svg() == seen.picture().svg(), seen.png()[1:4]
        (True, True, b'PNG')
    """

    @abstractmethod
    def picture(self) -> Drawing:
        """Draw the picture.

        Returns:
            `Drawing`.
        """

    def svg(self) -> str:
        """The picture as the text of an SVG file.

        Returns:
            The text.
        """
        return self.picture().svg()

    def png(self) -> bytes:
        """The picture as a PNG file; needs Pillow.

        Returns:
            The bytes of the file.
        """
        return self.picture().png()

    def _repr_html_(self) -> str:
        return self.picture().html()


def heading(picture: Drawing, title: str) -> float:
    """The title's lines; where what comes next may begin."""
    y, picture.title = 10.0, picture.title or title.partition("\n")[0]
    for i, line in enumerate(title.splitlines()):
        y += 18
        picture.add(TextLabel(MARGIN, y, line, FONT, bold=i == 0))
    return y + 8


def rise(words: Sequence[str], font: float) -> float:
    """How high the words above columns reach."""
    return max((width_of(word, font) for word in words), default=0) * math.sin(SLOPE) + 0.5 * font


def notes(picture: Drawing, left: float, y: float, most: float, below: Sequence[str]) -> None:
    """The scale of colors from 0 to the largest number, and sentences under it."""
    step = 12
    picture.add(TextLabel(left, y + 10, "0", SMALL, fill=FAINT))
    for i in range(8):
        picture.add(Box(left + 12 + i * step, y + 1, step, 11, color((i + 0.5) / 8), (204, 204, 204), 0.5))
    picture.add(TextLabel(left + 12 + 8 * step + 6, y + 10, f"{most:.2f}", SMALL, fill=FAINT))
    for i, line in enumerate(below):
        picture.add(TextLabel(MARGIN, y + 32 + 15 * i, line, SMALL + 1, fill=FAINT))


def largest(*tables: Table) -> float:
    """The largest number of all, by which colors are scaled."""
    return max((x for table in tables for row in table for x in row), default=0.0) or 1.0
