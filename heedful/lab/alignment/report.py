"""The stages side by side: a table, the curve of over-optimization, a figure, and some responses."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ...files import one_line, read_json, write_text
from ...runs.folder import METRICS, Metrics
from ...tasks.metrics import interval
from ...tasks.rl import BASELINE
from ...tasks.rouge import mean_interval
from ...tasks.student import mean_interval as seed_interval
from ..figures import DotPanel, LinePanel, figure
from .judged import JudgedStage
from .stages import BY_NAME, COMPARED, OVER_OPTIMIZED, SUPERVISED

Interval = tuple[float, float]
TABLE, CURVE, FIGURE = "table.csv", "curve.csv", "alignment.svg"
SAMPLES = 4


@dataclass(frozen=True)
class StageRow:
    """A stage in the table. Intervals are at 95 %, over the responses of all seeds."""

    stage: str
    rewards: dict[int, float]  # by seed
    reward: float
    reward_interval: Interval
    exact: float
    exact_interval: Interval
    divergence: float
    wins: int  # responses with more reward than those of the supervised model
    ties: int
    losses: int
    gain: Interval | None  # of the mean reward over the supervised model, by seeds; None for one seed

    @property
    def win_rate(self) -> float:
        """The share of wins among responses that differ in reward."""
        return self.wins / max(1, self.wins + self.losses)

    @property
    def win_interval(self) -> Interval:
        return interval(self.win_rate, max(1, self.wins + self.losses))


@dataclass(frozen=True)
class WayPoint:
    """An evaluation of the over-optimized run: how far it has gone, what its judge says, and what is true."""

    seed: int
    step: int
    divergence: float
    score: float
    reward: float


def rows_of_stages(found: Mapping[tuple[str, int], JudgedStage]) -> list[StageRow]:
    """The table, from what is judged: {(stage, seed): its responses}."""
    return [row_of_stage(name, found) for name in COMPARED if any(key[0] == name for key in found)]


def row_of_stage(name: str, found: Mapping[tuple[str, int], JudgedStage]) -> StageRow:
    seeds = sorted(seed for stage, seed in found if stage == name)
    mine = [found[name, seed] for seed in seeds]
    rewards = np.array(list(chain.from_iterable(one.reward for one in mine)))
    before = np.array(list(chain.from_iterable(found[SUPERVISED, seed].reward for seed in seeds)))
    exact = float(np.mean(list(chain.from_iterable(one.exact for one in mine))))
    gains = [
        statistics.fmean(found[name, seed].reward) - statistics.fmean(found[SUPERVISED, seed].reward)
        for seed in seeds
    ]
    return StageRow(
        name,
        {seed: statistics.fmean(one.reward) for seed, one in zip(seeds, mine, strict=True)},
        float(rewards.mean()),
        mean_interval(rewards),
        exact,
        interval(exact, len(rewards)),
        statistics.fmean(chain.from_iterable(one.divergence for one in mine)),
        int((rewards > before).sum()),
        int((rewards == before).sum()),
        int((rewards < before).sum()),
        seed_interval(gains) if len(seeds) > 1 and name != SUPERVISED else None,
    )


def curve_of(folder: Path, seeds: Sequence[int]) -> list[WayPoint]:
    """The start of the over-optimized runs, and every evaluation on the way."""
    points = []
    for seed in seeds:
        run = BY_NAME[OVER_OPTIMIZED].path(folder, seed)
        start = read_json(run / BASELINE)
        points.append(WayPoint(seed, 0, 0.0, start["score"], start["reward"]))
        for line in Metrics(run / METRICS).read():
            if "valid_score" in line:
                figures = line["valid_kl"], line["valid_score"], line["valid_reward"]
                points.append(WayPoint(seed, line["step"], *figures))
    return points


@dataclass(frozen=True)
class Bend:
    """Where true rewards are highest on the way, and where both are at its end: means over seeds."""

    step: int
    divergence: float
    best: float
    best_score: float
    last_divergence: float
    last: float
    last_score: float

    @property
    def bends(self) -> bool:
        """Whether the judge's score goes on rising where the true reward falls."""
        return self.last < self.best and self.last_score > self.best_score


def bend_of(points: Sequence[WayPoint]) -> Bend | None:
    """Where the curve bends; None if there is none."""
    steps = sorted({point.step for point in points})
    if not steps:
        return None
    means = {}
    for step in steps:
        some = [(p.divergence, p.reward, p.score) for p in points if p.step == step]
        means[step] = tuple(map(statistics.fmean, zip(*some, strict=True)))
    best = max(steps, key=lambda step: means[step][1])
    (kl, reward, score), (last_kl, last, last_score) = means[best], means[steps[-1]]
    return Bend(best, kl, reward, score, last_kl, last, last_score)


# Text


