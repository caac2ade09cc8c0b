"""The user's files: good lines come out, bad ones are counted, and memory stays small."""

import gzip
import json
import os
import random
import re
import subprocess
import sys
import tracemalloc

import pytest
from helpers.refusals import at_most
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import documents, text_file
from heedful.data.documents import PIECE, blocks, read_texts
from heedful.data.lines import read_lines, read_parallel
from heedful.data.report import Fault, Report
from heedful.data.tables import read_table
from heedful.data.text_file import CHUNK, open_text
from heedful.errors import BadInput


def write(path, content):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(make, *said):
    """It is refused in one printable line that says this."""
    with pytest.raises(BadInput) as caught, at_most(5):
        make()
    message = str(caught.value)
    assert message.isprintable()
    for what in said:
        assert str(what) in message
    return message


# What a line is

LINES = {
    "empty": (b"", []),
    "only a newline": (b"\n", [""]),
    "no final newline": (b"a\nb", ["a", "b"]),
    "final newline": (b"a\nb\n", ["a", "b"]),
    "empty lines": (b"\n\na\n\n", ["", "", "a", ""]),
    "CRLF": (b"a\r\nb\r\n", ["a", "b"]),
    "LF and CRLF": (b"a\nb\r\nc", ["a", "b", "c"]),
    "CR inside": (b"a\rb\n\r\r\n", ["a\rb", "\r"]),
    "other line ends": ("a\u2028b\x0bc\x85d\x1ee\n".encode(), ["a\u2028b\x0bc\x85d\x1ee"]),
    "BOM": (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
    "BOM alone": (b"\xef\xbb\xbf", []),
    "BOM inside": (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    "white space": (b" a\t \n", [" a\t "]),
    "scripts": ("猫\nПривет\n👩‍👩‍👧‍👦\n".encode(), ["猫", "Привет", "👩‍👩‍👧‍👦"]),
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("content, lines", LINES.values(), ids=LINES)
def test_lines(tmp_path, content, lines, zipped):
    path = write(tmp_path / "any.name", gzip.compress(content) if zipped else content)
    report = Report("refuse")
    assert list(read_lines(path, report=report)) == lines
    assert report.sentence() == "no line dropped"


BAD = {
    "NUL": (b"a\0b", "with NUL", "character 2 is NUL"),
    "invalid UTF-8": (b"caf\xe9", "not UTF-8", "byte 4"),
    "cut character": ("猫".encode()[:2], "not UTF-8", "byte 1"),
    "overlong encoding": (b"\xc0\xaf", "not UTF-8", "byte 1"),
    "lone surrogate": (b"a\xed\xa0\x80", "not UTF-8", "byte 2"),
    "beyond Unicode": (b"\xf4\x90\x80\x80", "not UTF-8", "byte 1"),
    "too long": (b"x" * 10_001, "too long", "10000 characters"),
    "far too long": (b"x" * 300_000, "too long", "10000 characters"),
}


@pytest.mark.parametrize("where", ["first", "second", "last"])
@pytest.mark.parametrize("line, kind, why", BAD.values(), ids=BAD)
def test_bad_lines_are_counted_or_refused(tmp_path, line, kind, why, where):
    number = {"first": 1, "second": 2, "last": 3}[where]
    lines = [b"one", b"two"]
    lines.insert(number - 1, line)
    path = write(tmp_path / "a.en", b"\n".join(lines))
    report = Report()
    assert list(read_lines(path, report=report)) == ["one", "two"]
    assert report.counts == {kind: 1}
    ((file, at, said),) = report.firsts[kind]
    assert (file, at) == (str(path), number) and why in said
    refused(lambda: list(read_lines(path, report=Report("refuse"))), f"{path}:{number}: ", why)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_the_limit_is_in_characters_and_inclusive(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(text_file, "CHUNK", chunk)
    path = write(tmp_path / "a", "猫" * 50 + "\r\n" + "猫" * 51 + "\n" + "👍" * 50 + "\r\n" + "👍" * 51)
    report = Report()
    assert [len(line) for line in read_lines(path, limit=50, report=report)] == [50, 50]
    assert [line for _, line, _ in report.firsts["too long"]] == [2, 4]


@given(st.data())
def test_lines_do_not_depend_on_where_the_reads_end(tmp_path_factory, data):
    """Against Python's own idea of a line, with tiny reads."""
    lines = data.draw(st.lists(st.text("aé猫👍\r \t", max_size=9), max_size=9))
    ends = data.draw(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=len(lines), max_size=len(lines)))
    text = "".join(line + end for line, end in zip(lines, ends, strict=True)) + data.draw(
        st.text("aé猫", max_size=3)
    )
    path = tmp_path_factory.getbasetemp() / "reads"
    path.write_bytes(text.encode())
    whole = text.split("\n")
    whole = [line.removesuffix("\r") for line in (whole if whole[-1] else whole[:-1])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_file, "CHUNK", data.draw(st.integers(1, 7)))
        patch.setattr(documents, "PIECE", data.draw(st.integers(1, 9)))
        report = Report()
        assert list(read_lines(path, limit=6, report=report)) == [line for line in whole if len(line) <= 6]
        assert report.counts.total() == sum(len(line) > 6 for line in whole)
        assert "".join(read_texts(path)) == text.replace("\r\n", "\n")


# Whole files that cannot be read


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    cases = {
        "missing": "missing",
        ".": "is a folder",
        "pipe": "not a regular file",
        "nowhere": "leads nowhere",
        "loop": "leads nowhere",
        "x" * 300: "cannot be read",
        "a\0b": "a?b is missing",
    }
    for name, why in cases.items():
        for read in (read_lines, read_texts) if name != "." else (read_lines,):
            refused(lambda: list(read(tmp_path / name)), why, str(tmp_path))  # noqa: B023
    refused(lambda: list(read_lines("/dev/zero")), "/dev/zero is not a regular file")
    if os.geteuid():
        write(tmp_path / "secret", "a").chmod(0)
        refused(lambda: list(read_lines(tmp_path / "secret")), "secret cannot be read: Permission denied")


@pytest.mark.parametrize(
    "content, why",
    [
        ("a\n".encode("utf-16"), "UTF-16 text: convert it"),
        (b"\xfd7zXZ\0", "xz"),
        (b"PK\x03\x04", "zip"),
        (b"BZh91AY", "bzip2"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd"),
    ],
)
def test_other_encodings_and_packings_are_named(tmp_path, content, why):
    refused(lambda: list(read_lines(write(tmp_path / "a.txt", content))), "a.txt is ", why)


def test_a_truncated_gzip_names_the_line_reached(tmp_path):
    rng = random.Random(1)
    lines = [str(rng.random()) for _ in range(30_000)]
    whole = gzip.compress("\n".join(lines).encode())
    path = write(tmp_path / "a.gz", whole[: len(whole) // 2])
    found = []

    def read():
        found.extend(read_lines(path))

    message = refused(read, "a.gz:", "breaks off")
    reached = int(re.search(r"a\.gz:(\d+):", message)[1])
    assert found == lines[: reached - 1] and 10_000 < reached < 20_000
    refused(lambda: list(read_lines(write(path, whole[:-3]))), "a.gz:30000:", "breaks off")
    refused(lambda: list(read_lines(write(path, whole[:5]))), "a.gz:1:", "breaks off")


def test_a_damaged_gzip_is_named(tmp_path):
    whole = bytearray(gzip.compress(b"a\nb\n" * 1000))
    for at, value in ((12, 255), (len(whole) - 6, 1)):  # the data; the checksum
        damaged = whole[:at] + bytes([whole[at] ^ value]) + whole[at + 1 :]
        refused(lambda: list(read_lines(write(tmp_path / "a.gz", damaged))), "a.gz:", "gzip")  # noqa: B023
    refused(lambda: list(read_lines(write(tmp_path / "a.gz", whole + b"rubbish"))), "a.gz:2001:", "damaged")
    joined = gzip.compress(b"a\n") + gzip.compress(b"") + gzip.compress(b"b")
    assert list(read_lines(write(tmp_path / "a.gz", joined))) == ["a", "b"]


# Memory

HUGE = """
import sys, tracemalloc
from heedful.data.documents import read_texts
from heedful.data.lines import read_lines
from heedful.data.report import Report
path, report = sys.argv[1], Report()
def grown():
    # Not ru_maxrss: a child begins with its parent's.
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(peak.split()[1]) // 1024
start = grown()
lines = list(read_lines(path, report=report))
size = sum(map(len, read_texts(path)))
print(len(lines), report.sentence(), size, grown() - start)
"""


def test_a_line_of_a_hundred_megabytes_is_survived(tmp_path):
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.write(b"a\n")
        for _ in range(100):
            file.write(b"x y " * (1 << 18))
        file.write(b"\nb\n")
    run = subprocess.run(
        [sys.executable, "-c", HUGE, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    *said, megabytes = run.stdout.split()
    assert " ".join(said) == f"2 1 line dropped: 1 too long ({path}:2) {(100 << 20) + 5}"
    assert int(megabytes) < 30


def test_a_gzip_of_much_is_read_in_little_memory(tmp_path):
    path = write(tmp_path / "bomb", gzip.compress(b"\0" * (30 << 20)))  # 30 KB
    tracemalloc.start()
    try:
        assert list(read_lines(path)) == []
        assert list(read_texts(path)) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20


def test_many_lines_take_no_more_memory_than_few(tmp_path):
    path = write(tmp_path / "many", b"the cat sat on the mat\n" * 200_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_parallel(path, path)) == 200_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


# Reports


def test_a_report_speaks_in_one_sentence():
    report = Report()
    report.bad("a.en", 17, Fault("not UTF-8", "why"))
    report.bad("a.en", 20, Fault("not UTF-8", "why"))
    report.bad("a.de", 4, Fault("empty", "why"))
    assert report.sentence() == "3 lines dropped: 2 not UTF-8 (first a.en:17), 1 empty (a.de:4)"
    for line in range(100):
        report.bad("a.en", line, Fault("empty", "why"))
    assert len(report.firsts["empty"]) == 5 and report.counts["empty"] == 101
    refused(lambda: Report("ignore"), '"drop" or "refuse"', "ignore")


# Two files in step


def test_pairs_stay_in_step_whatever_is_dropped(tmp_path):
    source = write(tmp_path / "a.en", b"1\n\n3\n\xff\n5\n6\n7\n")
    target = write(tmp_path / "a.de", b"eins\nzwei\n \nvier\nf\0nf\nsechs\n" + b"x" * 20_000)
    report = Report()
    assert list(read_parallel(source, target, report=report)) == [("1", "eins"), ("6", "sechs")]
    assert report.counts == {"empty": 2, "not UTF-8": 1, "with NUL": 1, "too long": 1}
    assert [(os.path.basename(path), line) for path, line, _ in report.firsts["empty"]] == [
        ("a.en", 2),
        ("a.de", 3),
    ]
    refused(
        lambda: list(read_parallel(source, target, report=Report("refuse"))), f"{source}:2: the line is empty"
    )


@pytest.mark.parametrize("policy", ["drop", "refuse"])
@pytest.mark.parametrize("sources, targets", [(3, 2), (2, 3), (0, 1), (5, 0), (2, 40_000)])
def test_files_out_of_step_are_refused_with_both_counts(tmp_path, sources, targets, policy):
    source, target = write(tmp_path / "a.en", "a\n" * sources), write(tmp_path / "a.de", "b\n" * targets)
    pairs = read_parallel(source, target, report=Report(policy))
    refused(lambda: list(pairs), f"{source} has {sources} lines and {target} has {targets}")


# Tables

TSV = 'id\ttext \tlabel\n1\tthe cat\tyes\n2\ta "dog\t0\n'
JSONL = '\n  {"label": "yes", "id": 1, "text": "the cat"}\n'
JSONL += '{"text": "a \\"dog", "label": 0, "more": [1.5, null]}\n'


@pytest.mark.parametrize("content", [TSV, TSV.replace("\n", "\r\n"), JSONL, "\ufeff" + TSV, "\ufeff" + JSONL])
@pytest.mark.parametrize("zipped", [False, True])
def test_tables_give_the_columns_asked_for(tmp_path, content, zipped):
    data = gzip.compress(content.encode()) if zipped else content
    rows = list(read_table(write(tmp_path / "data", data), ["text", "label"]))
    assert rows == [("the cat", "yes"), ('a "dog', "0")]


BAD_ROWS = {
    "few cells": ("a\tb\n1\t2\n3\n", "with a wrong number of cells", "1 cells stand under 2 columns"),
    "many cells": ("a\tb\n1\t2\n3\t4\t5\n", "with a wrong number of cells", "3 cells stand under 2 columns"),
    "empty line": ("a\n1\n\n2\n", "empty", '"a" is empty'),
    "empty cell": ("a\tb\n1\t2\n \t4\n", "empty", '"a" is empty'),
    "number": ('{"a": "1"}\n{"a": 0.5}', "of a wrong type", '"a" is 0.5'),
    "null": ('{"a": "1"}\n{"a": null}', "of a wrong type", '"a" is None'),
    "list": ('{"a": "1"}\n{"a": ["x"]}', "of a wrong type", "['x']"),
    "not an object": ('{"a": "1"}\n["a"]', "not JSON", "not a JSON object"),
    "not JSON": ('{"a": "1"}\n{"a": "1"', "not JSON", "not a JSON object"),
    "deep": ('{"a": "1"}\n' + "[" * 99_000, "not JSON", "not a JSON object"),
    "many digits": ('{"a": "1"}\n{"a": ' + "9" * 9_000 + "}", "not JSON", "not a JSON object"),
    "other column": ('{"a": "1"}\n{"aa": "1"}', "without a column", 'no "a"; did you mean "aa"'),
    "NUL": ('{"a": "1"}\n{"a": "\\u0000"}', "with NUL", "character 1"),
    "surrogate": ('{"a": "1"}\n{"a": "\\ud83d"}', "with half a character", '"a" has a lone surrogate'),
    "invalid": (b'{"a": "1"}\n{"a": "\xff"}', "not UTF-8", "byte 8"),
}


@pytest.mark.parametrize("content, kind, why", BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_are_counted_or_refused(tmp_path, content, kind, why):
    path = write(tmp_path / "data", content)
    report = Report()
    good = list(read_table(path, ["a"], report=report))
    assert good[0] == ("1",) and report.counts == {kind: 1}
    number = 2 if content[:1] in ("{", b"{") else 3
    refused(lambda: list(read_table(path, ["a"], report=Report("refuse"))), f"{path}:{number}: ", why)


@pytest.mark.parametrize(
    "content, why",
    [
        ("sorce\ttarget\n1\t2\n", ':1: there is no column "source"; did you mean "sorce"?'),
        ("x\ty\n1\t2\n", ':1: there is no column "source"; there are x, y'),
        ("source,target\n1,2\n", "(columns are separated by tabs)"),
        ("source\tsource\n1\t2\n", ':1: there are 2 columns "source"'),
        ('{"Source": "1"}', ': in its first object there is no "source"; did you mean "Source"?'),
        ("", " is empty"),
        (b"sourc\xe9\n", ":1: the line that names the columns: not UTF-8"),
    ],
)
def test_a_missing_column_is_refused_with_the_nearest(tmp_path, content, why):
    path = write(tmp_path / "data", content)
    refused(lambda: list(read_table(path, ["source"])), f"{path}{why}" if why[0] in ": " else why)


def test_json_escapes_come_out_as_characters(tmp_path):
    path = write(tmp_path / "data", json.dumps({"a": "猫\n👍", "b": True, "c": -7}))
    assert list(read_table(path, ["a", "b", "c"])) == [("猫\n👍", "true", "-7")]


# Running text


def test_a_folder_is_read_in_order_without_hidden_files(tmp_path):
    for name, text in {
        "b.txt": "2\n",
        "a/z.txt": "4\n",
        "a/b/c": "5",
        "B.gz": "1\n",
        ".x": "no",
        ".y/z": "no",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, gzip.compress(text.encode()) if name.endswith("gz") else text)
    assert list(read_texts(tmp_path)) == ["1\n", "2\n", "4\n", "5"]
    (tmp_path / "empty").mkdir()
    refused(lambda: list(read_texts(tmp_path / "empty")), "empty holds no text file")
    os.mkfifo(tmp_path / "c.pipe")
    refused(lambda: list(read_texts(tmp_path)), "c.pipe is not a regular file")


def test_text_comes_in_pieces_cut_at_line_ends(tmp_path):
    text = "".join(f"line {number} é\n" for number in range(30_000))
    pieces = list(read_texts(write(tmp_path / "a", text)))
    assert "".join(pieces) == text
    assert len(pieces) > 4 and all(piece.endswith("\n") for piece in pieces)


def test_text_without_line_ends_is_cut_at_spaces_or_between_characters(tmp_path):
    words = "猫猫猫 word " * 100_000
    pieces = list(read_texts(write(tmp_path / "a", words)))
    assert "".join(pieces) == words
    assert len(pieces) > 4 and all(piece.startswith(" ") for piece in pieces[1:])
    solid = "猫" * 500_000
    pieces = list(read_texts(write(tmp_path / "a", solid)))
    assert "".join(pieces) == solid and len(pieces) > 3


def test_bad_lines_of_a_text_are_left_out_and_counted(tmp_path):
    good = [b"line %d\r\n" % number for number in range(20_000)]
    bad = {5: b"\xff\n", 15_000: b"a\0b\n", 19_000: b"\xed\xa0\x80\r\n"}
    lines = list(good)
    for number in sorted(bad):
        lines.insert(number - 1, bad[number])
    report = Report()
    path = write(tmp_path / "a", b"".join(lines))
    assert "".join(read_texts(path, report=report)) == b"".join(good).decode().replace("\r\n", "\n")
    assert report.counts == {"not UTF-8": 2, "with NUL": 1}
    assert [line for _, line, _ in report.firsts["not UTF-8"]] == [5, 19_000]
    refused(lambda: list(read_texts(path, report=Report("refuse"))), f"{path}:5: not UTF-8")


def test_bytes_that_are_no_text_at_all_stay_bounded(tmp_path):
    report = Report()
    with open_text(write(tmp_path / "a", b"\x80" * (1 << 20))) as file:
        assert max(map(len, blocks(file))) <= PIECE + CHUNK
    assert list(read_texts(tmp_path / "a", report=report)) == []
    assert set(report.counts) == {"not UTF-8"}
