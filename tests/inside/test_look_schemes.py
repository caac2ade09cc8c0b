"""Position schemes drawn without a model."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.inside.look.schemes import FIXED, picture_of_scheme, scheme
from heedful.inside.look.shapes import CellGrid, TextLabel, reach
from heedful.parts.positions import POSITIONS


def test_the_sinusoidal_table_is_the_papers():
    (table, _) = scheme("sinusoidal", 5, 6).sheets
    assert table.size == (5, 6) and (table.down, table.across) == ("positions", "dimension")
    for p, row in enumerate(table.numbers):
        for i in range(3):
            angle = p / 10000 ** (2 * i / 6)
            assert row[2 * i : 2 * i + 2] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)


def test_rotary_angles_and_alibi_slopes_are_the_papers():
    angles = scheme("rotary", 7, 8).sheets[0].numbers
    assert angles[3] == pytest.approx([math.cos(3 / 10000 ** (2 * i / 8)) for i in range(4)])
    (bias,) = scheme("alibi", 5, heads=4).sheets
    assert bias.first == -4
    for head, row in enumerate(bias.numbers, 1):
        assert row == pytest.approx([2 ** (-8 * head / 4) * distance for distance in range(-4, 1)])


@pytest.mark.parametrize("name", FIXED)
def test_a_picture_has_every_number_its_axes_and_a_color_bar_all_on_the_paper(name):
    found = scheme(name, 9)
    picture = picture_of_scheme(found)
    (grid,) = [shape for shape in picture.shapes if isinstance(shape, CellGrid)]
    assert (len(grid.shares), len(grid.shares[0])) == found.sheets[0].size
    shares = [share for row in grid.shares for share in row]
    assert min(shares) >= 0 and max(shares) == pytest.approx(1, abs=1e-3)
    words = [shape.text for shape in picture.shapes if isinstance(shape, TextLabel)]
    across = {"sinusoidal": "dimension", "rotary": "pair of dimensions", "alibi": "key minus query"}[name]
    assert across in words and ("position" in words or "head 1" in words)
    for shape in picture.shapes:
        right, bottom = reach(shape)
        assert 0 <= shape.x and right <= picture.width and bottom <= picture.height
    assert ET.fromstring(picture.svg()).tag.endswith("svg")


def test_every_dimension_of_a_wide_table_is_drawn():
    assert scheme("sinusoidal", 50, 512).sheets[0].size == (50, 512)


def test_the_command_draws_a_scheme_that_is_part_of_no_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    wide = ["--width", "512", "--length", "50"]
    assert main(["look", "--positions", "sinusoidal", *wide, "--output", "s.png"]) == 0
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    assert "sinusoidal, without a model:" in capsys.readouterr().out
    assert main(["look", "--positions", "alibi", "--heads", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] is None and len(found["positions"][0]["tables"][0]["numbers"]) == 3
    assert not Path("positions.svg").exists()


@pytest.mark.parametrize("name", [name for name in POSITIONS if name not in FIXED])
def test_a_scheme_without_numbers_of_its_own_needs_a_run(name):
    with pytest.raises(BadInput, match="give a RUN, or draw sinusoidal, rotary or alibi"):
        scheme(name, 9)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["sinusoid"], 'there is no run and no position scheme "sinusoid"; did you mean "sinusoidal"?'),
        (["sinusoidal", "--width", "7"], "come in pairs of dimensions: --width 7 is odd"),
        (["sinusoidal", "--width", "2000"], "--width must be from 1 to 1024, not 2000"),
        (["sinusoidal", "--heads", "2"], "--heads does nothing for sinusoidal positions: give --width"),
        (["alibi", "--width", "8"], "--width does nothing for alibi positions: give --heads"),
        (["rotary", "--length", "1"], "--length must be from 2 to 512 positions, not 1"),
        ([".", "--width", "8"], "--width is for a position scheme without a model"),
    ],
)
def test_a_wrong_scheme_or_size_is_one_sentence(args, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["look", "--positions", *args]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
