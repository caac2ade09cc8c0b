"""Order: without positions, self-attention sees a bag of words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...models.base.shells import Encoder
from ...parts.masks import Mask, causal, full
from ...parts.positions.absolute import Learned, Sinusoidal
from ...parts.positions.base import Position
from ...parts.positions.relative import ALiBi, T5Buckets
from ...parts.positions.rotary import Rotary
from ..claim import LEARNING, Arm, Claim, ClaimPart
from ..figures import DotPanel, figure
from ..results import Results
from ..rules import Exact, Reaches
from ..small import largest_difference, small_encoder
from ..toys import ToyBatch, before, twice
from ..training import RATES, TEST, accuracy, fitted

WIDTH, HEADS, LAYERS, LENGTH, SYMBOLS = 32, 4, 2, 12, 10
PERMUTATIONS = 20
STEPS = {"quick": 200, "standard": 300, "full": 600}
TESTED = 1000
LEARNED = 0.95


FULL = full()


@dataclass(frozen=True)
class OrderScheme:
    """How order enters: at the input, in the scores, or by the mask."""

    at_input: Callable[[int], Position] | None = None
    in_scores: Callable[[int], Position] | None = None
    mask: Mask = FULL

    def encoder(self, width: int = WIDTH) -> Encoder:
        first = None if self.at_input is None else self.at_input(width)
        then = None if self.in_scores is None else self.in_scores(width)
        return small_encoder(SYMBOLS, width, HEADS, LAYERS, first, then, self.mask)


def random_buckets(width: int) -> Position:
    """T5's numbers begin at 0, which is no order at all: here they are random."""
    position = T5Buckets(HEADS)
    nn.init.normal_(position.table)
    return position


def random_table(width: int) -> Position:
    position = Learned(LENGTH, width)
    nn.init.normal_(position.table, std=0.2)
    return position


