"""Attention as words and pictures: labels that people can read, shades, SVG and PNG."""

import math
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
import tokenizers as tk
from helpers.look_cases import imported
from helpers.tokenizer_cases import byte_level, word_piece

from heedful.data.pieces import labels
from heedful.data.vocab import SPECIALS, Vocab, train_vocab
from heedful.errors import BadInput
from heedful.inside.look import png
from heedful.inside.look.attention import look
from heedful.inside.look.heads import MEASURE, habits
from heedful.inside.look.png import letters
from heedful.inside.look.shades import columns_of, shades
from heedful.inside.look.shapes import (
    SIGNED,
    SLOPE,
    WEIGHTS,
    Box,
    CellGrid,
    TextLabel,
    color,
    reach,
    runs_of,
    width_of,
)
from heedful.parts.positions.absolute import Sinusoidal

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "The cat sat on the mat."


# Words


def test_tokens_are_shown_as_text_and_spaces_only_where_they_say_something():
    bpe = byte_level()

    def shown(tokenizer, text):
        return labels(tokenizer, tokenizer.encode(text).ids)

    assert shown(bpe, "The cat  mats\n") == ["The", "cat", "␣", "mat", "##s", "\\n"]
    assert shown(bpe, "The猫")[1:] == ["<e7><8c>", "<ab>"] or shown(bpe, "The猫")[1:] == [
        "<e7>",
        "<8c>",
        "<ab>",
    ]
    assert labels(bpe, [0]) == ["<|endoftext|>"]
    wp = shown(word_piece(), "the cats")
    assert (wp[0], wp[1], wp[-1]) == ("[CLS]", "the", "[SEP]") and wp[3].startswith("##")
    seen = shown(imported("t5").tokenizer, "the cat")
    assert seen[-1] == "</s>" and "▁" not in "".join(seen)
    assert "</w>" not in "".join(shown(imported("gpt1").tokenizer, "the cat sat"))
    assert labels(None, [3, 14]) == ["3", "14"]
    assert labels(bpe, [100_000]) == ["#100000"]


def test_words_of_our_own_vocabularies_are_whole():
    words = train_vocab("word", ["l'école est là, où ?"], 40)
    ids = words.encode_batch(["l'école est là"])[0]
    assert labels(words.tokenizer, ids) == ["l", "'", "école", "est", "là"]
    assert labels(words.tokenizer, [Vocab.bos, Vocab.unk]) == [SPECIALS[1], SPECIALS[3]]
    chars = train_vocab("char", ["ab cd"], 20)
    assert labels(chars.tokenizer, chars.encode_batch(["ab c"])[0]) == ["a", "b", "␣", "c"]


def test_a_long_label_is_cut_and_bytes_of_sentencepiece_are_bytes():
    model = tk.Tokenizer(tk.models.WordLevel({"▁a": 0, "<0x0A>": 1, "▁" + "x" * 40: 2}, unk_token="▁a"))
    model.decoder = tk.decoders.Sequence([tk.decoders.Replace("▁", " "), tk.decoders.ByteFallback()])
    found = labels(model, [0, 1, 2])
    assert found[:2] == ["a", "\\n"] and found[2] == "x" * 19 + "…"


def test_shades_leave_out_what_a_mask_hides_and_tell_each_rows_largest():
    seen = look(imported("gpt2"), "The cat", layer=1, head=1)
    lines = seen.text(80).splitlines()
    assert len(lines) == len(seen.down) + 1
    cells = [line.split()[1] for line in lines[1:]]
    assert len(cells) == len(seen.down)
    first = lines[1]
    assert first.rstrip().endswith(f"1.00 {seen.across[0]}") and "░" not in first
    assert shades([[0.9, 0.1, 0.0]], ["q"], ["one", "two", "three"], 60).splitlines() == [
        "  one two three",
        "q ███ ·   ·      0.90 one",
    ]


@pytest.mark.parametrize("width", [40, 60, 100])
def test_shades_fit_the_terminal(width):
    columns = [f"word{i}" for i in range(30)]
    drawn = shades([[i / 30 for i in range(30)]] * 2, ["a", "b"], columns, width)
    assert max(map(len, drawn.splitlines())) <= width
    assert ("more columns" in drawn) == (width < 100)
    letters = [line[2:] for line in drawn.splitlines()[:6]]  # words stand upright
    assert "".join(line[0] for line in letters).strip() == "word0"
    assert "".join(line[22:23] for line in letters) == "word11"


def test_chinese_words_take_two_places():
    assert columns_of("猫a") == 3
    lines = shades([[1.0, 0.0]], ["猫"], ["我", "是我的"], 60).splitlines()
    assert lines[1].startswith("猫 ███ ·")


def test_many_heads_are_a_table_and_the_best_of_them():
    seen = look(imported("gpt2"), TEXT)
    text = seen.text(90)
    rows = [line.split() for line in text.splitlines()[1:7]]
    assert sorted((int(r[0]), int(r[1])) for r in rows) == [(n, h) for n in (1, 2) for h in (1, 2, 3)]
    assert (int(rows[0][0]), int(rows[0][1])) == (seen.best.layer, seen.best.head)
    assert "one after" not in text  # nobody looks ahead
    assert "one after" in look(imported("bert"), TEXT).text()
    shares = habits(seen.best.weights_TS)
    assert rows[0][4:] == [f"{shares[name]:.2f}" for name in ("itself", "one before", "the first")]


