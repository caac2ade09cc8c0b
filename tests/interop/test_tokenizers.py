"""Tokenizers beside the weights give Hugging Face's token ids, and hostile ones are refused."""

import base64
import json
import os

import pytest
import tokenizers as tk
import transformers as hf
from helpers.refusals import at_most, refused
from helpers.tokenizer_cases import (
    AWKWARD,
    TEXT,
    byte_level,
    model,  # noqa: F401 (fixtures)
    unigram,
    word_bpe,
    word_piece,
)

import heedful
from heedful.interop.hf.tokenizer import KNOWN_PATTERNS, read_tokenizer

MADE = {
    "gpt2": byte_level,
    "llama3": lambda: byte_level(KNOWN_PATTERNS[1]),
    "bert": word_piece,
    "gpt1": word_bpe,
    "t5": unigram,
}


def same_numbers(ours, theirs, texts=AWKWARD):
    for text in texts:
        found, expected = ours.encode(text), theirs.encode(text)
        assert found.ids == expected.ids, text
        assert found.tokens == expected.tokens and found.offsets == expected.offsets


@pytest.mark.parametrize("kind", MADE)
def test_tokenizer_json_gives_the_numbers_of_its_maker(kind, tmp_path):
    made = MADE[kind]()
    made.save(str(tmp_path / "tokenizer.json"))
    same_numbers(read_tokenizer(tmp_path), made)


def test_tokenizer_json_comes_before_other_files(tmp_path):
    made = byte_level()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("nonsense")
    same_numbers(read_tokenizer(tmp_path), made)


def test_a_tokenizer_does_not_pad_or_cut_unasked(tmp_path):
    made = byte_level()
    plain = made.encode(TEXT).ids
    made.enable_padding(length=4000)
    made.enable_truncation(3)
    made.save(str(tmp_path / "tokenizer.json"))
    assert read_tokenizer(tmp_path).encode(TEXT).ids == plain


@pytest.mark.parametrize(
    "make, theirs, settings",
    [
        (byte_level, hf.GPT2TokenizerFast, {}),
        (word_bpe, hf.OpenAIGPTTokenizerFast, {}),
        (word_piece, hf.BertTokenizerFast, {}),
        (word_piece, hf.BertTokenizerFast, {"do_lower_case": False}),
        (word_piece, hf.BertTokenizerFast, {"strip_accents": False}),
        (word_piece, hf.BertTokenizerFast, {"tokenize_chinese_chars": False}),
    ],
)
def test_vocabulary_files_give_the_numbers_of_transformers(make, theirs, settings, tmp_path):
    make().model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    ours, theirs = read_tokenizer(tmp_path), theirs.from_pretrained(tmp_path)
    for text in [*AWKWARD, TEXT]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        for other in AWKWARD[1:5]:
            assert ours.encode(text, other).ids == theirs(text, other)["input_ids"]
    numbers = ours.encode(TEXT).ids
    assert ours.decode(numbers) == theirs.decode(numbers, skip_special_tokens=True)


def test_byte_level_texts_come_back(tmp_path):
    byte_level().model.save(str(tmp_path))
    tokenizer = read_tokenizer(tmp_path)
    for text in AWKWARD:
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_line_of_a_vocabulary_ends_only_at_a_newline(tmp_path):
    tokens = ["[UNK]", "[CLS]", "[SEP]", "\u2028", "\x85", "a", "\x0bb"]
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(tokens).encode())
    assert read_tokenizer(tmp_path).get_vocab() == {token: number for number, token in enumerate(tokens)}


# Within a model folder


def test_a_folder_without_a_tokenizer_has_none(model):
    (model / "tokenizer.json").unlink()
    assert heedful.load(model).tokenizer is None
    (model / "vocab.json").write_text("{}")  # Marian's: its other half is a sentencepiece model
    assert heedful.load(model).tokenizer is None


def describe(folder, **changed):
    """Change the folder's tokenizer.json."""
    spec = json.loads(byte_level().to_str()) | changed
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    return spec


SLOW = [
    r"(a+)+$", r"(a*)*b", r"(a|aa)+$", r"(.*)*x", r"(\w+\s?)+$", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(x+x+)+y",
    r"((a{1000}){1000}){1000}", r"(?=(a+))\1+b", r"(\s*\S*)*\d", r"", r"a", r".", r" {2,}|(a+)+", "\\s+\0",
]  # fmt: skip


@pytest.mark.parametrize("pattern", SLOW)
def test_an_unknown_pattern_is_refused_wherever_it_hides(pattern, model):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    replace = {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}
    for place in (
        {"pre_tokenizer": split},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, split]}},
        {"normalizer": replace},
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [replace]}]}},
        {"decoder": replace},
    ):
        describe(model, **place)
        refused(model, "tokenizer.json", "regular expression")


