"""heedful bench: taking turns, medians, who is compared with whom, and how it is told. Nothing here is
timed."""

import argparse
import csv
import io
import json
import math
import subprocess
import sys
import typing
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from heedful.bench import __main__ as program
from heedful.bench import beside, measure, ours, peers, prediction, records, scaling, table, units
from heedful.bench import plot as plots
from heedful.bench import work as works
from heedful.bench.host import Host
from heedful.bench.measure import Failed, Result, agreement, contest
from heedful.bench.peers import Contender, Place, Variant
from heedful.bench.worker import WorkerRequests, plain, said, without_folders
from heedful.cli import main as cli
from heedful.cli.bench import BenchOptions
from heedful.cli.shared.arguments import option
from heedful.errors import BadInput
from heedful.inside.costs import costs
from heedful.models import family

CPU = Place("cpu", 1)
TRAINING, DECODING = works.SMALL["train-gpt2"], works.SMALL["decode-gpt2"]


# Workers that are no processes: what they are asked is written down, and they answer as they are told.


class Pretended:
    """A worker that takes so many seconds a unit; it fails to build, or at a turn, if told to."""

    def __init__(self, diary, speeds, broken=None):
        self.diary, self.speeds, self.broken, self.turns = diary, speeds, broken or {}, 0
        self.name = ""

    def ask(self, do, **given):
        if do == "build":
            self.name = Contender.from_json(given["contender"]).name
            self.diary.append(("build", self.name))
            if self.broken.get(self.name) == "build":
                raise Failed("ValueError: it will not")
            return {"answer": [[1, 2, 3]], "unit": self.speeds[self.name], "compile": None, "memory": 5000}
        assert do == "turn"
        self.turns += 1
        self.diary.append(("turn", self.name, given["units"]))
        if self.broken.get(self.name) == self.turns:
            raise Failed("was ended by signal 9")
        return {"seconds": self.speeds[self.name] * self.turns, "cpu": 0.0}

    def close(self):
        self.diary.append(("close", self.name))


def contender(name, numbers="", **more):
    return Contender(name, Variant(numbers=numbers, **more))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(measure, "PAUSE", 0.0)


def play(names, broken=None, rounds=3, speeds=None, at_once=1):
    """A contest of pretended workers: what happened, and what came of it."""
    diary = []
    speeds = speeds or dict.fromkeys(names, 0.1)
    results = contest(
        [contender(name) for name in names],
        DECODING,
        CPU,
        rounds,
        1.0,
        lambda line: None,
        start=lambda threads: Pretended(diary, speeds, broken),
        at_once=at_once,
    )
    return diary, results


def test_everyone_starts_alone_and_then_they_take_turns():
    diary, _ = play(["heedful", "b", "c"])
    assert diary[:3] == [("build", "heedful"), ("build", "b"), ("build", "c")]
    assert [entry[1] for entry in diary if entry[0] == "turn"] == ["heedful", "b", "c"] * 3
    assert sorted(name for what, name, *_ in diary if what == "close") == ["b", "c", "heedful"]


def test_some_start_side_by_side_and_take_turns_all_the_same():
    diary, results = play(["heedful", "b", "c", "d"], broken={"b": "build", "d": 1}, at_once=3)
    assert sorted(name for what, name, *_ in diary if what == "build") == ["b", "c", "d", "heedful"]
    turns = [entry for entry in diary if entry[0] == "turn"]
    assert turns[:3] == [("turn", name, 2) for name in ("heedful", "c", "d")]  # what a unit takes alone
    assert [entry[1] for entry in turns[3:]] == ["heedful", "c"] * 3
    assert [r.failed is None for r in results] == [True, False, True, False]


def test_a_variant_in_half_precision_trains_in_it():
    half = peers.in_half(Variant("plain", same_weights=True))
    assert (half.name, half.numbers, half.device) == ("plain, bf16", "bf16", "cpu")
    work, bench, losses = works.as_json(works.SMALL["train-gpt2"]), WorkerRequests(), []
    for variant in (Variant("plain"), half):
        found = bench.build(Contender("heedful", variant).as_json(), work, vars(Place("cpu", 1)))
        losses.append(found["answer"])
    assert bench.place.precision == "bf16"
    assert losses[0] != losses[1] and abs(losses[0] - losses[1]) < 2e-2


