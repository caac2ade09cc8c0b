"""Heads: several heads cost what one head costs. What is the same, what is not, and how many are best?"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ...inside.look.drawing import Drawing
from ...parts.attention import attend_plain
from ...parts.fused import attend_sdpa
from ...parts.multihead import MultiHeadAttention
from ..claim import Arm, Claim, ClaimPart
from ..clock import saved_bytes
from ..figures import LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Exact, Near, Reaches
from ..small import attended
from ..toys import drawn
from ..training import TEST, VALIDATION, WARMUP

WIDTH, ROWS, LENGTH = 128, 2, 128
HEADS = (1, 2, 4, 8, 16)
SEEDS = {"quick": 2, "standard": 2, "full": 2}


TEACHERS, STUDENTS = (1, 4), (1, 2, 4, 8)  # heads
NARROW, WORDS, TEXTS, TESTED = 32, 10, 32, 500
SHARP = 3.0  # standard deviation of a teacher's scores: most weight lies on one or two words
STEPS = {"quick": 700, "standard": 1000, "full": 3000}
RATES = {"quick": (1e-2,), "standard": (3e-3, 1e-2), "full": (3e-3, 1e-2)}
TAUGHT = {"quick": 4, "standard": 5, "full": 10}  # seeds
MATCHED = 0.95  # of the variance
MEASURE = "unexplained variance"


# Cost.


def costs(kernel: Callable[..., Tensor]) -> Arm:
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
        found["memory of 16 heads relative to 1"] = found[at("megabytes", 16)] / found[at("megabytes", 1)]
        return found

    return arm


ARMS = {"written out": costs(attend_plain), "fused kernel": costs(attend_sdpa)}


# Learning.


def teacher_of(heads: int) -> MultiHeadAttention:
    """A layer whose heads look at few words each."""
    layer = MultiHeadAttention(NARROW, heads)
    for part, variance in ((layer.query, SHARP), (layer.key, SHARP), (layer.value, 1.0), (layer.out, 1.0)):
        nn.init.normal_(part.weight, std=math.sqrt(variance / NARROW))
    return layer.requires_grad_(False)


def texts(seed: int, step: int, rows: int) -> Tensor:
    """Random words."""
    return torch.randn(rows, WORDS, NARROW, generator=drawn(seed, step))


def copied(student: nn.Module, teacher: nn.Module, seed: int, steps: int, rate: float) -> None:
    """Train a student to give the outputs of a teacher: Adam, a short warm-up, a linear decay."""
    optimizer = torch.optim.Adam(student.parameters(), rate, betas=(0.9, 0.98), fused=True)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / WARMUP, (steps - step) / steps)
        x_BTD = texts(seed, step, TEXTS)
        loss = (student(x_BTD) - teacher(x_BTD)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def unexplained(student: nn.Module, teacher: nn.Module, x_BTD: Tensor) -> float:
    """The mean squared error, relative to the variance of the teacher's outputs."""
    y_BTD = teacher(x_BTD)
    spread = (y_BTD - y_BTD.mean((0, 1))).square().mean()
    return float((student(x_BTD) - y_BTD).square().mean() / spread)


def copier(teacher_heads: int, heads: int) -> Arm:
    """Each learning rate begins with the same weights; the better on validation data is kept."""

    def arm(seed: int, size: str) -> dict[str, float]:
        teacher, begin = teacher_of(teacher_heads), torch.get_rng_state()
        students, errors = dict[float, nn.Module](), dict[float, float]()
        for rate in RATES[size]:
            torch.set_rng_state(begin)
            students[rate] = MultiHeadAttention(NARROW, heads)
            copied(students[rate], teacher, seed, STEPS[size], rate)
            errors[rate] = unexplained(students[rate], teacher, texts(seed, VALIDATION, TESTED))
        best = min(errors, key=errors.__getitem__)
        found = unexplained(students[best], teacher, texts(seed, TEST, TESTED))
        tried = {at("validation", rate): error for rate, error in errors.items()}
        return {MEASURE: found, "explained variance": 1 - found, "learning rate": best, **tried}

    return arm


def pupil(teacher_heads: int, heads: int) -> str:
    """The name of an arm."""
    return f"{teacher_heads}-head teacher, {heads}-head student"


COPIERS = {pupil(t, s): copier(t, s) for t in TEACHERS for s in STUDENTS}


