"""The report: one row a variant, which differences are significant, for people and as CSV."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..bench.table import NOTHING, rate, size, table
from ..runs.plan import format_seconds
from ..tasks import find_task
from ..tasks.evaluation import LOWER_IS_BETTER, SHOWN, format_score
from .comparison import RATE_SEED
from .significance import TEST, VariantPair, interval, pairs, variant_means
from .trials import Entry, TrialRecord

SAME = "not distinguishable"
LEAST_P = 1e-4  # smaller chances depend on how normal the noise is
SHARES = ("exact", "f1", "accuracy", "macro_f1", "uas", "las", "facts")
HUNDREDS = ("bleu", "rouge1", "rouge2", "rougeL")
MOST = {
    **dict.fromkeys(HUNDREDS, 100.0),
    **dict.fromkeys(SHARES, 1.0),
}  # what a score can be; none is below 0


@dataclass(frozen=True)
class VariantRow:
    """A variant with all that is known of it."""

    entry: Entry
    records: tuple[TrialRecord, ...]  # by seed
    metric: str
    to_best: VariantPair | None = None  # compared with the best; None for the best, and without figures
    best: str = ""
    tried: tuple[TrialRecord, ...] = ()  # learning rates, before one was chosen

    @property
    def name(self) -> str:
        return self.entry.variant.name

    @property
    def figures(self) -> dict[int, float]:
        """The metric by seed."""
        return {r.seed: r.scores[self.metric] for r in self.records if self.metric in r.scores}

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.figures.values()) if self.figures else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the mean; it does not go where no figure can."""
        found = interval(list(self.figures.values()))
        least, most = 0.0, MOST.get(self.metric, math.inf)
        return None if found is None else (max(least, found[0]), min(most, found[1]))

    @property
    def seconds(self) -> float | None:
        """Of a trial: the middle one."""
        known = [r.seconds for r in self.records if r.seconds is not None]
        return statistics.median(known) if known else None

    @property
    def rate(self) -> float | None:
        """The learning rate of all seeds."""
        return next((r.rate for r in self.records if r.rate is not None), None)

    @property
    def failures(self) -> list[TrialRecord]:
        return [r for r in self.records if r.failed]

    @property
    def verdict(self) -> str:
        """Beside the best."""
        if not self.figures:
            return "failed"
        if self.name == self.best:
            return "best"
        if self.to_best is None or self.to_best.p is None:
            return f"{SAME} from {self.best}"
        told = f"p {self.to_best.p:.2g}" if self.to_best.p >= LEAST_P else f"p < {LEAST_P:g}"
        return f"worse ({told})" if self.to_best.distinguishable else f"{SAME} from {self.best} ({told})"


def rows_of(
    entries: Sequence[Entry],
    records: Iterable[TrialRecord],
    metric: str,
    tried: Iterable[TrialRecord] = (),
) -> list[VariantRow]:
    """A row for each variant, the best first; variants without figures last. tried: learning rates.

    Where a variant lacks a seed, the order is that of means as if it had all seeds.
    """
    by_name: dict[str, list[TrialRecord]] = {entry.variant.name: [] for entry in entries}
    for record in records:
        if record.variant in by_name:
            by_name[record.variant].append(record)
    rates = list(tried)
    rows = [
        VariantRow(
            entry,
            tuple(sorted(by_name[entry.variant.name], key=lambda r: r.seed)),
            metric,
            tried=tuple(r for r in rates if r.variant == entry.variant.name),
        )
        for entry in entries
    ]
    there = {row.name: row.figures for row in rows if row.figures}
    if not there:
        return rows
    sign, means = 1 if metric in LOWER_IS_BETTER else -1, variant_means(there)
    ranked = sorted(rows, key=lambda row: (row.name not in means, sign * means.get(row.name, 0.0)))
    best = ranked[0].name
    judged = {
        (pair.second if pair.first == best else pair.first): pair
        for pair in pairs(there)
        if best in (pair.first, pair.second)
    }
    return [replace(row, to_best=judged.get(row.name), best=best) for row in ranked]


# For people.


