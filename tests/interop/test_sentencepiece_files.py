"""SentencePiece files and the settings beside them: read as the package reads them, or refused."""

import json
import random
import shutil
import subprocess
import sys

import pytest
from helpers.hostile_files import mutate
from helpers.refusals import at_most
from helpers.sentencepiece_cases import (
    MADE,
    made,  # noqa: F401 (fixtures)
)

import heedful
from heedful.interop.hf import sentencepiece as format
from heedful.interop.hf.probes import corpus
from heedful.interop.hf.sentencepiece import read_pieces
from heedful.interop.hf.tokenizer import read_target, read_tokenizer

# The file itself


def test_the_file_is_read_as_sentencepiece_reads_it(made):
    from sentencepiece import sentencepiece_model_pb2

    root, processors = made
    for name, (file, _) in MADE.items():
        found, processor = read_pieces(root / name / file), processors[name]
        expected = sentencepiece_model_pb2.ModelProto.FromString((root / name / file).read_bytes())
        assert found.names == [piece.piece for piece in expected.pieces]
        assert found.scores == [piece.score for piece in expected.pieces]
        assert found.kinds == [piece.type for piece in expected.pieces]
        assert (found.model, found.unknown) == (expected.trainer_spec.model_type, processor.unk_id())
        assert found.charsmap == expected.normalizer_spec.precompiled_charsmap
        assert found.byte_fallback == expected.trainer_spec.byte_fallback
        assert found.squeezes == expected.normalizer_spec.remove_extra_whitespaces


def reads_or_says_why(folder):
    """True if it is read and texts go through it; False if one sentence that names the folder refuses it."""
    try:
        with at_most(5):
            for tokenizer in (read_tokenizer(folder, 1000), read_target(folder, 1000)):
                if tokenizer is not None:
                    tokenizer.encode_batch(corpus())
    except heedful.BadInput as error:
        said = str(error)
        assert str(folder) in said and said.isprintable() and len(said) <= 2000
        return False
    return True


@pytest.mark.parametrize(
    "name, file",
    [
        *((name, file) for name, (file, _) in MADE.items()),
        ("marian", "source.spm"),
        ("marian", "target.spm"),
        ("marian", "vocab.json"),
    ],
)
def test_a_damaged_file_is_read_or_refused(name, file, made, tmp_path):
    folder = shutil.copytree(made[0] / name, tmp_path / name)
    assert reads_or_says_why(folder)
    whole, rng = (folder / file).read_bytes(), random.Random(f"{name} {file}")
    body = whole if len(whole) < 100_000 else None
    results = []
    for turn in range(40):
        if body is None and turn % 2:  # most of the file is its table of characters: hit the pieces as well
            head = 6000
            damaged = mutate(whole[:head], rng) + whole[head:]
        else:
            damaged = mutate(whole, rng)
        (folder / file).write_bytes(damaged)
        results.append(reads_or_says_why(folder))
    assert results.count(False) > 8, "the damage is too gentle to test anything"


def field(number, value):
    """A field of a protocol buffer."""
    if isinstance(value, bytes):
        return whole_number(number << 3 | 2) + whole_number(len(value)) + value
    return whole_number(number << 3) + whole_number(value)


def whole_number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def piece(name, kind=1):
    return field(1, field(1, name) + field(3, kind))


