"""Tokens one by one: their text, their bytes and their places, however they were written."""

import pytest
from helpers.chat_cases import write_llama
from helpers.loop_cases import Desk, writing
from tokenizers.pre_tokenizers import ByteLevel

import heedful
from heedful.service.spelling import Speller, byte_letters, bytes_of


@pytest.fixture(scope="module")
def lm(stored):
    return heedful.load(stored / "lm")


@pytest.fixture(scope="module")
def speaks_bytes(tmp_path_factory):
    return heedful.load(write_llama(tmp_path_factory.mktemp("spelling") / "llama"))


def test_bytes_have_the_letters_of_gpt2():
    cut = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    table = byte_letters()
    for letter in map(chr, range(256)):
        ((name, _),) = cut(letter)
        assert bytes(table[one] for one in name) == letter.encode()
    assert table.keys() == set(ByteLevel.alphabet()) and sorted(table.values()) == list(range(256))
    assert bytes_of("<0xE2>") == b"\xe2" and bytes_of("Ġé") == b" \xe9" and bytes_of("▁the") is None


def test_parts_of_characters_have_bytes_and_begin_where_the_character_does(speaks_bytes):
    text = "a é猫😀 b"
    ids = speaks_bytes.wording.reads.encode(text, add_special_tokens=False).ids
    spells = Speller(speaks_bytes.wording)
    found = [spells.entry(token, -1.0, [(0, -2.0)]) for token in ids]
    raw = [bytes(one["bytes"]) if one["bytes"] else one["text"].encode() for one in found]
    assert b"".join(raw).decode() == text
    assert [one["text"] for one in found if one["bytes"]][:2] == ["\\xc3", "\\xa9"]
    starts = [text.encode()[: sum(map(len, raw[:place]))] for place in range(len(raw))]
    assert [one["offset"] for one in found] == [len(start.decode("utf-8", "ignore")) for start in starts]
    assert {one["top"][0][0] for one in found} == {"<s>"}  # a special token has a name, and no text


def test_tokens_are_reported_alike_where_rows_cannot_join(lm):
    found = []
    for together in (True, False):
        desk = Desk(lm)
        desk.loop.together = desk.loop.together if together else None
        desk.ask("r", **writing("the cat", echoes=True, scored=True, top=3, max_new_tokens=6))
        desk.finish()
        found.append([one for event in desk.events["r"] for one in event.get("tokens", ())])
    assert len(found[0]) == len(found[1]) == 8
    for one, other in zip(*found, strict=True):
        assert one["log_probability"] == pytest.approx(other["log_probability"], abs=1e-5)
        assert [name for name, *_ in one["top"]] == [name for name, *_ in other["top"]]
        assert (one["text"], one["offset"]) == (other["text"], other["offset"])
    assert [len(one["top"]) for one in found[0]] == [0, *[3] * 7]
