"""Long texts become shards of tokens: the same bytes however many processes make them, and however often
they are killed."""

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from heedful.data import sections, tokenizing
from heedful.data.documents import joined, read_documents
from heedful.data.report import Report
from heedful.data.sections import merged, parts_of, stretches, survey
from heedful.data.shards import Joined, Shards, mapped, opened, rows_at, tokens_at
from heedful.data.tokenizing import KEPT, Tokenizing, sample_of, token_rows, tokenize
from heedful.data.vocab import Vocab, train_vocab
from heedful.errors import BadInput

WORDS = [a + b for a in "bdfgklm" for b in "aeiouéß"]


def lines(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 19))) for _ in range(count)]


def silent(line: str) -> None:
    pass


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Plain files, one of them larger than a part, JSON lines, gzip, bad lines, no last line end."""
    monkeypatch.setattr(sections, "PART", 3000)
    folder = tmp_path / "texts"
    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_text("\n".join(lines(300, 0)))
    (folder / "b.txt").write_text("\n\n".join(lines(9, 1)) + "\n")
    (folder / "c.txt").write_text("")
    rows = [json.dumps({"text": "\n".join(lines(4, n)), "id": n}) for n in range(60)]
    (folder / "d.jsonl").write_text("\n".join([*rows[:40], "no JSON", '{"text": 1.5}', *rows[40:]]))
    (folder / "more" / "e.txt.gz").write_bytes(gzip.compress("\r\n".join(lines(120, 2)).encode()))
    bad = "\n".join(lines(200, 3)).encode().split(b"\n")
    bad[150] = b"ba \xff be"
    (folder / "more" / "f.txt").write_bytes(b"\n".join(bad))
    return folder


@pytest.fixture
def vocab(corpus) -> Vocab:
    return train_vocab("bpe", joined(read_documents(corpus)), 400)


def stretches_of(
    path: Path, kind: str = "stream", share: float = 1.0, start: float = 0.0, processes: int = 1
):
    parts = survey(path, "text", kind != "stream", silent, processes)
    whole = sum(part.characters for part in parts)
    return stretches(parts, "text", int(start * whole), int(share * whole))


def tokens_of(run: Path, corpus: Path, vocab: Vocab, kind: str = "stream", say=silent, **more) -> Shards:
    run.mkdir(parents=True)
    found = tokenize(run / "train", stretches_of(corpus, kind, **more), Tokenizing(vocab, kind), say, 1)
    assert isinstance(found, Shards)
    return found


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# The same text


@pytest.mark.parametrize("kind", ["stream", "documents", "lines"])
def test_shards_say_what_the_text_says(kind, corpus, vocab, tmp_path):
    found = tokens_of(tmp_path / "runs" / "a", corpus, vocab, kind)
    assert len(found.stores) > 5
    about = {"bytes": 0}
    plain = [
        np.concatenate(list(row["text"])) if not isinstance(row["text"], np.ndarray) else row["text"]
        for row in token_rows(read_documents(corpus), vocab, kind, about)
    ]
    whole = np.concatenate(plain)
    mine = found.stream("text")[:]
    assert vocab.decode(mine[mine != Vocab.eos].tolist()) == vocab.decode(whole[whole != Vocab.eos].tolist())
    assert (mine == Vocab.eos).sum() == (whole == Vocab.eos).sum() == (0 if kind == "stream" else 64)
    assert found.about["bytes"] == about["bytes"]
    if kind == "documents":  # a row each
        assert [found.row("text", i).tolist() for i in range(len(found))] == [row.tolist() for row in plain]
    if kind == "lines":
        assert found.lengths("text").tolist() == [len(row) for row in plain]


@pytest.mark.parametrize("cut", [0.0, 0.13, 0.5, 0.77, 0.999, 1.0])
def test_a_cut_loses_no_character_and_none_stands_on_both_sides(cut, corpus, vocab):
    text = "".join(joined(read_documents(corpus)))
    before, after = stretches_of(corpus, share=cut), stretches_of(corpus, start=cut)
    said = ["".join(piece for one in some for doc in one.read() for piece in doc) for some in (before, after)]
    assert "".join(said) == "".join(piece for doc in read_documents(corpus) for piece in doc)
    assert sum(one.stop - one.start for one in (*before, *after)) == len("".join(said))
    assert [one.more for one in before][-1:] in ([], [False]) and len(text) > len("".join(said))


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_write_the_bytes_of_one(processes, corpus, vocab, tmp_path):
    alone = tokens_of(tmp_path / "one" / "run", corpus, vocab)
    (tmp_path / "many" / "run").mkdir(parents=True)
    parts = stretches_of(corpus, processes=processes)
    assert parts == stretches_of(corpus)
    tokenize(tmp_path / "many" / "run" / "train", parts, Tokenizing(vocab, "stream"), silent, processes)
    assert bytes_of(tmp_path / "many" / "run") == bytes_of(tmp_path / "one" / "run")
    assert len(alone.stores) == len(parts)


# Parts


def test_parts_follow_from_the_files_and_end_with_lines(corpus):
    text = (corpus / "a.txt").read_bytes()
    mine = [one for part in parts_of(corpus, apart=False) for one in part if one.path.endswith("a.txt")]
    assert len(mine) > 2 and [one.start for one in mine] == [0, *(one.stop for one in mine[:-1])]
    assert all(text[one.stop - 1 : one.stop] == b"\n" for one in mine[:-1]) and mine[-1].stop == len(text)
    whole = [one.path for part in parts_of(corpus, apart=True) for one in part]
    assert len({*whole}) == 6 and whole.count(str(corpus / "a.txt")) == 1  # one document is not cut,
    assert whole.count(str(corpus / "d.jsonl")) > 1  # lines of JSON are
    assert (
        sum(
            (corpus / "more" / "e.txt.gz").stat().st_size == one.stop
            for part in parts_of(corpus, False)
            for one in part
        )
        == 1
    )


def test_a_text_without_line_ends_is_one_part(tmp_path, monkeypatch):
    monkeypatch.setattr(sections, "PART", 1000)
    (tmp_path / "a").write_text("x" * 70_000)
    ((section,),) = parts_of(tmp_path / "a", apart=False)
    assert (section.start, section.stop) == (0, 70_000)


def test_bad_lines_are_numbered_as_in_their_files(corpus):
    plain = Report()
    for document in read_documents(corpus, report=plain):
        for _ in document:
            pass
    found = merged(survey(corpus, "text", False, silent, 1), "drop")
    assert (found.counts, found.firsts) == (plain.counts, plain.firsts)
    assert found.counts.total() == 3 and found.firsts["not UTF-8"][0][1] == 151
    with pytest.raises(BadInput, match=r"d\.jsonl:41: not a JSON object"):
        merged(survey(corpus, "text", False, silent, 1), "refuse")


def test_a_sample_is_the_beginning_of_every_part(corpus):
    parts = stretches_of(corpus)
    sample = list(sample_of(parts, 3))
    assert "".join(sample_of(parts, 1)).replace("\n", "") == "".join(
        piece for document in read_documents(corpus) for piece in document
    ).replace("\n", "")
    size = sum(one.stop - one.start for one in parts)
    assert 0.25 * size < sum(map(len, sample)) < 0.36 * size and len(sample) >= len(parts)


# Streams in parts


def test_a_joined_stream_is_sliced_as_one():
    parts = [np.arange(n, dtype=np.uint16) + 100 * n for n in (3, 0, 5, 1, 0, 4)]
    whole, joined_ = np.concatenate(parts), Joined(parts)
    assert len(joined_) == len(whole) == 13 and joined_.dtype == np.uint16
    for start in range(-3, 15):
        for stop in range(-3, 15):
            found = joined_[start:stop]
            assert found.tolist() == whole[start:stop].tolist() and found.dtype == np.uint16
    assert np.shares_memory(joined_[3:8], parts[2])  # within a part nothing is copied
    assert joined_[:].tolist() == whole.tolist()
    places = np.array([0, 2, 3, 7, 8, 9, 12])
    assert tokens_at(joined_, places).tolist() == whole[places].tolist() == tokens_at(whole, places).tolist()
    starts = np.array([5, 0, 2])
    assert rows_at(joined_, starts, 6).tolist() == [whole[s : s + 6].tolist() for s in starts]
    with pytest.raises(IndexError, match="steps of 1, not of 2"):
        joined_[::2]


def test_shards_are_rows_of_one_store(corpus, vocab, tmp_path):
    found = tokens_of(tmp_path / "run", corpus, vocab)
    again = mapped(found.folder)
    rows = [store.row("text", i).tolist() for store in found.stores for i in range(len(store))]
    assert [again.row("text", i).tolist() for i in range(len(again))] == rows
    assert again.lengths("text").tolist() == [len(row) for row in rows]
    assert again.tokens("text") == len(again.stream("text")) == sum(map(len, rows))
    assert again.hash == found.hash == opened(found.folder, vocab.hash).hash
    with pytest.raises(IndexError):
        again.row("text", len(rows))
    with pytest.raises(BadInput, match="another vocabulary"):
        opened(found.folder, "f" * 64)


# Reuse, changes, damage


def test_a_second_run_shares_the_shards_of_the_first(corpus, vocab, tmp_path):
    first = tokens_of(tmp_path / "runs" / "a", corpus, vocab)
    (corpus / "a.txt").touch()
    shutil.move(corpus, tmp_path / "moved")  # neither times nor places count
    said: list[str] = []
    second = tokens_of(tmp_path / "runs" / "b", tmp_path / "moved", vocab, say=said.append)
    assert second.hash == first.hash and any("an earlier run of the same text" in line for line in said)
    paths = [one.folder / "00000" / "text.bin" for one in (first, second)]
    assert paths[0].stat().st_ino == paths[1].stat().st_ino  # on the disk once
    shutil.rmtree(tmp_path / "runs" / KEPT)
    assert opened(second.folder, vocab.hash).hash == first.hash  # a run keeps what it uses


def test_a_changed_text_is_made_again_even_with_the_old_time(corpus, vocab, tmp_path):
    first = tokens_of(tmp_path / "runs" / "a", corpus, vocab)
    path = corpus / "a.txt"
    times, text = path.stat(), path.read_text()
    path.write_text(text[:500].swapcase() + text[500:])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    second = tokens_of(tmp_path / "runs" / "b", corpus, vocab)
    assert second.hash != first.hash
    assert vocab.decode(second.stream("text")[:60].tolist()).startswith(text[:40].swapcase())
    same = [a.hash == b.hash for a, b in zip(first.stores, second.stores, strict=True)]
    assert same.count(False) == 1


def test_a_text_that_changes_between_reading_and_tokenizing_is_refused(corpus, vocab, tmp_path):
    (tmp_path / "run").mkdir()
    parts = stretches_of(corpus)
    text = (corpus / "a.txt").read_text()
    (corpus / "a.txt").write_text(text.replace("ba", "be"))
    with pytest.raises(BadInput, match=r"a\.txt changed while it was read"):
        tokenize(tmp_path / "run" / "train", parts, Tokenizing(vocab, "stream"), silent, 1)
    assert not (tmp_path / "run" / "train").exists()


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "altered":
        path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif how == "cut":
        path.write_bytes(data[:-2])
    else:
        shutil.rmtree(path.parent)


@pytest.mark.parametrize("how", ["altered", "cut", "gone"])
def test_a_damaged_shard_is_named_and_made_again(how, corpus, vocab, tmp_path):
    first = tokens_of(tmp_path / "runs" / "a", corpus, vocab)
    expected = bytes_of(first.folder)
    (kept,) = (path for path in (tmp_path / "runs" / KEPT).iterdir() if path.is_dir())
    damage(kept / "00002" / "text.bin", how)
    said: list[str] = []
    second = tokens_of(tmp_path / "runs" / "b", corpus, vocab, say=said.append)
    assert bytes_of(second.folder) == expected
    if how != "gone":
        assert any("00002" in line and "it is made again" in line for line in said)
        with pytest.raises(BadInput, match="00002"):  # the same file, by its link in the first run
            opened(first.folder, vocab.hash)


def test_shards_in_another_order_or_of_another_text_are_refused(corpus, vocab, tmp_path):
    found = tokens_of(tmp_path / "run", corpus, vocab)
    (found.folder / "00001").rename(found.folder / "x")
    (found.folder / "00002").rename(found.folder / "00001")
    (found.folder / "x").rename(found.folder / "00002")
    with pytest.raises(BadInput, match="00001 is damaged"):
        mapped(found.folder)
    header = json.loads((found.folder / "shards.json").read_text())
    for name, value in {"format": 2, "shards": [], "about": 3, "vocab": "x"}.items():
        (found.folder / "shards.json").write_text(json.dumps({**header, name: value}))
        with pytest.raises(BadInput, match=r"shards\.json"):
            mapped(found.folder)


# Killed, and at once

PROGRAM = """
import json, sys
from pathlib import Path
from heedful.data import sections
from heedful.data.sections import stretches, survey
from heedful.data.tokenizing import Tokenizing, tokenize
from heedful.data.vocab import Vocab

