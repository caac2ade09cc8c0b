"""The comparison of training times: a corpus that is the same wherever it lies, and a clock that counts
training alone."""

import hashlib
import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful.data.store import Store
from heedful.data.vocab import read_vocab
from heedful.train.loop import Progress

sys.path.append(str(Path(__file__).parents[2]))  # where benchmarks/ lies, for a plain `pytest`
benchmark = import_module("benchmarks.time_to_quality")
build_corpus = benchmark.build_corpus


def write_sources(folder: Path, count: int = 160) -> Path:
    for number in range(count):
        path = folder / f"part{number % 3}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"def number_{number}():\n    return {number * number}\n" * (1 + number % 4), "utf-8")
    return folder


def test_the_corpus_does_not_depend_on_where_files_lie(tmp_path):
    here, there = write_sources(tmp_path / "here"), tmp_path / "there"
    for path in here.rglob("*.py"):
        moved = there / "other" / f"renamed_{path.name}"
        moved.parent.mkdir(parents=True, exist_ok=True)
        moved.write_bytes(path.read_bytes())
    corpus = build_corpus([here], 1e9)
    assert corpus == build_corpus([there], 1e9, workers=3) == build_corpus([there, here], 1e9)
    assert corpus.about["files"] == 160

    (there / "other" / "one_more.py").write_text("x = 1\n", encoding="utf-8")
    assert build_corpus([there], 1e9).about["sha256"] != corpus.about["sha256"]


def test_what_is_no_program_is_left_out(tmp_path):
    data = b"\xef\xbb\xbfname = '\xc3\xa9'\r\n"
    (tmp_path / "good.py").write_bytes(data)
    (tmp_path / "latin.py").write_bytes(b"name = '\xe9'\n")
    (tmp_path / "empty.py").write_bytes(b" \n\n")
    (tmp_path / "table.py").write_bytes(b"x = 0\n" * (benchmark.LARGEST // 6 + 1))
    (tmp_path / "notes.txt").write_bytes(b"words\n")
    (tmp_path / "folder.py").mkdir()
    corpus = build_corpus([tmp_path], 1e9)
    assert corpus.learned + corpus.held_out == ["name = 'é'\n"]
    assert corpus.about["bytes"] == len("name = 'é'\n".encode())
    assert corpus.about["sha256"] == hashlib.sha256(hashlib.sha256(data).digest()).hexdigest()


def test_a_smaller_corpus_is_a_part_of_the_larger_and_keeps_its_split(tmp_path):
    whole = build_corpus([write_sources(tmp_path)], 1e9)
    half = build_corpus([tmp_path], whole.about["bytes"] / 2)
    assert (
        half.learned == whole.learned[: len(half.learned)]
        and half.held_out == whole.held_out[: len(half.held_out)]
    )
    assert 0.45 * whole.about["bytes"] < half.about["bytes"] <= 0.5 * whole.about["bytes"]
    assert whole.held_out and not set(whole.held_out) & set(whole.learned)
    assert len(whole.held_out) + len(whole.learned) == whole.about["files found"] == 160


def test_tokens_are_the_documents_and_their_ends(tmp_path):
    corpus = build_corpus([write_sources(tmp_path / "source")], 1e9)
    about = benchmark.prepare(tmp_path / "tokens", corpus, words=300)
    vocab = read_vocab(tmp_path / "tokens" / "tokenizer.json")
    for split, texts, name in (
        ("train", corpus.learned, "tokens"),
        ("valid", corpus.held_out, "held-out tokens"),
    ):
        stream = Store.open(tmp_path / "tokens" / split, vocab.hash).stream("text")
        ends = np.flatnonzero(stream == vocab.eos)
        assert [vocab.decode(part[part != vocab.eos]) for part in np.split(stream, ends + 1)[:-1]] == texts
        assert ends[-1] == len(stream) - 1 and about[name] == len(stream)
    assert json.loads((tmp_path / "tokens" / "corpus.json").read_text(encoding="utf-8")) == about


def test_the_clock_leaves_out_compiling_and_evaluating():
    watch = benchmark.Watch("gpt2", 4, torch.device("cpu"))
    for step, seconds in enumerate([30.0, 9.0, 0.5, 1.0, 1.0, 2.0, 1.0, 1.0], 1):
        watch.step(Progress(step, 3.0, 100, 1e-3, 1.0, seconds), 8)
        if step % 4 == 0:
            watch.noting(lambda model, step=step: {"loss": 5.0 - step / 4})(None)
    found = watch.result()
    assert found["seconds"] == pytest.approx(1 + 1 + 0.5 + 1 + 1 + 2 + 1 + 1, abs=0.01)
    assert found["compiling"] == pytest.approx(29 + 8, abs=0.01)
    assert found["loss"] == 3.0 and found["losses"] == [
        (4, pytest.approx(3.5, abs=0.02), 4.0),
        (8, pytest.approx(8.5, abs=0.02), 3.0),
    ]


def test_the_ratio_is_of_the_best_baseline_and_the_shortest_run_that_ended_as_low():
    baselines = [{"loss": 2.1, "seconds": 40.0}, {"loss": 2.0, "seconds": 60.0}]
    ours = [
        {"loss": 2.05, "seconds": 10.0},
        {"loss": 1.9, "seconds": 50.0},
        {"loss": 2.0, "seconds": 30.0},
    ]
    assert benchmark.compared(baselines, ours) == {
        "loss": 2.0,
        "seconds": 60.0,
        "llama seconds": 30.0,
        "ratio": 2.0,
    }
    assert benchmark.compared(baselines, ours[:1])["ratio"] is None


def test_a_small_comparison_runs_from_the_files_to_the_ratio(tmp_path, capsys):
    source = write_sources(tmp_path / "source")
    given = [
        "--small",
        "--device",
        "cpu",
        "--workers",
        "1",
        "--vocab",
        "290",
        "--steps",
        "4",
        "--llama-steps",
        "3",
        "2",
    ]
    given += ["--source", str(source), "--evaluations", "2", "--llama-set", "train.weight_decay=0"]
    options = benchmark.read_options(
        [*given, "--gpt2-set", "train.batch_tokens=256", "--llama-set", "train.batch_tokens=256"]
    )
    found = benchmark.compare(tmp_path / "tokens", options)
    assert [(r["recipe"], r["steps"], [step for step, _, _ in r["losses"]]) for r in found["runs"]] == [
        ("gpt2", 4, [2, 4]),
        ("llama", 3, [2, 3]),
        ("llama", 2, [1, 2]),
    ]
    assert all(0 < r["loss"] < 7 and 0 < r["seconds"] < 60 for r in found["runs"])
    again = benchmark.compare(tmp_path / "tokens", options)  # from the tokens that are there
    assert [r["loss"] for r in again["runs"]] == [r["loss"] for r in found["runs"]]
    assert again["corpus"]["sha256"] == found["corpus"]["sha256"] and "| llama |" in capsys.readouterr().out

    with pytest.raises(SystemExit, match="not less than"):
        benchmark.compare(tmp_path / "tokens", benchmark.read_options([*given, "--steps", "100000"]))
