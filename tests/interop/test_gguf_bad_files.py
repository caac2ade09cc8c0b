"""Damaged and lying GGUF files are refused in a sentence, in little time and memory."""

import random
import shutil
import struct
import subprocess
import sys

import pytest
from helpers.binary_cases import boundaries
from helpers.gguf_cases import (
    TOKENS,
    entries,
    file_of,
    load_bytes,
    own_tensors,
    small,  # noqa: F401 (fixtures)
    text,
)
from helpers.hostile_files import loads_or_says_why, mutate

import heedful
from heedful.interop.gguf import read as from_gguf


def test_a_file_altered_at_random_loads_or_is_refused(small):
    whole = small.read_bytes()
    assert loads_or_says_why(small)
    dice, refused = random.Random(8), 0
    for _ in range(200):
        small.write_bytes(mutate(whole, dice))
        refused += not loads_or_says_why(small)
    assert refused > 50


def test_a_beginning_altered_at_random_loads_or_is_refused(small):
    """Most of a file is weights, of which any are good; here all damage is before them."""
    whole = small.read_bytes()
    begin = whole.index(b"tokenizer.ggml.tokens")
    dice, refused = random.Random(9), 0
    for _ in range(200):
        small.write_bytes(mutate(whole[:begin], dice) + whole[begin:])
        refused += not loads_or_says_why(small)
    assert refused > 100