def test_short_units_are_done_many_times_a_turn():
    diary, _ = play(["heedful", "b"], speeds={"heedful": 0.01, "b": 9.0})
    units_of = {name: n for what, name, *n in diary if what == "turn"}
    assert units_of == {"heedful": [25], "b": [1]}


def test_whoever_fails_is_out_and_the_others_go_on():
    diary, results = play(["heedful", "b", "c"], broken={"b": "build", "c": 2})
    assert [r.failed for r in results] == [None, "ValueError: it will not", "was ended by signal 9"]
    turns = [entry[1] for entry in diary if entry[0] == "turn"]
    assert turns == ["heedful", "c", "heedful", "c", "heedful"]
    assert len(results[0].turns) == 3


def test_the_middle_of_the_turns_counts():
    result = Result(contender("b"), turns=[3.0, 1.0, 2.0, 10.0])
    assert result.seconds == 2.5
    assert result.spread == pytest.approx((4.75 - 1.75) / 2.5)  # quartiles of 1 2 3 10


@pytest.mark.parametrize("units, rounds", [([0.1, 2.0], 5), ([0.001], 15), ([60.0, 0.1], 3)])
def test_the_slowest_decides_how_many_rounds_there_are(units, rounds):
    assert measure.rounds_for(units, seconds=10) == rounds


# Agreement