def main():
    sections.PART = 3000
    texts, tokenizer, run, processes = sys.argv[1:]
    Path(run).mkdir(parents=True, exist_ok=True)
    parts = survey(texts, "text", False, print, 1)
    parts = stretches(parts, "text", 0, sum(part.characters for part in parts))
    how = Tokenizing(Vocab(Path(tokenizer).read_text()), "stream")
    say = lambda line: print(line, flush=True)
    found = tokenize(Path(run) / "train", parts, how, say, int(processes))
    print(found.hash)

if __name__ == "__main__":
    main()
"""


def program(tmp_path: Path, corpus: Path, vocab: Vocab, run: str, processes: int) -> subprocess.Popen:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "tokenizer.json").write_text(vocab.to_json())
    words = [corpus, tmp_path / "tokenizer.json", tmp_path / "runs" / run, processes]
    command = [sys.executable, tmp_path / "program.py", *words]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)


def shards_in(home: Path) -> int:
    return sum(1 for path in home.glob("*/[0-9]*") if path.is_dir())


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_tokenization_goes_on_with_what_is_there(processes, corpus, vocab, tmp_path):
    for n in range(40):  # long enough to be killed in
        (corpus / f"long{n:02}.txt").write_text("\n".join(lines(500, 100 + n)))
    expected = tokens_of(tmp_path / "alone" / "a", corpus, vocab)
    home = tmp_path / "runs" / KEPT
    rng, kills, before = random.Random(processes), 0, 0
    while kills < 4:
        running = program(tmp_path, corpus, vocab, f"run{kills}", processes)
        enough = before + rng.randrange(1, 12)
        while shards_in(home) < enough and running.poll() is None:
            time.sleep(0.003)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert shards_in(home) >= before
        before, kills = shards_in(home), kills + 1
    assert 0 < before < len(expected.stores)
    running = program(tmp_path, corpus, vocab, "last", processes)
    said = running.communicate()[0]
    assert running.returncode == 0 and said.splitlines()[-1] == expected.hash
    assert "shards were there" in said
    assert bytes_of(tmp_path / "runs" / "last") == bytes_of(tmp_path / "alone" / "a")
    (kept,) = (path for path in home.iterdir() if path.is_dir())
    assert not any(path.name.startswith(".") for path in kept.iterdir())  # nothing half written is left


def test_two_runs_at_once_do_the_work_once(corpus, vocab, tmp_path):
    expected = tokens_of(tmp_path / "alone" / "a", corpus, vocab)
    running = [program(tmp_path, corpus, vocab, run, 2) for run in ("a", "b")]
    said = [one.communicate()[0].splitlines() for one in running]
    assert [lines_[-1] for lines_ in said] == [expected.hash] * 2
    made = [sum(line.startswith("tokenizing ") for line in lines_) for lines_ in said]
    assert sorted(made) == [0, 1]
    assert bytes_of(tmp_path / "runs" / "a") == bytes_of(tmp_path / "runs" / "b")


def test_waiting_for_another_run_has_an_end(corpus, vocab, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizing, "PATIENCE", 0.2)
    monkeypatch.setattr(tokenizing, "LOOKED", 0.02)
    home = tmp_path / "runs" / KEPT
    home.mkdir(parents=True)
    said: list[str] = []
    with (
        tokenizing.alone(home / "key", silent),
        pytest.raises(BadInput, match="without a new shard"),
        tokenizing.alone(home / "key", said.append),
    ):
        pass
    assert said == ["another run is tokenizing the same text: waiting for it"]
    with tokenizing.alone(home / "key", silent):
        pass


def test_tokens_of_another_user_are_not_used(corpus, vocab, tmp_path, monkeypatch):
    tokens_of(tmp_path / "runs" / "a", corpus, vocab)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(BadInput, match="belongs to another user"):
        tokens_of(tmp_path / "runs" / "b", corpus, vocab)
