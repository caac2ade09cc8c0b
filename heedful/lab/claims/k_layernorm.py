"""Layer normalization: does it speed up training, and is it the forward pass or the gradient that counts?"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...parts.layers import BareLayerNorm, LayerNorm, PostNorm, PreNorm, RMSNorm
from ..bare import NormMaker, Wrapper, bare_model, no_norm, reversals
from ..claim import LEARNING, Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Equal, Exact, Reaches, VerdictRule
from ..small import largest_difference
from ..training import RATES, TEST, accuracy, fitted, held_out_loss, likelihood, steps_to, trained

LENGTH, SYMBOLS, FEW, MANY = 12, 16, 4, 12
STEPS = {"quick": 140, "standard": 200, "full": 500}
HIGH = 0.05
STRESS = {"quick": (HIGH,), "standard": (0.003, 0.01, HIGH), "full": (0.001, 0.003, 0.01, 0.03, HIGH)}
LEVEL, SOLVED = 0.5, 0.1  # nats: the loss that is timed, and the one at which a stress test stops
LEARNED = 0.9  # accuracy
SPEED, SINGLE = "log2 of steps", "difference in float32"


class DetachedNorm(nn.Module):
    """LayerNorm whose mean and variance count as constants in the backward pass (Xu et al. 2019)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = x.detach().mean(-1, keepdim=True), x.detach().var(-1, correction=0, keepdim=True)
        return self.weight * (x - mean) / (variance + self.eps).sqrt() + self.bias


NORMS: dict[str, NormMaker] = {
    "LayerNorm": LayerNorm,
    "no gain, no bias": BareLayerNorm,
    "detached statistics": DetachedNorm,
    "RMSNorm": RMSNorm,
}
NOTHING, PRE, POST, DETACHED = "no norm", "LayerNorm, pre", "LayerNorm, post", "detached statistics, pre"
ORDERS: dict[str, Wrapper] = {"pre": PreNorm, "post": PostNorm}
SCHEMES: dict[str, tuple[Wrapper, NormMaker]] = {NOTHING: (PreNorm, no_norm)} | {
    f"{name}, {order}": (wrap, norm) for order, wrap in ORDERS.items() for name, norm in NORMS.items()
}
PLAIN, RMS = "no gain, no bias, pre", "RMSNorm, pre"
STRESSED = (NOTHING, PRE, POST)


# Identities: what detaching leaves as it is, and what it changes.


def detaching(seed: int, size: str) -> dict[str, float]:
    """Outputs, and the means of gradients over a vector, of both norms for the same random numbers."""
    found: dict[str, float] = {}
    for suffix, dtype in (("", torch.float64), (" in float32", torch.float32)):
        torch.default_generator.manual_seed(seed)
        x_BD, upstream_BD = torch.randn(2, 50, 32).to(dtype)
        x_BD = (3 * x_BD + 1).requires_grad_()
        outputs, means = [], []
        for norm in (LayerNorm(32), DetachedNorm(32)):
            out_BD = norm.to(dtype)(x_BD)
            (grad_BD,) = torch.autograd.grad(out_BD, x_BD, upstream_BD)
            outputs.append(out_BD.detach())
            means.append(float(grad_BD.mean(-1).abs().max()))
        found["difference" + suffix] = largest_difference(*outputs)
        found["mean of the gradient" + suffix], found["mean of the detached gradient" + suffix] = means
    return found


IDENTITY = {"detaching": detaching}


# Speed: four blocks, the better of two learning rates.


def timed(scheme: str) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        batches = reversals(seed, LENGTH, SYMBOLS)

        def make() -> nn.Module:
            return bare_model(FEW, LENGTH, SYMBOLS, *SCHEMES[scheme])

        fit = fitted(make, batches, STEPS[size], RATES[size], likelihood)
        steps = steps_to(fit.losses, LEVEL)
        right, loss = accuracy(fit.model, batches(TEST)), held_out_loss(fit.model, batches(TEST))
        return {"steps": steps, SPEED: math.log2(steps), "accuracy": right, "loss": loss, **fit.numbers}

    return arm


TIMED = {scheme: timed(scheme) for scheme in SCHEMES}


# Stress: more blocks, higher learning rates.


def stressed(scheme: str, blocks: int) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        found, begin, batches = dict[str, float](), torch.get_rng_state(), reversals(seed, LENGTH, SYMBOLS)
        for rate in STRESS[size]:
            torch.set_rng_state(begin)  # the same first weights
            model = bare_model(blocks, LENGTH, SYMBOLS, *SCHEMES[scheme])
            losses = trained(model, batches, STEPS[size], rate, SOLVED)
            found[at("accuracy", rate)] = accuracy(model, batches(TEST))
            found[at("steps", rate)] = steps_to(losses, LEVEL)
        return found

    return arm


def deep(scheme: str, blocks: int = MANY) -> str:
    return f"{blocks} blocks: {scheme}"


STRESS_TESTS = {
    deep(scheme, blocks): stressed(scheme, blocks) for blocks in (FEW, MANY) for scheme in STRESSED
}