def report_text(rows: Sequence[VariantRow], seeds: int, task: str) -> str:
    """The table, and under it what its columns are and how differences were judged."""
    metric = rows[0].metric
    shown, form = SHOWN[metric]
    mixture = any(row.entry.cost.active < row.entry.cost.parameters for row in rows)
    tuned = any(row.tried for row in rows)
    headings = ["variant", shown, "95 % interval", *(["learning rate"] if tuned else []), "parameters"]
    headings += [*(["active"] if mixture else []), "steps", "FLOPs", "time", "memory", "against the best"]
    lines = [table(headings, [cells(row, form, mixture, tuned) for row in rows])]
    direction = "lower" if metric in LOWER_IS_BETTER else "higher"
    lines.append("")
    mean = f"the mean over {seeds} seed{'s' * (seeds > 1)} of the best evaluation on held-out data"
    lines.append(f"{shown} ({direction} is better): {mean}.")
    if seeds > 1:
        lines.append(f"Against the best: {TEST}.")
    else:
        lines.append(
            "Against the best: one seed cannot show a significant difference; use --seeds 3 or more."
        )
    lines.append("FLOPs and time: all steps of a trial. Memory: peak of the tensors in a step.")
    if len({frozenset(row.figures) for row in rows if row.figures}) > 1:
        lines.append("Seeds are missing: order and test are those of means as if all variants had all seeds.")
    if tuned:
        by = SHOWN[find_task(task).metric][0]
        lines.append(
            f"Learning rates were tried with seed {RATE_SEED}, and the best was used (by {by}, then by loss):"
        )
        lines += [f"  {row.name}: {tried_rates(row, task)}" for row in rows if row.tried]
    lines += [f"{row.name}, seed {r.seed}: {r.failed}" for row in rows for r in row.failures]
    return "\n".join(lines)


def tried_rates(row: VariantRow, task: str) -> str:
    """Each learning rate with what it reached; the one that was used is marked."""
    metric = find_task(task).metric
    return ", ".join(
        f"{r.rate:g} {'(failed)' if r.failed else f'({format_score(metric, r.scores[metric])})'}"
        + (" used" if r.rate == row.rate else "")
        for r in row.tried
    )


def cells(row: VariantRow, form: str, mixture: bool, tuned: bool) -> list[str]:
    cost, between = row.entry.cost, row.interval
    return [
        row.name,
        NOTHING if row.mean is None else form.format(row.mean),
        NOTHING if between is None else " to ".join(form.format(end) for end in between),
        *([NOTHING if row.rate is None else f"{row.rate:g}"] if tuned else []),
        f"{cost.parameters:,}",
        *([f"{cost.active:,}"] if mixture else []),
        f"{row.entry.steps:,}",
        rate(cost.flops * row.entry.steps, "").strip(),
        NOTHING if row.seconds is None else format_seconds(row.seconds),
        size(cost.memory),
        row.verdict,
    ]


# For programs.


def as_json(rows: Sequence[VariantRow], asked: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **asked,
        "metric": rows[0].metric,
        "lower_is_better": rows[0].metric in LOWER_IS_BETTER,
        "test": TEST,
        "variants": [described(row) for row in rows],
        "learning_rates": [asdict(record) for row in rows for record in row.tried],
        "pairs": [
            {**asdict(pair), "distinguishable": pair.distinguishable}
            for pair in pairs({row.name: row.figures for row in rows if row.figures})
        ],
    }


def described(row: VariantRow) -> dict[str, Any]:
    """A row in full."""
    low, high = row.interval or (None, None)
    cost = row.entry.cost
    return {
        "variant": row.name,
        row.metric: row.mean,
        "low": low,
        "high": high,
        "seeds": len(row.figures),
        "against_the_best": row.verdict,
        "p": None if row.to_best is None else row.to_best.p,
        "learning_rate": row.rate,
        "parameters": cost.parameters,
        "active_parameters": cost.active,
        "steps": row.entry.steps,
        "tokens": round(cost.tokens * row.entry.steps),
        "flops": cost.flops * row.entry.steps,
        "seconds": row.seconds,
        "memory_bytes": cost.memory,
        "failed": len(row.failures),
    }


def table_csv(rows: Sequence[VariantRow]) -> str:
    """A line for each variant."""
    return written([described(row) for row in rows])


def trials_csv(rows: Sequence[VariantRow]) -> str:
    """A line for each trial, with every score."""
    names = list(dict.fromkeys(name for row in rows for r in row.records for name in r.scores))
    return written(
        [
            {
                "variant": row.name,
                "seed": r.seed,
                "learning_rate": r.rate,
                "best_step": r.step,
                "seconds": r.seconds,
            }
            | {name: r.scores.get(name) for name in names}
            | {"failed": r.failed}
            for row in rows
            for r in row.records
        ]
    )


def written(lines: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
