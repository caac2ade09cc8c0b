"""Scores: additive attention and the dot product, in what they learn and in what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...inside.look.drawing import Drawing
from ...parts.attention import Additive, Dot, ScaledDot, Score, masked_softmax
from ..claim import Arm, Claim, ClaimPart
from ..clock import saved_bytes, timed
from ..figures import LinePanel, figure
from ..pairs import GROWTH, NARROW, WIDE, MakeScore, looked_up
from ..results import Results, at
from ..rules import Direction, Equal, Reaches, Slope

STEPS = {"quick": 200, "standard": 200, "full": 400}
SEEDS = {"quick": 5, "standard": 6, "full": 10}
CLOCKS = {"quick": 3, "standard": 5, "full": 10}
LENGTH, WIDTHS = 256, (8, 16, 32, 64, 128)
LEARNED = 0.8  # guessing gives 0.06

SCORES: dict[str, MakeScore] = {
    "scaled dot product": lambda width: ScaledDot(),
    "additive": lambda width: Additive(width, width, width),
    "raw dot product": lambda width: Dot(),
}
SCALED, ADDITIVE, RAW = SCORES


def learner(score: MakeScore) -> Arm:
    return lambda seed, size: looked_up(score, seed, size, STEPS[size])


LEARNERS = {name: learner(score) for name, score in SCORES.items()}


# Cost.


def attended(score: Score, qkv_3BHTK: Tensor) -> Tensor:
    """The formula, with every score in memory."""
    q, k, v = qkv_3BHTK
    return masked_softmax(score(q, k)) @ v


def both_passes(attend: Callable[[], Tensor]) -> None:
    attend().sum().backward()


def cost(make: MakeScore) -> Arm:
    """Megabytes kept for the backward pass, and CPU time of both passes, for one text of 256 words."""

    def arm(seed: int, size: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for width in WIDTHS:
            score = make(width)
            attend = partial(attended, score, torch.randn(3, 1, 1, LENGTH, width, requires_grad=True))
            found[at("megabytes", width)] = saved_bytes(attend, tuple(score.parameters())) / 1e6
            found[at("milliseconds", width)] = 1e3 * timed(partial(both_passes, attend), 5, 0.1).cpu
        found["log2 of megabytes"] = math.log2(found[at("megabytes", WIDE)])
        found["log2 of milliseconds"] = math.log2(found[at("milliseconds", WIDE)])
        return found

    return arm


COSTS = {f"cost of {name}": cost(SCORES[name]) for name in (SCALED, ADDITIVE)}
CHEAP, DEAR = COSTS


def slower(one: str, other: str, width: int, margin: float = 0.0) -> Direction:
    """One needs more steps than the other, by more than a margin in doublings."""
    return Direction(one, other, at("log2 of steps", width), margin)


def summary(results: Results) -> str:
    scaled, additive, raw = (results.mean(name, at("steps", WIDE)) for name in SCORES)
    narrow = [results.mean(name, at("steps", NARROW)) for name in SCORES]
    memory, time = (
        results.mean(DEAR, at(measure, WIDE)) / results.mean(CHEAP, at(measure, WIDE))
        for measure in ("megabytes", "milliseconds")
    )
    return (
        "Yes: scaled and additive attention end equally right, but not equally fast. At width "
        f"{WIDE}, the scaled dot product needs {scaled:.0f} steps to a loss of 1 nat, additive attention "
        f"{additive:.0f}, the raw dot product {raw:.0f}. At width {NARROW} they need {narrow[0]:.0f}, "
        f"{narrow[1]:.0f} and {narrow[2]:.0f}. Additive attention keeps a vector for each pair of words: "
        f"{memory:.0f} times the memory and {time:.0f} times the CPU time at {LENGTH} words."
    )


def draw(results: Results) -> Drawing:
    steps = {name: results.series(name, "steps") for name in LEARNERS}
    memory, time = (
        {name.removeprefix("cost of "): results.series(name, measure) for name in COSTS}
        for measure in ("megabytes", "milliseconds")
    )
    across, size = "width of queries and keys, d_k", (230.0, 180.0)
    return figure(
        "Three scores: how fast they learn, and what they cost",
        [
            LinePanel("steps to a loss of 1 nat", across, steps, size=size),
            LinePanel("megabytes kept", across, memory, size=size),
            LinePanel("CPU milliseconds, both passes", across, time, size=size),
        ],
        [
            "Task: 12 pairs of a key and a value, and a query for one of them. One layer, one head.",
            f"Costs: one text of {LENGTH} words, all scores written out; the fastest of five. Dots: seeds.",
        ],
    )


CLAIM = Claim(
    says=(
        "A small network can score a query against a key (additive attention), or a dot product can. The "
        "scaled dot product is as good and cheaper."
    ),
    lecture="L4",
    predicts=(
        "Scaled and additive attention are equally right after training; additive attention needs more "
        "steps. The raw dot product falls behind both as keys grow wider. Additive attention needs memory "
        "for every pair of words and every component."
    ),
    parts=(
        ClaimPart(
            "learning",
            f"With every score, the task is learned at width {WIDE} in the end.",
            LEARNERS,
            Reaches(at("accuracy", WIDE), LEARNED, tuple(LEARNERS)),
            SEEDS,
            control=True,
        ),
        ClaimPart(
            "as good, narrow",
            f"At width {NARROW}, scaled and additive attention are equally often right after training.",
            LEARNERS,
            Equal(SCALED, ADDITIVE, at("accuracy", NARROW), 0.1),
            SEEDS,
        ),
        ClaimPart(
            "as good, wide",
            f"At width {WIDE}, scaled and additive attention are equally often right after training.",
            LEARNERS,
            Equal(SCALED, ADDITIVE, at("accuracy", WIDE), 0.1),
            SEEDS,
        ),
        ClaimPart(
            "additive is slower",
            f"At width {WIDE}, additive attention needs more steps than the scaled dot product.",
            LEARNERS,
            slower(ADDITIVE, SCALED, WIDE),
            SEEDS,
        ),
        ClaimPart(
            "raw is slower",
            f"At width {WIDE}, the raw dot product needs more than 1.4 times the steps of the scaled one.",
            LEARNERS,
            slower(RAW, SCALED, WIDE, 0.5),
            SEEDS,
        ),
        ClaimPart(
            "raw against additive, wide",
            f"At width {WIDE}, the raw dot product needs more steps than additive attention.",
            LEARNERS,
            slower(RAW, ADDITIVE, WIDE),
            SEEDS,
        ),
        ClaimPart(
            "raw against additive, growth",
            f"From width {NARROW} to {WIDE}, the raw dot product loses steps to additive attention.",
            LEARNERS,
            Direction(RAW, ADDITIVE, GROWTH),
            SEEDS,
        ),
        ClaimPart(
            "memory grows",
            "The memory of additive attention grows in proportion to the width.",
            COSTS,
            Slope(DEAR, "megabytes", 1.0, 0.1),
            CLOCKS,
        ),
        ClaimPart(
            "memory",
            f"At width {WIDE}, additive attention keeps more than 16 times the memory.",
            COSTS,
            Direction(DEAR, CHEAP, "log2 of megabytes", 4.0),
            CLOCKS,
        ),
        ClaimPart(
            "time",
            f"At width {WIDE}, additive attention takes more than 4 times the CPU time.",
            COSTS,
            Direction(DEAR, CHEAP, "log2 of milliseconds", 2.0),
            CLOCKS,
            clocked=True,
        ),
    ),
    summary=summary,
    changes="Smaller first weights would change it: raw scores that begin small fall behind less.",
    figure=draw,
    question=(
        "A dot product scores a query against a key, or a small network does. Which one needs more memory, "
        "and which one suffers when keys grow wider?"
    ),
    minutes={"quick": 0.5, "standard": 1.0, "full": 3.5},
)
