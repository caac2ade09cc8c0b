"""Re-averaging: without a nonlinearity, layers of attention only average values again and again."""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor

from ...inside.look.drawing import Drawing
from ...parts.attention import attention_weights
from ...parts.layers import FeedForward
from ...parts.multihead import MultiHeadAttention
from ..claim import Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Exact
from ..small import largest_difference

WIDTH, LENGTH, DEPTH = 24, 9, 12
SEEDS = {"quick": 5, "standard": 10, "full": 20}
SHOWN = (1, 2, 3, 4, 6, 8, 10, 12)


def layers(dtype: torch.dtype = torch.float64) -> list[MultiHeadAttention]:
    """Layers of one head, without biases; values keep their size."""
    made = [MultiHeadAttention(WIDTH, 1, bias=False) for _ in range(DEPTH)]
    for layer in made:
        for linear in (layer.query, layer.key, layer.value, layer.out):
            torch.nn.init.normal_(linear.weight, std=1 / math.sqrt(WIDTH))
    return [layer.to(dtype) for layer in made]


def weights_of(layer: MultiHeadAttention, x_TD: Tensor) -> Tensor:
    """How much each word takes from each."""
    q_TK, k_TK = layer.query(x_TD), layer.key(x_TD)
    return attention_weights(q_TK[None, None], k_TK[None, None])[0, 0]


def rank_one(x_TD: Tensor) -> float:
    """How far words are from being all the same: the distance to their mean, relative to their size."""
    return float((x_TD - x_TD.mean(0)).norm() / x_TD.norm())


@torch.no_grad()
def product(seed: int, size: str) -> dict[str, float]:
    """The whole stack as one average and one matrix, both products over the layers."""
    found: dict[str, float] = {}
    x_TD = torch.randn(LENGTH, WIDTH, dtype=torch.float64)
    for name, dtype in (("difference", torch.float64), ("difference in float32", torch.float32)):
        torch.default_generator.manual_seed(seed)
        y_TD = x_TD.to(dtype)
        averages, maps = [], []
        for layer in layers(dtype):
            averages.append(weights_of(layer, y_TD))
            maps.append(layer.value.weight.T @ layer.out.weight.T)
            y_TD = layer(y_TD[None])[0]
        average_TT = reduce(torch.matmul, reversed(averages))
        one_TD = average_TT @ x_TD.to(dtype) @ reduce(torch.matmul, maps)
        found[name] = largest_difference(one_TD, y_TD) / float(y_TD.abs().max())
        found[name.replace("difference", "row sums")] = largest_difference(
            average_TT.sum(-1), torch.ones(LENGTH, dtype=dtype)
        )
    return found


def linear_if(fixed: bool) -> Arm:
    """Does f(x + y) = f(x) + f(y) hold, with weights that are kept, or with weights of the new input?"""

    @torch.no_grad()
    def arm(seed: int, size: str) -> dict[str, float]:
        layer = layers()[0]
        x_TD, y_TD = torch.randn(2, LENGTH, WIDTH, dtype=torch.float64)
        kept = weights_of(layer, x_TD)

        def f(z_TD: Tensor) -> Tensor:
            return layer.out((kept if fixed else weights_of(layer, z_TD)) @ layer.value(z_TD))

        whole = f(x_TD + y_TD)
        return {"gap": float((whole - f(x_TD) - f(y_TD)).norm() / whole.norm())}

    return arm


def collapsing(skip: bool, feed_forward: bool) -> Arm:
    """The distance to one word repeated, by depth."""

    @torch.no_grad()
    def arm(seed: int, size: str) -> dict[str, float]:
        x_TD = torch.randn(LENGTH, WIDTH, dtype=torch.float64)
        found = {}
        for depth, layer in enumerate(layers(), 1):
            mixed = layer(x_TD[None])[0]
            x_TD = x_TD + mixed if skip else mixed
            if feed_forward:
                thought = FeedForward(WIDTH, 4 * WIDTH, bias=False).double()(x_TD)
                x_TD = x_TD + thought if skip else thought
            if depth in SHOWN:
                found[at("distance", depth)] = rank_one(x_TD)
        return found

    return arm


