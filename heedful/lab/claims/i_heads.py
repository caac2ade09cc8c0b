"""Heads: several heads cost what one head costs. What is the same, and what is not?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ...inside.look.drawing import Drawing
from ...parts.attention import attend_plain
from ...parts.fused import attend_sdpa
from ...parts.multihead import MultiHeadAttention, join_heads, split_heads
from ..claim import Arm, Claim, ClaimPart
from ..clock import saved_bytes
from ..figures import LinePanel, figure
from ..results import Results, at
from ..rules import Exact, Near

WIDTH, ROWS, LENGTH = 128, 2, 128
HEADS = (1, 2, 4, 8, 16)
SEEDS = {"quick": 2, "standard": 2, "full": 2}


def attended(layer: MultiHeadAttention, x_BTD: Tensor, kernel: object) -> Tensor:
    """The layer by a kernel of choice: all scores written out, or never in memory."""
    assert callable(kernel)
    q, k, v = (split_heads(f(x_BTD), layer.heads) for f in (layer.query, layer.key, layer.value))
    return layer.out(join_heads(kernel(q, k, v)))


def costs(kernel: object) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        found: dict[str, float] = {}
        x_BTD = torch.randn(ROWS, LENGTH, WIDTH)
        for heads in HEADS:
            layer = MultiHeadAttention(WIDTH, heads)
            with FlopCounterMode(display=False) as counter:
                attended(layer, x_BTD, attend_plain)
            found[at("parameters", heads)] = sum(weight.numel() for weight in layer.parameters())
            found[at("FLOPs", heads)] = counter.get_total_flops()
            kept = saved_bytes(lambda layer=layer: attended(layer, x_BTD, kernel), tuple(layer.parameters()))  # type: ignore[misc]
            found[at("megabytes", heads)] = kept / 1e6
        for measure in ("parameters", "FLOPs"):
            values = [found[at(measure, heads)] for heads in HEADS]
            found[f"spread of {measure}"] = max(values) - min(values)
        found["memory of 16 beside 1"] = found[at("megabytes", 16)] / found[at("megabytes", 1)]
        return found

    return arm


ARMS = {"written out": costs(attend_plain), "fused kernel": costs(attend_sdpa)}


def summary(results: Results) -> str:
    plain, fused = (results.mean(arm, "memory of 16 beside 1") for arm in ARMS)
    return (
        "It depends on what you count. Parameters and FLOPs are exactly equal for 1 to 16 heads: each head "
        "gets a narrower slice. Memory is not, if the attention weights are kept: every head has its own "
        f"table of all pairs ({plain:.1f} times the memory for 16 heads at 128 words). A fused kernel never "
        f"keeps the tables ({fused:.2f} times)."
    )


def draw(results: Results) -> Drawing:
    memory = {arm: results.series(arm, "megabytes") for arm in ARMS}
    work = {
        "parameters (thousand)": {
            x: [v / 1e3 for v in some] for x, some in results.series("fused kernel", "parameters").items()
        },
        "FLOPs (million)": {
            x: [v / 1e6 for v in some] for x, some in results.series("fused kernel", "FLOPs").items()
        },
    }
    return figure(
        f"An attention layer of width {WIDTH} with 1 to 16 heads, {LENGTH} words",
        [
            LinePanel("parameters and work of a forward pass", "heads", work),
            LinePanel("megabytes kept for the backward pass", "heads", memory),
        ],
        ["The width of a head is the width of the layer, divided by the number of heads."],
    )


CLAIM = Claim(
    says="Several heads cost no more than one: each works in a narrower space.",
    lecture="L1 L2 L3 L4 L5",
    predicts=(
        "Parameters and FLOPs are equal for every number of heads. Memory is equal with a fused kernel. "
        "Where attention weights are kept, it grows with the number of heads."
    ),
    parts=(
        ClaimPart(
            "parameters and FLOPs",
            "Parameters and FLOPs do not change with the number of heads.",
            ARMS,
            Exact(tuple(ARMS), {"spread of parameters": 0, "spread of FLOPs": 0}),
            SEEDS,
        ),
        ClaimPart(
            "fused memory",
            "With a fused kernel, 16 heads keep as much memory as one.",
            ARMS,
            Near("fused kernel", "memory of 16 beside 1", 1.0, 0.1),
            SEEDS,
        ),
        ClaimPart(
            "memory",
            "With all weights written out, 16 heads keep as much memory as one.",
            ARMS,
            Near("written out", "memory of 16 beside 1", 1.0, 0.1),
            SEEDS,
            expects="contradicted",
        ),
    ),
    summary=summary,
    changes=(
        "Short texts change it: then the tables are small beside everything else. "
        "Whether more heads are better is another question, and this experiment does not ask it."
    ),
    figure=draw,
    question="A layer has 1 head or 16. Which of parameters, FLOPs and memory change?",
    minutes={"quick": 0.1, "standard": 0.1, "full": 0.1},
)