def test_losses_agree_by_their_difference_and_tokens_up_to_the_first_other_one():
    assert agreement(2.5, 2.25) == {"loss": 2.5, "difference": 0.25}
    assert agreement([[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]) == {"tokens": 3, "alike": 3}
    assert agreement([[1, 9, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]) == {"tokens": 3, "alike": 2}
    assert agreement([[1, 2], [4, 5]], [[1, 2, 3], [4, 5, 6]]) == {"tokens": 3, "alike": 2}  # stopped early


@pytest.mark.parametrize("name", ["decode-gpt2", "translate-beam1", "translate-beam4"])
def test_equal_answers_mean_something(name, tmp_path):
    """The weights write different tokens in a row, and different rows for different sources."""
    answer = ours.prepare(works.SMALL[name], CPU, tmp_path)["answer"]
    assert len({tuple(row) for row in answer}) > 1
    assert max(len(set(row)) for row in answer) > 1
    saved = load_file(tmp_path / "model.safetensors")
    if "translate" in name:  # nobody may write the end or the padding, from whose zeros a translation begins
        assert saved["final_logits_bias"][0, [0, -1]].tolist() == [ours.NEVER] * 2
        assert saved["model.shared.weight"][-1].abs().max() == 0 < saved["model.shared.weight"][0].abs().max()


# Every kind of work, by heedful and by the peers that tests have.


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("name", works.SMALL)
def test_heedful_transformers_and_torch_do_the_same_work(name, tmp_path):
    work = works.SMALL[name]
    place = replace(CPU, weights=str(tmp_path))
    expected = ours.prepare(work, place, tmp_path)["answer"]
    asked = [("heedful", None), ("transformers", None), ("torch.nn", None)]
    compared = set()
    for peer, path in asked:
        file = peers.find(peer, path)
        for variant in file.variants(work):
            if variant.compiled:
                continue
            run = file.build(work, variant, place)
            first, second = plain(run(), work), plain(run(), work)
            if works.dropout_of(work):
                assert 0 < abs(first - expected) < 0.5  # by what it dropped
                compared |= {peer} if variant.same_weights else set()
                continue
            if work.trains:
                assert second < first  # it learns
            else:
                assert second == first and [len(row) for row in first] == [work.new] * work.batch
            if variant.same_weights:
                compared.add(peer)
                found = agreement(first, expected)
                assert found.get("difference", 0) < 1e-5 and found.get("alike") == found.get("tokens")
    assert compared == {"heedful", "transformers"}


@pytest.mark.parametrize("attention", ["window 3", "strided 2"])
def test_sparse_attention_is_heedfuls_alone_and_changes_the_loss(attention):
    work = replace(TRAINING, attention=attention)
    assert [name for name in peers.PEERS if peers.find(name, None).variants(work)] == []
    torch.manual_seed(0)
    losses = {}
    for each in (TRAINING, work):
        losses[each.attention] = ours.build(each, Variant("bare step"), CPU)().item()
    assert losses[attention] != losses["full"] and losses[attention] == pytest.approx(losses["full"], abs=0.5)


def test_what_nanogpt_and_gpt_fast_need(tmp_path):
    for name, work in (("nanogpt", TRAINING), ("gpt-fast", DECODING)):
        file = peers.find(name, str(tmp_path))
        with pytest.raises(BadInput, match=f"--peer {name}=PATH: the folder holds no model.py"):
            file.build(work, file.variants(work)[0], replace(CPU, path=str(tmp_path)))
    assert {v.name.startswith("no biases") for v in peers.find("nanogpt", None).variants(TRAINING)} == {
        False,
        True,
    }


# What a work cannot do without.


def model_of(work):
    name, config = ours.architecture(work)
    return family(name).build(config)


def test_floors_count_what_costs_counts():
    """At lengths where nothing is hidden by a mask, arithmetic is exactly that of heedful info."""
    one = replace(DECODING, prompt=1, new=1)
    assert one.flops == costs(model_of(one), one.batch, 1).whole.flops
    first = replace(works.SMALL["translate-beam1"], new=1)
    assert first.flops == costs(model_of(first), first.batch, 1, first.source).whole.flops


def test_every_matrix_is_read_once_a_token():
    one = replace(DECODING, prompt=1, new=1, batch=1)
    matrices = [p.numel() for n, p in model_of(one).named_parameters() if p.ndim == 2 and "position" not in n]
    cache = 2 * one.layers * one.width
    assert one.traffic("fp32", "fp32") == 4 * sum(matrices) + 4 * cache
    assert one.traffic("int8", "fp32") == sum(matrices) + 4 * cache
    more = replace(one, new=3)
    assert more.traffic("bf16", "bf16") == 2 * (3 * sum(matrices) + (1 + 2 + 3) * cache)


def test_beams_share_the_source_and_the_weights():
    narrow, wide = (replace(works.SMALL["translate-beam1"], beam=beam) for beam in (1, 4))
    L, D, N = narrow.layers, narrow.width, narrow.new
    assert (
        wide.traffic("fp32", "fp32") - narrow.traffic("fp32", "fp32")
        == 4 * narrow.batch * 3 * 2 * L * D * N * (N - 1) // 2
    )
    assert narrow.flops < wide.flops < 4 * narrow.flops


@pytest.mark.parametrize("work", [*works.SMALL.values(), *works.CPU.values(), *works.CUDA.values()])
def test_works_survive_being_sent(work):
    assert works.from_json(json.loads(json.dumps(works.as_json(work)))) == work
    assert work.tokens > 0 and str(work.batch) in work.describe()


def test_works_are_chosen_by_name_or_its_beginning():
    assert list(works.choose(["translate-b1"], works.CPU)) == ["translate-b1-beam1", "translate-b1-beam4"]
    assert list(works.choose(["train-gpt2"], works.CUDA)) == ["train-gpt2"]
    assert works.choose([], works.CPU) == works.CPU
    with pytest.raises(BadInput, match='there is no work "tranlate"; did you mean "translate-'):
        works.choose(["tranlate"], works.CPU)


# Who is compared with whom.


def asked_for(**more):
    return argparse.Namespace(**{**vars(program.parser().parse_args([])), **more})


CEILINGS = {"flops": 1e9, "bandwidth": 1e6}


class Answering:
    """A worker of the host that knows only costs."""

    def ask(self, do, **given):
        known = {
            "ceilings": CEILINGS,
            "absent": {"rare": "not installed: pip install rare"},
            "contenders": [contender("heedful").as_json(), contender("slow").as_json()],
            "prepare": {"answer": [[1, 2, 3]]},
        }
        if do in known:
            return known[do]
        assert do == "predict"
        return ours.predict(works.from_json(given["work"]), Place(**given["place"]))


@pytest.fixture
def host():
    machine = {
        "device": "cpu",
        "threads": 1,
        "memory": 10**9,
        "hardware": {"cpu": "a chip", "cores": 2, "gpu": None},
        "versions": {"python": "3", "torch": "2"},
    }
    return Host(Answering(), machine, True, lambda line: None)


def results_of(answer=((1, 2, 3),), **seconds):
    made = {
        "heedful": contender("heedful", same_weights=True),
        "slow": contender("slow", differs="no biases"),
        "fast": contender("fast", same_weights=True, differs="no biases"),
        "eight": contender("eight", "int8", same_weights=True),
        "broken": contender("broken"),
    }
    found = []
    for name, turn in seconds.items():
        result = Result(made[name], turns=[turn] * 3, answer=answer, elsewhere=[0.0])
        found.append(replace(result, failed="it broke", turns=[]) if turn is None else result)
    return found


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
    args = asked_for(work=["decode"], small=True, json=True, output=str(tmp_path / "r.jsonl"))
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
    args = asked_for(work=["decode", "translate-beam1"], small=True, json=True)
    assert beside.beside_peers(args, host) == 1
    out, err = capsys.readouterr()
    assert [r["work"] for r in json.loads(out)["results"]] == ["translate-beam1"]
    assert "decode-gpt2: heedful could not make the weights: RuntimeError: the disk is full\n" in err


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


# Scaling


def lines_of(svg):
    """{name of a series: its points in pixels} of the first panel, and every text."""
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    paths = [
        [tuple(map(float, p.split(","))) for p in line.get("points").split()]
        for line in root.iter(f"{space}polyline")
    ]
    return paths, [t.text for t in root.iter(f"{space}text")]


def test_a_power_law_is_a_straight_line():
    points = [(n, n**2) for n in (1, 10, 100, 1000)]
    panel = plots.PlotPanel("time", "n", [plots.Series("a<b", points)], "{:g}".format, x_base=10)
    (path,), texts = lines_of(plots.plot("title", [panel]))
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(path)]
    assert [a for a, _ in steps] == pytest.approx([plots.WIDTH / 3] * 3, abs=0.2)
    assert [b for _, b in steps] == pytest.approx([-plots.HEIGHT / 3] * 3, abs=0.2)  # upwards
    assert {"title", "time", "a<b", "1", "10000"} <= set(texts)


def test_names_of_lines_that_end_together_do_not_overlap():
    assert plots.apart([50.0, 10.0, 12.0], 14) == [50.0, 10.0, 24.0]


def test_an_empty_panel_says_so():
    _, texts = lines_of(plots.plot("t", [plots.PlotPanel("memory", "n", [plots.Series("a", [])], str)]))
    assert "memory: nothing was measured" in texts


@pytest.mark.parametrize("against", ["length", "batch", "size"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_series_grows(against, device):
    for small in (False, True):
        for points in scaling.points_of(against, device, small).values():
            sizes = [ours.predict(p.work, CPU)["parameters"] if against == "size" else p.x for p in points]
            assert sizes == sorted(set(sizes)) and len(sizes) >= 3
    if against == "length":
        real = scaling.points_of(against, device, False)
        assert list(real) == ["full", "window 256", "strided 128"]
        assert [points[-1].work.length for points in real.values()] == [65536] * 3


class Growing(Pretended):
    """Time and memory follow from the work."""

    def __init__(self, milliseconds, memory, fails_at=None):
        super().__init__([], {})
        self.milliseconds, self.memory, self.fails_at, self.length = milliseconds, memory, fails_at, 0

    def ask(self, do, **given):
        if do == "turn":
            return {"seconds": self.milliseconds(self.length) / 1000, "cpu": 0.0}
        self.length = given["work"]["length"]
        if self.length == self.fails_at:
            raise Failed("OutOfMemoryError: too long")
        return {"answer": 1.0, "unit": 0.1, "compile": None, "memory": self.memory(self.length)}


@pytest.mark.parametrize(
    "milliseconds, memory, fails_at, measured, why",
    [
        (lambda n: n, lambda n: n, None, 3, None),
        (lambda n: n**2, lambda n: n, None, 2, "would take about 4 s a step (--seconds 1)"),
        (lambda n: n, lambda n: n**5, None, 2, "would take about 1.0 GiB of the 954 MiB that are free"),
        (lambda n: n, lambda n: n, 32, 1, "OutOfMemoryError: too long"),
    ],
)
def test_a_series_ends_where_it_must(host, milliseconds, memory, fails_at, measured, why):
    points = scaling.points_of("length", "cpu", True)["full"]
    worker = Growing(milliseconds, memory, fails_at)
    host.start = lambda threads: worker
    found = list(scaling.series("full", points, host, asked_for(seconds=1.0)))
    assert [bool(p["ms"]) for p in found] == [True] * measured + [False] * (why is not None)
    assert found[-1]["failed"] == why
    assert found[0]["ms"] == pytest.approx(milliseconds(16)) and found[0]["memory_bytes"] == memory(16)


def test_scaling_writes_a_table_and_a_picture(host, tmp_path, capsys):
    host.start = lambda threads: Growing(lambda n: n**1.5, lambda n: 100 * n, 64)
    args = asked_for(what="scaling", small=True, output=str(tmp_path / "r.jsonl"))
    assert scaling.scaling(args, host) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "scaling-length-cpu.csv").read_text())))
    assert [row["tokens"] for row in rows] == ["16", "32", "64"] * 3
    assert rows[1]["memory_bytes"] == "3200" and rows[2]["ms"] == ""
    paths, texts = lines_of((tmp_path / "scaling-length-cpu.svg").read_text())
    assert len(paths) == 6 and {"full", "window 8", "strided 4"} <= set(texts)
    assert "full: 64 OutOfMemoryError: too long" in texts
    kept = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert len(kept) == 9 and {r["bench"] for r in kept} == {"scaling"}
    out = capsys.readouterr().out
    assert "window 8" in out and "scaling-length-cpu.svg" in out


