"""Sequential against parallel: recurrent networks wait for each word. Does that make them slow?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...parts.attention import attend_plain
from ...parts.before.recurrent import LSTM, Elman
from ...parts.multihead import MultiHeadAttention
from ..claim import Arm, Claim, ClaimPart
from ..clock import timed
from ..figures import LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Exact, Near
from ..small import attended, longest_chain

WIDTH, ROWS = 64, 4
CHECKED = (2, 5, 9, 17)
LENGTHS = {
    "quick": (16, 64, 256, 512),
    "standard": (16, 64, 256, 1024),
    "full": (16, 32, 64, 128, 256, 512, 1024),
}
SEEDS = {"quick": 6, "standard": 8, "full": 12}
ONCE = {"quick": 1, "standard": 1, "full": 1}


# The critical path.


def recurrent_chain(seed: int, size: str) -> dict[str, float]:
    """Steps of which each waits for the one before, in h = tanh(x W + h U)."""
    W, U = torch.randn(2, WIDTH, WIDTH, requires_grad=True)
    off = 0
    for length in CHECKED:
        h = torch.zeros(WIDTH)
        for x in torch.randn(length, WIDTH):
            h = torch.tanh(x @ W + h @ U)
        off = max(off, abs(longest_chain(h, ["Tanh"]) - length))
    return {"difference from n steps": off}


def attention_chain(seed: int, size: str) -> dict[str, float]:
    """The same in attention: one softmax, whatever the length."""
    off = 0
    for length in CHECKED:
        x = torch.randn(1, 1, length, WIDTH, requires_grad=True)
        off = max(off, abs(longest_chain(attend_plain(x, x, x), ["Softmax"]) - 1))
    return {"difference from 1 step": off}


# Time.


def loop(layer: Elman, x_BTD: Tensor) -> Tensor:
    """Word by word, as the formula reads."""
    state, states = layer.nothing(x_BTD), []
    for x_BD in x_BTD.unbind(1):
        state = layer.step(x_BD, state)
        states.append(state)
    return torch.stack(states, 1)


def kernel(layer: LSTM, x_BTD: Tensor) -> Tensor:
    """All words in one call of torch's kernel."""
    return layer(x_BTD, layer.nothing(x_BTD))


def pairs(layer: MultiHeadAttention, x_BTD: Tensor) -> Tensor:
    """All pairs at once, by the formula."""
    return attended(layer, x_BTD, attend_plain)


def seconds(read: Callable[..., Tensor], layer: nn.Module, x_BTD: Tensor) -> float:
    """CPU seconds of a forward and a backward pass, the fastest of five."""
    return timed(lambda: read(layer, x_BTD).sum().backward(), 5, 0.0).cpu


def clocked(make: Callable[[], nn.Module], read: Callable[..., Tensor]) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        layer, found = make(), {}
        for length in LENGTHS[size]:
            x_BTD = torch.randn(ROWS, length, WIDTH)
            found[at("milliseconds", length)] = 1e3 * seconds(read, layer, x_BTD)
        short, long = min(LENGTHS[size]), max(LENGTHS[size])
        shortest, longest = (math.log2(found[at("milliseconds", n)]) for n in (short, long))
        return {**found, "shortest text": shortest, "longest text": longest}

    return arm


def crossing(seed: int, size: str) -> dict[str, float]:
    """Where attention becomes slower than an LSTM, in doublings from n = 2 d on: a line through log times."""
    layers: dict[Callable[..., Tensor], nn.Module] = {
        kernel: LSTM(WIDTH, WIDTH),
        pairs: MultiHeadAttention(WIDTH, 4),
    }
    points = []
    for length in (64, 128, 256, 512):
        x_BTD = torch.randn(ROWS, length, WIDTH)
        lstm, attention = (seconds(read, layer, x_BTD) for read, layer in layers.items())
        points.append((math.log2(length / (2 * WIDTH)), math.log2(attention / lstm)))
    slope, start = statistics.linear_regression([x for x, _ in points], [y for _, y in points])
    return {"doublings from 2 d": -start / slope}