ORDERS = {
    "no positions": OrderScheme(),
    "sinusoidal": OrderScheme(at_input=Sinusoidal),
    "learned": OrderScheme(at_input=random_table),
    "relative bias": OrderScheme(in_scores=random_buckets),
    "rotary": OrderScheme(in_scores=lambda width: Rotary(width // HEADS)),
    "ALiBi": OrderScheme(in_scores=lambda width: ALiBi(HEADS)),
    "ALiBi, causal mask": OrderScheme(in_scores=lambda width: ALiBi(HEADS), mask=causal()),
    "no positions, causal mask": OrderScheme(mask=causal()),
}
BLIND = ("no positions",)
MIRROR = ("ALiBi",)  # |i - j| is the same from left to right as from right to left
SEEING = tuple(name for name in ORDERS if name not in (*BLIND, *MIRROR))


# Identities.


def moved(model: Encoder, tokens_BT: Tensor, order_T: Tensor) -> float:
    """How far the output of reordered words is from the reordered output."""
    return largest_difference(model(tokens_BT[:, order_T]), model(tokens_BT)[:, order_T])


def permuted(order: OrderScheme) -> Arm:
    @torch.no_grad()
    def arm(seed: int, size: str) -> dict[str, float]:
        model, tokens_BT = order.encoder().double(), torch.randint(SYMBOLS, (3, LENGTH))
        ways = [torch.randperm(LENGTH) for _ in range(PERMUTATIONS)]
        mirror = torch.arange(LENGTH).flip(0)
        difference = max(moved(model, tokens_BT, way) for way in ways)
        mirrored = moved(model, tokens_BT, mirror)
        model = model.float()
        single = max(moved(model, tokens_BT, way) for way in ways)
        return {
            "difference": difference,
            "difference in float32": single,
            "difference of the mirror": mirrored,
        }

    return arm


PERMUTED = {name: permuted(order) for name, order in ORDERS.items()}


# Learning.


class Judging(nn.Module):
    """Yes or no, from the mean of an encoder's vectors."""

    def __init__(self, encoder: Encoder, width: int) -> None:
        super().__init__()
        self.encoder, self.linear = encoder, nn.Linear(width, 2)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.linear(self.encoder(tokens_BT).mean(1))


def taught(order: OrderScheme, task: Callable[..., ToyBatch]) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        def batches(step: int, rows: int = 64) -> ToyBatch:
            return task(seed, step, rows, LENGTH, SYMBOLS)

        fit = fitted(lambda: Judging(order.encoder(64), 64), batches, STEPS[size], RATES[size])
        return {"accuracy": accuracy(fit.model, batches(TEST, TESTED)), **fit.numbers}

    return arm


LEARNERS = {f"learns order: {name}": taught(order, before) for name, order in ORDERS.items()}
CONTROLS = {f"learns a count: {name}": taught(ORDERS[name], twice) for name in (*BLIND, *MIRROR)}


def summary(results: Results) -> str:
    blind, mirror = (results.mean(f"learns order: {name}", "accuracy") for name in ("no positions", "ALiBi"))
    return (
        "Yes, exactly: without positions, reordering the words only reorders the outputs (to "
        f"{max(results.values('no positions', 'difference')):.0e}), and the question 'does A come before B?' "
        f"cannot be learned ({blind:.0%} right; guessing gives 50%). Any scheme of positions breaks this, "
        "and so does the causal mask alone. ALiBi without a mask does not help: it depends on the distance "
        f"between two words, and not on which comes first ({mirror:.0%} right)."
    )


def draw(results: Results) -> Drawing:
    differences = {name: results.values(name, "difference") for name in ORDERS}
    accuracy = {name: results.values(f"learns order: {name}", "accuracy") for name in ORDERS}
    return figure(
        "What happens when words are reordered",
        [
            DotPanel(
                "difference to reordered outputs",
                "largest difference, float64",
                differences,
                True,
                {"rounding": 1e-12},
            ),
            DotPanel(
                "does A come before B?",
                "share of 1,000 answers that are right",
                accuracy,
                marks={"chance": 0.5},
            ),
        ],
        ["Dots: seeds. Bar: mean. Line: 95 % interval. 12 words of 10 symbols, 2 layers."],
    )


CLAIM = Claim(
    says="Self-attention has no notion of order: without positions a sentence is a bag of words.",
    lecture="L2 L3 L4 L5",
    predicts=(
        "Without positions f(Px) = P f(x) to rounding, and 'does A come before B?' is unlearnable. Every "
        "scheme breaks it, and so does the causal mask alone. ALiBi without a mask is the same in a mirror, "
        "and fails too."
    ),
    parts=(
        ClaimPart(
            "bag of words",
            "Without positions, reordering inputs only reorders outputs.",
            PERMUTED,
            Exact(BLIND, {"difference": 1e-12, "difference in float32": 1e-5}),
        ),
        ClaimPart(
            "mirror",
            "ALiBi without a mask cannot tell a text from its mirror image.",
            PERMUTED,
            Exact(MIRROR, {"difference of the mirror": 1e-12}),
        ),
        ClaimPart(
            "positions",
            "Every scheme, and the causal mask alone, breaks this.",
            PERMUTED,
            Reaches("difference", 1e-3, (*SEEING, *MIRROR)),
            {"quick": 4, "standard": 6, "full": 10},
            control=True,
        ),
        ClaimPart(
            "learning",
            "Order is learned with positions or a causal mask, and not without.",
            LEARNERS,
            Reaches(
                "accuracy",
                LEARNED,
                tuple(f"learns order: {n}" for n in SEEING),
                tuple(f"learns order: {n}" for n in (*BLIND, *MIRROR)),
            ),
            LEARNING,
        ),
        ClaimPart(
            "counting",
            "What needs no order is learned without positions.",
            CONTROLS,
            Reaches("accuracy", LEARNED, tuple(CONTROLS)),
            LEARNING,
            control=True,
        ),
    ),
    summary=summary,
    changes=(
        "A causal mask changes it: each word then sees another number of words, and that is order enough."
    ),
    figure=draw,
    question="A model without positions reads 'dog bites man' and 'man bites dog'. Which outputs differ?",
    minutes={"quick": 0.9, "standard": 4.0, "full": 14.0},
)
