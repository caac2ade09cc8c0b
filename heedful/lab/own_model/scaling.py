"""Scaling on your own model: its softmax with the division by the root of the width, and without."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ...inside.look.drawing import Drawing
from ...inside.look.heads import entropy
from ...parts.attention import Dot, ScaledBy, ScaledDot
from ..claims.h_scaling import jacobian_norm
from ..figures import LinePanel, figure
from ..rules import CONTRADICTED, SUPPORTED
from .recorded import HeadNumbers, RecordedScores, by_text, means, texts_for
from .report import OwnModelReport, TriedStatement, directed, refusal

if TYPE_CHECKING:
    from ...use.model import Model

NAME = "scaling"
ASKED = "Does the division by the root of the head's width keep the softmax of this model alive?"
WAYS = ("divided", "undivided")
MEASURES = ("gradient", "largest weight", "bits")
KINDS = {"self": "self-attention", "cross": "cross-attention", "encoder": "encoder"}


def try_on(model: Model, data: str | None = None) -> OwnModelReport:
    """The claim on the scores that a model computes in texts."""
    samples = texts_for(model, data)
    divides, widths = set[bool](), set[int]()

    def measure(scores: RecordedScores) -> list[dict[str, float]]:
        raw_HTS, scale = undivided(model, scores)
        divides.add(scale != 1)
        widths.add(scores.width)
        return both_ways(scores, raw_HTS)

    texts = by_text(NAME, model, samples, measure)
    numbers, statements = means(texts), compared(texts, samples.unit)
    return OwnModelReport(
        NAME,
        model.folder,
        ASKED,
        statements,
        finding(numbers, statements, divides == {True}),
        f"{len(numbers)} heads of width {', '.join(map(str, sorted(widths)))} in {samples.described}",
        "head",
        numbers,
        draw(numbers),
        shown=tuple(f"{name}, {way}" for name in MEASURES[:2] for way in WAYS),
    )


def undivided(model: Model, scores: RecordedScores) -> tuple[Tensor, float]:
    """Plain products of queries and keys, and what the model multiplies them by."""
    if not isinstance(scores.score, Dot | ScaledDot | ScaledBy):
        how = type(scores.score).__name__
        raise refusal(NAME, model, f"its scores ({how}) are no plain products of queries and keys")
    one_111K = scores.scores_HTS.new_ones(1, 1, 1, scores.width)
    scale = scores.score.as_dot(one_111K, one_111K)[2]  # type: ignore[index]
    return scores.scores_HTS / scale, scale


def both_ways(scores: RecordedScores, raw_HTS: Tensor) -> list[dict[str, float]]:
    """Of each head, what both ways give: means over queries."""
    columns: dict[str, list[float]] = {}
    for way, x_HTS in zip(WAYS, (raw_HTS / math.sqrt(scores.width), raw_HTS), strict=True):
        weights_HTS = scores.weights(x_HTS)
        for name, numbers_HT in zip(
            MEASURES, (jacobian_norm(weights_HTS), weights_HTS.amax(-1), entropy(weights_HTS)), strict=True
        ):
            columns[f"{name}, {way}"] = scores.mean(numbers_HT)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def compared(texts: Sequence[HeadNumbers], unit: str) -> tuple[TriedStatement, ...]:
    """The two statements of the claim, text by text: means over heads."""

    def differences(measure: str, above: str, below: str) -> list[float]:
        sides = f"{measure}, {above}", f"{measure}, {below}"
        return [statistics.fmean([row[sides[0]] - row[sides[1]] for row in one.values()]) for one in texts]

    one_word = directed(differences("largest weight", *WAYS[::-1]), unit)
    gradient = directed(differences("gradient", *WAYS), unit)
    return (
        TriedStatement(
            "Without the division, the softmax puts more weight on one token.", one_word.verdict, one_word.why
        ),
        TriedStatement(
            "With the division, the softmax has the larger gradient.", gradient.verdict, gradient.why
        ),
    )


def finding(
    numbers: Mapping[str, Mapping[str, float]],
    statements: Sequence[TriedStatement],
    divides: bool,
) -> str:
    mean = {
        name: statistics.fmean(row[name] for row in numbers.values()) for name in next(iter(numbers.values()))
    }
    larger = sum(row["gradient, divided"] > row["gradient, undivided"] for row in numbers.values())
    gradients = (
        f"gradient {mean['gradient, divided']:.3f} with the division and "
        f"{mean['gradient, undivided']:.3f} without; larger with it in {larger} of {len(numbers)} heads"
    )
    weights = (
        f"The largest weight would go from {mean['largest weight, divided']:.0%} to "
        f"{mean['largest weight, undivided']:.0%}."
    )
    if statements[1].verdict == SUPPORTED:
        start = f"Yes: in this model the division keeps the softmax alive ({gradients})."
    elif statements[1].verdict == CONTRADICTED:
        start = "It depends on what is asked: the division spreads the weights, but lowers the gradient "
        start += f"({gradients}). Scores of narrow heads, or of little training, are small enough without it."
    else:
        start = f"For the gradient it is too close to call ({gradients})."
    model = (
        "The model was trained with the division; one trained without it would have learned other scores."
        if divides
        else "This model does not divide: its initialization and training absorb the factor."
    )
    return f"{start} {weights} {model}"


def draw(numbers: Mapping[str, Mapping[str, float]]) -> Drawing:
    kinds = list(dict.fromkeys(head.split(".")[0] for head in numbers))
    if len(kinds) > 1:
        panels = [panel(f"gradient, {KINDS[kind]}", numbers, "gradient", kind) for kind in kinds]
    else:
        titles = ("gradient of the softmax", "largest weight", "entropy in bits")
        panels = [panel(title, numbers, name, kinds[0]) for title, name in zip(titles, MEASURES, strict=True)]
    return figure(
        "The softmax of this model, with its scores divided by the root of the width, and without",
        panels,
        ["Dots: heads. Lines: their mean. Gradient: Frobenius norm of the softmax's Jacobian."],
    )


def panel(title: str, numbers: Mapping[str, Mapping[str, float]], measure: str, kind: str) -> LinePanel:
    lines: dict[str, dict[float, list[float]]] = {way: {} for way in WAYS}
    for head, row in numbers.items():
        which, layer, _ = head.split(".")
        for way in WAYS if which == kind else ():
            lines[way].setdefault(float(layer), []).append(row[f"{measure}, {way}"])
    return LinePanel(title, "layer", lines, (True, False), size=(210.0, 170.0))
