"""Quadratic cost: how memory and time grow with the length of a text, and what lowers them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...inside.look.drawing import Drawing
from ...parts.attention import attend_plain
from ...parts.fused import attend_sdpa
from ...parts.long.compressed import RATE, ends_of_slots
from ...parts.long.linear import attend_linear
from ...parts.long.sparse import attend_gathered
from ...parts.masks import Mask, causal, strided, window
from ...parts.view import View
from ..claim import Arm, Claim, ClaimPart
from ..clock import saved_bytes, timed
from ..figures import LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Slope

WIDTH, NEAR = 32, 32  # of a head, and words that a window sees
LENGTHS = {
    "quick": (256, 576, 1024, 1600, 2304),
    "standard": (256, 576, 1024, 2304, 4096),
    "full": (256, 576, 1024, 2304, 4096),
}  # squares, so that a stride can be the root of the length
SEEDS = {"quick": 3, "standard": 5, "full": 10}
ONCE = {"quick": 1, "standard": 1, "full": 1}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def full(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend_plain(q, k, v, View(causal(), q.shape[2], q.shape[2]))


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend_sdpa(q, k, v, View(causal(), q.shape[2], q.shape[2]))


def near(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attend_gathered(q, k, v, View(causal() & window(NEAR), q.shape[2], q.shape[2]))


def sparse(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Near words, and words a whole number of strides away; the stride is the root of the length."""
    return attend_gathered(q, k, v, View(strided(math.isqrt(q.shape[2])), q.shape[2], q.shape[2]))


def compressed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Every three keys and values as one, by their mean; scores are written out, as in `full`."""
    T = q.shape[2]
    k, v = (torch.cat([x[:, :, :1], in_threes(x)], 2) for x in (k, v))
    places = ends_of_slots(k.shape[2], q.device)
    return attend_plain(q, k, v, View(causal(), T, k.shape[2], q_pos=torch.arange(T), k_pos=places))


def in_threes(x: Tensor) -> Tensor:
    whole = x.shape[2] // RATE
    return x[:, :, : whole * RATE].unflatten(2, (whole, RATE)).mean(3)


def costs(attention: Attention) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        found = {}
        for length in LENGTHS[size]:
            q, k, v = (torch.randn(1, 1, length, WIDTH).requires_grad_() for _ in range(3))

            def work(q: Tensor = q, k: Tensor = k, v: Tensor = v) -> Tensor:
                return attention(q, k, v)

            found[at("megabytes", length)] = saved_bytes(work) / 1e6
            found[at("milliseconds", length)] = 1e3 * timed(lambda: work().sum().backward(), 3, 0.0).cpu
        return found

    return arm


def compared(mask_of: Callable[[int], Mask]) -> Arm:
    """The pairs of words that a mask lets through."""

    def arm(seed: int, size: str) -> dict[str, float]:
        views = {length: View(mask_of(length), length, length) for length in LENGTHS[size]}
        return {at("pairs", length): float(view.allowed(1).sum()) for length, view in views.items()}

    return arm


PAIRS = {
    "pairs, full": compared(lambda length: causal()),
    "pairs, strided": compared(lambda length: strided(math.isqrt(length))),
}
ARMS = {
    "full": costs(full),
    "fused kernel": costs(fused),
    "window of 32": costs(near),
    "strided": costs(sparse),
    "compressed by 3": costs(compressed),
    "linear attention": costs(attend_linear),
}


def grows(arm: str, about: float) -> Slope:
    return Slope(arm, "megabytes", about)


def summary(results: Results) -> str:
    full_, strided_, compressed_ = (
        Slope(arm, "megabytes", 2).fit(results)[0] for arm in ("full", "strided", "compressed by 3")
    )
    return (
        "It depends on the kind of attention. Written out, it keeps memory that grows with the square of the "
        f"length (exponent {full_:.2f}). A window, linear attention and a fused kernel grow in proportion to "
        "the length; a fused kernel still compares all pairs. Strided attention lies between "
        f"({strided_:.2f} at these lengths; its pairs grow with the power 1.5). Compressing keys and values "
        f"three times saves a constant factor only (exponent {compressed_:.2f})."
    )


def draw(results: Results) -> Drawing:
    names = {arm: f"{arm}: {Slope(arm, 'megabytes', 1).fit(results)[0]:.2f}" for arm in ARMS}
    memory = {names[arm]: results.series(arm, "megabytes") for arm in ARMS}
    times = {arm: results.series(arm, "milliseconds") for arm in ARMS}
    return figure(
        "What attention costs as a text grows (the number beside a name is the exponent)",
        [
            LinePanel("megabytes kept for the backward pass", "words", memory),
            LinePanel("milliseconds, forward and backward", "words", times),
        ],
        ["One head of width 32, causal, one core. Time: the fastest of three. Dots: seeds."],
    )


CLAIM = Claim(
    says="Self-attention compares all pairs of words, so its cost grows with the square of the length.",
    lecture="L4 L5",
    predicts=(
        "Exponents of memory: 2 for full attention, 1 for a window and for linear attention, 1.5 for strided "
        "attention with a stride of the root of the length. Compressed keys keep the exponent 2 at a third "
        "of the cost."
    ),
    parts=(
        ClaimPart(
            "full", "Written out, memory grows with the square of the length.", ARMS, grows("full", 2), SEEDS
        ),
        ClaimPart(
            "fused",
            "With a fused kernel, memory grows in proportion to the length.",
            ARMS,
            grows("fused kernel", 1),
            SEEDS,
        ),
        ClaimPart(
            "window",
            "With a window, memory grows in proportion to the length.",
            ARMS,
            grows("window of 32", 1),
            SEEDS,
        ),
        ClaimPart(
            "all pairs",
            "The pairs that full attention compares grow with the square of the length.",
            PAIRS,
            Slope("pairs, full", "pairs", 2, 0.05),
            ONCE,
        ),
        ClaimPart(
            "strided pairs",
            "The pairs that strided attention compares grow with the power 1.5.",
            PAIRS,
            Slope("pairs, strided", "pairs", 1.5, 0.05),
            ONCE,
        ),
        ClaimPart(
            "strided",
            "The memory of strided attention grows with the power 1.5 at these lengths.",
            ARMS,
            grows("strided", 1.5),
            SEEDS,
            expects="contradicted",
        ),
        ClaimPart(
            "linear",
            "With linear attention, memory grows in proportion to the length.",
            ARMS,
            grows("linear attention", 1),
            SEEDS,
        ),
        ClaimPart(
            "compressed",
            "Compressing keys and values lowers the order below the square.",
            ARMS,
            grows("compressed by 3", 1.5),
            SEEDS,
            expects="contradicted",
        ),
        ClaimPart(
            "time",
            "At 2,304 words, a window takes less time than full attention.",
            ARMS,
            Direction("full", "window of 32", at("milliseconds", 2304)),
            SEEDS,
        ),
    ),
    summary=summary,
    changes=(
        "Short texts change it: there the pairs cost less than the rest. What a window no longer sees is not "
        "tested here."
    ),
    figure=draw,
    question="A text becomes twice as long. How much more memory does each kind of attention need?",
    minutes={"quick": 0.5, "standard": 3.0, "full": 6.0},
)