def test_what_is_checked_is_what_is_read(model):
    """A key given twice: one reader may take the first, another the last."""
    known, slow = (json.dumps({"Regex": pattern}) for pattern in (r"\s+", "(a+)+$"))
    for first, last in ((known, slow), (slow, known)):
        describe(
            model, pre_tokenizer={"type": "Split", "pattern": 1, "behavior": "Isolated", "invert": False}
        )
        text = (
            (model / "tokenizer.json")
            .read_text()
            .replace('"pattern": 1', f'"pattern": {first}, "pattern": {last}')
        )
        (model / "tokenizer.json").write_text(text)
        if last == slow:
            refused(model, "regular expression")
        else:
            assert "(a+)+" not in heedful.load(model).tokenizer.to_str()


def charsmap(entry):
    """A sentencepiece table without a trie, and one text."""
    return base64.b64encode((4).to_bytes(4, "little") + bytes(4) + entry + b"\0").decode()


def replacement(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


BOMBS = {
    "a long replacement": replacement("a", "b" * 1000),
    "a table of a table": {
        "type": "Sequence",
        "normalizers": [{"type": "Precompiled", "precompiled_charsmap": ""}] * 2,
    },
    "a doubling": {"type": "Sequence", "normalizers": [replacement("a", "aa")] * 40},
    "something for nothing": replacement("", "a"),
    "a long beginning": {"type": "Prepend", "prepend": "a" * 1000},
    "bytes of bytes": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 40},
    "a table of long texts": {"type": "Precompiled", "precompiled_charsmap": charsmap(b"a" * 1000)},
}
STRANGE = [
    7,
    "NFC",
    [],
    ["NFC"],
    {},
    {"type": "Nope"},
    {"type": ["NFC"]},
    {"type": "NFC", "normalizers": [7]},
]
STRANGE += [
    {"pattern": {"String": "a"}, "content": "bb"}
]  # a Replace without a name, which the library would read


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor", "decoder"])
def test_a_step_of_unknown_kind_is_refused(part, model):
    for step in STRANGE:
        for place in (step, {"type": "Sequence", f"{part}s".replace("post_", "").replace("_", ""): [step]}):
            describe(model, **{part: place})
            refused(model, "tokenizer.json", f"has a {part} of kind")


@pytest.mark.parametrize("what", BOMBS)
def test_a_text_cannot_be_made_endless(what, model):
    describe(model, normalizer=BOMBS[what])
    refused(model, "tokenizer.json", "endless")


def added(number, content):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, "special": True} | flags


BROKEN = {
    "empty": (b"", ["JSON"]),
    "not JSON": (b"\x89PNG", ["UTF-8", "byte 0"]),
    "not UTF-8": (b'{"version": "\xff"}', ["UTF-8", "byte 13"]),
    "UTF-16": ('{"version": "1.0"}'.encode("utf-16"), ["UTF-8"]),
    "a list": (b"[]", ["object"]),
    "an empty object": (b"{}", []),
    "nested deeply": (b"[" * 100_000, ["deep"]),
    "nested deeply within": (b'{"normalizer": ' * 100_000, ["deep"]),
    "nested as deeply as can be read": (b'{"a": ' * 900 + b"1" + b"}" * 900, []),
    "a lone surrogate": (b'{"version": "\\ud800"}', []),
    "NaN": (b'{"version": NaN}', ["NaN"]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_description_is_refused(what, model):
    content, words = BROKEN[what]
    (model / "tokenizer.json").write_bytes(content)
    refused(model, "tokenizer.json", *words)


def test_numbers_must_be_each_token_s_own_and_known_to_the_model(model):
    spec = describe(model)
    bpe = spec["model"]
    describe(model, added_tokens=[added(2**32 - 1, "<x>")])
    refused(model, "'<x>'", 2**32 - 1)
    describe(model, added_tokens=[added(5, "<x>")])
    refused(model, "'<x>'", 5)
    for number in (2**32, -1, 1.5, "7", None):
        describe(model, added_tokens=[added(number, "<x>")])
        refused(model, "tokenizer.json")
    describe(model, model=bpe | {"vocab": bpe["vocab"] | {"the": 7}})
    refused(model, "number 7 to 2 tokens")
    describe(model, model=bpe | {"vocab": bpe["vocab"] | {"<new>": 400}})
    refused(model, "number 400", "only 400 tokens")
    ends = {"type": "BertProcessing", "sep": ["</s>", 4_000_000_000], "cls": ["<s>", 1]}
    describe(model, post_processor=ends)
    refused(model, "number 4000000000", "only 400 tokens")


def test_very_many_tokens_are_refused_soon(model):
    describe(model, added_tokens=[added(330 + i, f"<{i}>") for i in range(100_000)])
    with at_most(5):
        refused(model, "only 400 tokens")


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "merges.txt", "vocab.txt"])
def test_a_file_of_100_megabytes_is_not_read(name, model):
    spec = json.loads((model / "tokenizer.json").read_text())
    if name != "tokenizer.json":
        (model / "tokenizer.json").unlink()
    if name in ("vocab.json", "merges.txt"):
        tk.Tokenizer.from_str(json.dumps(spec)).model.save(str(model))
    with open(model / name, "ab") as file:
        file.truncate(100 << 20)  # a file of holes: it takes no room on the disk
    refused(model, name, 100 << 20, 48 << 20)


