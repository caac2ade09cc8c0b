"""Trials: every variant with every seed, each a run in its own folder, and a record of those that are done.

FOLDER/
  compare.json     what was asked, and what each variant costs
  rates.jsonl      a line for each learning rate that was tried, if a variant has several
  records.jsonl    a line for each trial that is done: it is not done again
  data/            tokenized data, made once and shared by all
  rates/VARIANT-RATE/, runs/VARIANT-SEED/
  table.csv, trials.csv, plot.svg
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from .. import __version__
from ..errors import BadInput, NotFinite
from ..files import one_line, present, read_json, write_json
from ..inside.training_curves import curves_of
from ..runs import setup, trainer
from ..runs.folder import RECIPE, Metrics, make_folders
from ..runs.resume import flat, rank
from ..tasks import find_task
from ..tasks.evaluation import LOWER_IS_BETTER
from ..tasks.recipe import to_json
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Job
from ..train.loop import Progress
from .comparison import RATE_SEED, Comparison, ModelVariant
from .cost import VariantCost, cost_of

FORMAT = 1
COMPARISON, RECORDS, DATA, RUNS = "compare.json", "records.jsonl", "data", "runs"
RATE_RECORDS, RATES = "rates.jsonl", "rates"


class Listener(Protocol):
    """Whoever hears how a comparison goes."""

    def say(self, line: str) -> None: ...

    def step(self, progress: Progress, steps: int) -> None: ...


@dataclass(frozen=True)
class Entry:
    """A variant that is ready to be trained."""

    variant: ModelVariant
    steps: int
    cost: VariantCost
    rates: tuple[float, ...] = ()  # learning rates, of which the best is used

    @property
    def tries(self) -> tuple[float, ...]:
        """The learning rates that are trained with before one is chosen."""
        return self.rates if len(self.rates) > 1 else ()


@dataclass(frozen=True)
class TrialRecord:
    """A trial that is done."""

    variant: str
    seed: int
    scores: dict[str, float] = field(default_factory=dict)  # the best of each metric, of all evaluations
    step: int = 0  # of the evaluation whose weights were kept
    seconds: float | None = None  # that all its steps took, without evaluations; None if nobody was there
    failed: str = ""  # why it has no scores
    rate: float | None = None  # the learning rate


# The folder.


def open_comparison(
    path: Path, asked: Comparison, typed: dict[str, Any], device: torch.device, listener: Listener
) -> list[Entry]:
    """Measure the costs of new variants, and keep those of the others: a comparison may grow in its folder.

    typed: the options, as they are to be used again. What was asked for in vain leaves no folder behind.
    """
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        return opened(path, asked, typed, device, listener)
    except ValueError:
        if new:
            shutil.rmtree(new[-1], ignore_errors=True)
        raise


def opened(
    path: Path, asked: Comparison, typed: dict[str, Any], device: torch.device, listener: Listener
) -> list[Entry]:
    found = read_comparison(path)
    told: dict[str, Any] = {
        "format": FORMAT,
        "asked": as_json(asked),
        "typed": typed,
        "facts": facts(device),
        "variants": {},
    }
    if found:
        refuse_other(path, found, told)
        for key, value in told["facts"].items():
            if found["facts"].get(key) != value:
                listener.say(f"warning: {key} was {found['facts'].get(key)} and is {value} now")
        told["facts"] = found["facts"]
    make_folders(path)
    entries = []
    for variant in asked.variants:
        before = found.get("variants", {}).get(variant.name)
        if before is None:
            listener.say(f"measuring {variant.name}")
            entries.append(prepared(path, asked, variant, device, listener))
        else:
            entries.append(known(path, asked, variant, before))
    new = {
        e.variant.name: {
            "steps": e.steps,
            "weight": asdict(e.cost),
            "rates": list(e.rates),
            "recipe": to_json(asked.recipe(e.variant, steps=e.steps)),
        }
        for e in entries
    }
    told["variants"] = new | found.get("variants", {})
    if json.loads(json.dumps(told)) != found:
        write_json(path / COMPARISON, told)
    return entries


def read_comparison(path: Path) -> dict[str, Any]:
    """What a folder's compare.json says; nothing if there is none. A folder of another kind is refused."""
    if not present(path / COMPARISON):
        others = sorted(p.name for p in path.iterdir() if p.name != DATA) if path.is_dir() else []
        if others or (present(path) and not path.is_dir()):
            holds = f"it holds {others[0]}" if others else "it is a file"
            raise BadInput(one_line(f"{path} is not a comparison, because {holds}: give another --run"))
        return {}
    found = read_json(path / COMPARISON)
    if found.get("format") != FORMAT or not all(
        isinstance(found.get(n), dict) for n in ("asked", "typed", "facts", "variants")
    ):
        raise BadInput(one_line(f"{path / COMPARISON} was not written by this version: give another --run"))
    return found