CROSSING = {"crossing": crossing}
CHAINS = {"recurrent chain": recurrent_chain, "attention chain": attention_chain}
CLOCKS = {
    "tanh RNN, word by word": clocked(lambda: Elman(WIDTH, WIDTH), loop),
    "LSTM, one kernel": clocked(lambda: LSTM(WIDTH, WIDTH), kernel),
    "attention": clocked(lambda: MultiHeadAttention(WIDTH, 4), pairs),
}
LOOP, FUSED, ATTENTION = CLOCKS


def summary(results: Results) -> str:
    series = {arm: results.series(arm, "milliseconds") for arm in CLOCKS}
    last = max(series[ATTENTION])
    crossing = 2 * WIDTH * 2 ** results.mean("crossing", "doublings from 2 d")
    lstm, attention = (sum(series[arm][last]) / len(series[arm][last]) for arm in (FUSED, ATTENTION))
    return (
        "It depends on the machine and the length. A recurrent network always has n steps that wait for each "
        "other, and attention has one: that is exact, and many processors can share the work of attention "
        f"only. On one core nothing runs in parallel, and attention does more work: at {last:,.0f} words an "
        f"LSTM takes {lstm:.0f} ms and attention {attention:.0f} ms. An LSTM is faster from about "
        f"{crossing:.0f} words on."
    )


def draw(results: Results) -> Drawing:
    times = {arm: results.series(arm, "milliseconds") for arm in CLOCKS}
    chains = {
        "recurrent": {float(n): [float(n)] for n in (16, 64, 256, 1024)},
        "attention": {float(n): [1.0] for n in (16, 64, 256, 1024)},
    }
    return figure(
        "Steps that must wait, and time on one core",
        [
            LinePanel("steps that wait for each other", "words", chains, size=(200, 190)),
            LinePanel("CPU milliseconds, forward and backward", "words", times, marks={"n = 2 d": 2 * WIDTH}),
        ],
        [
            "Width 64, 4 texts. Time: the fastest of five, one core. Dots: seeds.",
            "At n = 2 d, attention and an LSTM need as many multiplications.",
        ],
    )


CLAIM = Claim(
    says="A recurrent network cannot be computed in parallel over time, which makes it slow.",
    lecture="L1 L5",
    predicts=(
        "Dependent steps: n against 1, exactly. On one core, a network that reads word by word is slower "
        "than attention for short texts. An LSTM in one kernel is faster for long ones, from about n = 2 d "
        "on."
    ),
    parts=(
        ClaimPart(
            "chain",
            "A recurrent network of n words has n steps that wait for each other.",
            CHAINS,
            Exact(("recurrent chain",), {"difference from n steps": 0}),
            ONCE,
        ),
        ClaimPart(
            "no chain",
            "Attention has one such step, whatever the length.",
            CHAINS,
            Exact(("attention chain",), {"difference from 1 step": 0}),
            ONCE,
        ),
        ClaimPart(
            "word by word",
            "For short texts, a network that reads word by word takes longer than attention.",
            CLOCKS,
            Direction(LOOP, ATTENTION, "shortest text"),
            SEEDS,
            clocked=True,
        ),
        ClaimPart(
            "long texts",
            "For the longest texts, an LSTM takes longer than attention.",
            CLOCKS,
            Direction(FUSED, ATTENTION, "longest text"),
            SEEDS,
            expects="contradicted",
            clocked=True,
        ),
        ClaimPart(
            "crossing",
            "An LSTM becomes faster near n = 2 d, where attention needs as many multiplications.",
            CROSSING,
            Near("crossing", "doublings from 2 d", 0.0, 1.0),
            SEEDS,
            clocked=True,
        ),
    ),
    summary=summary,
    changes=(
        "A GPU would change it, as a recurrent network leaves most of its processors idle; "
        "this experiment has measured one core only."
    ),
    figure=draw,
    question="On one core, which is faster for a text of 512 words: an LSTM or self-attention?",
    minutes={"quick": 0.3, "standard": 1.0, "full": 3.0},
)