VOCABULARIES = {
    "numbers that are words": ({"vocab.json": '{"a": "b"}', "merges.txt": ""}, ["vocab.json"]),
    "numbers below zero": ({"vocab.json": '{"a": -1}', "merges.txt": ""}, ["vocab.json"]),
    "numbers that are huge": ({"vocab.json": '{"a": 99999999999999}', "merges.txt": ""}, ["vocab.json"]),
    "numbers the model lacks": ({"vocab.json": '{"a": 400}', "merges.txt": ""}, ["vocab.json", 400]),
    "numbers given twice": ({"vocab.json": '{"a": 1, "b": 1}', "merges.txt": ""}, ["number 1 to 2 tokens"]),
    "a vocabulary that is a list": ({"vocab.json": "[1]", "merges.txt": ""}, ["vocab.json", "object"]),
    "a vocabulary nested deeply": ({"vocab.json": "[" * 100_000, "merges.txt": ""}, ["vocab.json", "deep"]),
    "merges of unknown pieces": ({"vocab.json": '{"a": 0}', "merges.txt": "a b"}, ["vocab.json", "b"]),
    "merges of three pieces": ({"vocab.json": '{"a": 0}', "merges.txt": "a b c"}, ["merges.txt", "a b c"]),
    "merges of another format": (
        {"vocab.json": '{"a": 0}', "merges.txt": b"\xff\xfe"},
        ["merges.txt", "UTF-8"],
    ),
    "an empty list of words": ({"vocab.txt": ""}, ["vocab.txt", "[UNK]"]),
    "words without the unknown one": ({"vocab.txt": "[CLS]\n[SEP]\na"}, ["vocab.txt", "[UNK]"]),
    "words that are not UTF-8": ({"vocab.txt": b"[UNK]\n\xff"}, ["vocab.txt", "UTF-8", "byte 6"]),
    "too many words": (
        {"vocab.txt": "\n".join(["[UNK]", "[CLS]", "[SEP]", *map(str, range(400))])},
        ["vocab.txt", 402, 400],
    ),
    "settings that are a list": (
        {"vocab.txt": "[UNK]\n[CLS]\n[SEP]", "tokenizer_config.json": "[]"},
        ["tokenizer_config.json", "object"],
    ),
    "settings of another kind": (
        {"vocab.txt": "[UNK]\n[CLS]\n[SEP]", "tokenizer_config.json": '{"strip_accents": "x"}'},
        ["tokenizer_config.json", "strip_accents", "x"],
    ),
}


@pytest.mark.parametrize("what", VOCABULARIES)
def test_broken_vocabulary_files_are_refused(what, model):
    files, words = VOCABULARIES[what]
    (model / "tokenizer.json").unlink()
    for name, content in files.items():
        (model / name).write_bytes(content.encode() if isinstance(content, str) else content)
    refused(model, *words)


NAMES = [["tokenizer.json"], ["vocab.json", "merges.txt"], ["merges.txt", "vocab.json"], ["vocab.txt"]]
NAMES.append(["tokenizer_config.json", "vocab.txt"])


@pytest.mark.parametrize("names", NAMES, ids=" ".join)
def test_pipes_folders_and_links_are_not_tokenizers(names, model):
    (model / "tokenizer.json").unlink()
    (model / "tokenizer_config.json").unlink()
    for name in names[1:]:
        (model / name).write_text("[UNK]\n[CLS]\n[SEP]" if name == "vocab.txt" else "{}")
    path, outside = model / names[0], model.parent / "outside"
    outside.write_text("{}")
    os.mkfifo(path)
    refused(model, names[0], "regular")
    path.unlink()
    path.mkdir()
    refused(model, names[0], "regular")
    path.rmdir()
    for target, words in ((outside, "leads out"), ("/dev/zero", "regular"), ("nothing", "leads nowhere")):
        path.symlink_to(target)
        refused(model, names[0], words)
        path.unlink()
