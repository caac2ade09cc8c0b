"""Themes: the colors of a drawing on dark pages, and letters that stay readable on any color."""

from __future__ import annotations

import colorsys
import re
from collections.abc import Sequence
from functools import lru_cache

from ...parts.notebooks import both
from .shapes import FAINT, FRAME, INK, INKS, PAPER, SIGNED, WEIGHTS, Color, color

# From the paper to the brightest: what is dark on light paper is bright on dark paper.
DARK_WEIGHTS: tuple[Color, ...] = ((22, 24, 29), (24, 66, 110), (62, 140, 205), (214, 236, 255))
DARK_INKS: tuple[Color, ...] = (
    (125, 195, 240),
    (225, 135, 45),
    (185, 255, 190),
    (222, 60, 245),
    (150, 150, 150),
    (245, 217, 17),
    (165, 235, 255),
    (235, 175, 145),
)
DARK: dict[Color, Color] = {
    **dict(zip(INKS, DARK_INKS, strict=True)),
    PAPER: DARK_WEIGHTS[0],
    INK: (232, 234, 238),
    FAINT: (168, 173, 181),
    FRAME: (255, 158, 84),
}
READABLE = 4.5  # contrast of text and what is behind it (WCAG 2, AA)
TAG = re.compile(r"<[a-z]+ [^<>]*>")
COLORED = re.compile(r'(?<![\w-])(fill|stroke|data-on)="#([0-9a-f]{6})"')


@lru_cache(maxsize=4096)
def dark(rgb: Color) -> Color:
    """The color that takes this one's place on a dark page."""
    if rgb in DARK:
        return DARK[rgb]
    share = share_on(WEIGHTS, rgb)
    if share is not None:
        return color(share, DARK_WEIGHTS)
    if share_on(SIGNED, rgb) is not None:  # from dark to bright already
        return rgb
    hue, lightness, saturation = colorsys.rgb_to_hls(*(x / 255 for x in rgb))
    r, g, b = (round(255 * x) for x in colorsys.hls_to_rgb(hue, 0.95 - 0.8 * lightness, saturation))
    return r, g, b


def share_on(ramp: Sequence[Color], rgb: Color) -> float | None:
    """Where a color stands on a ramp, from 0 to 1; None if it is none of its colors."""
    for i in range(len(ramp) - 1):
        start, end = ramp[i], ramp[i + 1]
        axis = max(range(3), key=lambda channel: abs(end[channel] - start[channel]))
        share = (rgb[axis] - start[axis]) / (end[axis] - start[axis])
        if 0 <= share <= 1:
            near = color((i + share) / (len(ramp) - 1), ramp)
            if max(abs(a - b) for a, b in zip(near, rgb, strict=True)) <= 1:
                return (i + share) / (len(ramp) - 1)
    return None


def luminance(rgb: Color) -> float:
    """The relative luminance of WCAG 2, from 0 to 1."""
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (c / 255 for c in rgb)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    """From 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@lru_cache(maxsize=4096)
def ink_on(behind: Color) -> Color:
    """Letters that can be read on a color: ink, else white, else black, one of which always can."""
    return next((ink for ink in (INK, PAPER) if contrast(ink, behind) >= READABLE), (0, 0, 0))


def in_both_themes(svg: str) -> str:
    """An SVG whose fills and strokes have a color for dark pages too."""
    return TAG.sub(lambda found: with_both(found[0]), svg)


def with_both(tag: str) -> str:
    """One element: what is its color stays for browsers that know no other."""
    found = {name: rgb_of(value) for name, value in COLORED.findall(tag)}
    behind = found.pop("data-on", None)
    if not found:
        return tag
    pairs = {name: (rgb, dark(rgb)) for name, rgb in found.items()}
    if behind is not None:  # letters on a cell
        pairs["fill"] = found["fill"], ink_on(dark(behind))
    style = ";".join(f"{name}:{both(hexed(a), hexed(b))}" for name, (a, b) in pairs.items())
    end = "/>" if tag.endswith("/>") else ">"
    return f'{tag[: -len(end)]} style="{style}"{end}'


def rgb_of(text: str) -> Color:
    r, g, b = bytes.fromhex(text)
    return r, g, b


def hexed(rgb: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