START = piece(b"<unk>", 2) + piece(b"</s>", 3)
HOSTILE = {
    "nothing": (b"", "no pieces"),
    "a length beyond the end": (b"\x0a\xff\xff\xff\xff\x0f", "are left"),
    "a number without an end": (b"\xff" * 30, "ten bytes"),
    "a number cut short": (b"\x0a\xff", "no end"),
    "a group, which no such file has": (START + b"\x0b", "kind 3"),
    "pieces that are numbers": (field(1, 7), "fields or a text are expected"),
    "a name that is not text": (START + piece(b"\xff\xfe"), "UTF-8"),
    "a piece twice": (START + piece(b"a") * 2, "'a' twice"),
    "a piece without a name": (START + piece(b""), "no name"),
    "a piece of a megabyte": (START + piece(b"a" * (1 << 20)), "256 bytes"),
    "a kind of piece that is none": (START + piece(b"a", 9), "kind 9"),
    "a score that is none": (START + field(1, field(1, b"a") + b"\x15\x00\x00\xc0\x7f"), "nan"),
    "no piece for the unknown": (piece(b"a"), "unknown"),
    "a model of words": (START + field(2, field(3, 3)), "kind 3"),
    "spaces after words": (START + field(2, field(24, 1)), "after words"),
    "spaces left as they are": (START + field(3, field(5, 0)), "leaves spaces"),
    "a table that is too short": (START + field(3, field(2, b"abc")), "table"),
    "a table that leads out of itself": (
        START + field(3, field(2, (1024).to_bytes(4, "little") + b"\x00\xfc\xff\x7f" * 256)),
        "leads out",
    ),
    "a table that leads into nothing": (
        START + field(3, field(2, (1024).to_bytes(4, "little") + b"\x00\x01\x00\x00" * 256 + b"a\0")),
        "leads into nothing",
    ),
    "a table that is not text": (
        START + field(3, field(2, (1024).to_bytes(4, "little") + bytes(1024) + b"\xff")),
        "UTF-8",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused(what, tmp_path):
    content, words = HOSTILE[what]
    (tmp_path / "spiece.model").write_bytes(content)
    with at_most(2), pytest.raises(heedful.BadInput, match=words) as told:
        read_tokenizer(tmp_path)
    assert str(tmp_path / "spiece.model") in str(told.value)


MEMORY = """
import pathlib, resource, sys
import heedful
from heedful.interop.hf.tokenizer import read_tokenizer

folder = pathlib.Path(sys.argv[1])
read_tokenizer(folder / "honest").encode("the cat")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
for path in sorted(folder.glob("hostile*")):
    try:
        read_tokenizer(path)
        sys.exit(f"{path} was read")
    except heedful.BadInput as error:
        assert str(path) in str(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - before)
"""


def test_a_bomb_takes_no_memory(made, tmp_path):
    shutil.copytree(made[0] / "t5", tmp_path / "honest")
    words = [f"{n:b}"[1:].encode() for n in range(2, 1 << 17)]  # all words of two letters
    bombs = [
        START
        + b"".join(map(piece, words))
        + field(2, field(3, 2)),  # each piece is made of others in many ways
        b"\x0a\x02\x0a\x00" * (1 << 20),
        START + b"".join(piece(random.Random(n).randbytes(60).hex().encode()) for n in range(20_000)),
    ]
    for number, bomb in enumerate(bombs):
        (tmp_path / f"hostile-{number}").mkdir()
        (tmp_path / f"hostile-{number}" / "tokenizer.model").write_bytes(bomb)
    (tmp_path / "hostile-holes").mkdir()
    with open(tmp_path / "hostile-holes" / "tokenizer.model", "wb") as file:
        file.truncate(200 << 20)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 350


def test_the_limits_leave_room_for_what_is_published():
    assert format.NODES >= 1_000_000 and format.MERGES > 500_000 and format.LIMIT > 4_300_000


TOLD = {
    "added tokens that are a list": '{"added_tokens_decoder": []}',
    "an added token of no name": '{"added_tokens_decoder": {"700": {"content": ""}}}',
    "an added token that is a number": '{"added_tokens_decoder": {"700": 7}}',
    "a number that is a word": '{"added_tokens_decoder": {"x": {"content": "a"}}}',
    "a number that is not due": '{"added_tokens_decoder": {"900": {"content": "<new>"}}}',
    "a name that is a list": '{"bos_token": ["a"]}',
    "a flag that is a word": '{"add_bos_token": "yes"}',
    "special tokens that are a word": '{"extra_special_tokens": "abc"}',
    "not JSON": "{",
}


def test_very_many_added_tokens_are_refused_soon(made, tmp_path):
    folder = shutil.copytree(made[0] / "llama", tmp_path / "llama")
    for count, words in ((100_000, "at most 65536"), (60_000, "only 1000 tokens")):
        added = {str(709 + n): {"content": f"<{n}>"} for n in range(count)}
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
        with at_most(5), pytest.raises(heedful.BadInput, match=words):
            read_tokenizer(folder, 1000)


@pytest.mark.parametrize("what", TOLD)
def test_broken_settings_are_refused(what, made, tmp_path):
    folder = shutil.copytree(made[0] / "llama", tmp_path / "llama")
    (folder / "tokenizer_config.json").write_text(TOLD[what])
    with pytest.raises(heedful.BadInput, match=r"tokenizer_config\.json"):
        read_tokenizer(folder, 1000)


@pytest.mark.parametrize("name", ["spiece.model", "spm.model", "tokenizer.model"])
def test_links_that_lead_out_and_pipes_are_not_read(name, made, tmp_path):
    import os

    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / name
    os.mkfifo(path)
    with at_most(2), pytest.raises(heedful.BadInput, match="regular"):
        read_tokenizer(path.parent)
    path.unlink()
    path.symlink_to(made[0] / "t5" / "spiece.model")
    with pytest.raises(heedful.BadInput, match="leads out"):
        read_tokenizer(path.parent)
