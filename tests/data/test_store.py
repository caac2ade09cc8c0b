"""Stores: what was written comes back, a failure leaves nothing, a store that has changed is refused."""

import errno
import hashlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.store import FieldWriter, Store, seal, write_store
from heedful.errors import BadInput, DiskFull
from heedful.runs.folder import RunFolder

FIELDS = {"source": "English", "target": "French"}
ROWS = [
    {"source": [5, 6, 7], "target": [8]},
    {"source": [], "target": [9, 10, 11, 12]},
    {"source": [13], "target": []},
]


@pytest.fixture
def folder(tmp_path):
    """A small store of uint16."""
    write_store(tmp_path / "corpus", FIELDS, iter(ROWS), 100, {"tokenizer": "abc"})
    return tmp_path / "corpus"


def refused(folder, *said, opened=Store.open):
    """Opening, or else reading, is refused in one line with these words and no memory to speak of."""
    tracemalloc.start()
    try:
        with pytest.raises(BadInput) as caught:
            store = opened(folder)
            for field in store.fields:
                store.lengths(field)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert message.isprintable() and len(message) <= 2000
    for what in said:
        assert str(what) in message


def edit(folder, sealed=False, **changes):
    """Put other values into the header; sealed: as if it had been written so."""
    header = json.loads((folder / "store.json").read_text())
    for name, value in changes.items():
        part = header
        *path, last = name.split("__")
        for step in path:
            part = part[step]
        part[last] = value
    if sealed:
        header["sha256"] = seal(header)
    (folder / "store.json").write_text(json.dumps(header))


# There and back


@settings(max_examples=40)
@given(
    st.sampled_from([1 << 16, (1 << 16) + 1, 1 << 32]).flatmap(
        lambda size: st.tuples(
            st.just(size), st.lists(st.lists(st.integers(0, size - 1), max_size=5), max_size=7)
        )
    )
)
def test_rows_come_back(tmp_path_factory, case):
    size, rows = case
    folder = tmp_path_factory.mktemp("rows") / "corpus"
    store = write_store(folder, {"x": "numbers"}, iter([{"x": row} for row in rows]), size, {})
    for found in (store, pickle.loads(pickle.dumps(store))):
        assert len(found) == len(rows) and found.vocab_size == size
        assert [found.row("x", i).tolist() for i in range(len(rows))] == rows
        assert (
            found.lengths("x").tolist() == [len(row) for row in rows] and found.lengths("x").dtype == np.int64
        )
        assert found.stream("x").tolist() == [token for row in rows for token in row]
        assert found.tokens("x") == sum(map(len, rows))
        assert found.stream("x").dtype == (np.uint16 if size <= 1 << 16 else np.uint32)


def test_fields_are_kept_apart_and_about_is_kept(folder):
    store = Store.open(folder)
    assert [store.row(field, 1).tolist() for field in FIELDS] == [[], [9, 10, 11, 12]]
    assert (store.tokens("source"), store.tokens("target"), store.about) == (4, 5, {"tokenizer": "abc"})
    assert sorted(os.listdir(folder)) == [
        "source.bin",
        "source.idx",
        "store.json",
        "target.bin",
        "target.idx",
    ]
    for i in (-1, 3):
        with pytest.raises(IndexError, match=f"row {i} of 3"):
            store.row("source", i)


def test_bytes_on_disk_are_as_documented(folder):
    assert (folder / "target.bin").read_bytes() == bytes([8, 0, 9, 0, 10, 0, 11, 0, 12, 0])
    assert np.fromfile(folder / "target.idx", "<i8").tolist() == [0, 1, 5, 5]


def test_rows_are_mapped_and_cannot_be_written(folder):
    store = Store.open(folder)
    assert np.shares_memory(store.row("source", 0), store.stream("source"))
    assert (
        b"source.bin" not in pickle.dumps(store) and len(pickle.dumps(store)) < 500
    )  # the folder's name alone
    with pytest.raises(ValueError, match="read-only"):
        store.row("source", 0)[0] = 1


def test_a_store_is_written_and_opened_in_little_memory(tmp_path):
    row = {"x": list(range(1000))}
    tracemalloc.start()
    try:
        store = write_store(tmp_path / "large", {"x": ""}, (row for _ in range(2000)), 1000, {})
        store.row("x", 1999)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert store.stream("x").nbytes == 4_000_000 and peak < 2 << 20


# A failure leaves nothing


def broken(row):
    yield from ROWS
    yield row


