"""A text through every kind of tokenizer: the replay of its steps ends in what the library gives."""

import json
from functools import cache

import pytest
import tokenizers as tk
from helpers.odd_texts import odd_texts
from helpers.tokenizer_cases import AWKWARD, TEXT, byte_level, trained, unigram, word_bpe, word_piece

from heedful.data.vocab import KINDS, train_vocab
from heedful.errors import BadInput
from heedful.inside.spelling import TextSpeller, spell
from heedful.inside.token_statistics import statistics
from heedful.inside.tokenizer_steps import replay_of
from heedful.interop.hf.tokenizer import LLAMA3

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def changed(tokenizer, **model):
    """The same tokenizer with other settings of its model."""
    spec = json.loads(tokenizer.to_str())
    spec["model"] |= model
    return tk.Tokenizer.from_str(json.dumps(spec))


def llama():
    """Merges over the whole text, and bytes for what is unknown."""
    special = ["<unk>", "<s>", *BYTE_TOKENS]
    return trained(
        tk.models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        tk.trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False),
        normalizer=tk.normalizers.Sequence([tk.normalizers.Prepend("▁"), tk.normalizers.Replace(" ", "▁")]),
        decoder=tk.decoders.Sequence([tk.decoders.ByteFallback(), tk.decoders.Fuse()]),
    )


def with_prefix():
    trainer = tk.trainers.BpeTrainer(
        vocab_size=150, special_tokens=["<unk>"], continuing_subword_prefix="##", show_progress=False
    )
    model = tk.models.BPE(unk_token="<unk>", continuing_subword_prefix="##")
    return trained(model, trainer, pre_tokenizer=tk.pre_tokenizers.Whitespace())


def unigram_with_bytes():
    entries = json.loads(unigram().to_str())["model"]["vocab"]
    vocab = [*entries, *([name, -20.0] for name in BYTE_TOKENS)]
    return changed(unigram(), byte_fallback=True, vocab=vocab)


def with_added_tokens():
    tokenizer = byte_level()
    wide = tk.AddedToken("cat sat", lstrip=True, rstrip=True)
    tokenizer.add_tokens([wide, tk.AddedToken("été", single_word=True)])
    tokenizer.add_special_tokens(["<s>", "[MASK]"])
    return tokenizer


def special_as_text():
    tokenizer = byte_level()
    tokenizer.encode_special_tokens = True
    return tokenizer


ZOO = {
    "GPT-2": byte_level,
    "LLaMA 3": lambda: byte_level(LLAMA3),
    "BERT": word_piece,
    "GPT-1": word_bpe,
    "T5": unigram,
    "T5 with bytes": unigram_with_bytes,
    "T5, unknowns apart": lambda: changed(unigram(), fuse_unk=False),
    "LLaMA 2": llama,
    "whole words first": lambda: changed(
        byte_level(), ignore_merges=True, merges=json.loads(byte_level().to_str())["model"]["merges"][:30]
    ),
    "prefixes": with_prefix,
    "added tokens": with_added_tokens,
    "special tokens are text": special_as_text,
    **{kind: lambda kind=kind: train_vocab(kind, [TEXT] * 3, 300).tokenizer for kind in KINDS},
}


@cache
def made(name):
    return TextSpeller(ZOO[name]())


@pytest.mark.parametrize("name", ZOO)
def test_the_replay_ends_in_what_the_library_gives(name):
    speller = made(name)
    for text in [*AWKWARD, *odd_texts(150, seed=5)]:
        found = speller.spell(text)
        assert found.why is None, (text, found.why)
        assert found.ids == speller.tokenizer.encode(text, add_special_tokens=False).ids
        last = [token for word in found.words for token in speller.replay(word.text)[0]]
        assert last == [piece.id for piece in found.pieces if not piece.added]
        assert all(piece.whole for piece in found.pieces) or name not in ("BERT", "GPT-1", "T5", "word")


def test_merges_come_in_the_order_in_which_they_were_learned():
    model = {
        "type": "BPE",
        "vocab": {"l": 0, "o": 1, "w": 2, "e": 3, "lo": 4, "low": 5, "we": 6, "r": 7, "er": 8, "lower": 9},
        "merges": [["e", "r"], ["l", "o"], ["w", "e"], ["lo", "w"], ["low", "er"]],
    }
    ids, steps = replay_of(model)("lower")
    assert ids == [9]
    assert [step.pieces for step in steps] == [
        ["l", "o", "w", "e", "r"],
        ["l", "o", "w", "er"],
        ["lo", "w", "er"],
        ["low", "er"],
        ["lower"],
    ]
    assert [(step.rank, step.left, step.right, step.made) for step in steps[1:]] == [
        (1, "e", "r", "er"),
        (2, "l", "o", "lo"),
        (4, "lo", "w", "low"),
        (5, "low", "er", "lower"),
    ]


