"""Figures: what is drawn beside the measured lines stands where the numbers say."""

import pytest

from heedful.inside.look.drawing import Drawing
from heedful.inside.look.shapes import Line, Polyline, TextLabel
from heedful.lab.figures import LinePanel

SQUARES = {2.0: [3.0], 4.0: [12.0], 8.0: [48.0]}  # 3 n^2 / 4


def drawn(**more):
    picture = Drawing()
    LinePanel("FLOPs", "words", {"squares": SQUARES}, **more).draw(picture, 0.0, 0.0)
    return picture.shapes


def test_a_slope_lies_on_a_line_that_grows_with_its_power():
    (line,) = (
        shape for shape in drawn(slopes={"n\u00b2": 2}) if isinstance(shape, Line) and shape.thick == 0.8
    )
    (measured,) = (shape for shape in drawn() if isinstance(shape, Polyline))
    assert (line.x, line.y) == pytest.approx(measured.points[0])
    assert (line.to_x, line.to_y) == pytest.approx(measured.points[-1])


def test_a_steep_slope_ends_at_the_top_of_the_field_with_its_name():
    shapes = drawn(slopes={"n\u2074": 4})
    (line,) = (shape for shape in shapes if isinstance(shape, Line) and shape.thick == 0.8)
    (measured,) = (shape for shape in shapes if isinstance(shape, Polyline))
    assert line.to_y == pytest.approx(26) and line.to_x < measured.points[-1][0]
    assert "n\u2074" in {shape.text for shape in shapes if isinstance(shape, TextLabel)}
