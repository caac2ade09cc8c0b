"""Extraction: tf-idf by hand, the order of paragraphs, and what is read in the end."""

from math import log

import pytest

from heedful.data.articles import Article
from heedful.data.extract import EXTRACTORS, read_by, text_of, tf_idf
from heedful.data.vocab import train_vocab

PARAGRAPHS = (
    "It rained.",
    "Ada met Byron, and Byron met Ada.",
    "Ada wrote.",
    "Nobody met Byron's dog.",
    "Ada, Ada, Ada!",
)


def test_scores_are_those_of_a_hand_calculation():
    """Of 5 paragraphs, 3 have ada and 2 have byron; nobody has lovelace."""
    ada, byron = log(5 / 3), log(5 / 2)
    expected = [0, 2 * ada + 2 * byron, ada, byron, 3 * ada]
    assert tf_idf("Ada Byron Lovelace", PARAGRAPHS) == pytest.approx(expected)
    assert tf_idf("ADA ada", PARAGRAPHS) == pytest.approx([0, 2 * ada, ada, 0, 3 * ada])  # a word counts once


def test_a_word_that_all_paragraphs_have_tells_nothing():
    assert tf_idf("the", ["the cat", "the the dog"]) == [0, 0]


def test_the_best_come_first_and_equal_ones_stay_in_order():
    article = Article(PARAGRAPHS, "Ada Byron")
    order = [PARAGRAPHS.index(p) for p in EXTRACTORS["tf-idf"](article)]
    assert order == [1, 4, 3, 2, 0]  # 3 log 5/3 = 1.53, log 5/2 = 0.92, log 5/3 = 0.51
    assert EXTRACTORS["first"](article) == list(PARAGRAPHS)
    for untold in ("", "Nemo"):
        assert EXTRACTORS["tf-idf"](Article(PARAGRAPHS, untold)) == list(PARAGRAPHS)


def test_a_text_is_cut_into_its_lines_or_its_sentences():
    assert Article("one\n\n  two. three\n").paragraphs == ("one", "  two. three")
    assert Article("One is. Two was!  Three? Yes").paragraphs == ("One is.", "Two was!", "Three?", "Yes")
    assert Article(["a b", " ", "c"]).paragraphs == ("a b", "c") and Article(["a b", "c"]) == "a b\nc"


def test_the_title_is_read_first_and_then_the_first_tokens_of_what_is_extracted():
    article = Article(PARAGRAPHS, "Ada")
    assert text_of(article, "tf-idf").startswith("Ada: Ada, Ada, Ada! Ada met Byron")
    assert text_of(Article("a\n b  c"), "first") == "a b c"
    vocab = train_vocab("word", [text_of(article, "first")], 100)
    whole = vocab.encode_batch([text_of(article, "tf-idf")])[0]
    for longest in (1, 5, 1000):
        assert read_by(vocab, [article, article], "tf-idf", longest) == [whole[:longest]] * 2
    assert vocab.decode(whole[:8]) == "Ada: Ada, Ada, Ada!"
