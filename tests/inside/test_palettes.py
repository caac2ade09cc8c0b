"""Colors that everybody can tell apart and read: contrast, and distances as color-blind people see them."""

import itertools
import math

import pytest

from heedful.inside.look.shapes import FRAME, INK, INKS, PAPER, SIGNED, WEIGHTS, color
from heedful.inside.look.themes import DARK, DARK_INKS, contrast, dark, luminance

# What is left of linear red, green and blue, by Machado, Oliveira and Fernandes (2009), for full severity.
VISION = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
FIRST, ANY = 0.06, 0.045  # in OKLab, where black and white are 1 apart: of the first four inks, of all


def seen(rgb, vision):
    """A color's place in OKLab (Ottosson 2020), as somebody sees it."""
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (c / 255 for c in rgb)]
    r, g, b = (min(1, max(0, sum(map(lambda x, y: x * y, row, linear)))) for row in VISION[vision])
    cones = (
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    )
    long, middle, short = (x ** (1 / 3) for x in cones)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def test_distances_are_those_that_are_known():
    assert math.dist(seen((0, 0, 0), "usual"), seen((255, 255, 255), "usual")) == pytest.approx(1, abs=1e-4)
    red, green = (200, 60, 60), (110, 110, 20)  # far apart, but not for everybody
    usual, without = (math.dist(seen(red, who), seen(green, who)) for who in ("usual", "deuteranopia"))
    assert without < usual / 3


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("inks", [INKS, DARK_INKS], ids=["light", "dark"])
def test_any_two_inks_can_be_told_apart(inks, vision):
    places = [seen(ink, vision) for ink in inks]
    for (i, one), (j, other) in itertools.combinations(enumerate(places), 2):
        assert math.dist(one, other) >= (FIRST if max(i, j) < 4 else ANY), (i, j)


def test_every_ink_can_be_read_on_its_paper():
    assert min(contrast(ink, PAPER) for ink in (*INKS, INK)) >= 4.5
    assert min(contrast(ink, DARK[PAPER]) for ink in (*DARK_INKS, DARK[INK])) >= 4.5
    assert tuple(dark(ink) for ink in INKS) == DARK_INKS


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("ramp", [WEIGHTS, SIGNED], ids=["weights", "signed"])
def test_ramps_get_steadily_darker_or_lighter(ramp, vision):
    light = [seen(color(i / 31, ramp), vision)[0] for i in range(32)]
    rising = [b > a for a, b in itertools.pairwise(light)]
    assert all(rising) or not any(rising)
    assert abs(light[0] - light[-1]) > 0.5


def test_a_frame_stands_out_from_every_cell_that_it_can_frame():
    """A frame has another hue than cells; where both are equally bright, hue alone tells them apart."""
    for share in range(32):
        for vision in VISION:
            for frame, cell in ((FRAME, color(share / 31)), (dark(FRAME), dark(color(share / 31)))):
                assert math.dist(seen(frame, vision), seen(cell, vision)) > 0.12
    assert 0 < luminance(FRAME) < 1