def as_json(asked: Comparison) -> dict[str, Any]:
    """What all trials of a folder share; variants and seeds may be added."""
    budget = None if asked.budget is None else list(asked.budget)
    settings = {key: str(value) for key, value in asked.base.items()}
    return {
        "task": asked.task,
        "size": asked.size,
        "corpus": asked.corpus,
        "base": settings,
        "budget": budget,
    }


def facts(device: torch.device) -> dict[str, Any]:
    return {
        "device": device.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "heedful": __version__,
    }


def refuse_other(path: Path, found: dict[str, Any], told: dict[str, Any]) -> None:
    """Trials that differ in what they must share cannot stand in one table."""
    for key, value in told["asked"].items():
        if found["asked"].get(key) != value:
            raise BadInput(
                one_line(
                    f"{path} holds a comparison with another {key} ({found['asked'].get(key)}, not {value}): "
                    f"give another --run"
                )
            )
    was, now = found.get("facts", {}).get("device"), told["facts"]["device"]
    if was != now:
        why = "figures would not be comparable"
        raise BadInput(f"{path} was started on {was}, and this is {now}: {why}; give another --run")


def prepared(
    path: Path, asked: Comparison, variant: ModelVariant, device: torch.device, listener: Listener
) -> Entry:
    """A new variant: its data made ready, its costs measured, its steps fixed by the budget."""
    recipe = asked.recipe(variant)
    cost = cost_of(recipe, job_of(recipe, path, listener), device)
    steps = recipe.train.steps
    if asked.budget is not None:
        kind, amount = asked.budget
        each = {"steps": 1.0, "tokens": cost.tokens, "flops": cost.flops}[kind]
        steps = round(amount / each)
        if steps < 1:
            takes = f"a single step takes {each:.3g} {kind}"
            raise BadInput(f"variant {variant.name}: {takes}, more than --{kind} {amount:g}")
    return Entry(variant, steps, cost, asked.rates(variant))


def known(path: Path, asked: Comparison, variant: ModelVariant, before: dict[str, Any]) -> Entry:
    """A variant that was weighed already."""
    steps = before["steps"]
    now = flat(to_json(asked.recipe(variant, steps=steps)))
    other = [key for key, value in flat(before["recipe"]).items() if now.get(key) != value]
    if other:  # settings that only a later version has are as they always were
        named = next((key for key in other if key in variant.settings), other[0])  # not what follows from it
        there = f"{path} has a variant {variant.name} with other settings ({named})"
        raise BadInput(one_line(f"{there}: give this one another name"))
    rates = asked.rates(variant)
    if list(rates) != before.get("rates", list(rates)):
        there = f"{path} has a variant {variant.name} with other learning rates"
        raise BadInput(one_line(f"{there}: give this one another name"))
    return Entry(variant, steps, VariantCost(**before["weight"]), rates)


def data_folder(path: Path, recipe: Recipe) -> Path:
    """Where the data are made ready: positions from syntax need trees beside the tokens."""
    parsed = str(recipe.model.sizes.get("positions", "")).startswith("structural")
    return path / DATA / ("parsed" if parsed else "plain")


def job_of(recipe: Recipe, path: Path, listener: Listener) -> Job:
    folder = data_folder(path, recipe)
    make_folders(folder)
    return setup.make_job(recipe, folder, listener)


# Trials. Learning rates are tried first, where a variant has several.


@dataclass(frozen=True)
class Trial:
    """A variant with a seed; with a rate, to find out how good that learning rate is."""

    entry: Entry
    seed: int
    rate: float | None = None

    @property
    def folder(self) -> Path:
        """Where its run is, in the folder of the comparison."""
        name = self.entry.variant.folder
        return Path(RUNS, f"{name}-{self.seed}") if self.rate is None else Path(RATES, f"{name}-{self.rate}")

    def __str__(self) -> str:
        which = f"seed {self.seed}" if self.rate is None else f"learning rate {self.rate:g}"
        return f"{self.entry.variant.name}, {which}"


def trials(entries: list[Entry], seeds: int) -> list[tuple[Entry, int]]:
    """Seed by seed, so that an early stop leaves as many seeds of one variant as of another."""
    return [(entry, seed) for seed in range(seeds) for entry in entries]


def records_of(path: Path) -> dict[tuple[str, int], TrialRecord]:
    """What is done, by variant and seed."""
    return {(record.variant, record.seed): record for record in read_records(path / RECORDS)}


def rate_records_of(path: Path) -> dict[tuple[str, float], TrialRecord]:
    """The learning rates that were tried, by variant and rate."""
    return {(r.variant, r.rate): r for r in read_records(path / RATE_RECORDS) if r.rate is not None}


