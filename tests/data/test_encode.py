"""Encoding much text, cut into words that are remembered, gives exactly what the library gives."""

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import encode
from heedful.data.encode import CachedEncoder
from heedful.data.store import write_store
from heedful.data.vocab import KINDS, Vocab, train_vocab
from heedful.errors import BadInput

TEXTS = [
    "(… )… -— .’ !\x01 ,\x7f 9½ a\u0301 xé " * 9,  # pieces that are learned across where a cut would be wrong
    (
        "The cat's toys aren't here; we'll look. He said: 'so be it' -- twice (2x3=6, 1990s)."
        "\n\n\tdef f(x_1): pass  "
    ),
    (
        "Straße Ångström naïve café ΑΣ Σας İstanbul 中文字 ½ ² Ⅷ e\u0301 👩‍👩‍👧"
        " [EOS] […] don’t \u00a0 \u2028\u3000\x85\x1c\x01"
    ),
]
PARTS = [
    *"abzAZ019'\"(.,-_[ \n\t\r\x0b",
    *(
        "'s",
        "'re",
        "'ll",
        "  ",
        "\n\n",
        " '",
        "é",
        "²",
        "Ⅷ",
        "\u0301",
        "ß",
        "İ",
        "Σ",
        "ς",
        "中",
        "’",
        "👍",
        "[EOS]",
    ),
    *("\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000", "\u200b", "\x01", "\x7f", "\0"),
]
CASES = [(kind, lower) for kind in KINDS for lower in (False, True)]
VOCABS = {case: train_vocab(case[0], TEXTS * 2, 400, case[1]) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_the_numbers_are_those_of_the_library(case, text):
    vocab = VOCABS[case]
    assert CachedEncoder(vocab)(text).tolist() == vocab.encode_batch([text])[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_text_that_was_learned_from_is_cut_as_it_was_then(case):
    vocab = VOCABS[case]
    for text in TEXTS:
        assert CachedEncoder(vocab)(text).tolist() == vocab.encode_batch([text])[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_kind_of_character_is_cut_as_the_library_cuts(case):
    """One of each category, and every white space and control: whatever stands on either side of it."""
    first = {}
    for code in range(sys.maxunicode):
        character = chr(code)
        category = unicodedata.category(character)
        if category != "Cs" and (category[0] == "Z" or category == "Cc" or character.isspace()):
            first[character] = character
        elif category != "Cs":
            first.setdefault(category, character)
    texts = [f"a{c}b {c} '{c}'s\n{c}\n {c}9{c}(){c}" for c in first.values()]
    assert len(texts) > 100
    vocab, encoder = VOCABS[case], CachedEncoder(VOCABS[case])
    for text, expected in zip(texts, vocab.encode_batch(texts), strict=True):
        assert encoder(text).tolist() == expected, text


def test_a_word_goes_to_the_library_once(monkeypatch):
    asked: list[str] = []
    real = Vocab.encode_batch
    monkeypatch.setattr(Vocab, "encode_batch", lambda self, texts: asked.extend(texts) or real(self, texts))
    encoder = CachedEncoder(VOCABS["bpe", False])
    whole = np.concatenate([encoder("the cat sat on the mat. the cat\n") for _ in range(50)])
    assert len(whole) > 50 * 8
    assert sorted(asked) == sorted(["the", " cat", " sat", " on", " the", " mat", ".", "\n"])


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(encode, "REMEMBERED", 100)
    vocab = VOCABS["bpe", False]
    encoder = CachedEncoder(vocab)
    for number in range(200):
        text = f"word{number} cat {'long' * 30}"
        assert encoder(text).tolist() == vocab.encode_batch([text])[0]
        assert sum(map(len, encoder._known)) <= 100


def test_large_vocabularies_have_large_numbers():
    vocab = train_vocab("word", [" ".join(f"w{n}" for n in range(66_000))], 66_000)
    encoder = CachedEncoder(vocab)
    assert vocab.size > 65_536 and encoder.dtype == np.uint32
    text = " ".join(f"w{n}" for n in range(0, 66_000, 1000))
    found = encoder(text).tolist()
    assert found == vocab.encode_batch([text])[0]
    assert max(encoder(" ".join(f"w{n}" for n in range(66_000))).tolist()) == vocab.size - 1


def test_nothing_is_nothing():
    for vocab in VOCABS.values():
        assert CachedEncoder(vocab)("").tolist() == []


def test_arrays_are_stored_as_lists_are_and_checked_alike(tmp_path):
    rows = [[3, 1, 4], [], [65_535, 0]]
    write_store(tmp_path / "lists", {"x": "numbers"}, ({"x": row} for row in rows), 65_536, {})
    for dtype in (np.uint16, np.uint32, np.int64):
        arrays = ({"x": np.array(row, dtype)} for row in rows)
        write_store(tmp_path / dtype.__name__, {"x": "numbers"}, arrays, 65_536, {})
        for name in ("x.bin", "x.idx", "store.json"):
            assert (tmp_path / dtype.__name__ / name).read_bytes() == (tmp_path / "lists" / name).read_bytes()
    for number, said in (
        (65_536, "65536|no token"),
        (65_541, "65541|no token"),
        (-1, "no token"),
    ):  # no wrapping round
        dtypes = (np.int64,) if number < 0 else (np.uint32, np.int64)
        for dtype in dtypes:
            with pytest.raises(BadInput, match=said):
                write_store(
                    tmp_path / "no", {"x": "n"}, iter([{"x": np.array([1, number], dtype)}]), 65_536, {}
                )
    with pytest.raises(BadInput, match="has token 9; the vocabulary ends at 8"):
        write_store(tmp_path / "no", {"x": "n"}, iter([{"x": np.array([1, 9], np.uint16)}]), 9, {})
