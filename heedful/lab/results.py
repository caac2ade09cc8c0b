"""Results: the numbers that arms measured, by seed, and how rules and figures read them.

A number has a name, such as "loss". One of a series also says where it was measured: "bytes at 256".
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

Numbers = Mapping[str, float]


def at(measure: str, x: float) -> str:
    """The name of a number that belongs to a series: `at("bytes", 256)` is "bytes at 256"."""
    return f"{measure} at {x:g}"


@dataclass(frozen=True)
class Results:
    """What was measured: {arm: {seed: numbers}}."""

    records: Mapping[str, Mapping[int, Numbers]]

    def by_seed(self, arm: str, measure: str) -> dict[int, float]:
        """One number of an arm, for each of its seeds."""
        found = self.records.get(arm, {})
        return {seed: found[seed][measure] for seed in sorted(found)}

    def values(self, arm: str, measure: str) -> list[float]:
        """The same without the seeds."""
        return list(self.by_seed(arm, measure).values())

    def mean(self, arm: str, measure: str) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.values(arm, measure))

    def series(self, arm: str, measure: str) -> dict[float, list[float]]:
        """{x: the values of all seeds} of a measure that an arm took at several x, in order."""
        found: dict[float, list[float]] = {}
        for seed in sorted(self.records.get(arm, {})):
            for name, value in self.records[arm][seed].items():
                before, _, x = name.rpartition(" at ")
                if before == measure:
                    found.setdefault(float(x), []).append(value)
        return dict(sorted(found.items()))
