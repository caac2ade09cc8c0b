"""Vocabularies: texts to numbers and back exactly, equal on every machine; no text is taken as special."""

import json
import os
import pickle
import random
import subprocess
import sys
from functools import cache

import pytest
from helpers.refusals import at_most
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import vocab as vocab_file
from heedful.data.vocab import KINDS, SPECIALS, Vocab, train_vocab
from heedful.errors import BadInput

TEXT = """The cat sat on the mat. It's the cat's mat, isn't it? We'll see; they've seen 3 of 1234 mats.
Là-bas, l'été, où la forêt dort; Grüße aus Köln! Привет, мир. 猫坐在垫子上。 def cat(x): return x + 1
## the [MASK] of __init__ ###\n"""

SIZES = {"bpe": 330, "char": 330, "wordpiece": 330, "word": 90, "spaced": 90}


@cache
def trained(kind, lower=False):
    return train_vocab(kind, iter([TEXT] * 3), SIZES[kind], lower)


def single_spaces(text):
    return " ".join(text.split())


def ids_of(vocab, text):
    (ids,) = vocab.encode_batch([text])
    return ids


# There and back

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
familiar = st.text(sorted(set(TEXT)), max_size=60)


@settings(max_examples=300)
@given(any_text | familiar)
def test_bytes_bring_back_any_text(text):
    vocab = trained("bpe")
    ids = ids_of(vocab, text)
    assert vocab.decode(ids) == text
    assert all(len(SPECIALS) <= i < vocab.size for i in ids)


@settings(max_examples=60)
@given(any_text)
def test_characters_bring_back_any_text_made_of_them(text):
    vocab = train_vocab("char", [text, "x"], 200)
    assert vocab.decode(ids_of(vocab, text)) == text
    assert vocab.unknown_rate([text]) == 0


@settings(max_examples=200)
@given(familiar)
def test_word_pieces_bring_back_what_is_not_white_space(text):
    vocab = trained("wordpiece")
    ids = ids_of(vocab, text)
    if (
        vocab.unk not in ids
    ):  # a character seen only inside words may be unknown, as any in a word too long is
        assert vocab.decode(ids) == single_spaces(text)
    assert vocab.unk not in ids_of(vocab, TEXT)


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from(TEXT.split()), max_size=12),
    st.sampled_from([" ", "\n", "  ", " \t\r\n", "\u3000"]),
)
def test_words_bring_back_what_is_not_white_space(words, space):
    vocab = trained("word")
    text = space + space.join(words) + space
    assert vocab.decode(ids_of(vocab, text)) == single_spaces(text)


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_forgets_capitals_only(kind):
    vocab = trained(kind, True)
    assert ids_of(vocab, "The CAT") == ids_of(vocab, "the cat")
    assert vocab.decode(ids_of(vocab, TEXT)) in (TEXT.lower(), single_spaces(TEXT.lower()))
    assert ids_of(trained(kind), "The CAT") != ids_of(trained(kind), "the cat")


def test_tokens_are_what_they_are_said_to_be():
    def tokens(kind, text):
        return [trained(kind).tokenizer.id_to_token(i) for i in ids_of(trained(kind), text)]

    assert tokens("word", "the  cat's\tmat.") == [" the", " cat", "'", "s", " mat", "."]
    assert tokens("word", "été, dog") == ["[UNK]", ",", "[UNK]"]  # "l'été" taught it only without a space
    assert tokens("char", "cat\n") == ["c", "a", "t", "\n"]
    assert "".join(tokens("wordpiece", "the matcat")) == " the matcat"
    assert len(tokens("wordpiece", "the matcat")) < 6
    assert tokens("bpe", " cat") == ["Ġcat"]


def test_characters_are_in_the_order_of_code_points():
    vocab = train_vocab("char", ["ba", "猫a\n"], 100)
    assert [vocab.tokenizer.id_to_token(i) for i in range(vocab.size)] == [*SPECIALS, "\n", "a", "b", "猫"]
    fewer = train_vocab("char", ["zzyyyxb", "a"], 10)  # of those equally frequent, the first
    assert [fewer.tokenizer.id_to_token(i) for i in range(7, fewer.size)] == ["a", "y", "z"]