def read_records(file: Path) -> list[TrialRecord]:
    """A line that a kill has torn is not there."""
    return [TrialRecord(**said) for said in Metrics(file).read()]


def best_rate(entry: Entry, tried: dict[tuple[str, float], TrialRecord], metric: str) -> float | None:
    """The best learning rate of those tried, by the metric of the task and then by the loss; None if there
    was no choice. It does not depend on --metric, which may change from call to call."""
    if not entry.tries:
        return None
    found = [tried[key] for rate in entry.tries if (key := (entry.variant.name, rate)) in tried]
    ranks = {r.rate: rank(r.scores, metric) for r in found if metric in r.scores}
    return max(ranks, key=lambda rate: ranks[rate]) if ranks else entry.tries[0]


def left_to_do(path: Path, entries: list[Entry], seeds: int) -> list[Trial]:
    """Every trial that is not done yet, in order."""
    tried, done = rate_records_of(path), records_of(path)
    rates = [Trial(entry, RATE_SEED, rate) for entry in entries for rate in entry.tries]
    judged = [Trial(entry, seed) for entry, seed in trials(entries, seeds)]
    return [
        *(one for one in rates if (one.entry.variant.name, one.rate) not in tried),
        *(one for one in judged if (one.entry.variant.name, one.seed) not in done),
    ]


def run_all(
    path: Path, asked: Comparison, entries: list[Entry], device: torch.device, listener: Listener
) -> Iterator[TrialRecord | None]:
    """Every trial that is not done yet; None, and no more, if one was asked to stop and has saved itself."""
    logs = {tries: Metrics(path / name) for tries, name in ((True, RATE_RECORDS), (False, RECORDS))}
    for log in logs.values():
        log.drop_after(1 << 62)  # a line that is torn
    todo = left_to_do(path, entries, asked.seeds)
    heard = TrialProgress(listener, sum(one.entry.steps for one in todo))
    metric = find_task(asked.task).metric
    try:
        for number, one in enumerate(todo, 1):
            listener.say(f"{one} ({number} of {len(todo)}): {one.entry.steps:,} steps")
            rate = one.rate or best_rate(one.entry, rate_records_of(path), metric)
            record = train_trial(path, asked, one, rate, device, heard)
            if record is not None:
                log = logs[one.rate is not None]
                log.append(asdict(record))
                log.sync()
            yield record
            if record is None:
                return
            heard.next(one.entry.steps)
    finally:
        for log in logs.values():
            log.close()


def train_trial(
    path: Path, asked: Comparison, one: Trial, rate: float | None, device: torch.device, heard: TrialProgress
) -> TrialRecord | None:
    """One run, begun or gone on with; None if it was asked to stop."""
    name, steps = one.entry.variant.name, one.entry.steps
    recipe = asked.recipe(one.entry.variant, one.seed, steps, rate)
    folder, used = path / one.folder, recipe.train.learning_rate
    try:
        if present(folder / RECIPE):
            outcome = trainer.resume(folder, heard, device)
        else:
            make_folders(folder.parent)
            outcome = trainer.start(recipe, folder, heard, device, ready=data_folder(path, recipe))
    except NotFinite as error:
        return TrialRecord(name, one.seed, failed=str(error), rate=used)
    if not outcome.finished:
        return None
    best = outcome.best
    scores = best_scores(folder, best.scores)
    return TrialRecord(name, one.seed, scores, best.step, heard.seconds_of(steps), rate=used)


def best_scores(folder: Path, names: Iterable[str]) -> dict[str, float]:
    """The best that a run reached by each metric, so that `--metric` does not depend on another metric."""
    figures = curves_of(folder).figures
    return {
        name: (min if name in LOWER_IS_BETTER else max)(score for _, score in figures[f"valid_{name}"])
        for name in names
    }


class TrialProgress:
    """Hears a run and tells the listener what concerns all of them: how far, and warnings."""

    def __init__(self, listener: Listener, steps: int) -> None:
        self.listener, self.steps = listener, steps
        self.before = 0  # steps of the trials that are done
        self.seconds: list[float] = []

    def say(self, line: str) -> None:
        if line.startswith("warning"):
            self.listener.say(f"  {line}")

    def step(self, progress: Progress, steps: int) -> None:
        self.seconds.append(progress.seconds)
        self.listener.step(replace(progress, step=self.before + progress.step), self.steps)

    def seconds_of(self, steps: int) -> float | None:
        """Seconds for all steps of a trial, by those seen here: an earlier call may have made some."""
        return round(sum(self.seconds) / len(self.seconds) * steps, 3) if self.seconds else None

    def next(self, steps: int) -> None:
        self.before, self.seconds = self.before + steps, []
