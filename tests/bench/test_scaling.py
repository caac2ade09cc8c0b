"""heedful bench scaling and costs: how time and memory grow, and whether they were predicted."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from helpers.bench_cases import CPU, TRAINING, Pretended, asked_for

from heedful.bench import ours, prediction, scaling
from heedful.bench import plot as plots
from heedful.bench.measure import Failed
from heedful.errors import BadInput

pytestmark = pytest.mark.usefixtures("no_pause")

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
        assert list(real) == ["full", "window 256", "strided 128", "fixed 128"]
        assert [points[-1].work.length for points in real.values()] == [65536] * 4


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
    host.start = lambda threads, ours: worker
    found = list(scaling.series("full", points, host, asked_for(seconds=1.0)))
    assert [bool(p["ms"]) for p in found] == [True] * measured + [False] * (why is not None)
    assert found[-1]["failed"] == why
    assert found[0]["ms"] == pytest.approx(milliseconds(16)) and found[0]["memory_bytes"] == memory(16)


def test_scaling_writes_a_table_and_a_picture(host, tmp_path, capsys):
    host.start = lambda threads, ours: Growing(lambda n: n**1.5, lambda n: 100 * n, 64)
    args = asked_for(what="scaling", small=True, output=str(tmp_path / "r.jsonl"))
    assert scaling.scaling(args, host) == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "scaling-length-cpu.csv").read_text())))
    assert [row["tokens"] for row in rows] == ["16", "32", "64"] * 4
    assert rows[1]["memory_bytes"] == "3200" and rows[2]["ms"] == ""
    paths, texts = lines_of((tmp_path / "scaling-length-cpu.svg").read_text())
    assert len(paths) == 8 and {"full", "window 8", "strided 4", "fixed 8"} <= set(texts)
    assert "full: 64 OutOfMemoryError: too long" in texts
    kept = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert len(kept) == 12 and {r["bench"] for r in kept} == {"scaling"}
    out = capsys.readouterr().out
    assert "window 8" in out and "scaling-length-cpu.svg" in out


def test_scaling_has_works_of_its_own(host):
    with pytest.raises(BadInput, match="scaling measures heedful alone"):
        scaling.scaling(asked_for(what="scaling", peer=["nanogpt=."]), host)
    with pytest.raises(BadInput, match="--only nanogpt: --against length has full, window 8"):
        scaling.scaling(asked_for(what="scaling", small=True, only=["nanogpt"]), host)


def test_only_some_lines_are_measured_if_asked(host, tmp_path):
    host.start = lambda threads, ours: Growing(lambda n: n, lambda n: n)
    output = tmp_path / "r.jsonl"
    asked = asked_for(what="scaling", small=True, only=["ful", "fixed"], output=str(output))
    assert scaling.scaling(asked, host) == 0
    kept = [json.loads(line)["series"] for line in output.read_text().splitlines()]
    assert kept == ["full"] * 3 + ["fixed 8"] * 3


# Costs


def test_predictions_are_compared_with_measurements(host, tmp_path, capsys):
    flops = ours.predict(TRAINING, CPU)["flops"]
    worker = Growing(lambda n: 1000 * flops / 1e9 / 0.5, lambda n: 2 * ours.predict(TRAINING, CPU)["memory"])
    host.start = lambda threads, ours: worker
    args = asked_for(work=["train-gpt2"], utilization=0.25, small=True, output=str(tmp_path / "r.jsonl"))
    assert prediction.prediction(args, host) == 0
    (found,) = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert found["utilization"] == pytest.approx(0.5)
    assert found["ms_error"] == pytest.approx(1.0)  # predicted twice as long as it took
    assert found["memory_error"] == pytest.approx(-0.5)
    assert "+100 %" in capsys.readouterr().out


def test_costs_are_those_of_training_works():
    found = prediction.works_of(asked_for(), "cpu")
    assert all(work.trains for work in found.values())
    assert found["train-gpt2-128-half"].batch == 6
