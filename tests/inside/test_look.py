"""heedful look: the model's own numbers, words that people can read, and pictures that say what they show."""

import dataclasses
import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from itertools import islice, pairwise
from pathlib import Path

import pytest
import tokenizers as tk
import torch
from helpers import tiny
from helpers.look_cases import Runs, imported, saved
from helpers.tokenizer_cases import byte_level, word_piece

import heedful
from heedful.cli.main import main
from heedful.corpora import phrasebook
from heedful.data.pieces import labels
from heedful.data.vocab import SPECIALS, Vocab, train_vocab
from heedful.errors import BadInput, NotFinite
from heedful.inside.look import heads, png
from heedful.inside.look.attention import look, run
from heedful.inside.look.heads import MEASURE, TRIED, Head, habits, information, practice
from heedful.inside.look.png import letters
from heedful.inside.look.positions import picture_of, positions
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
from heedful.inside.look.sheets import Sheet, sheets
from heedful.interop.load import load
from heedful.interop.loaded import Loaded
from heedful.models import gpt2, transformer
from heedful.parts.positions.absolute import Learned, Sinusoidal
from heedful.parts.positions.base import NoPosition
from heedful.parts.positions.relative import ALiBi, Shaw
from heedful.parts.positions.rotary import Rotary
from heedful.parts.watch import watch
from heedful.tasks import alignment
from heedful.tasks.translate import translate

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "The cat sat on the mat."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("runs"))


# Numbers


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "llama", "bert", "t5", "transformer"])
def test_weights_are_those_of_the_model_at_work(name):
    loaded = imported(name)
    pair = name in ("t5", "transformer")
    for which in ("cross", "self", "encoder") if pair else ("self",):
        seen = look(loaded, TEXT, which=which)
        ids = torch.tensor([loaded.tokenizer.encode(TEXT).ids])
        with torch.no_grad(), watch(loaded.model) as trace:
            loaded.model(*([ids, torch.tensor([seen.words.read])] if pair else [ids]))
        part = {"cross": "cross", "self": "attention", "encoder": "attention"}[which]
        place = {"cross": "decoder", "self": "decoder" if pair else "", "encoder": "encoder"}[which]
        expected = {
            path: w[0]
            for path, w in trace.weights().items()
            if f".{part}." in path and path.startswith(place)
        }
        assert list(seen.weights) == list(expected) and len(seen.heads) == sum(map(len, expected.values()))
        for path, found in seen.weights.items():
            torch.testing.assert_close(found, expected[path])
            assert found.shape[1:] == (len(seen.down), len(seen.across))


def test_cross_attention_is_read_at_the_row_that_predicts_each_word():
    loaded = imported("t5")
    seen = look(loaded, TEXT, target="the mat sat")
    answers = [*loaded.tokenizer.encode("the mat sat", add_special_tokens=False).ids, 1]
    assert seen.words.read == [0, *answers[:-1]] and seen.words.answers == answers
    assert seen.down == labels(loaded.tokenizer, answers) and seen.down[-1] == "</s>"
    assert look(loaded, TEXT, target="the mat sat", which="self").down[0] == "<pad>"


def test_without_a_target_it_is_the_models_own_greedy_translation(runs):
    loaded = load(runs("translate"))
    vocab = Vocab.from_json(loaded.tokenizer.to_str())
    for line in ("ba de fi go", "ku ka"):
        seen = look(loaded, line)
        assert seen.words.translation == translate(loaded.model, vocab, [line])[0] != ""
        assert seen.across == line.split()
        again = look(loaded, line, target=seen.words.translation)
        written = len(seen.down)  # cut off at the greatest length, it lacks the end of sentence
        assert again.down[:written] == seen.down
        for path, weights in seen.weights.items():
            torch.testing.assert_close(again.weights[path][:, :written], weights)


