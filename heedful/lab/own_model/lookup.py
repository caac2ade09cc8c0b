"""Lookup on your own model: how far is its attention from a dictionary, which is its limit?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from ...inside.look.drawing import Drawing
from ..figures import LinePanel, MapPanel, figure
from ..results import at
from .recorded import RecordedScores, by_text, means, texts_for
from .report import OwnModelReport, held

if TYPE_CHECKING:
    from ...use.model import Model

NAME = "lookup"
ASKED = "How far is the attention of this model from a lookup in a dictionary, and is a dictionary its limit?"
TEMPERATURES = (1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
COLD = 1e-10  # below the gap between any two scores in float32
TOLERANCE = 1e-9  # of the value that is looked up, relative to its size


def try_on(model: Model, data: str | None = None) -> OwnModelReport:
    """The claim on the attention of a model in texts, at several temperatures."""
    samples = texts_for(model, data)
    coldest = 0.0

    def measure(scores: RecordedScores) -> list[dict[str, float]]:
        nonlocal coldest
        coldest = max(coldest, limit(scores))
        return cooled(scores)

    numbers = means(by_text(NAME, model, samples, measure))
    warm = {head: row[at("weight", 1)] for head, row in numbers.items()}
    off = {head: row[at("distance", 1)] for head, row in numbers.items()}
    sharpest, softest = max(warm, key=warm.__getitem__), min(warm, key=warm.__getitem__)
    cooler = statistics.fmean(row[at("weight", 0.1)] for row in numbers.values())
    statement = held(
        "As the temperature goes to 0, every head returns the value of its best key.",
        coldest,
        TOLERANCE,
        f"relative difference at temperature {COLD:g}",
    )
    finding = (
        f"In the limit, {'yes' if coldest <= TOLERANCE else 'no'}. As it works (temperature 1), this model "
        f"mixes: the best key of a query has {statistics.fmean(warm.values()):.0%} of the weight, and "
        f"{cooler:.0%} at temperature 0.1. Head {sharpest} is nearest to a lookup ({warm[sharpest]:.0%}), "
        f"head {softest} farthest ({warm[softest]:.0%}). On average the output is "
        f"{statistics.fmean(off.values()):.0%} of its size away from the value that a lookup returns."
    )
    return OwnModelReport(
        NAME,
        model.folder,
        ASKED,
        (statement,),
        finding,
        f"{len(numbers)} heads in {samples.described}",
        "head",
        numbers,
        draw(numbers, sharpest, softest),
        shown=(at("weight", 0.1), at("weight", 0.3), at("weight", 1), at("distance", 1)),
    )


def best_values(scores: RecordedScores) -> Tensor:
    """[H, T, L]: the value of the best key; the mean of several that are equally good."""
    x_HTS = scores.scores_HTS if scores.bias_HTS is None else scores.scores_HTS + scores.bias_HTS
    x_HTS = x_HTS.masked_fill(~scores.allowed_HTS, -math.inf)
    best_HTS = ((x_HTS == x_HTS.amax(-1, keepdim=True)) & scores.allowed_HTS).double()
    return best_HTS / best_HTS.sum(-1, keepdim=True).clamp(min=1) @ scores.values_HSL


def cooled(scores: RecordedScores) -> list[dict[str, float]]:
    """Of each head at every temperature: weight of the best key, and distance from the value of a lookup."""
    sought_HTL = best_values(scores)
    size_HT = sought_HTL.norm(dim=-1).clamp(min=1e-30)
    columns: dict[str, list[float]] = {}
    for temperature in TEMPERATURES:
        weights_HTS = scores.weights(temperature=temperature)
        off_HT = (weights_HTS @ scores.values_HSL - sought_HTL).norm(dim=-1) / size_HT
        columns[at("weight", temperature)] = scores.mean(weights_HTS.amax(-1))
        columns[at("distance", temperature)] = scores.mean(off_HT)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def limit(scores: RecordedScores) -> float:
    """The largest relative distance from a lookup, of all queries, when attention is as cold as can be."""
    sought_HTL = best_values(scores)
    off_HTL = (scores.weights(temperature=COLD) @ scores.values_HSL - sought_HTL).abs()
    size = float(scores.values_HSL.abs().max())
    largest = float(off_HTL.max()) / max(size, 1e-30)
    return largest if math.isfinite(largest) else math.inf


def draw(numbers: Mapping[str, Mapping[str, float]], sharpest: str, softest: str) -> Drawing:
    shown = {
        f"sharpest ({sharpest})": [sharpest],
        "mean of heads": list(numbers),
        f"softest ({softest})": [softest],
    }

    def lines(measure: str) -> dict[str, dict[float, list[float]]]:
        return {
            name: {
                t: [statistics.fmean(numbers[head][at(measure, t)] for head in heads)] for t in TEMPERATURES
            }
            for name, heads in shown.items()
        }

    across = "temperature (scores are divided by it)"
    return figure(
        "The attention of this model as a lookup",
        [
            LinePanel("weight of the best key", across, lines("weight"), (True, False), size=(230.0, 180.0)),
            LinePanel(
                "distance from a lookup", across, lines("distance"), (True, False), size=(230.0, 180.0)
            ),
            head_map(numbers),
        ],
        [
            "Distance: of the output from the value of the best key, relative to that value.",
            "At temperature 1 the model is as it is.",
        ],
    )


def head_map(numbers: Mapping[str, Mapping[str, float]]) -> MapPanel:
    """Every head as it works: a row for each layer."""
    rows: dict[str, list[float]] = {}
    for head, row in numbers.items():
        rows.setdefault(head.rpartition(".")[0], []).append(row[at("weight", 1)])
    wide = max(map(len, rows.values()))
    table = [[*some, *[0.0] * (wide - len(some))] for some in rows.values()]
    first, last = next(iter(rows)), list(rows)[-1]
    return MapPanel(
        "weight of the best key, by head", f"heads across; layers down: {first} to {last}", table, cell=13
    )