def test_scaling_has_works_of_its_own(host):
    with pytest.raises(BadInput, match="scaling measures heedful alone"):
        scaling.scaling(asked_for(what="scaling", only=["nanogpt"]), host)


# Costs


def test_predictions_are_compared_with_measurements(host, tmp_path, capsys):
    flops = ours.predict(TRAINING, CPU)["flops"]
    worker = Growing(lambda n: 1000 * flops / 1e9 / 0.5, lambda n: 2 * ours.predict(TRAINING, CPU)["memory"])
    host.start = lambda threads: worker
    args = asked_for(work=["train-gpt2"], utilization=0.25, small=True, output=str(tmp_path / "r.jsonl"))
    assert prediction.prediction(args, host) == 0
    (found,) = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert found["utilization"] == pytest.approx(0.5)
    assert found["ms_error"] == pytest.approx(1.0)  # foretold twice as long as it took
    assert found["memory_error"] == pytest.approx(-0.5)
    assert "+100 %" in capsys.readouterr().out


def test_costs_are_those_of_training_works():
    found = prediction.works_of(asked_for(), "cpu")
    assert all(work.trains for work in found.values())
    assert found["train-gpt2-128-half"].batch == 6


# Peers of one's own


PEER = """
from heedful.bench.peers import Variant

def variants(work):
    return [Variant("x", differs="everything")]

def build(work, variant, place):
    return lambda: None
"""