def test_a_vocabulary_for_each_side_labels_each_side_by_its_own(runs):
    seen = look(load(runs("separate")), "ba de fi", target="FI DE BA")
    assert (seen.across, seen.down) == (["ba", "de", "fi"], ["FI", "DE", "BA", "[EOS]"])


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("lm", ["b", "a", "␣", "d", "e"]),
        ("mlm", ["[CLS]", "b", "a", "␣", "d", "e", "[SEP]"]),
        ("classify", ["[CLS]", "ba", "de", "[SEP]"]),
        ("decoder", ["[BOS]", "b", "a", "␣", "d", "e", "[EOS]"]),
    ],
)
def test_a_run_reads_what_its_task_taught_it_to_read(runs, kind, expected):
    seen = look(load(runs(kind)), "ba de")
    assert seen.down == seen.across == expected


# Which heads


def test_heads_are_chosen_by_layer_number_mean_and_best():
    loaded = imported("transformer")

    def chosen(**how):
        return [(head.layer, head.head) for head in look(loaded, TEXT, target="mat", **how).chosen]

    assert chosen() == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    assert chosen(layer=2) == [(2, 1), (2, 2)]
    assert chosen(head=2) == [(1, 2), (2, 2), (3, 2)]
    assert chosen(layer=3, head=1) == [(3, 1)]
    assert chosen(head="mean") == [(1, None), (2, None), (3, None)]
    assert chosen(which="encoder", layer=1) == [(1, 1), (1, 2), (1, 3)]
    seen = look(loaded, TEXT, target="mat", layer=2, head="mean")
    expected = seen.weights["decoder.stack.blocks.1.cross.layer"].mean(0)
    torch.testing.assert_close(seen.chosen[0].weights_TS, expected)


def test_information_is_nothing_unless_queries_look_at_different_places():
    eye = torch.eye(8)
    assert information(torch.full((8, 8), 1 / 8)) == pytest.approx(0)
    assert information(eye[[3] * 8]) == pytest.approx(0)
    assert information(eye) == pytest.approx(3)  # log2 8
    assert 0 < information(0.5 * eye + 0.5 / 8) < 3


def test_without_gold_alignments_the_best_head_is_the_one_that_tells_most():
    seen = look(imported("gpt2"), TEXT, head="best")
    assert [seen.best] == seen.chosen
    told = {(head.layer, head.head): information(head.weights_TS) for head in seen.heads}
    assert (seen.best.layer, seen.best.head) == max(told, key=told.get)
    assert seen.best_by == MEASURE
    within = look(imported("gpt2"), TEXT, layer=2, head="best")
    assert within.best.layer == 2 and within.best_by.endswith("of layer 2")


@pytest.fixture(scope="module")
def phrases():
    """A fresh translator with the words of a few phrases, and the phrases."""
    pairs = list(islice(phrasebook.pairs(5), 30))
    vocab = train_vocab("word", (text for pair in pairs for text in (pair.source, pair.target)), 600)
    sizes = {"vocab": vocab.size, "target_vocab": vocab.size, "width": 12, "heads": 3, "decoder_heads": 2}
    sizes |= {"layers": 1, "decoder_layers": 2, "hidden": 20, "decoder_hidden": 14}
    config = transformer.TransformerConfig(**sizes)
    model = tiny.build((transformer, config), torch.float32)
    special = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1}
    return Loaded("transformer", config, model, vocab.tokenizer, special), vocab, pairs


