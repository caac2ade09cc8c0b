"""Figures in Prometheus' text format, read back by a small parser of its grammar."""

import math
import re
from collections import defaultdict

from helpers.service_cases import running

from heedful.service.limits import Limits
from heedful.service.metrics import SECONDS, ServiceMetrics

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def labels_of(text: str | None) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in re.findall(LABEL, text or ""):
        name, _, value = pair.partition("=")
        found.append((name, re.sub(r'\\["\\n]', lambda match: ESCAPES[match[0]], value[1:-1])))
    return tuple(found)


def read(text: str) -> tuple[dict[str, str], dict[str, dict[tuple[tuple[str, str], ...], float]]]:
    """({family: its type}, {sample: {labels: value}}), or an error where the text breaks a rule."""
    kinds, helps, samples = {}, {}, defaultdict(dict)
    assert text.endswith("\n") and "\n\n" not in text
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, said = line[7:].split(" ", 1)
            assert name not in helps and said
            helps[name] = said
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name in helps and name not in kinds and kind in ("counter", "gauge", "histogram")
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match[1], labels_of(match[2]), float(match[3])
            family = name if name in kinds else re.sub("_(bucket|sum|count)$", "", name)
            assert family == list(kinds)[-1], "samples follow their family"
            assert labels not in samples[name]
            samples[name][labels] = value
    assert set(kinds) == set(helps)
    return kinds, samples


def check_histogram(name, samples):
    """Buckets rise, the last holds all, and there is a sum and a count for each."""
    rows = defaultdict(list)
    for labels, value in samples[f"{name}_bucket"].items():
        *others, (le, bound) = labels
        assert le == "le"
        rows[tuple(others)].append((float(bound.replace("+Inf", "inf")), value))
    for labels, buckets in rows.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == math.inf
        assert list(counts) == sorted(counts) and counts[-1] == samples[f"{name}_count"][labels]
        assert samples[f"{name}_sum"][labels] >= 0
    assert set(rows) == set(samples[f"{name}_sum"]) == set(samples[f"{name}_count"])


def test_labels_are_escaped_and_large_counts_are_exact():
    figures, odd = ServiceMetrics(), 'a"b\\c\nd=é,{}'
    figures.count("requests_total", route=odd, code="200")
    figures.count("tokens_total", 12_345_678, model=odd, kind="read")
    kinds, samples = read(figures.text({"ready": {(("model", odd),): True}}))
    assert samples["heedful_requests_total"] == {(("code", "200"), ("route", odd)): 1}
    assert samples["heedful_tokens_total"] == {(("kind", "read"), ("model", odd)): 12_345_678}
    assert samples["heedful_ready"] == {(("model", odd),): 1}
    assert kinds["heedful_tokens_total"] == "counter" and kinds["heedful_ready"] == "gauge"


def test_a_histogram_counts_each_value_once_at_its_place():
    figures = ServiceMetrics()
    for seconds in (0.0, SECONDS[0], SECONDS[3] + 1e-9, 1e9, 0.3):
        figures.observe("token_seconds", seconds, model="a")
    _, samples = read(figures.text({}))
    check_histogram("heedful_token_seconds", samples)
    buckets = [value for _, value in samples["heedful_token_seconds_bucket"].items()]
    assert len(buckets) == len(SECONDS) + 1
    assert (buckets[0], buckets[3], buckets[4], buckets[-2], buckets[-1]) == (2, 2, 3, 4, 5)


def test_a_service_counts_requests_tokens_and_times():
    with running(Limits(), places=3) as server:
        for _ in range(3):
            assert server.write(text="four", words=5, stream=True)[0] == 200
        server.write(text="four", words=1)
        server.call("GET /nowhere/canary")
        server.write()
        status, headers, body = server.call("GET /metrics")
        kinds, samples = read(body.decode())
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {
        tuple(value for _, value in labels): count
        for labels, count in samples["heedful_requests_total"].items()
    }
    assert found == {("200", "/write"): 4, ("404", "other"): 1, ("400", "/write"): 1}
    tokens = {labels[0][1]: count for labels, count in samples["heedful_tokens_total"].items()}
    assert tokens == {"read": 16, "written": 16}
    model = (("model", "stub"),)
    assert samples["heedful_first_token_seconds_count"][model] == 4
    assert samples["heedful_token_seconds_count"][model] == 12
    assert samples["heedful_queue_seconds_count"][model] == 4
    rows = {dict(labels)["state"]: count for labels, count in samples["heedful_rows"].items()}
    assert rows == {"running": 0, "waiting": 0} and samples["heedful_ready"][model] == 1
    for name in [name for name, kind in kinds.items() if kind == "histogram"]:
        check_histogram(name, samples)
    assert set(kinds) >= {
        f"heedful_{name}" for name in (
            "requests_total", "rows", "tokens_total", "first_token_seconds", "token_seconds", "queue_seconds",
            "cancelled_total", "worker_restarts_total", "cache_bytes", "worker_rss_bytes",
        )
    }  # fmt: skip
    assert samples["heedful_cancelled_total"] == {(): 0}
    assert samples["heedful_worker_restarts_total"] == {model: 0}