@pytest.mark.parametrize(
    "row, why",
    [
        ({"source": [100], "target": []}, "row 3 of source has token 100; the vocabulary ends at 99"),
        ({"source": [], "target": [-1]}, "row 3 of target holds what is no token"),
        ({"source": [1 << 16], "target": []}, "row 3 of source holds what is no token"),
        ({"source": [0.5], "target": []}, "row 3 of source holds what is no token"),
        ({"source": []}, "row 3 has the fields source, not source, target"),
        ({"source": [], "target": [], "more": []}, "row 3 has the fields source, target, more"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_left(tmp_path, row, why):
    with pytest.raises(BadInput, match=why):
        write_store(tmp_path / "corpus", FIELDS, broken(row), 100, {})
    assert os.listdir(tmp_path) == []


def test_an_interrupt_leaves_nothing(tmp_path):
    def interrupted():
        yield from ROWS
        assert os.listdir(tmp_path) == [f".corpus.tmp-{os.getpid()}"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "corpus", FIELDS, interrupted(), 100, {})
    assert os.listdir(tmp_path) == []
    with pytest.raises(TypeError):
        write_store(tmp_path / "corpus", FIELDS, iter(ROWS), 100, {"bad": object()})
    with pytest.raises(BadInput, match="more is said about"):
        write_store(tmp_path / "corpus", FIELDS, iter(ROWS), 100, {"long": "x" * (1 << 20)})
    assert os.listdir(tmp_path) == []


FULL = """
import resource, signal, sys
from heedful.data.store import write_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    write_store(sys.argv[1], {"x": ""}, ({"x": [1, 2, 3, 4, 5]} for _ in range(20_000)), 9, {})
except OSError as error:
    print("refused", error.errno)
"""


@pytest.mark.parametrize("limit", [100, 170_000])  # neither file, or only the .bin, cannot grow so far
def test_a_disk_that_takes_no_more_is_an_error_and_leaves_nothing(tmp_path, limit):
    command = [sys.executable, "-c", FULL, str(tmp_path / "corpus"), str(limit)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.startswith("refused")
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_not_overwritten(folder):
    before = (folder / "store.json").read_bytes()
    with pytest.raises(BadInput, match="corpus already exists"):
        write_store(folder, FIELDS, iter([]), 100, {})
    assert (folder / "store.json").read_bytes() == before
    for name in ("../x", "a/b", "", "x\n"):
        with pytest.raises(BadInput, match="cannot be the name of a field"):
            write_store(folder.with_name("new"), {name: ""}, iter([]), 100, {})
    assert os.listdir(folder.parent) == ["corpus"]


def test_leftovers_of_a_killed_process_are_no_obstacle(tmp_path):
    (tmp_path / f".corpus.tmp-{os.getpid()}").mkdir()
    (tmp_path / f".corpus.tmp-{os.getpid()}" / "source.bin").write_bytes(b"old")
    assert len(write_store(tmp_path / "corpus", FIELDS, iter(ROWS), 100, {})) == 3
    assert os.listdir(tmp_path) == ["corpus"]


ENDLESS = """
import sys
from heedful.data.store import write_store

def rows():
    while True:
        yield {"x": [1, 2, 3] * 1000}
        print("written", flush=True)

write_store(sys.argv[1] + "/data", {"x": ""}, rows(), 9, {})
"""


def test_what_a_killed_process_was_writing_is_cleared_by_the_next_that_opens_the_run(tmp_path):
    RunFolder.create(tmp_path / "run", {"task": "lm"}).close()
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(tmp_path / "run")], stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert os.path.getsize(tmp_path / "run" / f".data.tmp-{child.pid}" / "x.idx") >= 0
        with RunFolder.open(tmp_path / "run"):  # it lives: what it writes is left alone
            assert (tmp_path / "run" / f".data.tmp-{child.pid}").is_dir()
        child.send_signal(signal.SIGKILL)
    with RunFolder.open(tmp_path / "run"):
        assert not list((tmp_path / "run").glob(".data*"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_with_what_is_free_and_leaves_nothing(tmp_path, monkeypatch, number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(FieldWriter, "write", fail)
    with pytest.raises(DiskFull, match=r"the disk is full.*\d+ bytes are free.*corpus'"):
        write_store(tmp_path / "corpus", FIELDS, iter(ROWS), 100, {})
    assert os.listdir(tmp_path) == []


# Stores that have changed


def test_every_flipped_bit_is_noticed(folder):
    """In the files of numbers, each with both hashes; in the header, unless it says the same as before."""
    whole = Store.open(folder)
    flips = 0
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        step = 1 if path.suffix != ".json" else 7
        for bit in range(0, 8 * len(data), step):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            try:
                store = Store.open(folder)
            except BadInput as error:
                assert str(path) in str(error) and str(error).isprintable()
                if "SHA-256" in str(error) and path.suffix != ".json":
                    for hashed in (data, damaged):
                        assert hashlib.sha256(hashed).hexdigest() in str(error)
            else:  # another kind of white space
                assert path.suffix == ".json" and json.loads(damaged) == json.loads(data)
                assert store.about == whole.about
            flips += 1
        path.write_bytes(data)
    assert flips > 1000 and len(Store.open(folder)) == 3


def test_what_a_header_says_is_sealed(folder):
    """A number that nothing else contradicts, such as the bytes of the text that bits per byte divide by."""
    edit(folder, about__tokenizer="abd")
    refused(folder, folder / "store.json", "is damaged: expected SHA-256")
    edit(folder, about__tokenizer="abc", vocab_size=101)
    refused(folder, folder / "store.json", "is damaged: expected SHA-256")
    edit(folder, vocab_size=100)
    assert Store.open(folder).vocab_size == 100


def test_a_copy_for_another_process_is_not_read_through_again(folder, monkeypatch):
    store = Store.open(folder)
    monkeypatch.setattr(hashlib, "file_digest", None)
    assert pickle.loads(pickle.dumps(store)).row("target", 1).tolist() == [9, 10, 11, 12]
    write_store(folder.with_name("new"), FIELDS, iter(ROWS), 100, {})
    with pytest.raises(TypeError):
        Store.open(folder)


def test_a_store_made_with_another_vocabulary_is_refused(tmp_path):
    write_store(tmp_path / "data", FIELDS, iter(ROWS), 100, {"vocab": "f" * 64})
    assert len(Store.open(tmp_path / "data", "f" * 64)) == 3
    refused(
        tmp_path / "data",
        "another vocabulary",
        "put the old tokenizer.json back",
        opened=lambda folder: Store.open(folder, "e" * 64),
    )


# Stores that lie: also when sealed, as only someone who means it would


@pytest.mark.parametrize("name", ["source.bin", "source.idx", "target.bin", "target.idx"])
@pytest.mark.parametrize("change", [-1, -2, 1, 2])
def test_a_file_of_another_size_is_named_with_both_numbers(folder, name, change):
    path = folder / name
    size = path.stat().st_size
    path.write_bytes((path.read_bytes() + b"\0\0")[: size + change])
    refused(folder, path, f"has {size + change} bytes", f"speaks of {size}")


def test_an_empty_or_missing_file_is_named(folder):
    for name in ("source.bin", "source.idx", "store.json"):
        copy = folder.with_name(f"without-{name}")
        shutil.copytree(folder, copy)
        (copy / name).write_bytes(b"")
        refused(copy, copy / name)
        (copy / name).unlink()
        refused(copy, copy / name, "missing")
    refused(folder.with_name("gone"), "gone", "missing")


LIES = {
    "more rows": ({"rows": 4}, "source.idx has 32 bytes", "speaks of 40"),
    "huge rows": ({"rows": 2**62}, "source.idx has 32 bytes", str(8 * (2**62 + 1))),
    "rows beyond": ({"rows": 2**63}, "rows is 9223372036854775808", "0 to 2^63 - 1"),
    "negative rows": ({"rows": -1}, "rows is -1"),
    "half a row": ({"rows": 2.5}, "rows is 2.5"),
    "true rows": ({"rows": True}, "rows is True"),
    "no rows": ({"rows": None}, "rows is None"),
    "many digits": ({"rows": 10**4000}, "rows is 1000"),
    "more tokens": ({"fields__source__tokens": 5}, "source.bin has 8 bytes", "speaks of 10"),
    "huge tokens": ({"fields__source__tokens": 2**63 - 1}, "source.bin has 8 bytes"),
    "negative tokens": ({"fields__source__tokens": -4}, "tokens of source is -4"),
    "other bytes": ({"fields__source__bytes": 10}, "gives source 10 bytes", "have 8"),
    "negative bytes": ({"fields__source__bytes": -8}, "bytes of source is -8"),
    "other type": ({"dtype": "uint32"}, "source.bin has 8 bytes", "speaks of 16"),
    "objects": ({"dtype": "object"}, "dtype is 'object'"),
    "no type": ({"dtype": ["uint16"]}, "dtype is ['uint16']"),
    "other format": ({"format": 1}, "format is 1", "delete the folder"),
    "no hashes": ({"fields__source__sha256": None}, "sha256 of source is None"),
    "one hash": ({"fields__source__sha256": {"bin": ""}}, "sha256 of source is"),
    "wrong hash": ({"fields__source__sha256__idx": 5}, "source.idx is damaged: expected SHA-256 5, found"),
    "no fields": ({"fields": []}, "fields is []"),
    "strange field": ({"fields": {"../../etc/passwd": {}}}, "which cannot be read"),
    "empty field": ({"fields__source": None}, "which cannot be read"),
    "another field": (
        {"fields__third": {"tokens": 0, "bytes": 0, "sha256": {"bin": "", "idx": ""}}},
        "third.bin is missing",
    ),
    "no vocabulary": ({"vocab_size": "many"}, "vocab_size is 'many'"),
    "about nothing": ({"about": None}, "about is None"),
}


@pytest.mark.parametrize("changes_and_said", LIES.values(), ids=LIES)
def test_a_header_that_lies_is_refused(folder, changes_and_said):
    changes, *said = changes_and_said
    edit(folder, sealed=True, **changes)
    refused(folder, folder, *said)


@pytest.mark.parametrize(
    "offsets, said",
    [
        ([1, 3, 3, 4], "goes from 1 to 4"),
        ([0, 3, 3, 5], "goes from 0 to 5"),
        ([0, 3, 3, 2**62], "goes from 0 to"),
        ([-1, 3, 3, 4], "goes from -1 to 4"),
        ([0, 4, 3, 4], "row 1 goes from token 4 to 3"),
        ([0, -(2**62), 3, 4], "row 0 goes from token 0 to -4611686018427387904"),
        ([0, 2**62, 3, 4], "row 1 goes from token 4611686018427387904 to 3"),
    ],
)
def test_offsets_that_lie_are_refused(folder, offsets, said):
    np.array(offsets, "<i8").tofile(folder / "source.idx")
    refused(folder, "source.idx", said, opened=Store.mapped)
    refused(folder, "source.idx", "SHA-256" if "row" in said else said)
    if "row" in said:
        with pytest.raises(BadInput, match="is damaged: row"):
            for i in range(3):
                Store.mapped(folder).row("source", i)


def test_a_link_that_leads_out_is_refused(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes((folder / "source.bin").read_bytes())
    (folder / "source.bin").unlink()
    (folder / "source.bin").symlink_to(secret)
    refused(folder, "source.bin is a link that leads out")


def test_random_damage_to_the_header_is_refused_or_harmless(folder):
    rng = random.Random(2)
    whole = (folder / "store.json").read_text()
    outcomes = set()
    for _ in range(200):
        at = rng.randrange(len(whole))
        put = rng.choice(["9", "-", '"', "{", "", "null", "99999999999999999999", "[]"])
        (folder / "store.json").write_text(whole[:at] + put + whole[at + rng.choice([0, 1, 4]) :])
        try:
            store = Store.open(folder)
            assert [store.row("source", i).tolist() for i in range(len(store))] == [r["source"] for r in ROWS]
            assert (store.vocab_size, store.about) == (100, {"tokenizer": "abc"})
            outcomes.add(True)
        except BadInput as error:
            assert str(folder) in str(error)
            outcomes.add(False)
    assert outcomes == {True, False}


LYING = """
import json, pathlib, shutil, sys
import numpy as np
from heedful.errors import BadInput
from heedful.data.store import Store, seal, write_store

def peak():
    # Not ru_maxrss: a child begins with its parent's.
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024

folder = pathlib.Path(sys.argv[1])
row = {"x": list(range(50_000))}
before = peak()
write_store(folder, {"x": ""}, (row for _ in range(1000)), 1 << 16, {})
Store.open(folder)
grown, header = peak() - before, json.loads((folder / "store.json").read_text())
lies = [{"rows": n} for n in (2**40, 2**60, 2**62, 2**63, -1)]
x, counts = header["fields"]["x"], (2**40, 2**62, 2**63 - 1, -5)
lies += [{"fields": {"x": x | {"tokens": n, "bytes": 2 * n}}} for n in counts]
for lie in lies:
    told = header | lie
    (folder / "store.json").write_text(json.dumps(told | {"sha256": seal(told)}))
    for opened in (Store.open, Store.mapped):
        try:
            opened(folder)
            sys.exit(f"{lie} was believed")
        except BadInput as error:
            assert str(folder) in str(error)
(folder / "store.json").write_text(json.dumps(header))
sizes = (("x.bin", 2**43), ("x.idx", 2**43), ("store.json", 2**33), ("x.bin", 12_345), ("x.idx", 77))
for name, size in sizes:
    shutil.copy(folder / name, folder / "kept")
    with open(folder / name, "r+b") as file:
        file.truncate(size)  # larger: with a hole, which takes no room on the disk
    try:
        Store.open(folder)
        sys.exit(f"{name} of {size} bytes was believed")
    except BadInput as error:
        assert str(folder / name) in str(error)
    (folder / "kept").rename(folder / name)
Store.open(folder)
print(grown, peak() - before)
"""


def test_neither_an_honest_store_of_a_hundred_megabytes_nor_a_lie_about_sizes_takes_memory(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LYING, tmp_path / "corpus"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all(int(megabytes) <= 50 for megabytes in done.stdout.split()), done.stdout