# Pictures


def test_colors_get_steadily_darker_or_lighter_so_that_a_gray_print_says_the_same():
    for ramp, sign in ((WEIGHTS, -1), (SIGNED, 1)):
        gray = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in (color(i / 50, ramp) for i in range(51))]
        assert all(sign * (b - a) > 0 for a, b in pairwise(gray))
    assert color(-3) == (255, 255, 255) and color(7) == WEIGHTS[-1]


def titles(root):
    return [title.text for title in root.iter(f"{SVG}title")]


def texts(root):
    return [text.text for text in root.iter(f"{SVG}text")]


def test_one_head_is_drawn_cell_by_cell_with_its_words_and_name():
    seen = look(imported("gpt2"), "The <cat> & I", layer=2, head=3)
    root = ET.fromstring(seen.svg())
    T = len(seen.down)
    cells = [title for title in titles(root) if " attends to " in title]
    assert len(cells) == T * (T + 1) // 2  # the future is not drawn
    assert titles(root)[0] == "self-attention: layer 2 of 2, head 3 of 3"  # for screen readers
    weight = float(seen.chosen[0].weights_TS[2, 1])
    assert f"{seen.down[2]} attends to {seen.across[1]}: {weight:.3f}" in titles(root)
    assert "self-attention: layer 2 of 2, head 3 of 3" in texts(root)
    assert "The <cat> & I" in texts(root)
    shown = [one.text for one in ET.fromstring(seen._repr_html_()).iter("text")]
    assert shown == texts(root)


def test_all_heads_are_small_multiples_with_one_framed():
    seen = look(imported("llama"), TEXT)
    root = ET.fromstring(seen.svg())
    names = [text for text in texts(root) if text and text.startswith("layer ")]
    assert names == [f"layer {n}, head {h}" for n in (1, 2) for h in range(1, 7)]
    assert len(root.findall(f"{SVG}g")) == 12
    framed = [r for r in root.iter(f"{SVG}rect") if r.get("fill") == "none" and r.get("stroke-width") == "2"]
    assert len(framed) == 1
    assert f"frame: {MEASURE}" in texts(root)


def inside(picture):
    """Everything lies on the paper."""
    for shape in picture.shapes:
        right, bottom = reach(shape)
        assert 0 <= shape.x <= right <= picture.width and bottom <= picture.height
        if isinstance(shape, TextLabel):
            left = shape.x - width_of(shape.text, shape.size) * {"end": 1, "middle": 0.5}.get(shape.anchor, 0)
            assert left >= 0, shape.text


@pytest.mark.parametrize("how", [{}, {"layer": 1}, {"layer": 1, "head": 1}, {"head": "mean"}])
@pytest.mark.parametrize("text", ["a", TEXT, "The cat sat on the mat and " * 5])
def test_pictures_stay_on_their_paper_and_words_above_columns_do_not_meet(how, text):
    loaded = imported("bert", seed=3)
    loaded.model.encoder.inputs.position = Sinusoidal(12)
    picture = look(loaded, text, **how).picture()
    inside(picture)
    rising = [s for s in picture.shapes if isinstance(s, TextLabel) and s.rising]
    for a, b in pairwise(rising):
        if a.y == b.y and b.x > a.x:
            assert (b.x - a.x) * math.sin(SLOPE) >= 0.6 * a.size  # the next line of letters


def test_a_grid_is_the_same_cells_as_the_table():
    table = [[0.0, 1.0, 1.0], [0.5, 0.5, 0.0]]
    runs = runs_of(CellGrid(0, 0, 1, 1, table))
    cells = {(x + i, y): level for level, found in runs.items() for x, y, n in found for i in range(n)}
    assert cells == {(1, 0): 31, (2, 0): 31, (0, 1): 16, (1, 1): 16}


def test_png_is_drawn_by_pillow(monkeypatch):
    from io import BytesIO

    from PIL import Image

    seen = look(imported("t5"), TEXT, target="the cat", layer=1, head=1)
    picture = seen.picture()
    image = Image.open(BytesIO(seen.png()))
    assert image.size == (math.ceil(picture.width * 2), math.ceil(picture.height * 2))
    boxes = [s for s in picture.shapes if isinstance(s, Box) and s.title]
    for box in boxes:
        corner = round(2 * box.x) + 5, round(2 * box.y) + 5  # inside the edge, beside the number
        assert image.getpixel(corner) == box.fill
    many = Image.open(BytesIO(look(imported("gpt2"), "The cat").png()))
    assert len(many.getcolors(1 << 24)) > 20
    monkeypatch.setattr(png, "FONTS", ())  # Pillow's own font knows no accents
    assert letters("é→a漢") == {"é": "e", "→": "->", "a": "a", "漢": "?"}
    assert seen.png()[:4] == b"\x89PNG"


def test_without_pillow_a_png_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    with pytest.raises(BadInput, match="pip install pillow"):
        look(imported("gpt2"), "The cat").png()
