"""Figures of the service in the format that Prometheus reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
Labels = tuple[tuple[str, str], ...]


@dataclass
class Histogram:
    """How many values were at most so large."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[next((i for i, most in enumerate(SECONDS) if seconds <= most), len(SECONDS))] += 1
        self.total += seconds


COUNTERS = {
    "requests_total": "Requests answered, by route and status.",
    "tokens_total": "Tokens read and written.",
    "cancelled_total": "Requests whose client went away.",
    "worker_restarts_total": "Times that a worker was started again.",
}
GAUGES = {
    "rows": "Places in use and waited for.",
    "ready": "Whether a model answers.",
    "cache_bytes": "Memory of keys and values.",
    "worker_rss_bytes": "Memory of a worker.",
}
HISTOGRAMS = {
    "first_token_seconds": "Time to the first token.",
    "token_seconds": "Time between two tokens.",
    "queue_seconds": "Time waited for a place.",
}


@dataclass
class ServiceMetrics:
    """Counters and histograms, by name and labels."""

    counters: dict[str, dict[Labels, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    histograms: dict[str, dict[Labels, Histogram]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Histogram))
    )

    def __post_init__(self) -> None:
        self.count("cancelled_total", 0)

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        self.counters[name][tuple(sorted(labels.items()))] += by

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        self.histograms[name][tuple(sorted(labels.items()))].add(seconds)

    def text(self, now: Mapping[str, Mapping[Labels, float]]) -> str:
        """All figures. now: those that are read off just now."""
        lines: list[str] = []
        for name, help in COUNTERS.items():
            lines += plain(name, "counter", help, {**self.counters[name], **now.get(name, {})})
        for name, help in GAUGES.items():
            lines += plain(name, "gauge", help, now.get(name, {}))
        for name, help in HISTOGRAMS.items():
            lines += head(name, "histogram", help)
            for labels, histogram in self.histograms[name].items():
                lines += buckets(name, labels, histogram)
        return "\n".join(lines) + "\n"


def head(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP heedful_{name} {help}", f"# TYPE heedful_{name} {kind}"]


def plain(name: str, kind: str, help: str, values: Mapping[Labels, float]) -> list[str]:
    return [
        *head(name, kind, help),
        *(f"heedful_{name}{shown(labels)} {exact(value)}" for labels, value in values.items()),
    ]


def buckets(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    below = 0
    for most, count in zip((*SECONDS, "+Inf"), histogram.counts, strict=True):
        below += count
        yield f"heedful_{name}_bucket{shown((*labels, ('le', str(most))))} {below}"
    yield f"heedful_{name}_sum{shown(labels)} {exact(histogram.total)}"
    yield f"heedful_{name}_count{shown(labels)} {below}"


def exact(value: float) -> str:
    """A number with all its digits."""
    return str(int(value)) if value == int(value) else repr(float(value))


def shown(labels: Labels) -> str:
    """Labels as Prometheus writes them."""
    if not labels:
        return ""
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    pairs = (f'{name}="{"".join(escaped.get(c, c) for c in value)}"' for name, value in labels)
    return "{" + ",".join(pairs) + "}"