def report_text(
    rows: Sequence[StageRow], points: Sequence[WayPoint], found: Mapping[tuple[str, int], JudgedStage]
) -> str:
    """What is printed."""
    between = "95 % interval"
    titles = ("stage", "reward", between, "exact match", between, "KL", "wins", between)
    cells = [titles, *(cells_of(row) for row in rows)]
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = ([cell.ljust(size) for cell, size in zip(row, wide, strict=True)] for row in cells)
    lines = ["  ".join(row).rstrip() for row in padded]
    count = len(next(iter(found.values())).reward)
    seeds = len({seed for _, seed in found})
    told = f"{count} held-out instructions, {seeds} seed{'s' * (seeds > 1)}"
    lines += [
        "",
        f"Greedy responses to {told}; intervals are over responses. Reward: the judge's, from 0 to 1.",
        "KL: from the supervised model, in nats per sampled response. Wins: responses with more reward than",
        "those of the supervised model, as a share of the responses that differ in reward.",
    ]
    for row in rows:
        if row.gain is not None:
            low, high = row.gain
            lines.append(f"{row.stage}: {low:+.3f} to {high:+.3f} reward beside supervised (95 %, by seeds)")
    return "\n".join([*lines, "", *bend_lines(bend_of(points)), "", *sample_lines(found)])


def cells_of(row: StageRow) -> tuple[str, ...]:
    first = row.stage == SUPERVISED
    return (
        row.stage,
        f"{row.reward:.3f}",
        "{:.3f} to {:.3f}".format(*row.reward_interval),
        f"{row.exact:.1%}",
        "{:.1%} to {:.1%}".format(*row.exact_interval),
        f"{row.divergence:.2f}",
        "" if first else f"{row.win_rate:.0%} ({row.wins} : {row.losses})",
        "" if first else "{:.0%} to {:.0%}".format(*row.win_interval),
    )


def bend_lines(bend: Bend | None) -> list[str]:
    """The over-optimization curve in words."""
    if bend is None:
        return []
    where = f"at a KL of {bend.divergence:.2f} (step {bend.step})"
    if not bend.bends:
        told = f"Against a reward model, the true reward was highest {where}: {bend.best:.3f}"
        return [f"{told}. No bend is seen."]
    return [
        f"Against a reward model, the true reward is highest {where}: {bend.best:.3f}.",
        f"At a KL of {bend.last_divergence:.2f} it is {bend.last:.3f}, although the reward model's score",
        f"rose from {bend.best_score:.2f} to {bend.last_score:.2f}.",
    ]


def sample_lines(found: Mapping[tuple[str, int], JudgedStage]) -> list[str]:
    """Instructions that the stages of the first seed answer differently."""
    seed = min(seed for _, seed in found)
    stages = {name: found[name, seed] for name in (*COMPARED, OVER_OPTIMIZED) if (name, seed) in found}
    first = next(iter(stages.values()))
    unlike = [i for i in range(len(first.prompts)) if len({one.responses[i] for one in stages.values()}) > 1]
    lines = []
    for i in unlike[:SAMPLES]:
        lines.append(one_line(first.prompts[i]))
        for name, one in stages.items():
            right = "right" if one.exact[i] else f"reward {one.reward[i]:.2f}"
            lines.append(f"  {name:<15} {one_line(one.responses[i])}  ({right})")
    return lines


# Files


def write_files(folder: Path, rows: Sequence[StageRow], points: Sequence[WayPoint]) -> None:
    """The table and the curve as CSV, and the figure."""
    write_text(folder / TABLE, as_csv([flat_row(row) for row in rows]))
    write_text(folder / CURVE, as_csv([vars(point) for point in points]))
    write_text(folder / FIGURE, drawn(rows, points))


def flat_row(row: StageRow) -> dict[str, Any]:
    return {
        "stage": row.stage,
        "reward": row.reward,
        "reward_low": row.reward_interval[0],
        "reward_high": row.reward_interval[1],
        "exact": row.exact,
        "exact_low": row.exact_interval[0],
        "exact_high": row.exact_interval[1],
        "kl": row.divergence,
        "wins": row.wins,
        "ties": row.ties,
        "losses": row.losses,
        "win_rate": row.win_rate,
        "win_low": row.win_interval[0],
        "win_high": row.win_interval[1],
        **{f"reward_seed_{seed}": reward for seed, reward in row.rewards.items()},
    }


def as_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    if not lines:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def as_json(rows: Sequence[StageRow], points: Sequence[WayPoint], folder: Path) -> str:
    bend = bend_of(points)
    return json.dumps(
        {
            "stages": [flat_row(row) for row in rows],
            "curve": [vars(point) for point in points],
            "bend": None if bend is None else {**vars(bend), "bends": bend.bends},
            "folder": str(folder),
        },
        indent=2,
    )


def drawn(rows: Sequence[StageRow], points: Sequence[WayPoint]) -> str:
    """Rewards of the stages, and true reward and score on the way of the over-optimized run."""
    arms = {row.stage: list(row.rewards.values()) for row in rows}
    panels: list[Any] = [DotPanel("true reward of each stage", "reward, from 0 to 1", arms)]
    for title, figure_of in (("true reward", "reward"), ("reward model's score", "score")):
        lines = lines_of(points, figure_of)
        panels.append(
            LinePanel(f"over-optimized: {title}", "KL from supervised (nats)", lines, (False, False))
        )
    below = ["Every dot is a seed, or an evaluation of one. Bars: means; lines: 95 % intervals over seeds."]
    title = "DPO and RL raise the true reward; RL against a reward model may raise its score only"
    return figure(title, panels, below).svg()


def lines_of(points: Sequence[WayPoint], name: str) -> dict[str, dict[float, list[float]]]:
    """A line for each seed, along its divergence."""
    found: dict[str, dict[float, list[float]]] = {}
    for point in points:
        found.setdefault(f"seed {point.seed}", {})[point.divergence] = [getattr(point, name)]
    return {seed: dict(sorted(line.items())) for seed, line in found.items()}