def test_longest_pieces_and_the_likeliest_path_are_shown_step_by_step():
    pieces = {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "##a": 4}
    model = {"type": "WordPiece", "vocab": pieces, "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    replay = replay_of(model | {"max_input_chars_per_word": 20})
    assert [step.pieces for step in replay("unaffable")[1]] == [
        ["unaffable"],
        ["un", "##affable"],
        ["un", "##aff", "##able"],
        ["un", "##aff", "##able"],
    ]
    assert replay("unaffx")[0] == [0] == replay("u" * 21)[0]
    vocab = [["<unk>", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -2.0], ["abb", -9.0]]
    ids, steps = replay_of({"type": "Unigram", "vocab": vocab, "unk_id": 0})("abb")
    assert ids == [3, 2] and [step.score for step in steps[1:]] == [-2.0, -1.5]
    assert steps[1].pieces == ["ab", "b"] and steps[2].pieces == ["ab", "b"]


def test_a_piece_that_is_no_character_shows_its_bytes():
    found = spell(byte_level(), "a 猫!")
    assert b"".join(found.bytes).decode() == "a 猫!" and found.round_trip
    parts = [piece for piece in found.pieces if not piece.whole]
    assert parts and "is a part of a character: bytes" in found.as_text()
    assert "".join(bytes(piece.bytes).hex() for piece in parts).endswith("猫".encode().hex())


def test_unknown_words_and_added_tokens_are_marked():
    tokenizer = train_vocab("word", ["the cat sat"], 30).tokenizer
    found = spell(tokenizer, "the zebra sat")
    assert [piece.unknown for piece in found.pieces] == [False, True, False] and not found.round_trip
    assert "[zebra → [UNK]]" in found.as_text() and "zebra → [UNK]" in found._repr_html_()
    found = spell(with_added_tokens(), "a<s>b")
    assert [piece.added for piece in found.pieces] == [False, True, False]
    assert found.offsets == [(0, 1), (1, 4), (4, 5)] and found.pieces[1].word is None


def test_what_cannot_be_replayed_says_so_and_keeps_its_tokens():
    dropped = spell(changed(byte_level(), dropout=0.5), "the cat")
    assert "at random" in dropped.why and dropped.ids and not dropped.words
    assert "the steps are not shown: it leaves out merges at random" in dropped.as_text(merges=True)
    tokenizer = word_piece()
    tokenizer.add_tokens([tk.AddedToken("Köln", normalized=True)])
    found = spell(tokenizer, "the Köln mat Köln")
    assert found.ids == tokenizer.encode("the Köln mat Köln", add_special_tokens=False).ids
    assert "other tokens than the library" in found.why and not found.merges
    assert "at most 1,000 are replayed" in spell(llama(), "ab" * 600).why
    with pytest.raises(BadInput, match="at most 20,000 are spelled"):
        spell(byte_level(), "a" * 20_001)


def test_text_html_and_json_show_the_steps_and_nothing_is_markup():
    found = spell(byte_level(), "the <b>cat</b>\x1b[31m")
    assert "merge 1: " in found.as_text(merges=True) and "\x1b" not in found.as_text()
    assert "<b>" not in found._repr_html_() and "&lt;" in found._repr_html_()
    again = json.loads(json.dumps(found.as_json()))
    assert [piece["id"] for piece in again["pieces"]] == found.ids
    assert sum(len(word["steps"]) - 1 for word in again["words"]) == len(found.merges)


def test_statistics_of_a_file_are_those_of_its_lines():
    tokenizer = train_vocab("word", ["the cat sat on the mat"], 30).tokenizer
    lines = ["the cat", "the zebra sat", "", "été on the the mat"]
    *_, early, found = statistics(tokenizer, iter(lines), every=2)
    assert early.lines == 2 and early.tokens == 5
    assert (found.lines, found.words, found.tokens, found.unknown) == (4, 10, 10, 2)
    assert found.tokens_per_word == 1.0 and found.unknown_share == 0.2
    assert found.commonest(1) == [("the", 4)] and ("mat", 1) in found.rarest()
    assert found.used == 5 and found.bytes == sum(len(line.encode()) for line in lines)
    assert json.loads(json.dumps(found.as_json()))["unknown"] == 2 and "20.000%" in found.as_text()


def test_a_space_of_its_own_stands_for_a_space():
    pieces = spell(unigram(), "Zz").pieces
    assert pieces[0].token == "▁" and pieces[0].bytes == [32]
