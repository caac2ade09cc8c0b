"""heedful bench: who is compared with whom, and how it is told. Nothing here is timed."""

import argparse
import json
import math
import subprocess
import sys
import typing
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from helpers.bench_cases import (
    CEILINGS,
    CPU,
    DECODING,
    PEER,
    TRAINING,
    Answering,
    asked_for,
    contender,
    results_of,
)

from heedful.bench import __main__ as program
from heedful.bench import beside, records, table, units
from heedful.bench import work as works
from heedful.bench.measure import Failed
from heedful.bench.peers import Contender, Variant
from heedful.bench.worker import WorkerRequests, plain, said, without_folders
from heedful.cli import main as cli
from heedful.cli.bench import BenchOptions
from heedful.cli.shared.arguments import option
from heedful.errors import BadInput

pytestmark = pytest.mark.usefixtures("no_pause")

# Who is compared with whom


def test_ratios_are_to_the_fastest_peer_with_the_same_kind_of_numbers(host):
    found = results_of(heedful=0.2, slow=0.8, fast=0.4, eight=0.1, broken=None)
    rows = beside.records_of(host, "decode-gpt2", DECODING, found, [[1, 2, 4]], None)
    assert {r["contender"]: r["ratio"] for r in rows} == {
        "heedful": 2.0,
        "slow": 0.5,
        "fast": 1.0,
        "eight": 1.0,
        "broken": None,
    }
    assert {r["best_peer"] for r in rows} == {"fast", "eight", None}
    floor = max(DECODING.flops / 1e9, DECODING.traffic("fp32", "fp32") / 1e6)
    assert rows[0]["floor_ms"] == pytest.approx(1000 * floor)
    assert rows[0]["of_floor"] == pytest.approx(floor / 0.2)
    assert rows[3]["floor_ms"] == pytest.approx(DECODING.traffic("int8", "fp32") / 1000)
    assert rows[3]["of_peak"] is None  # nobody measured products of int8
    assert rows[0]["tokens_per_second"] == pytest.approx(DECODING.tokens / 0.2)


@pytest.mark.parametrize("ours_took, code", [(0.2, 0), (None, 1)])
def test_the_exit_code_says_whether_heedful_ran(host, ours_took, code, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(beside, "contest", lambda *_: results_of(heedful=ours_took, slow=0.3, broken=None))
    args = asked_for(work=["decode-gpt2"], small=True, json=True, output=str(tmp_path / "r.jsonl"))
    assert beside.beside_peers(args, host) == code
    told = json.loads(capsys.readouterr().out)
    assert told["absent"] == {"rare": "not installed: pip install rare"}
    assert told["results"] == [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [r["failed"] for r in told["results"]] == [None if code == 0 else "it broke", None, "it broke"]


def test_without_weights_there_is_no_contest_but_the_next_work_is_tried(host, capsys, monkeypatch):
    class Clumsy(Answering):
        def ask(self, do, **given):
            if do == "prepare" and given["work"]["kind"] == "decode-gpt2":
                raise Failed("RuntimeError: the disk is full")
            return super().ask(do, **given)

    host.worker = Clumsy()
    monkeypatch.setattr(beside, "contest", lambda *_: results_of(heedful=0.2))
    args = asked_for(work=["decode-gpt2", "translate-beam1"], small=True, json=True)
    assert beside.beside_peers(args, host) == 1
    out, err = capsys.readouterr()
    assert [r["work"] for r in json.loads(out)["results"]] == ["translate-beam1"]
    assert "decode-gpt2: heedful could not create the weights: RuntimeError: the disk is full\n" in err


def test_training_is_compared_with_the_matrix_product_rate(host):
    rows = beside.records_of(host, "train-gpt2", TRAINING, results_of(2.25, heedful=0.5), 2.0, 1e8)
    assert rows[0]["of_peak"] == rows[0]["of_floor"] == pytest.approx(0.2)
    assert rows[0]["agreement"] == {"loss": 2.25, "difference": 0.25}
    assert rows[0]["of_bandwidth"] is None and rows[0]["ratio"] is None  # nobody to compare with


def test_the_table_says_it_all(host):
    found = results_of(slow=0.8, fast=0.1, heedful=0.2, broken=None)
    rows = beside.records_of(host, "decode-gpt2", DECODING, found, [[1, 2, 4]], None)
    lines = table.contest_table(rows).splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["contender", "heedful", "fast", "slow", "broken"]
    assert lines[1].split()[1:6] == ["200", "90", "0.50", "0.0", "%"]
    assert lines[1].endswith("first 2 of 3 tokens") and lines[3].endswith("own weights")
    assert lines[4].endswith("failed: it broke")
    assert lines[5] == "  fast; slow: no biases"
    assert len({line.index("own") for line in lines if "own weights" in line}) == 1


@pytest.mark.parametrize(
    "found, numbers, words",
    [
        ({"loss": 1.0, "difference": 1e-6}, "fp32", "same loss"),
        ({"loss": 1.0, "difference": 0.01}, "bf16", "same loss"),
        ({"loss": 1.0, "difference": 0.01}, "fp32", "loss differs by 0.01"),
        ({"tokens": 3, "alike": 3}, "fp32", "same tokens"),
        ({"dropout": 0.1}, "bf16", "with dropout"),
        (None, "fp32", "own weights"),
    ],
)
def test_agreement_in_words(found, numbers, words):
    assert table.agrees({"agreement": found, "numbers": numbers}) == words


def test_numbers_for_people():
    assert [table.milliseconds(x) for x in (0.01234, 5.678, 43.21, 1234.5)] == [
        "0.0123",
        "5.68",
        "43.2",
        "1,234",
    ]
    assert table.rate(788e12, "FLOP/s") == "788 TFLOP/s" and table.rate(4.3e12, "B/s") == "4.3 TB/s"
    assert (table.size(1 << 20), table.size(700 << 20), table.size(None)) == ("1.0 MiB", "700 MiB", "-")


def test_only_some_contenders_and_always_plain_heedful():
    everyone = [
        contender("heedful"),
        Contender("heedful", Variant("compiled")),
        contender("nanogpt"),
        contender("b"),
    ]
    assert [c.name for c in beside.chosen(everyone, ["NANO"])] == ["heedful", "nanogpt"]
    assert [c.name for c in beside.chosen(everyone, ["compiled", "b"])] == [
        "heedful",
        "heedful, compiled",
        "b",
    ]
    assert beside.chosen(everyone, []) == everyone


# Records


def test_a_half_written_line_spoils_no_other(tmp_path):
    path = tmp_path / "deep" / "results.jsonl"
    records.append(path, [{"a": 1}])
    with open(path, "a") as file:
        file.write('{"a": 2, "b"')  # as a kill leaves it
    records.append(path, [{"a": 3}, {"a": 4}])
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in (lines[0], *lines[2:])] == [{"a": 1}, {"a": 3}, {"a": 4}]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="results.jsonl cannot be written: "):
        records.append(tmp_path / "file" / "results.jsonl", [{}])