def test_a_peer_of_ones_own_is_a_file_with_two_functions(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PEER)
    paths = peers.given([f"mine={path}"])
    there, absent = peers.field_of(paths)
    assert "mine" in there and "nanogpt" in absent and "torch.nn" in there
    mine = [c for c in peers.contenders(TRAINING, there, paths) if c.peer == "mine"]
    assert [c.name for c in mine] == ["mine, x"] and len(mine[0].version) == 12
    assert Contender.from_json(json.loads(json.dumps(mine[0].as_json()))) == mine[0]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("def variants(work): return []", "the file defines no function build"),
        ("1 / 0", "cannot be run: ZeroDivisionError"),
        (None, "there is no such file"),
    ],
)
def test_a_peer_that_is_none(tmp_path, text, sentence):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match=sentence):
        peers.given([f"mine={path}"])


@pytest.mark.parametrize("asked", ["nanogpt", "=x", "x=", "heedful=x", "transformers=x"])
def test_peers_are_given_as_name_and_path(asked):
    with pytest.raises(BadInput, match="--peer"):
        peers.given([asked])


def test_peers_that_are_not_there_are_named_with_how_to_get_them(monkeypatch):
    file = peers.find("ctranslate2", None)
    monkeypatch.setattr(file, "PACKAGE", "no_such_package_anywhere")
    absent = peers.field_of({})[1]
    assert absent["ctranslate2"] == "not installed: pip install ctranslate2 transformers"
    assert "github.com/karpathy/nanoGPT" in absent["nanogpt"]


# A worker's answers


def test_answers_must_be_as_the_work_asks():
    assert plain(torch.tensor(2.5), TRAINING) == 2.5
    assert plain(torch.tensor([[1, 2], [3, 4], [5, 6]]), DECODING) == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(ValueError, match="the loss is nan"):
        plain(torch.tensor(math.nan), TRAINING)
    with pytest.raises(ValueError, match="2 rows were written, where 3 were asked for"):
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


# Two ways to read the same options.


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
        (["costs", "--utilization", "1.5"], "--utilization is a share above 0 and at most 1, not 1.5"),
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
