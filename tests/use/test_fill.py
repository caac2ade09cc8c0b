"""Blanks are read where a token stood, and filled in by what stood there."""

from pathlib import Path

import pytest
import torch

from heedful.data.vocab import read_vocab


def test_what_follows_a_blank_is_read_as_in_a_sentence(load):
    """A full stop that touches a blank is not one with a space before it."""
    model = load("mlm")
    vocab = read_vocab(Path(model.folder) / "tokenizer.json")
    (row,) = vocab.encode_batch(["the dog ate the fish. the cat"])
    row[row.index(vocab.tokenizer.token_to_id(" fish"))] = vocab.mask
    assert model.wording.blanked("the dog ate the [MASK]. the cat").ids == [vocab.cls, *row, vocab.sep]


def test_blanks_are_filled_in_by_what_stood_there(load):
    model = load("mlm")
    texts = [
        "the [MASK] sat on the mat.",
        "the mat. the [MASK] ate the fish.",
        "the cat [MASK] on the [MASK].",
    ]
    found = model.fill(texts, top=3)
    assert found == ["the cat sat on the mat.", "the mat. the dog ate the fish.", "the cat sat on the mat."]
    assert [len(one.blanks) for one in found] == [1, 1, 2] and all(
        len(b) == 3 for one in found for b in one.blanks
    )
    assert found == [model.fill(text, batch=1) for text in texts]
    vocab = read_vocab(Path(model.folder) / "tokenizer.json")
    (a, b) = vocab.encode_batch(["the", "sat on the mat."])
    row = torch.tensor([[vocab.cls, *a, vocab.mask, *b, vocab.sep]])
    best = model.model(row)["masked_lm"][0, 1 + len(a)].softmax(-1)
    for guess in found[0].blanks[0]:
        number = vocab.tokenizer.token_to_id(f" {guess.word}")
        assert guess.probability == pytest.approx(float(best[number]), abs=1e-6)


@pytest.mark.parametrize(
    "name, text, before, after",
    [
        ("mlm-bytes", "the [MASK] sat", "the", " sat"),  # the blank has the space with it
        ("mlm-bytes", "the[MASK] sat", "the", " sat"),
        ("mlm-chars", "the [MASK]at", "the ", "at"),  # the blank is one character
    ],
)
def test_a_blank_stands_where_a_token_stood(name, text, before, after, load):
    model = load(name)
    vocab = read_vocab(Path(model.folder) / "tokenizer.json")
    a, b = vocab.encode_batch([before, after])
    assert model.wording.blanked(text).ids == [vocab.cls, *a, vocab.mask, *b, vocab.sep]
    filled = model.fill(text, top=2)
    assert filled == text.replace("[MASK]", filled.blanks[0][0].word)
