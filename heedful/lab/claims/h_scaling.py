"""Scaling: dividing by the root of the width keeps the softmax alive, at initialization and in training."""

from __future__ import annotations

import torch
from torch import Tensor

from ...inside.look.drawing import Drawing
from ...parts.attention import Dot, ScaledDot, Score, masked_softmax
from ..claim import Arm, Claim, ClaimPart
from ..figures import LinePanel, figure
from ..pairs import GROWTH, NARROW, WIDE, looked_up
from ..results import Results, at
from ..rules import Direction, Near, Slope

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
KEYS = 32
DRAWS = {"quick": 200, "standard": 1000, "full": 2000}
SEEDS = {"quick": 5, "standard": 10, "full": 20}
STEPS = {"quick": 200, "standard": 200, "full": 400}
TRAINED = {"quick": 5, "standard": 6, "full": 10}  # seeds


def jacobian_norm(p_NS: Tensor) -> Tensor:
    """The size of d softmax / d scores = diag(p) - p p^T (Frobenius): what the gradient is multiplied by."""
    p2, p3 = p_NS.square().sum(-1), p_NS.pow(3).sum(-1)
    return (p2 - 2 * p3 + p2.square()).clamp(min=0).sqrt()


def scored(score: Score) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for width in WIDTHS:
            q_NH1K = torch.randn(DRAWS[size], 1, 1, width)
            k_NHSK = torch.randn(DRAWS[size], 1, KEYS, width)
            scores_NHTS = score(q_NH1K, k_NHSK)
            p_NS = masked_softmax(scores_NHTS)[:, 0, 0].double()
            entropy = -(p_NS * p_NS.clamp(min=1e-300).log2()).sum(-1)
            found[at("variance", width)] = float(scores_NHTS.var())
            found[at("largest weight", width)] = float(p_NS.amax(-1).mean())
            found[at("bits", width)] = float(entropy.mean())
            found[at("gradient", width)] = float(jacobian_norm(p_NS).mean())
        return found

    return arm


ARMS = {"raw": scored(Dot()), "scaled": scored(ScaledDot())}


# Learning.


def learner(score: Score) -> Arm:
    return lambda seed, size: looked_up(lambda width: score, seed, size, STEPS[size])


LEARNERS = {"raw, trained": learner(Dot()), "scaled, trained": learner(ScaledDot())}
RAW, SCALED = LEARNERS


def grows(width: int) -> Direction:
    return Direction("scaled", "raw", at("gradient", width))


def slower(width: int, margin: float = 0.0) -> Direction:
    """Raw scores need more steps, by more than a margin in doublings."""
    return Direction(RAW, SCALED, at("log2 of steps", width), margin)


def summary(results: Results) -> str:
    raw, scaled = (
        {width: results.mean(arm, at("gradient", width)) for width in (8, 1024)} for arm in ("raw", "scaled")
    )
    steps = {(arm, width): results.mean(arm, at("steps", width)) for arm in LEARNERS for width in (8, 128)}
    return (
        "Yes, in heads of width 64 and more: without the division the softmax puts most weight on one word, "
        f"and its gradient fades ({raw[1024]:.3f} against {scaled[1024]:.3f} at width 1,024). At width 8 the "
        f"raw gradient is larger ({raw[8]:.3f} against {scaled[8]:.3f}), so it depends on the width. In "
        f"training the division helps at both widths: a lookup takes {steps[RAW, 128]:.0f} steps without it "
        f"and {steps[SCALED, 128]:.0f} with it at width 128, and {steps[RAW, 8]:.0f} and "
        f"{steps[SCALED, 8]:.0f} at width 8."
    )


def draw(results: Results) -> Drawing:
    def lines(measure: str) -> dict[str, dict[float, list[float]]]:
        return {arm: results.series(arm, measure) for arm in ARMS}

    steps = {arm: results.series(f"{arm}, trained", "steps") for arm in ARMS}
    across, size = "width of a head, d_k", (210.0, 170.0)
    return figure(
        "Scores of queries and keys, with and without the division by the root of the width",
        [
            LinePanel("variance of scores", across, lines("variance"), size=size),
            LinePanel("gradient of the softmax", across, lines("gradient"), (True, False), size=size),
            LinePanel("steps to a loss of 1 nat", across, steps, size=size),
        ],
        [
            "Left: random queries, 32 random keys. Gradient: Frobenius norm of the softmax's Jacobian.",
            "Right: one layer learns to look up one of 12 pairs of a key and a value. Dots: seeds.",
        ],
    )


CLAIM = Claim(
    says=(
        "Dot products grow with the width, and large ones leave the softmax no gradient: divide by the root "
        "of the width."
    ),
    lecture="L1 L2 L3 L4 L5",
    predicts=(
        "Raw scores have a variance equal to the width; the largest weight goes to 1, entropy and gradient "
        "go to 0. Scaled scores do not change with the width. Below a width of about 16, raw scores still "
        "have larger gradients. In training, raw scores need more steps at width 8, and many more at 128."
    ),
    parts=(
        ClaimPart(
            "raw variance",
            "The variance of raw scores grows in proportion to the width.",
            ARMS,
            Slope("raw", "variance", 1.0, 0.05),
            SEEDS,
        ),
        ClaimPart(
            "scaled variance",
            "Scaled scores have a variance of 1 at width 1,024.",
            ARMS,
            Near("scaled", at("variance", 1024), 1.0, 0.05),
            SEEDS,
        ),
        ClaimPart(
            "one word",
            "At width 64, raw scores put more weight on one word.",
            ARMS,
            Direction("raw", "scaled", at("largest weight", 64), 0.3),
            SEEDS,
        ),
        ClaimPart(
            "wide", "At width 1,024, the scaled softmax has the larger gradient.", ARMS, grows(1024), SEEDS
        ),
        ClaimPart(
            "usual", "At width 64, the scaled softmax has the larger gradient.", ARMS, grows(64), SEEDS
        ),
        ClaimPart(
            "narrow",
            "At width 8, the scaled softmax has the larger gradient.",
            ARMS,
            grows(8),
            SEEDS,
            expects="contradicted",
        ),
        ClaimPart(
            "learning, wide",
            f"At width {WIDE}, raw scores need more than 1.4 times the steps to learn a lookup.",
            LEARNERS,
            slower(WIDE, 0.5),
            TRAINED,
        ),
        ClaimPart(
            "learning, narrow",
            f"At width {NARROW}, raw scores need more steps too.",
            LEARNERS,
            slower(NARROW),
            TRAINED,
        ),
        ClaimPart(
            "learning, growth",
            f"From width {NARROW} to {WIDE}, raw scores fall further behind.",
            LEARNERS,
            Direction(RAW, SCALED, GROWTH),
            TRAINED,
        ),
    ),
    summary=summary,
    changes="Smaller first weights would change it, as in T5: its initialization absorbs the factor.",
    figure=draw,
    question=(
        "How large is the dot product of two random vectors of width 64, and what does a softmax make of it?"
    ),
    minutes={"quick": 0.3, "standard": 0.8, "full": 2.5},
)