ALONE = {"stack as a product": product}
LINEAR = {"weights kept": linear_if(True), "weights of the input": linear_if(False)}
DEEP = {
    "attention": collapsing(False, False),
    "with skips": collapsing(True, False),
    "with feed-forward": collapsing(False, True),
    "with both": collapsing(True, True),
}
SOON = at("distance", 4)


def summary(results: Results) -> str:
    gap, bare, skip = (
        results.mean("weights of the input", "gap"),
        results.mean("attention", SOON),
        results.mean("with skips", SOON),
    )
    return (
        "It depends on what is held fixed. For given attention weights it is exact: twelve layers are one "
        "average and one matrix, and nothing else. But the weights come from the input through a softmax, so "
        f"a layer as a function of its input is not linear (gap {gap:.2f}, where a linear map has 0). "
        f"Averaging also makes all words alike: after 4 layers they differ by {bare:.0e} of their size, with "
        f"skips by {skip:.2f}. At random weights, feed-forward layers without skips do not help."
    )


def draw(results: Results) -> Drawing:
    deep = {arm: results.series(arm, "distance") for arm in DEEP}
    gaps = {arm: results.values(arm, "gap") for arm in LINEAR}
    return figure(
        "Layers of attention without feed-forward layers",
        [
            DotPanel("is a layer linear?", "|f(x + y) - f(x) - f(y)|, relative", gaps, wide=200),
            LinePanel("how different words still are", "layers", deep, (False, True)),
        ],
        ["Right: distance of all words to their mean, relative to their size, at random weights."],
    )


CLAIM = Claim(
    says=(
        "Without a nonlinearity, more self-attention layers only re-average value vectors; a feed-forward "
        "layer fixes that."
    ),
    lecture="L1 L5",
    predicts=(
        "For fixed weights A, a stack is (A12 ... A1) X (W1 ... W12), and rows of the product sum to 1. With "
        "weights of the input it is not linear. Words become alike within a few layers; skips slow that "
        "down, feed-forward layers alone do not."
    ),
    parts=(
        ClaimPart(
            "one average",
            "For given weights, twelve layers are one average and one matrix.",
            ALONE,
            Exact(
                tuple(ALONE),
                {
                    "difference": 1e-11,
                    "row sums": 1e-12,
                    "difference in float32": 1e-3,
                    "row sums in float32": 1e-5,
                },
            ),
            SEEDS,
        ),
        ClaimPart(
            "given weights",
            "With given weights, a layer is linear.",
            LINEAR,
            Exact(("weights kept",), {"gap": 1e-12}),
            SEEDS,
        ),
        ClaimPart(
            "own weights",
            "With weights of its input, a layer is as linear as with given ones.",
            LINEAR,
            Direction("weights kept", "weights of the input", "gap", -0.01),
            SEEDS,
            expects="contradicted",
        ),
        ClaimPart(
            "alike",
            "After 4 layers without skips all words are alike; with skips they still differ.",
            DEEP,
            Direction("with skips", "attention", SOON, 0.1),
            SEEDS,
        ),
        ClaimPart(
            "feed-forward",
            "Feed-forward layers without skips keep words apart too.",
            DEEP,
            Direction("with feed-forward", "attention", SOON, 0.1),
            SEEDS,
            expects="contradicted",
        ),
    ),
    summary=summary,
    changes=(
        "Trained weights may change it: what a model without feed-forward layers can learn is not tested "
        "here."
    ),
    figure=draw,
    question="Is a layer of self-attention a linear function of its input?",
    minutes={"quick": 0.1, "standard": 0.1, "full": 0.2},
)
