"""Attention is a soft lookup: a dictionary is its limit when the scores are large."""

from __future__ import annotations

import torch
from torch import Tensor

from ...inside.look.drawing import Drawing
from ...parts.attention import attend_plain, attention_weights
from ..claim import Arm, Claim, ClaimPart
from ..figures import LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Exact

TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
SEEDS = {"quick": 5, "standard": 10, "full": 20}
FEW, MANY, NARROW = "8 entries, width 64", "512 entries, width 64", "512 entries, width 16"


def store(entries: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Keys of length 1 and their values, at random."""
    k_SK, v_SK = torch.randn(2, entries, width, dtype=torch.float64)
    return (k_SK / k_SK.norm(dim=-1, keepdim=True)).to(dtype), v_SK.to(dtype)


def looked_up(entries: int, width: int) -> Arm:
    """Ask for every entry by its own key, at several temperatures."""

    def arm(seed: int, size: str) -> dict[str, float]:
        k_SK, v_SK = store(entries, width, torch.float64)
        k_11SK, v_11SK = k_SK[None, None], v_SK[None, None]
        found: dict[str, float] = {}
        for temperature in TEMPERATURES:
            weights_SS = attention_weights(k_11SK, k_11SK, scale=1 / temperature)[0, 0]
            values_SK = attend_plain(k_11SK, k_11SK, v_11SK, scale=1 / temperature)[0, 0]
            found[at("weight", temperature)] = float(weights_SS.diagonal().mean())
            found[at("error", temperature)] = float((values_SK - v_SK).abs().max())
        k32, v32 = k_11SK.float(), v_11SK.float()
        single = attend_plain(k32, k32, v32, scale=1 / TEMPERATURES[-1])
        return {**found, "error in float32": float((single - v32).abs().max())}

    return arm


ARMS = {FEW: looked_up(8, 64), MANY: looked_up(512, 64), NARROW: looked_up(512, 16)}
LIMIT = at("error", TEMPERATURES[-1])


def summary(results: Results) -> str:
    few, many = (results.mean(arm, at("weight", 0.3)) for arm in (FEW, MANY))
    return (
        "Yes: as scores grow, all weight goes to the entry whose key was requested, and attention returns "
        f"what a dictionary returns (difference {max(results.values(MANY, LIMIT)):.1g}). Before that it "
        f"mixes: at temperature 0.3 the right entry has {few:.0%} of the weight among 8 entries, and "
        f"{many:.1%} among 512. More entries, or shorter keys, need larger scores."
    )


def draw(results: Results) -> Drawing:
    weights = {arm: results.series(arm, "weight") for arm in ARMS}
    errors = {arm: results.series(arm, "error") for arm in ARMS}
    across = "temperature (scores are divided by it)"
    return figure(
        "Attention as a lookup",
        [
            LinePanel("weight on the entry that was requested", across, weights, (True, False)),
            LinePanel("largest error of the value", across, errors),
        ],
        ["Dots: random stores. Queries are the keys themselves, of length 1."],
    )


CLAIM = Claim(
    says="Attention is a lookup in a soft, averaging dictionary: a query is compared with all keys.",
    lecture="L1 L5",
    predicts=(
        "The weight on the right entry goes to 1 as the temperature goes to 0, and the result equals that of "
        "a dictionary to 1e-6. More entries or fewer dimensions need a lower temperature."
    ),
    parts=(
        ClaimPart(
            "limit",
            "At temperature 0.001, attention returns what a dictionary returns.",
            ARMS,
            Exact(tuple(ARMS), {LIMIT: 1e-6, "error in float32": 1e-4}),
            SEEDS,
        ),
        ClaimPart(
            "entries",
            "More entries take weight from the right one.",
            ARMS,
            Direction(FEW, MANY, at("weight", 0.3), 0.1),
            SEEDS,
        ),
        ClaimPart(
            "width",
            "Shorter keys are harder to tell apart.",
            ARMS,
            Direction(MANY, NARROW, at("weight", 0.1), 0.05),
            SEEDS,
        ),
    ),
    summary=summary,
    changes=(
        "Keys that are alike would change it: attention cannot tell two equal keys apart at any temperature."
    ),
    figure=draw,
    question="When does a weighted mean of 512 values become exactly one of them?",
    minutes={"quick": 0.1, "standard": 0.1, "full": 0.2},
)
