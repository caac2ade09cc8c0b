"""The built-in pictures: every caption is true, splits share nothing, and a picture is always the same."""

import re
from itertools import combinations

import numpy as np
import pytest

from heedful.corpora import shapes
from heedful.errors import BadInput

FEW = 60


@pytest.fixture(scope="module")
def pictures():
    return {name: shapes.split(name)[:FEW] for name in shapes.SPLITS}


def test_a_picture_follows_from_its_split_and_number_alone(pictures):
    again = shapes.split("valid")
    for i in (41, 3, 59):
        one = again[i]
        assert one.scene == pictures["valid"][i].scene and one.caption == pictures["valid"][i].caption
        assert np.array_equal(one.pixels_HWC, pictures["valid"][i].pixels_HWC)
    assert again[-1].scene == again[len(again) - 1].scene
    assert shapes.split("valid", 48)[41].scene == again[41].scene  # drawn larger
    with pytest.raises(IndexError):
        again[len(again)]


def test_no_scene_is_in_two_splits(pictures):
    for name, some in pictures.items():
        for picture in some:
            assert shapes.split_of(picture.scene) == shapes.split_of(picture.scene.reverse) == name
    scenes = {name: {p.scene for p in some} for name, some in pictures.items()}
    for a, b in combinations(scenes, 2):
        assert not scenes[a] & scenes[b]


def test_relations_are_true_and_never_in_doubt(pictures):
    for picture in pictures["train"]:
        things, relation = picture.scene.things, picture.scene.relation
        if len(things) == 1:
            assert relation == ""
            continue
        (a, b) = things
        along, across = (
            (b.x - a.x, b.y - a.y) if relation in ("left of", "right of") else (b.y - a.y, b.x - a.x)
        )
        assert along > 0 if relation in ("left of", "above") else along < 0
        assert abs(along) >= 2 * abs(across) and abs(along) > shapes.SIZES[a.size] + shapes.SIZES[b.size]
        assert (a.shape, a.color) != (b.shape, b.color)


def test_captions_are_read_back_whichever_thing_is_named_first(pictures):
    for picture in pictures["train"]:
        said = shapes.parse_caption(picture.caption)
        assert said == shapes.said_of(picture.scene) and picture.caption in shapes.truths(picture.scene)
        assert len(shapes.truths(picture.scene)) == len(picture.scene.things)
        assert len({shapes.parse_caption(text).plain for text in shapes.truths(picture.scene)}) == 1
    assert shapes.parse_caption(" A small RED circle above  a blue square ") == shapes.Said(
        (("small", "red", "circle"), ("medium", "blue", "square")), "above"
    )
    above = shapes.parse_caption("a red circle above a blue square")
    assert above.plain == shapes.parse_caption("a blue square below a red circle").plain
    assert above.plain != shapes.parse_caption("a red circle below a blue square").plain
    for wrong in (
        "",
        "a red",
        "red circle",
        "a pink circle",
        "a red circle above",
        "a red circle near a blue square",
    ):
        assert shapes.parse_caption(wrong) is None
    with pytest.raises(BadInput, match=re.escape('"a pink cat" is no caption of shapes')):
        shapes.checked_caption("a pink cat")


@pytest.mark.parametrize("side", [32, 57])
@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_a_thing_is_drawn_where_and_as_large_as_it_is_said_to_be(shape, side):
    for size, half in shapes.SIZES.items():
        thing = shapes.Thing(shape, "blue", size, 0.45, 0.6)
        pixels = shapes.draw(shapes.Scene((thing,)), side).astype(int)
        away = np.abs(pixels - shapes.PAPER).sum(-1) > 8
        rows, columns = np.flatnonzero(away.any(1)), np.flatnonzero(away.any(0))
        for found, middle in ((rows, thing.y), (columns, thing.x)):
            assert abs((found[0] + found[-1] + 1) / 2 - middle * side) <= 1
            assert abs((found[-1] - found[0] + 1) - 2 * half * side) <= 2.2
        y, x = int(thing.y * side), int(thing.x * side)
        assert tuple(pixels[y, x]) == shapes.COLORS["blue"]
        smooth = ~away | (pixels == shapes.COLORS["blue"]).all(-1)
        assert not smooth.all()  # edges are neither paper nor color


def test_shapes_of_one_size_differ_in_what_they_cover():
    covers = {}
    for shape in shapes.SHAPES:
        pixels = shapes.draw(shapes.Scene((shapes.Thing(shape, "black", "small", 0.5, 0.5),)))
        covers[shape] = (pixels.sum(-1) < 400).astype(int)
    for a, b in combinations(covers, 2):
        assert np.abs(covers[a] - covers[b]).sum() >= 6, (a, b)


def test_every_class_comes_and_has_the_name_of_its_thing():
    found = [shapes.label_of(p.scene) for p in shapes.split("train", 16, things=1)[:400]]
    assert set(found) == set(shapes.labels()) and len(shapes.labels()) == 30
    one, two = shapes.split("test", things=1)[5], shapes.split("test", things=2)[5]
    assert len(one.scene.things) == 1 and len(two.scene.things) == 2
    assert shapes.label_of(two.scene) == f"{two.scene.things[0].color} {two.scene.things[0].shape}"


def test_what_there_is_not_is_refused():
    for wrong, told in (
        (lambda: shapes.split("tset"), 'no split "tset"; did you mean "test"'),
        (lambda: shapes.split("test", 8), "16 to 1024 pixels a side, not 8"),
        (lambda: shapes.split("test", things=3), "1 or 2 things, or 0 for either, not 3"),
    ):
        with pytest.raises(BadInput, match=told):
            wrong()