def test_with_gold_alignments_the_best_head_is_the_one_that_aligns_best(phrases):
    loaded, vocab, pairs = phrases
    seen = look(loaded, pairs[0].source, target=pairs[0].target, head="best", gold=pairs[1:])
    rates = alignment.error_rates(loaded.model, vocab, pairs[1:])
    one_by_one = torch.stack([alignment.error_rates(loaded.model, vocab, [pair]) for pair in pairs[1:]])
    torch.testing.assert_close(rates, one_by_one.mean(0))
    place = int(rates.argmin())
    assert (seen.best.layer, seen.best.head) == (place // 2 + 1, place % 2 + 1)
    assert f"error rate {rates.min():.2f} over 29 other sentences" in seen.best_by


def test_a_head_that_follows_the_gold_alignment_has_no_error(phrases):
    loaded, _, pairs = phrases
    pair = next(p for p in pairs if len({t for _, t in p.alignment}) == len(phrasebook.words(p.target)))
    seen = look(loaded, pair.source, target=pair.target)
    assert seen.beside(None).error_rate(seen.best) is None
    assert seen.beside(dataclasses.replace(pair, target="Autre chose.")).pair is None
    seen = seen.beside(pair)
    sharp = torch.zeros(len(seen.down), len(seen.across))
    for target, source in seen.marked:
        sharp[target, source] = 1 if source == min(s for t, s in seen.marked if t == target) else 0
    gold = {t: s for s, t in sorted(pair.alignment, reverse=True)}  # the first source word of each
    expected = 1 - 2 * len(gold) / (len(gold) + len(pair.alignment))
    assert seen.error_rate(Head(1, 1, "", sharp)) == pytest.approx(expected)
    assert seen.error_rate(Head(1, 1, "", sharp.roll(1, 1))) > expected
    words = phrasebook.words(pair.source), phrasebook.words(pair.target)
    for target, source in seen.marked:
        links = {(words[0][s].lower(), words[1][t].lower()) for s, t in pair.alignment}
        assert any(seen.across[source].lower() in a and seen.down[target].lower() in b for a, b in links)
    assert (
        "frames: the gold alignment"
        in look(loaded, pair.source, target=pair.target, layer=1, head=1).beside(pair).svg()
    )


def test_only_a_run_of_the_phrasebook_has_sentences_to_practise_with(tmp_path):
    assert practice(tmp_path) == []
    (tmp_path / "recipe.json").write_text(json.dumps({"data": {"corpus": "pylib"}}))
    assert practice(tmp_path) == []
    (tmp_path / "recipe.json").write_text(json.dumps({"data": {"corpus": "phrasebook"}}))
    assert len(practice(tmp_path)) == TRIED


def test_a_sentence_is_found_in_any_split_of_the_phrasebook(monkeypatch, phrases):
    pairs = phrases[2]
    monkeypatch.setattr(phrasebook, "split", lambda name: pairs[4:6] if name == "long" else pairs[:4])
    assert alignment.find_pair(pairs[5].source) == pairs[5]
    assert alignment.find_pair("Nobody says this.") is None


# One query, step by step


def head_output(loaded, seen, head, place):
    """What the model itself takes home, caught where its heads are joined."""
    attention, caught = loaded.model.get_submodule(head.path), []
    hook = attention.out.register_forward_pre_hook(lambda module, given: caught.append(given[0]))
    run(loaded.model, seen.words)
    hook.remove()
    return caught[-1][0, place].unflatten(0, (attention.heads, -1))[head.head - 1]


@pytest.mark.parametrize(
    "name, which", [("gpt2", "self"), ("llama", "self"), ("bert", "self"), ("t5", "encoder"), ("t5", "self"), ("transformer", "cross")]
)  # fmt: skip
def test_every_step_is_the_formulas_and_the_last_is_the_models(name, which):
    loaded = imported(name)
    for layer, number in ((1, 2), (2, 1)):
        seen = look(loaded, TEXT, which=which, layer=layer, head=number)
        found = seen.steps(4)
        torch.testing.assert_close(found.scores_S, found.k_SK @ found.q_K)
        width = len(found.q_K)
        assert found.scale == (1 if name == "t5" else pytest.approx(1 / math.sqrt(width)))
        torch.testing.assert_close(found.scaled_S, found.scores_S * found.scale)
        assert (found.bias_S is not None) == (name == "t5")
        masked = found.scaled_S + (0 if found.bias_S is None else found.bias_S)
        if which == "self" and name != "bert":
            masked[4:] = -math.inf
        torch.testing.assert_close(found.masked_S, masked)
        torch.testing.assert_close(found.weights_S, masked.softmax(-1), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(found.weights_S, seen.chosen[0].weights_TS[3])
        torch.testing.assert_close(found.output_L, head_output(loaded, seen, seen.chosen[0], 3))


def test_relative_values_are_part_of_what_a_query_takes_home():
    loaded = imported("gpt2")
    torch.manual_seed(3)
    for block in loaded.model.stack.blocks:
        block.attention.layer.position = Shaw(2, 4)
    seen = look(loaded, TEXT, layer=2, head=1)
    found = seen.steps(5)
    assert found.bias_S is not None and found.added_L is not None and found.added_L.norm() > 0.01
    torch.testing.assert_close(found.output_L, head_output(loaded, seen, seen.chosen[0], 4))
    assert "\npositions " in found.text()


def test_the_table_shows_every_key_and_the_sum():
    seen = look(imported("gpt2"), TEXT, layer=1, head=2)
    found = seen.steps(3)
    lines = found.text().splitlines()
    table = lines[lines.index("") + 1 :]
    assert table[0].split()[:3] == ["key", "q·k", "×"] and "masked" in table[0]
    assert [line.split()[0] for line in table[1:]] == [*seen.across, "sum"]
    assert [line.split()[3] for line in table[4:-1]] == ["-inf"] * (len(seen.across) - 3)
    assert table[-1].split()[1] == "1.000"
    assert len({line.index("[") for line in table[1:]}) == 1  # columns stand below each other
    json.dumps(found.as_json(), allow_nan=False)
    assert found.as_json()["masked"][3:] == [None] * (len(seen.across) - 3)


def test_a_query_is_found_by_word_and_by_number():
    seen = look(imported("bert"), "the cat, the mat", layer=1, head=1)
    assert (
        seen.down[1] == "the" and seen.steps("THE").query == 2 == seen.steps(2).query == seen.steps("2").query
    )
    with pytest.raises(BadInput, match=r'no query teh: give a number from 1 to .*did you mean "the"'):
        seen.steps("teh")
    with pytest.raises(BadInput, match=r"no query 99: .* there are \[CLS\], the, cat"):
        seen.steps(99)
    with pytest.raises(BadInput, match=r'did you mean "\[CLS\]"'):  # as the table spells it
        seen.steps("[clss]")
    with pytest.raises(BadInput, match="follows one head"):
        look(imported("bert"), "the cat", layer=1, head="mean").steps(1)


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
    assert len(titles(root)) == T * (T + 1) // 2  # the future is not drawn
    weight = float(seen.chosen[0].weights_TS[2, 1])
    assert f"{seen.down[2]} looks at {seen.across[1]}: {weight:.3f}" in titles(root)
    assert "self-attention: layer 2 of 2, head 3 of 3" in texts(root)
    assert "The <cat> & I" in texts(root)
    assert seen._repr_html_() == seen.svg()


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
    assert "every 5th" in order.sheets[0].across


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


# The command


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """heedful look in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*args):
        code = main(["look", *map(str, args)])
        return (code, *capsys.readouterr())

    return call


def test_it_prints_the_sentence_and_a_map_and_draws_a_picture(command, runs):
    code, out, err = command(runs("translate"), "ba de fi")
    assert code == 0 and err == "picture: attention.svg\n"
    assert "transformer, cross-attention, 1 layer of 2 heads" in out and "ba de fi  →  " in out
    assert "ba  de  fi" in out
    ET.parse("attention.svg")


def test_words_that_the_model_does_not_know_are_told(command, runs):
    err = command(runs("translate"), "ba xx de yy")[2]
    assert err.startswith("warning: 2 of 4 tokens are unknown to the model, which reads [UNK]\n")
    assert "unknown" not in command(runs("translate"), "ba de")[2]


def test_nothing_is_ever_overwritten(command, runs):
    Path("attention.svg").write_text("mine")
    assert command(runs("lm"), "ba de")[2] == "picture: attention-2.svg\n"
    assert command(runs("lm"), "ba de")[2] == "picture: attention-3.svg\n"
    assert Path("attention.svg").read_text() == "mine"
    code, out, err = command(runs("lm"), "ba de", "--output", "attention.svg")
    assert (code, out) == (2, "") and "attention.svg is there already" in err
    assert Path("attention.svg").read_text() == "mine"


def test_everything_is_there_as_json(command, runs):
    code, out, err = command(runs("translate"), "ba de fi", "--query", 2, "--json", "--output", "x.svg")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["which"] == "cross" and found["across"] == ["ba", "de", "fi"] and found["alignment"] is None
    assert found["best"]["by"] == MEASURE and len(found["heads"]) == 1
    head = found["heads"][0]
    seen = look(load(runs("translate")), "ba de fi", head="best")
    torch.testing.assert_close(torch.tensor(head["weights"]), seen.best.weights_TS)
    assert (head["layer"], head["head"]) == (seen.best.layer, seen.best.head)
    assert found["query"]["query"] == 2 and found["query"]["keys"] == found["across"]
    assert sum(found["query"]["weights"]) == pytest.approx(1)
    assert found["picture"] == "x.svg" and Path("x.svg").is_file()
    everything = json.loads(command(runs("translate"), "ba de fi", "--json")[1])
    assert (
        len(everything["heads"]) == 2 and everything["picture"] is None and not Path("attention.svg").exists()
    )


def test_the_phrasebook_has_gold_alignments(command, phrases, monkeypatch, tmp_path):
    """A model that was trained on it is compared with them; one that wrote something else is told how to."""
    from heedful.cli import look as look_command

    loaded, _, pairs = phrases
    monkeypatch.setattr(look_command, "open_model", lambda folder, device: loaded)
    monkeypatch.setattr(heads, "practice", lambda folder: pairs[10:14])
    monkeypatch.setattr(phrasebook, "split", lambda name: pairs[:5])
    pair = pairs[1]
    code, out, _ = command("run", pair.source, "--target", pair.target, "--head", "best")
    assert code == 0 and "the head that aligns best (error rate " in out
    assert "alignment error rate of layer " in out
    told = command("run", pair.source, "--target", pair.target)[1]
    assert (
        re.search(r"sharp    AER\n", told)
        and "\nAER: its alignment error rate; 0 is the gold alignment\n" in told
    )
    told = command("run", pair.source, "--target", pair.target, "--head", "mean")[1]
    (drawn,) = re.findall(r"(layer \d, mean of its heads), the mean that tells most of who is looking:", told)
    assert f"alignment error rate of {drawn}: " in told and "the head whose gaze" not in told
    assert f'--target "{pair.target}" compares with it' in command("run", pair.source, "--target", "Non.")[1]
    assert "error rate of" not in command("run", pairs[20].source, "--target", pairs[20].target)[1]
    found = json.loads(command("run", pair.source, "--target", pair.target, "--json")[1])
    assert found["alignment"]["gold"] == sorted(map(list, pair.alignment))
    assert all(0 <= head["alignment_error_rate"] <= 1 for head in found["heads"])


@pytest.mark.parametrize("name", ["gpt1", "gpt2", "llama", "bert", "t5", "transformer"])
def test_hugging_face_folders_are_looked_at_too(command, name, tmp_path):
    code, out, err = command(saved(name, tmp_path / name), TEXT, "--query", 3)
    assert (code, err) == (0, "") and "weight × v" in out
    assert not list(Path().glob("*.svg"))  # nobody asked for one
    code, out, err = command(tmp_path / name, TEXT, "--query", 3, "--output", "query.svg")
    assert (code, err) == (0, "picture: query.svg\n") and Path("query.svg").is_file()
    code, out, err = command("--positions", tmp_path / name)
    assert (code, err) == (0, "picture: positions.svg\n")
    assert f"how order enters {tmp_path / name}" in Path("positions.svg").read_text()


def test_a_model_without_a_tokenizer_is_given_numbers(command, tmp_path):
    loaded = dataclasses.replace(imported("transformer"), tokenizer=None)
    heedful.save(loaded, tmp_path / "m")
    code, out, _ = command(tmp_path / "m", "5 3 8", "--target", "4 4")
    assert code == 0 and "5 3 8  →  4 4" in out
    code, _, err = command(tmp_path / "m", "hello")
    assert code == 2 and 'give token numbers from 0 to 78, such as "5 3 8"' in err


@pytest.mark.parametrize(
    "kind, args, sentence",
    [
        ("lm", [], 'look needs a TEXT, such as "Their cat was fast."'),
        ("lm", [""], "the text has no tokens"),
        ("lm", ["ba", "--which", "cross"], "this gpt2 has no cross-attention: look at self"),
        (
            "lm",
            ["ba", "--which", "crass"],
            "--which takes self or cross or encoder, not 'crass'; did you mean",
        ),
        ("lm", ["ba", "--layer", "2"], "there is no layer 2: layers are counted from 1 to 1"),
        ("lm", ["ba", "--layer", "0"], "there is no layer 0"),
        ("lm", ["ba", "--head", "3"], 'there is no head 3: give a number from 1 to 2, "mean" or "best"'),
        ("lm", ["ba", "--head", "bset"], '--head takes a number, mean or best, not "bset"'),
        ("lm", ["ba", "--target", "x"], "--target is what an encoder-decoder writes"),
        (
            "lm",
            ["ba", "--query", "x"],
            "there is no query x: give a number from 1 to 2, or a word; there are b, a",
        ),
        ("lm", ["ba " * 7], "a sequence of 21 tokens does not fit the learned position table of 16"),
        ("translate", ["ba " * 300], "the text has 300 tokens, and a picture shows at most 256"),
        ("lm", ["ba", "--output", "x.gif"], "--output x.gif: a picture is an .svg or a .png file"),
        ("lm", ["ba", "--output", "no/x.svg"], "no is no folder"),
        ("lm", ["ba", "--length", "9"], "--length is of --positions"),
        ("lm", ["ba", "--positions"], "--positions looks at no text: leave a text out"),
        ("lm", ["--positions", "--head", "1"], "--positions looks at no text: leave --head out"),
        ("lm", ["--positions", "--length", "1"], "--length must be from 2 to 512 positions, not 1"),
    ],
)
def test_a_mistake_is_one_sentence(command, runs, kind, args, sentence):
    code, out, err = command(runs(kind), *args)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1
    assert sentence in err and not list(Path().iterdir())


def test_folders_that_hold_no_model_to_look_at_are_refused(command, tmp_path):
    assert "is not a folder" in command("nowhere", "text")[2]
    config = tiny.VIT
    vit = Loaded("vit", dataclasses.replace(config, heads=("classify",)), None, None, {})
    vit = dataclasses.replace(vit, model=tiny.build((tiny.vit, vit.config), torch.float32))
    heedful.save(vit, tmp_path / "vit")
    code, _, err = command(tmp_path / "vit", "text")
    assert code == 2 and "text is not there" in err  # it reads pictures: tests/tasks/test_image_classify.py
    with pytest.raises(BadInput, match="a vit reads images: look reads text"):
        look(vit, "text")


def test_attention_that_is_not_a_number_is_not_drawn():
    loaded = imported("gpt2")
    with torch.no_grad():
        loaded.model.stack.blocks[0].attention.layer.key.weight[0, 0] = math.nan
    with pytest.raises(NotFinite, match="heedful doctor"):
        look(loaded, TEXT)


def test_a_run_is_not_changed(command, runs):
    def state(folder):
        return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    before = state(runs("classify"))
    command(runs("classify"), "ba de")
    command("--positions", runs("classify"))
    assert state(runs("classify")) == before


def test_gpt2_of_another_seed_looks_elsewhere():
    """The weights belong to the model, not to the sentence."""
    a, b = (look(imported("gpt2", seed), TEXT, layer=1, head=1).chosen[0].weights_TS for seed in (1, 2))
    assert (a - b).abs().max() > 0.01
    assert isinstance(imported("gpt2").config, gpt2.GPT2Config)
