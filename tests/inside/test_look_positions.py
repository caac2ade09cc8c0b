"""Positions drawn: tables, angles and biases."""

import json
import xml.etree.ElementTree as ET

import pytest
import torch
from helpers.look_cases import imported

from heedful.errors import BadInput
from heedful.inside.look.positions import picture_of, positions
from heedful.inside.look.shapes import (
    CellGrid,
    TextLabel,
    reach,
    width_of,
)
from heedful.inside.look.sheets import Sheet, sheets
from heedful.parts.positions.absolute import Learned, Sinusoidal
from heedful.parts.positions.base import NoPosition
from heedful.parts.positions.relative import ALiBi, Shaw
from heedful.parts.positions.rotary import Rotary


def inside(picture):
    """Everything lies on the paper."""
    for shape in picture.shapes:
        right, bottom = reach(shape)
        assert 0 <= shape.x <= right <= picture.width and bottom <= picture.height
        if isinstance(shape, TextLabel):
            left = shape.x - width_of(shape.text, shape.size) * {"end": 1, "middle": 0.5}.get(shape.anchor, 0)
            assert left >= 0, shape.text


# Positions


def test_sinusoids_and_learned_tables_are_drawn_as_they_are():
    loaded = imported("transformer")
    (order,) = positions(loaded, 10)
    assert (order.kind, order.where) == ("sinusoidal", "at the input of the encoder and the decoder")
    table, alike = (torch.tensor(sheet.numbers) for sheet in order.sheets)
    expected = Sinusoidal(12, layout="halves").encode(torch.arange(10)).float()
    torch.testing.assert_close(table, expected)
    torch.testing.assert_close(alike.diagonal(), torch.ones(10))
    loaded = imported("gpt2")
    (order,) = positions(loaded, 500)
    torch.testing.assert_close(torch.tensor(order.sheets[0].numbers), loaded.model.inputs.position.table.data)
    assert "41 positions" in order.told


def test_rotary_angles_and_biases_are_drawn_as_they_act():
    (order,) = positions(imported("llama"), 9)
    angles, product = (torch.tensor(sheet.numbers) for sheet in order.sheets)
    q = torch.ones(1, 1, 9, 4)
    turned = Rotary(4).rotate(q, torch.arange(9))[0, 0]
    torch.testing.assert_close(product.float(), turned @ turned.T / 4)
    assert angles.shape == (9, 2) and angles[0].tolist() == [1, 1]
    loaded = imported("t5")
    first, second = positions(loaded)
    assert first.where == "in the self-attention of the encoder" != second.where
    numbers = torch.tensor(first.sheets[0].numbers)
    assert numbers.shape == (3, 65) and first.sheets[0].first == -32
    table = loaded.model.encoder.stack.blocks[0].attention.layer.position.table
    torch.testing.assert_close(numbers[:, 32], table[0].detach())  # distance 0 is bucket 0
    torch.testing.assert_close(numbers[:, 30], table[2].detach())  # two before
    torch.testing.assert_close(numbers[:, 34], table[16 + 2].detach())  # two after
    assert torch.tensor(second.sheets[0].numbers).shape == (3, 33)  # nobody looks ahead


def test_alibi_is_a_slope_for_each_head_and_no_position_is_none():
    loaded = imported("gpt2")
    loaded.model.inputs.position = NoPosition()
    assert positions(loaded) == []
    for block in loaded.model.stack.blocks:
        block.attention.layer.position = ALiBi(3)
    (order,) = positions(loaded)  # the same in both layers
    numbers = torch.tensor(order.sheets[0].numbers)
    torch.testing.assert_close(numbers[:, -3], -2 * torch.tensor([2**-4, 2**-8, 2**-2]))
    loaded.model.stack.blocks[0].attention.layer.position = Shaw(2, 4)
    with pytest.raises(BadInput, match="Shaw depends on the words"):
        positions(loaded)


def test_a_wide_table_is_thinned_by_pairs():
    loaded = imported("gpt2")
    loaded.model.inputs.position = Learned(41, 600)
    (order,) = positions(loaded, 6)
    found = torch.tensor(order.sheets[0].numbers)
    table = loaded.model.inputs.position.table.detach()
    assert found.shape == (6, 120)
    torch.testing.assert_close(found[:, :4], table[:6, [0, 1, 10, 11]])
    assert "one pair in 5" in order.sheets[0].across


def test_products_by_offset_are_those_of_the_table():
    loaded = imported("gpt2")
    (order,) = positions(loaded, 7)
    table = loaded.model.inputs.position.table.detach()[:7].double()
    for k in range(7):
        products = [float(table[i] @ table[i - k]) for i in range(k, 7)]
        found = order.similarity
        assert found.mean[k] == pytest.approx(sum(products) / len(products))
        assert (found.low[k], found.high[k]) == pytest.approx((min(products), max(products)))
    assert order.rotations is None and order.trained == 41
    assert all(order.similarity is None for order in positions(imported("t5")))


@pytest.mark.parametrize("name", ["transformer", "llama"])
def test_an_offset_is_a_rotation_of_each_pair(name):
    (order,) = positions(imported(name), 9)
    turns = order.rotations
    assert max(turns.errors) < 1e-6 and len(turns.errors) == 9
    matrices = turns.matrices(4)
    torch.testing.assert_close(matrices @ turns.matrices(2), turns.matrices(6))
    position = Sinusoidal(2 * len(turns.frequencies), layout="interleaved")
    table = position.encode(torch.arange(9)).unflatten(-1, (-1, 2)).flip(-1)  # cosine, sine
    torch.testing.assert_close((matrices @ table[:5, ..., None])[..., 0], table[4:])


def test_another_base_changes_the_numbers_and_not_the_model():
    loaded = imported("transformer")
    (own,), (other,) = positions(loaded, 6), positions(loaded, 6, base=50.0, trained=4)
    assert (own.base, other.base, other.trained) == (10000.0, 50.0, 4)
    expected = Sinusoidal(12, layout="halves", base=50.0).encode(torch.arange(6)).float()
    torch.testing.assert_close(torch.tensor(other.sheets[0].numbers), expected)
    assert positions(loaded, 6)[0] == own


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "t5", "transformer"])
def test_positions_of_every_family_fit_paper_and_terminal(name):
    found = positions(imported(name))
    picture = picture_of(found, name)
    inside(picture)
    ET.fromstring(picture.svg())
    for order in found:
        *_, last = lines = order.text(60).splitlines()[4:]
        assert max(map(len, lines)) <= 60
        rows, columns = order.sheets[0].size
        more = [f"{rows - 24} more {order.sheets[0].down}"] if rows > 24 else []
        drawn = len(lines[0]) - len(lines[0].rstrip("·░▒▓█"))
        more += [f"{columns - drawn} more columns"] if columns > drawn else []
        assert not more or last == f"({' and '.join(more)}: the picture has them)"
        assert more or "picture" not in last
    json.dumps([order.as_json() for order in found], allow_nan=False)


def test_tables_of_several_lines_stand_under_each_other():
    narrow, wide = ([[0.5] * columns] * 7 for columns in (3, 40))
    lines = [[Sheet("a", table, "x", "y"), Sheet("b", narrow, "x", "y")] for table in (wide, narrow)]
    lines.append([Sheet("alone", wide, "x", "y")])
    places = [shape.x for shape in sheets(lines, "").shapes if isinstance(shape, CellGrid)]
    assert places[0] == places[2] == places[4] < places[1] == places[3]