def test_results_go_to_the_benchmarks_of_a_clone_and_small_ones_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = argparse.Namespace(output=None, small=False)
    assert records.output_of(asked) == Path("heedful-bench.jsonl")
    (tmp_path / "benchmarks").mkdir()
    assert records.output_of(asked) == Path("benchmarks/results.jsonl")
    assert records.output_of(argparse.Namespace(output=None, small=True)) is None
    assert records.output_of(argparse.Namespace(output="x", small=True)) == Path("x")


def test_a_record_says_which_build_it_was(host):
    shared = host.shared
    assert set(shared["versions"]) == {"heedful", "build", "python", "torch"}
    assert len(shared["versions"]["build"]) == 12 and shared["ceilings"] == CEILINGS


# A worker's answers


def test_answers_must_be_as_the_work_asks():
    assert plain(torch.tensor(2.5), TRAINING) == 2.5
    assert plain(torch.tensor([[1, 2], [3, 4], [5, 6]]), DECODING) == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(ValueError, match="the loss is nan"):
        plain(torch.tensor(math.nan), TRAINING)
    with pytest.raises(ValueError, match="2 rows were written instead of 3"):
        plain([[1], [2]], DECODING)


def test_errors_are_one_line_without_folders():
    assert said(RuntimeError("no /home/me/models/x.bin here\nand more")) == "RuntimeError: no x.bin here"
    assert said(BadInput("give a path")) == "give a path"
    assert without_folders(r"C:\Users\me\x.py: 3 / 4 of it") == "x.py: 3 / 4 of it"
    assert len(said(ValueError("x" * 999))) == 200


def test_a_worker_says_what_the_first_unit_gave(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PEER.replace("lambda: None", "lambda: [[work.new] * work.new] * work.batch"))
    who = Contender("mine", Variant("x", compiled=True), str(path))
    bench = WorkerRequests()
    found = bench.build(who.as_json(), works.as_json(DECODING), asdict(CPU))
    assert found["answer"] == [[6] * 6] * 3
    assert found["compile"] >= 0 and found["unit"] >= 0
    turn = bench.turn(units=4, unit=found["unit"])
    assert math.isfinite(turn["seconds"]) and turn["cpu"] >= 0


def test_everyone_gets_the_same_tokens():
    work = works.SMALL["train-transformer"]
    first, again = units.pairs(work, CPU), units.pairs(work, CPU)
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert first[0].shape == (4, 5) and first[1].shape == (4, 7)
    assert {0, work.vocab - 1}.isdisjoint(first[1].flatten().tolist())
    assert (units.padded(65), units.padded(50257), units.padded(32000)) == (65, 50304, 32000)


def test_the_process_that_leads_imports_nothing_heavy():
    """It speaks at once, and no thread pool of its own disturbs whoever is measured."""
    code = "import heedful.bench.__main__, sys; print({'torch', 'numpy', 'tyro', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Two ways to read the same options


def test_both_command_lines_have_the_same_options_and_defaults():
    actions = {a.dest: a for a in program.parser()._actions if a.dest != "help"}
    defaults = {name: tuple(v) if isinstance(v, list) else v for name, v in vars(asked_for()).items()}
    assert defaults == asdict(BenchOptions())
    for name, hint in typing.get_type_hints(BenchOptions).items():
        choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else None
        assert (tuple(actions[name].choices) if actions[name].choices else None) == choices
        assert name == "what" or actions[name].option_strings == [option(name)]


@pytest.mark.parametrize(
    "args, sentence",
    [
        (["--threads", "0"], "--threads must be at least 1, not 0"),
        (["--rounds", "-1"], "--rounds must be at least 1, not -1"),
        (["--seconds", "0"], "--seconds must be above 0, not 0.0"),
        (["costs", "--utilization", "1.5"], "--utilization must be above 0 and at most 1, not 1.5"),
    ],
)
def test_a_mistake_is_one_sentence_on_either_command_line(args, sentence, capsys):
    for main in (program.main, lambda given: cli.main(["bench", *given])):
        assert main(args) == 2
        out, err = capsys.readouterr()
        assert (out, err) == ("", f"error: {sentence}\n")


def test_argparse_too_speaks_in_one_sentence(capsys):
    assert program.main(["--threads", "many"]) == 2
    assert program.main(["everything"]) == 2
    err = capsys.readouterr().err
    assert err.count("error: ") == err.count("\n") == 2 and "see python -m heedful.bench --help" in err