def test_a_file_cut_anywhere_is_refused(small):
    whole = small.read_bytes()
    places = boundaries(small, heedful.load)
    assert len(places) > 500
    for place in [*places[::3], *(place + 1 for place in places[::11]), len(whole) - 40]:
        small.write_bytes(whole[:place])
        assert not loads_or_says_why(small)


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "empty|is not a folder"),
        (b"GGUF", "damaged"),
        (b"GGUX" + bytes(100), "not a GGUF file"),
        (file_of(entries(TOKENS), version=1), "version 1"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(100), "version 50331648"),
        (file_of(entries(TOKENS), counts=(2**40, 5)), "announces 1099511627776 tensors"),
        (file_of(entries(TOKENS), counts=(5, 2**63)), "announces 9223372036854775808 keys"),
        (file_of({"general.alignment": 0}), "alignment is 0"),
        (file_of({"general.alignment": 48}), "alignment is 48"),
        (file_of({"a": struct.pack("<I", 99)}), "unknown type 99"),
        (file_of({"a": struct.pack("<IQ", 8, 2**62)}), "has 4611686018427387904 bytes"),
        (file_of({"a": struct.pack("<IIQ", 9, 4, 2**62)}), "announces 4611686018427387904"),
        (file_of({"a": struct.pack("<IIQ", 9, 8, 2**62)}), "announces 4611686018427387904"),
        (file_of({"a": struct.pack("<IIQIQIQ", 9, 9, 1, 9, 1, 9, 1)}), "a list of the unsupported type 9"),
        (file_of({"a": 1}).replace(text("a"), text(b"\xff")), "not UTF-8"),
        (file_of({"general.architecture": "llama"}, {"x": ((2**40, 2**40), 0, b"")}), "would lie at"),
        (file_of({"general.architecture": "llama"}, {"x": ((0, 4), 0, b"")}), "rows of 4 values"),
        (file_of({"general.architecture": "llama"}, {"x": ((3, 33), 8, bytes(34))}), "block size 32"),
        (file_of({"general.architecture": "llama"}, {"x": ((3,), 4, bytes(34))}), "stored as kind 4"),
        (file_of({"general.architecture": "llama"}, {"x": ((1,) * 5, 0, bytes(4))}), "5 axes"),
        (file_of({"general.architecture": "gemma"}), "architecture 'gemma'"),
        (file_of(entries(TOKENS, **{"split.count": 3})), "one of 3 parts"),
        (file_of(entries(TOKENS, **{"llama.expert_count": 8})), "sets llama.expert_count to 8"),
        (file_of(entries(TOKENS, **{"llama.rope.scaling.type": "yarn"})), "rope.scaling.type to 'yarn'"),
        (file_of(entries(TOKENS, **{"llama.attention.sliding_window": 4})), "sliding_window"),
        (file_of(entries(TOKENS) | {"llama.block_count": 2**31 - 1}), "declares 2147483647 layers"),
        (file_of(entries(TOKENS) | {"llama.attention.head_count": 0}), "head_count is 0"),
        (file_of(entries(TOKENS) | {"llama.attention.head_count": 2**31 - 1}), "due"),
        (file_of(entries(TOKENS) | {"llama.attention.head_count": "six"}), "head_count is 'six'"),
        (file_of(entries(TOKENS) | {"llama.attention.key_length": 7}), "odd width 7"),
        (file_of(entries(TOKENS) | {"llama.rope.dimension_count": 4}), "not the width of a head"),
        (file_of(entries(TOKENS) | {"llama.feed_forward_length": 2**31 - 1}), "due"),
        (file_of(entries(TOKENS) | {"llama.embedding_length": 31}), "is not 30"),
        (file_of(entries(TOKENS), own_tensors() | {"more": ((1,), 0, bytes(4))}), "does not use"),
        (file_of(entries(TOKENS), dict(list(own_tensors().items())[1:])), "has no token_embd.weight"),
        (file_of(entries(TOKENS), dict(list(own_tensors().items())[:-1])), "lacks blk.1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lies_are_refused(data, why, tmp_path):
    with pytest.raises(heedful.BadInput, match=why) as error:
        load_bytes(data, tmp_path)
    assert str(tmp_path / "a.gguf") in str(error.value) and str(error.value).isprintable()


def test_twice_is_refused(tmp_path):
    whole = file_of(entries(TOKENS))
    name = text("blk.0.attn_q.weight")
    with pytest.raises(heedful.BadInput, match="blk.0.attn_q.weight' twice"):
        load_bytes(whole.replace(text("blk.0.attn_k.weight"), name), tmp_path)
    key = text("llama.attention.head_count_kv")
    said = entries(TOKENS)
    twice = file_of(said | {"llama.attention.head_count_kX": 1}).replace(
        text("llama.attention.head_count_kX"), key
    )
    with pytest.raises(heedful.BadInput, match="head_count_kv' twice"):
        load_bytes(twice, tmp_path)


def test_a_tensor_outside_the_file_or_off_its_place_is_refused(tmp_path):
    whole = bytearray(file_of(entries(TOKENS)))
    at = whole.index(text("output_norm.weight")) + len(text("output_norm.weight")) + 4 + 8 + 4
    for place in (2**63, len(whole), 8):
        struct.pack_into("<Q", whole, at, place)
        with pytest.raises(heedful.BadInput, match="output_norm.weight' would lie at"):
            load_bytes(bytes(whole), tmp_path)


def test_tensors_that_lie_over_each_other_are_refused(tmp_path):
    """A file of some bytes could otherwise unpack to any number of them."""
    data, start = file_of(entries(TOKENS)), struct.pack("<Q", 0)
    for name in own_tensors():
        at = data.index(text(name)) + len(text(name))
        rank = struct.unpack_from("<I", data, at)[0]
        place = at + 4 + 8 * rank + 4
        data = data[:place] + start + data[place + 8 :]
    data = data[: len(data) - len(data) // 3]
    with pytest.raises(heedful.BadInput, match="some overlap"):
        load_bytes(data, tmp_path)


def test_folders(small, tmp_path):
    folder = small.parent
    shutil.copy(small, folder / "other.gguf")
    with pytest.raises(heedful.BadInput, match="2 GGUF files, model.gguf, other.gguf: name one"):
        heedful.load(folder)
    (folder / "other.gguf").unlink()
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "model.gguf").symlink_to(small)
    with pytest.raises(heedful.BadInput, match="leads out of its folder"):
        heedful.load(inner)
    assert from_gguf.is_one(folder) and not from_gguf.is_one(tmp_path / "nothing")
    nameless = small.rename(tmp_path / "weights")
    assert heedful.load(nameless).architecture == "llama"


LYING = """
import pathlib, resource, struct, sys
import heedful
path = pathlib.Path(sys.argv[1])
heedful.load(path)
print([name for name in ("gguf", "transformers", "ctranslate2") if name in sys.modules])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, files, whole = peak(), sorted(path.parent.iterdir()), path.read_bytes()
def text(data): return struct.pack("<Q", len(data)) + data
head = lambda tensors, keys: b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)
lists = text(b"a") + struct.pack("<IIQ", 9, 8, 60_000_000)
tensor = text(b"x") + struct.pack("<IQQIQ", 2, 2**12, 2**14, 0, 0)
for start in (head(2**40, 0), head(0, 2**24), head(0, 1) + lists, head(1, 0) + tensor, whole[:2000]):
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(600 << 20)  # a file of holes: it takes no room on the disk
    try:
        heedful.load(path)
        sys.exit("it was believed")
    except heedful.BadInput:
        pass
assert sorted(path.parent.iterdir()) == files
print(peak() - before)
"""


def test_a_lie_about_sizes_takes_no_memory_and_loading_needs_no_other_library(small):
    done = subprocess.run(
        [sys.executable, "-c", LYING, small], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    imported, grown = done.stdout.splitlines()
    assert imported == "[]" and int(grown) <= 50
