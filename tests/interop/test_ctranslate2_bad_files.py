"""Damaged and lying CTranslate2 folders are refused in a sentence, in little time and memory."""

import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.binary_cases import boundaries
from helpers.ctranslate2_cases import loaded_of, translator
from helpers.hostile_files import loads_or_says_why, mutate

import heedful
from heedful.interop.ctranslate2 import read as from_ctranslate2
from heedful.interop.ctranslate2 import write as to_ctranslate2

# Bad files


@pytest.fixture
def small(tmp_path):
    """A folder of one layer."""
    entry = translator(layers=1, decoder_layers=1, vocab=11, target_vocab=11, context=5)
    (tmp_path / "model").mkdir()
    to_ctranslate2.write(loaded_of(entry), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "file, times", [("model.bin", 200), ("config.json", 60), ("shared_vocabulary.json", 60)]
)
def test_a_file_altered_at_random_loads_or_is_refused(file, times, small):
    whole = (small / file).read_bytes()
    assert loads_or_says_why(small)
    dice, refused = random.Random(file), 0
    for _ in range(times):
        (small / file).write_bytes(mutate(whole, dice))
        refused += not loads_or_says_why(small)
    assert refused > times / 4


def test_a_file_cut_anywhere_is_refused(small):
    path = small / "model.bin"
    whole = path.read_bytes()
    places = boundaries(small, heedful.load)
    assert len(places) > 300
    for place in [*places, *(place + 1 for place in places[::7]), len(whole) - 1]:
        path.write_bytes(whole[:place])
        assert not loads_or_says_why(small)
    path.write_bytes(whole + b"\0")
    assert not loads_or_says_why(small)


def head(version=6, kind=b"TransformerSpec\0", count=1):
    return struct.pack("<IH", version, len(kind)) + kind + struct.pack("<II", 7, count)


def variable(name, rank, *shape, number=0, size=0):
    spelled = name.encode() + b"\0"
    return struct.pack("<H", len(spelled)) + spelled + struct.pack(f"<B{rank}IBI", rank, *shape, number, size)


@pytest.mark.parametrize(
    "data, why",
    [
        (b"", "empty"),
        (b"\x06\0", "damaged"),
        (head(version=3), "layout 3"),
        (head(version=2**31), "layout 2147483648"),
        (head(kind=b"WhisperSpec\0", count=0) + bytes(4), "WhisperSpec"),
        (head(count=2**32 - 1), "announces 4294967295 variables"),
        (head() + variable("a", 2, 2**32 - 1, 2**32 - 1, size=16), "a is 4294967295 x 4294967295"),
        (head() + variable("a", 1, 2**30, size=2**32 - 4), "has 4294967292 bytes"),
        (head() + variable("a", 1, 2**29, number=0, size=2**31), "would take 2147483648 bytes"),
        (head() + variable("a", 9, *[1] * 9, size=4), "9 axes"),
        (head() + variable("a", 1, 1, number=77, size=4), "the unknown type 77"),
        (head() + variable("a\x1b[31m", 1, 1, size=4), "a name is"),
        (head(count=0) + struct.pack("<I", 2**32 - 1), "announces 4294967295 other names"),
        (head(kind=b"Transfor\xffSpec\0"), "not UTF-8"),
    ],
)
def test_lies_are_refused(data, why, small):
    (small / "model.bin").write_bytes(data)
    with pytest.raises(heedful.BadInput, match=why) as error:
        heedful.load(small)
    assert str(small) in str(error.value) and str(error.value).isprintable()


def edited(small, name, value):
    """The folder with a variable that is a single number set to another."""
    path = small / "model.bin"
    data = path.read_bytes()
    at = data.index(name.encode() + b"\0") + len(name) + 1
    rank, number, size = struct.unpack_from("<BBI", data, at)
    assert rank == 0
    kind = {0: "f", 1: "b", 2: "h", 3: "i"}[number]
    path.write_bytes(data[: at + 6] + struct.pack(f"<{kind}", value) + data[at + 6 + size :])


@pytest.mark.parametrize(
    "name, value, why",
    [
        ("decoder/alibi", 1, "alibi is 1"),
        ("encoder/pre_norm", 1, "decoder/pre_norm is 0"),
        ("encoder/num_heads", 5, "divided into 5 heads"),
        ("encoder/num_heads", -1, "heads"),
        ("encoder/activation", 99, "activation is"),
        ("decoder/scale_embeddings", float("nan"), "scale_embeddings is nan"),
        ("decoder/scale_embeddings", 3.0, "neither 1 nor the root"),
    ],
)
def test_settings_that_change_the_model_are_refused(name, value, why, small):
    edited(small, name, value)
    with pytest.raises(heedful.BadInput, match=why):
        heedful.load(small)


def test_a_variable_that_nobody_asked_for_is_refused(small):
    path = small / "model.bin"
    data = bytearray(path.read_bytes())
    start = 4 + 2 + len("TransformerSpec") + 1 + 4
    count = struct.unpack_from("<I", data, start)[0]
    struct.pack_into("<I", data, start, count + 1)
    extra = variable("decoder/layer_0/self_attention/sliding_window", 0, number=3, size=4) + struct.pack(
        "<i", 4
    )
    path.write_bytes(bytes(data[: start + 4]) + extra + bytes(data[start + 4 :]))
    with pytest.raises(heedful.BadInput, match="sliding_window, which heedful does not use"):
        heedful.load(small)


def test_a_link_that_leads_out_is_not_followed(small, tmp_path):
    for name in ("model.bin", "shared_vocabulary.json", "config.json"):
        outside = shutil.move(small / name, tmp_path / name)
        (small / name).symlink_to(outside)
        with pytest.raises(heedful.BadInput, match="leads out of its folder"):
            heedful.load(small)
        (small / name).unlink()
        shutil.move(outside, small / name)
    assert loads_or_says_why(small)


LYING = """
import pathlib, resource, struct, sys
import heedful
folder = pathlib.Path(sys.argv[1])
heedful.load(folder)
print([name for name in ("ctranslate2", "transformers", "gguf") if name in sys.modules])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, files = peak(), sorted(folder.iterdir())
whole = (folder / "model.bin").read_bytes()
head = struct.pack("<IH", 6, 16) + b"TransformerSpec\\0" + struct.pack("<II", 7, 1)
def of(shape, size):
    return head + struct.pack("<H", 2) + b"a\\0" + struct.pack("<BIIBI", 2, *shape, 0, size)
for start in (of((2**16, 2**13), 2**31), of((2**14, 2**12), 2**28), head[:-4] + struct.pack("<I", 2**32 - \
1), whole):
    with open(folder / "model.bin", "wb") as file:
        file.write(start)
        file.truncate(600 << 20)  # a file of holes: it takes no room on the disk
    try:
        heedful.load(folder)
        sys.exit("it was believed")
    except heedful.BadInput:
        pass
assert sorted(folder.iterdir()) == files
print(peak() - before)
"""


def test_a_lie_about_sizes_takes_no_memory_and_loading_needs_no_other_library(small):
    done = subprocess.run(
        [sys.executable, "-c", LYING, small], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    imported, grown = done.stdout.splitlines()
    assert imported == "[]" and int(grown) <= 50


def test_our_reader_knows_one_when_it_sees_it(small, tmp_path):
    assert from_ctranslate2.is_one(small) and not from_ctranslate2.is_one(tmp_path)
    assert not from_ctranslate2.is_one(Path("nowhere"))