def worse(teacher_heads: int, heads: int, says: str, margin: float = 0.1) -> ClaimPart:
    """A student with another number of heads than its teacher leaves more unexplained."""
    rule = Direction(pupil(teacher_heads, heads), pupil(teacher_heads, teacher_heads), MEASURE, margin)
    name = f"{heads} heads for {teacher_heads}"
    return ClaimPart(name, says, COPIERS, rule, TAUGHT)


def summary(results: Results) -> str:
    plain, fused = (results.mean(arm, "memory of 16 heads relative to 1") for arm in ARMS)
    missed = {name: results.mean(name, MEASURE) for name in COPIERS}
    return (
        "It depends on what you count. Parameters and FLOPs are exactly equal for 1 to 16 heads. Memory is "
        f"not, if the attention weights are kept: 16 heads keep {plain:.1f} times as much at 128 words "
        f"({fused:.2f} times with a fused kernel). More heads are not always better. For 4 sharp "
        f"heads, a student misses {missed[pupil(4, 1)]:.0%} of the variance with 1 head, "
        f"{missed[pupil(4, 4)]:.0%} with 4 and {missed[pupil(4, 8)]:.0%} with 8. For a wide head, a student "
        f"with 8 heads misses {missed[pupil(1, 8)]:.0%}."
    )


def draw(results: Results) -> Drawing:
    def relative(arm: str, measure: str) -> dict[float, list[float]]:
        one = results.mean(arm, at(measure, 1))
        return {heads: [v / one for v in some] for heads, some in results.series(arm, measure).items()}

    costs = {f"memory, {arm}": relative(arm, "megabytes") for arm in ARMS}
    costs |= {measure: relative("fused kernel", measure) for measure in ("FLOPs", "parameters")}
    missed = {
        f"teacher: {count} head{'s' * (count > 1)}": {
            float(heads): results.values(pupil(count, heads), MEASURE) for heads in STUDENTS
        }
        for count in TEACHERS
    }
    return figure(
        "Attention layers with 1 to 16 heads: what they cost, and what they can copy",
        [
            LinePanel("cost relative to 1 head", "heads", costs),
            LinePanel("variance that a student misses", "heads of the student", missed, (True, False)),
        ],
        [
            f"Costs: width {WIDTH}, {LENGTH} words. A head is as wide as the layer, divided by the heads.",
            f"Students: width {NARROW}, {WORDS} words, equal parameters; 1: all variance. Dots: seeds.",
        ],
    )


CLAIM = Claim(
    says=(
        "Several heads cost no more than one: each works in a narrower space. They give attention more "
        "resolution."
    ),
    lecture="L1 L2 L3 L4 L5",
    predicts=(
        "Parameters and FLOPs are equal for every number of heads. Memory is equal with a fused kernel. "
        "Where attention weights are kept, it grows with the number of heads. A layer with sharp heads is "
        "copied by a layer with as many heads. Fewer cannot look at several words at once, and more are too "
        "narrow."
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
            Near("fused kernel", "memory of 16 heads relative to 1", 1.0, 0.1),
            SEEDS,
        ),
        ClaimPart(
            "memory",
            "With all weights written out, 16 heads keep as much memory as one.",
            ARMS,
            Near("written out", "memory of 16 heads relative to 1", 1.0, 0.1),
            SEEDS,
            expects="contradicted",
        ),
        ClaimPart(
            "copies",
            "A student with as many heads as its teacher learns to give the same outputs.",
            COPIERS,
            Reaches("explained variance", MATCHED, tuple(pupil(heads, heads) for heads in TEACHERS)),
            TAUGHT,
            control=True,
        ),
        worse(4, 1, "One head copies four heads less well than four do."),
        worse(4, 2, "Two heads copy four heads less well than four do."),
        worse(4, 8, "Eight narrow heads copy four heads less well than four do."),
        worse(1, 2, "Two narrow heads copy one wide head less well than one does.", 0.01),
        worse(1, 4, "Four narrow heads copy one wide head less well than one does."),
        worse(1, 8, "Eight narrow heads copy one wide head less well than one does."),
    ),
    summary=summary,
    changes=(
        "Soft heads would change it: any number of heads copies them better. In short texts, the memory for "
        "weights is small."
    ),
    figure=draw,
    question=(
        "A layer has 1 head or 16. Which of parameters, FLOPs and memory change? Can 8 narrow heads do "
        "what 4 wider ones do?"
    ),
    minutes={"quick": 0.7, "standard": 1.7, "full": 10.0},
)