def summary(results: Results) -> str:
    def steps(scheme: str) -> float:
        return results.mean(scheme, "steps")

    def right(scheme: str) -> float:
        return results.mean(deep(scheme), at("accuracy", HIGH))

    return (
        f"It depends on the learning rate. At usual rates, {FEW} blocks reach a loss of {LEVEL} in "
        f"{steps(NOTHING):.0f} steps without a norm, and in {steps(PRE):.0f} with LayerNorm. At a rate of "
        f"{HIGH}, {MANY} blocks learn with LayerNorm before each layer ({right(PRE):.0%} right), not without "
        f"it ({right(NOTHING):.0%}) or after each sum ({right(POST):.0%}). Its gradient matters: with "
        f"detached mean and variance it needs {steps(DETACHED):.0f} steps or more. It needs "
        f"{steps(PLAIN):.0f} without gain and bias; RMSNorm needs {steps(RMS):.0f}."
    )


def draw(results: Results) -> Drawing:
    steps = {scheme: results.values(scheme, "steps") for scheme in SCHEMES}

    def panel(blocks: int) -> LinePanel:
        lines = {
            scheme: {1000 * x: some for x, some in results.series(deep(scheme, blocks), "accuracy").items()}
            for scheme in STRESSED
        }
        across = "learning rate, in thousandths"
        return LinePanel(f"{blocks} blocks: share right", across, lines, (True, False), size=(200, 190))

    return figure(
        "Towers with different norms learn to reverse a text",
        [
            DotPanel(f"steps to a loss of {LEVEL} nats, {FEW} blocks", "steps", steps, wide=200),
            panel(FEW),
            panel(MANY),
        ],
        ["Dots: seeds. A tower that never gets to that loss stands one step after the last."],
    )


def speed_part(
    name: str, says: str, rule: VerdictRule, expects: str = "", control: bool = False
) -> ClaimPart:
    return ClaimPart(name, says, TIMED, rule, LEARNING, expects, control)


CLAIM = Claim(
    says="Layer normalization makes training faster, and it does so through its gradients (Xu et al. 2019).",
    lecture="L1 L5",
    predicts=(
        "At usual learning rates 4 blocks learn no faster with LayerNorm. At a rate of 0.05, 12 blocks learn "
        "with LayerNorm before each layer, and neither without a norm nor with LayerNorm after the sum. With "
        "detached mean and variance training is slower than without a norm. Gain, bias and centering change "
        "little."
    ),
    parts=(
        ClaimPart(
            "detaching",
            "Detached statistics leave outputs as they are; the gradient of LayerNorm has a mean of 0.",
            IDENTITY,
            Exact(tuple(IDENTITY), {"difference": 1e-12, "mean of the gradient": 1e-12, SINGLE: 1e-5}),
        ),
        speed_part(
            "all learn",
            "At usual learning rates 4 blocks learn with LayerNorm and without.",
            Reaches("accuracy", LEARNED, STRESSED),
            control=True,
        ),
        speed_part(
            "faster, pre-norm",
            "LayerNorm before each layer needs fewer steps than no norm.",
            Direction(NOTHING, PRE, SPEED),
            "contradicted",
        ),
        speed_part(
            "faster, post-norm",
            "LayerNorm after each sum needs fewer steps than no norm.",
            Direction(NOTHING, POST, SPEED),
            "contradicted",
        ),
        ClaimPart(
            "high rate, pre-norm",
            "At a high learning rate, 12 blocks learn with LayerNorm before each layer, and not without.",
            STRESS_TESTS,
            Reaches(at("accuracy", HIGH), LEARNED, (deep(PRE),), (deep(NOTHING),)),
            LEARNING,
        ),
        ClaimPart(
            "high rate, post-norm",
            "At a high learning rate, 12 blocks learn with LayerNorm after each sum, too.",
            STRESS_TESTS,
            Reaches(at("accuracy", HIGH), LEARNED, (deep(POST),)),
            LEARNING,
            expects="contradicted",
        ),
        speed_part(
            "gradient, pre-norm",
            "With detached statistics, pre-norm blocks need more steps than with LayerNorm.",
            Direction(DETACHED, PRE, SPEED, 0.2),
        ),
        speed_part(
            "gradient, post-norm",
            "With detached statistics, post-norm blocks need more steps than with LayerNorm.",
            Direction("detached statistics, post", POST, SPEED, 0.2),
        ),
        speed_part(
            "worse than nothing",
            "With detached statistics, blocks need more steps than without a norm.",
            Direction(DETACHED, NOTHING, SPEED, 0.2),
        ),
        speed_part(
            "gain and bias",
            "Without gain and bias, LayerNorm needs about as many steps.",
            Equal(PLAIN, PRE, SPEED, 0.2),
        ),
        speed_part(
            "centering",
            "RMSNorm, which does not center, needs about as many steps as LayerNorm.",
            Equal(RMS, PRE, SPEED, 0.2),
        ),
    ),
    summary=summary,
    changes="A longer warm-up would help post-norm; wider towers may change the order.",
    figure=draw,
    question="Which of these need LayerNorm: 4 blocks, 12 blocks, a high learning rate?",
    minutes={"quick": 0.9, "standard": 4.0, "full": 20.0},
)
