"""What rewards of held-out pairs are worth: accuracy, loss and margin, which reward and dpo report alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.lines import hash_of
from ..data.report import Fault, Report
from ..data.store import Store
from ..errors import BadInput
from ..train.preference import bradley_terry_loss
from .metrics import interval
from .preference_data import PairExamples, PairRow, PairRows, PairTokens
from .recipe.settings import Recipe
from .rouge import mean_interval
from .task import describe_data, shortened
from .tuning import describe_start

SHOWN = 80  # characters of a text that is shown
NO_PREFERENCE = math.log(2)  # the loss of giving both responses the same reward


def pair_scores(margins: np.ndarray) -> dict[str, np.ndarray]:
    """Of every pair whose chosen response has so much more reward than the rejected one, its scores."""
    margins_P = torch.from_numpy(np.asarray(margins, np.float64))
    losses = bradley_terry_loss(margins_P, torch.zeros_like(margins_P)).numpy()
    return {"loss": losses, "accuracy": (margins > 0).astype(float), "margin": np.asarray(margins, float)}


def means(scores: dict[str, np.ndarray]) -> dict[str, float]:
    return {name: float(score.mean()) for name, score in scores.items()}


def intervals(scores: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """The 95 % interval of each score but the loss, which is told without one elsewhere too."""
    found = {}
    for name, score in scores.items():
        if name in ("accuracy", "exact"):
            found[name] = interval(float(score.mean()), len(score))
        elif name != "loss":
            found[name] = mean_interval(score)
    return found


def by_group(names: Sequence[str], scores: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """{name: the mean scores of its rows, and how many there are}."""
    every, found = np.array(names), {}
    for name in sorted(set(names)):
        here = every == name
        found[name] = {**{key: float(score[here].mean()) for key, score in scores.items()}}
        found[name]["count"] = int(here.sum())
    return found


def by_flaw(rows: Sequence[PairRow], scores: dict[str, np.ndarray]) -> dict[str, Any]:
    """How often a response is recognized as the worse one, by what is wrong with it."""
    flaws = [row.instruction.flaw for row in rows if row.instruction is not None]
    told = {name: scores[name] for name in ("accuracy", "margin")}
    return {"flaws": by_group(flaws, told)} if flaws else {}


def by_length_alone(train: Store, held_out: Sequence[PairTokens]) -> tuple[str, float]:
    """The accuracy of always preferring the longer response, or the shorter one if that is right more often
    in the data to learn from: what can be had without reading."""
    learned = np.sign(train.lengths("chosen") - train.lengths("rejected")).sum()
    apart = np.array([len(one.chosen) - len(one.rejected) for one in held_out])
    right = apart > 0 if learned > 0 else apart < 0
    return f"always the {'longer' if learned > 0 else 'shorter'} response", float(right.mean())


EQUAL = "both responses alike"


def baselines_of(run: Path, held_out: Sequence[PairTokens]) -> dict[str, tuple[str, float]]:
    """What scores so without reading, for a run that has its data still."""
    if not (run / "data").is_dir():
        return {"loss": (EQUAL, NO_PREFERENCE)}
    return {"accuracy": by_length_alone(Store.mapped(run / "data"), held_out), "loss": (EQUAL, NO_PREFERENCE)}


# What jobs say


def job_baselines(train: Store, held_out: Sequence[PairTokens]) -> dict[str, tuple[str, float]]:
    """The same for the plan of a run."""
    told, share = by_length_alone(train, held_out)
    loss = f"loss ({EQUAL}), nats per pair", NO_PREFERENCE
    return {"accuracy": (f"accuracy ({told})", share), "loss": loss}


def describe_pairs(
    recipe: Recipe, examples: PairExamples, learned: PairRows, left_out: int, tried: int, there: int
) -> list[str]:
    """Sentences about the data. tried, there: held-out pairs that fit."""
    told = describe_data(f"{len(learned.tokens):,} pairs", tried, there, 1 - learned.filled)
    vocab, template = examples.vocab, examples.template
    return [
        f"{told}; {left_out:,} left out, which are too long" if left_out else told,
        f"vocabulary: {vocab.size:,} of {vocab.kind}; chat template: {template.name}",
        *([describe_start(recipe, False)] if examples.origin else []),
    ]


def facts_of(examples: PairExamples, held_out: Sequence[tuple[PairRow, PairTokens]]) -> dict[str, Any]:
    """What a result depends on beside the recipe."""
    return {
        "data": examples.train.hash,
        "held-out data": hash_of([(row.before, row.chosen, row.rejected) for row, _ in held_out]),
        **(examples.origin.facts if examples.origin else {}),
    }


# Held-out pairs


def fitting(
    held_out: Iterable[tuple[PairRow, PairTokens]], length: int, longest: int
) -> list[tuple[PairRow, PairTokens]]:
    """The held-out pairs that a model can read."""
    return [one for one in held_out if one[1].fits(length, longest)]


def reported(
    held_out: Iterable[tuple[PairRow, PairTokens]], length: int, longest: int, report: Report, path: str
) -> Iterator[tuple[PairRow, PairTokens]]:
    """The same; the others are counted as dropped."""
    some = False
    for number, one in enumerate(held_out, 1):
        if one[1].fits(length, longest):
            some = True
            yield one
        else:
            why = f"over data.max_length ({length} tokens) or data.max_response_length ({longest})"
            report.bad(path, number, Fault("too long", why))
    if not some:
        raise BadInput(f"no pair is left to judge the model by ({report.sentence()})")


def pair_line(row: PairRow, chosen: float, rejected: float) -> str:
    """A pair with both rewards, as the log shows it."""
    asked = shortened(row.before[-1][1], SHOWN)
    right, other = shortened(row.chosen, SHOWN), shortened(row.rejected, SHOWN)
    wrong = "" if chosen > rejected else "    (expected: the first has more)"
    return f"    {asked} → {right} ({chosen:.2f}) | {other} ({rejected:.2f}){wrong}"