# Special tokens


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_seven_tokens_are_special(kind):
    vocab = trained(kind)
    found = [vocab.pad, vocab.bos, vocab.eos, vocab.unk, vocab.cls, vocab.sep, vocab.mask]
    assert found == [vocab.tokenizer.token_to_id(token) for token in SPECIALS] == list(range(7))
    assert vocab.decode([vocab.bos, *ids_of(vocab, "the cat"), vocab.eos, vocab.pad]) == "the cat"
    assert len(SPECIALS) < vocab.size <= SIZES[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", SPECIALS)
def test_a_text_that_spells_a_special_token_gets_letters(kind, special):
    texts = [f"the {special} cat {special}{special} {special.lower()}"] * 5  # and none is learned from them
    vocab = train_vocab(kind, texts, 300)
    for reader in (vocab, Vocab.from_json(vocab.to_json())):
        ids = ids_of(reader, texts[0])
        assert min(ids) >= len(SPECIALS)
        assert reader.decode(ids) == texts[0]


# Saved and restored


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_json_brings_back_the_same_vocabulary(kind, lower):
    vocab = trained(kind, lower)
    for other in (Vocab.from_json(vocab.to_json()), pickle.loads(pickle.dumps(vocab))):
        assert (other.kind, other.lower, other.size, other.hash) == (kind, lower, vocab.size, vocab.hash)
        assert other.to_json() == vocab.to_json()
        assert other.encode_batch([TEXT, ""]) == vocab.encode_batch([TEXT, ""])


def changed(change):
    spec = json.loads(trained("bpe").to_json())
    change(spec)
    return json.dumps(spec)


SLOW = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
REFUSED = {
    "nothing": ("", "not valid JSON"),
    "no object": ("[1]", "[1], where an object"),
    "deep": ("[" * 200_000, "not valid JSON"),
    "no tokenizer": ("{}", "not a tokenizer"),
    "slow pattern": (changed(lambda spec: spec.update(pre_tokenizer=SLOW)), "(a+)+$"),
    "other step": (changed(lambda spec: spec.update(normalizer={"type": "NFC"})), "not one of heedful's own"),
    "random": (changed(lambda spec: spec["model"].update(dropout=0.5)), "not one of heedful's own"),
    "padding": (changed(lambda spec: spec["added_tokens"][0].update(content="<p>")), "heedful's own"),
    "two numbers": (changed(lambda spec: spec["model"]["vocab"].update({"Ġcat": 299})), "not numbered"),
    "huge number": (changed(lambda spec: spec["model"]["vocab"].update({"Ġcat": 2**31})), "not numbered"),
}


@pytest.mark.parametrize("text, why", REFUSED.values(), ids=REFUSED)
def test_what_heedful_did_not_make_is_refused(text, why):
    with pytest.raises(BadInput) as caught, at_most(5):
        Vocab.from_json(text)
    assert why in str(caught.value) and str(caught.value).isprintable()


def test_damaged_json_is_read_or_refused():
    rng = random.Random(1)
    text = trained("wordpiece").to_json()
    outcomes = []
    for _ in range(60):
        at = rng.randrange(len(text))
        damaged = (
            text[:at]
            + rng.choice(['"', "9", "-", "{", "", "null", "\\u0000"])
            + text[at + rng.choice([0, 1, 5]) :]
        )
        try:
            Vocab.from_json(damaged).encode_batch([TEXT])
            outcomes.append(True)
        except BadInput:
            outcomes.append(False)
    assert {True, False} == set(outcomes)


# The same on every machine

TRAIN = """
import sys
from heedful.data.documents import read_texts
from heedful.data.vocab import KINDS, train_vocab
for kind in KINDS:
    print(kind, train_vocab(kind, read_texts(sys.argv[1]), 500).hash)
"""


def test_the_same_texts_give_the_same_vocabulary_whatever_the_threads(tmp_path):
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyzéüß猫"
    words = ["".join(rng.choices(letters, k=rng.randrange(1, 9))) for _ in range(3000)]
    path = tmp_path / "text"
    path.write_text("".join(" ".join(rng.choices(words, k=9)) + "\n" for _ in range(2000)), encoding="utf-8")
    said = set()
    for settings_of in (
        {"RAYON_NUM_THREADS": "1"},
        {"RAYON_NUM_THREADS": "3"},
        {"TOKENIZERS_PARALLELISM": "false"},
    ):
        run = subprocess.run(
            [sys.executable, "-c", TRAIN, str(path)],
            env=os.environ | {"PYTHONHASHSEED": str(rng.randrange(1000))} | settings_of,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        said.add(run.stdout)
    assert len(said) == 1 and len(said.pop().splitlines()) == len(KINDS)


# What is refused


def test_sizes_and_kinds_are_checked():
    for kind, size in {"bpe": 262, "char": 7, "word": -1, "wordpiece": 10**9}.items():
        with pytest.raises(BadInput, match=rf"a {kind} vocabulary has \d+ to 1000000 tokens, not {size}"):
            train_vocab(kind, [TEXT], size)
    with pytest.raises(BadInput, match='no vocabulary of kind "wrod"; did you mean "word"'):
        train_vocab("wrod", [TEXT], 300)
    assert train_vocab("bpe", [TEXT], 263).size == 263
    with pytest.raises(BadInput, match=r"characters, too many for 30 wordpiece tokens"):
        train_vocab("wordpiece", [TEXT], 30)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_teach_nothing_or_break_off_are_refused(kind):
    for texts in ([], [""], [" \n", "\t"]):
        with pytest.raises(BadInput, match="no text to learn"):
            train_vocab(kind, texts, 300)
    with pytest.raises(BadInput, match="no vocabulary can be learned"):
        train_vocab(kind, ["a\ud800"], 300)

    def disk_fails():
        yield "a"
        raise OSError("unplugged")

    with pytest.raises(OSError, match="unplugged"):
        train_vocab(kind, disk_fails(), 300)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_numbers_that_cannot_be_are_refused(kind):
    vocab = trained(kind)
    with pytest.raises(BadInput, match="text 2 has 1000001 characters; at most 1000000"):
        vocab.encode_batch(["a", "a" * 1_000_001])
    with pytest.raises(BadInput, match="half a character"):
        vocab.encode_batch(["a", "\ud800"])
    for number in (-1, 2**40, "x"):
        with pytest.raises(BadInput, match="cannot be turned into text"):
            vocab.decode([number])


def test_a_panic_of_the_library_is_an_error_and_an_interrupt_is_not():
    class Panic(BaseException):
        """As pyo3's: no Exception."""

    with pytest.raises(BadInput, match="a text: told so"), vocab_file.no_panic("a text"):
        raise Panic("told so")
    with pytest.raises(KeyboardInterrupt), vocab_file.no_panic("a text"):
        raise KeyboardInterrupt


# Limits


@pytest.mark.parametrize("kind", KINDS)
def test_many_texts_are_taken_a_few_at_a_time(kind, monkeypatch):
    texts = [TEXT[start : start + 40] for start in range(len(TEXT))] + [""] * 3 + [TEXT]
    whole = trained(kind).encode_batch(texts)
    monkeypatch.setattr(vocab_file, "AT_ONCE", 100)
    assert max(sum(map(len, group)) for group in vocab_file.groups(texts[:-1])) <= 100
    assert trained(kind).encode_batch(texts) == whole == [ids_of(trained(kind), text) for text in texts]
    assert trained(kind).encode_batch([]) == []


def test_endless_words_are_cut_before_learning():
    """Uncut, this one takes about 20 seconds, growing with the square of its length."""
    rng = random.Random(1)
    genome = "".join(rng.choices("ACGT", k=250_000))
    with at_most(8):
        vocab = train_vocab("bpe", [genome], 1500)
    assert vocab.decode(ids_of(vocab, genome[:5000])) == genome[:5000]
    cut = vocab_file.cut_words(f"a {genome} b")
    assert max(map(len, cut.split())) == 1000 and cut.replace(" ", "") == f"a{genome}b"
    assert vocab_file.cut_words(TEXT) is TEXT


def test_the_unknown_rate_is_a_share_of_tokens():
    vocab = train_vocab("word", ["the cat sat"], 10)
    assert vocab.unknown_rate(["the cat", "the dog", ""] * 999) == 0.25
    assert vocab.unknown_rate([]) == 0
