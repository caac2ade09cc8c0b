"""Re-averaging: without a nonlinearity, layers of attention only average values again and again."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...parts.attention import attention_weights
from ...parts.layers import FeedForward
from ...parts.multihead import MultiHeadAttention
from ..claim import LEARNING, Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Exact, Reaches
from ..small import largest_difference
from ..toys import ToyBatch, drawn
from ..training import RATES, TEST, accuracy, fitted

WIDTH, LENGTH, DEPTH = 24, 9, 12
SEEDS = {"quick": 5, "standard": 10, "full": 20}
SHOWN = (1, 2, 3, 4, 6, 8, 10, 12)
STEPS = {"quick": 300, "standard": 400, "full": 2000}
TOKENS = (1, 4, 16)  # in a text whose words each ask for the XOR of their bits
NARROW, SOLVED = 16, 0.95  # width, accuracy


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


PRODUCT = {"stack as a product": product}
LINEAR = {"weights kept": linear_if(True), "weights of the input": linear_if(False)}
DEEP = {
    "attention": collapsing(False, False),
    "with skips": collapsing(True, False),
    "with feed-forward": collapsing(False, True),
    "with both": collapsing(True, True),
}
SOON = at("distance", 4)


# Learning: the XOR of each word's own two bits, which no linear map computes.


def xor(seed: int, step: int, rows: int, tokens: int) -> ToyBatch:
    tokens_BT = torch.randint(4, (rows, tokens), generator=drawn(seed, step))
    return ToyBatch(tokens_BT, (tokens_BT // 2) ^ (tokens_BT % 2))


READERS: dict[str, Callable[[], list[nn.Module]]] = {
    "attention alone": list,
    "with a linear layer": lambda: [
        nn.Sequential(nn.Linear(NARROW, 4 * NARROW), nn.Linear(4 * NARROW, NARROW))
    ],
    "with a feed-forward layer": lambda: [FeedForward(NARROW, 4 * NARROW)],
}
ALONE, LINEAR_TOO, THINKING = READERS


class BitReader(nn.Module):
    """Two layers of attention with skips and without norms, each followed by another layer or by nothing."""

    def __init__(self, then: Callable[[], list[nn.Module]]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, NARROW), nn.Linear(NARROW, 2)
        made = [layer for _ in range(2) for layer in (MultiHeadAttention(NARROW, 1), *then())]
        self.layers = nn.ModuleList(made)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        bits_BT2 = torch.stack([tokens_BT // 2, tokens_BT % 2], -1)
        x_BTD = self.first(2.0 * bits_BT2 - 1)
        for layer in self.layers:
            x_BTD = x_BTD + layer(x_BTD)
        return self.last(x_BTD)


def taught(kind: str, tokens: int) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        def batches(step: int) -> ToyBatch:
            return xor(seed, step, 32 if step >= 0 else 2048 // tokens, tokens)

        fit = fitted(lambda: BitReader(READERS[kind]), batches, STEPS[size], RATES[size])
        return {"accuracy": accuracy(fit.model, batches(TEST)), **fit.numbers}

    return arm


def reader(kind: str, tokens: int) -> str:
    return f"XOR of {tokens}: {kind}"


XOR = {reader(kind, n): taught(kind, n) for n in TOKENS for kind in READERS}


def summary(results: Results) -> str:
    gap = results.mean("weights of the input", "gap")
    bare, skip = (results.mean(arm, SOON) for arm in ("attention", "with skips"))
    one, many = (results.mean(reader(ALONE, n), "accuracy") for n in (1, 16))
    return (
        "It depends on what is held fixed. For given attention weights it is exact: twelve layers are one "
        "average and one matrix. But the weights come from the input through a softmax, so a layer is not "
        f"linear (gap {gap:.2f}, where a linear map has 0). Attention alone fails at XOR of a single word "
        f"({one:.0%} right), and learns it among 16 words ({many:.0%}). Averaging also makes words alike: "
        f"after 4 layers they differ by {bare:.0e} of their size, with skips by {skip:.2f}."
    )


def draw(results: Results) -> Drawing:
    deep = {arm: results.series(arm, "distance") for arm in DEEP}
    gaps = {arm: results.values(arm, "gap") for arm in LINEAR}
    right = {
        kind: {float(n): results.values(reader(kind, n), "accuracy") for n in TOKENS} for kind in READERS
    }
    size = (220.0, 190.0)
    return figure(
        "Layers of attention without feed-forward layers",
        [
            DotPanel("is a layer linear?", "|f(x + y) - f(x) - f(y)|, relative", gaps, wide=150),
            LinePanel("how different words still are", "layers", deep, (False, True), size=size),
            LinePanel("XOR of each word's bits", "words in a text", right, (True, False), size=size),
        ],
        [
            "Middle: distance of all words to their mean, relative to their size, at random weights.",
            "Right: share of answers that are right, after training; guessing gives 0.5.",
        ],
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
        "down, feed-forward layers alone do not. Attention alone cannot learn the XOR of a single word's "
        "bits, and can among 4 words or 16."
    ),
    parts=(
        ClaimPart(
            "one average",
            "For given attention weights, twelve layers are one average and one matrix.",
            PRODUCT,
            Exact(
                tuple(PRODUCT),
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
            "With given attention weights, a layer is linear.",
            LINEAR,
            Exact(("weights kept",), {"gap": 1e-12}),
            SEEDS,
        ),
        ClaimPart(
            "own weights",
            "With attention weights that come from its input, a layer is linear too.",
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
        ClaimPart(
            "XOR of one word",
            "In texts of one word, XOR is learned with a feed-forward layer only.",
            XOR,
            Reaches("accuracy", SOLVED, (reader(THINKING, 1),), (reader(ALONE, 1), reader(LINEAR_TOO, 1))),
            LEARNING,
        ),
        ClaimPart(
            "XOR among others",
            "Among 4 or 16 words, attention alone cannot learn XOR either.",
            XOR,
            Reaches("accuracy", SOLVED, miss=(reader(ALONE, 4), reader(ALONE, 16))),
            LEARNING,
            expects="contradicted",
        ),
        ClaimPart(
            "XOR with feed-forward",
            "With a feed-forward layer XOR is learned among 4 and 16 words.",
            XOR,
            Reaches("accuracy", SOLVED, (reader(THINKING, 4), reader(THINKING, 16))),
            LEARNING,
            control=True,
        ),
    ),
    summary=summary,
    changes="A harder question than XOR may still need a feed-forward layer.",
    figure=draw,
    question="Is a layer of self-attention a linear function of its input?",
    minutes={"quick": 0.4, "standard": 1.3, "full": 10.0},
)
