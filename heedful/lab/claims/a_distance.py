"""Interaction distance: how far apart two words are inside a model, and how much the first still matters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...parts.attention import attend_plain
from ...parts.before.recurrent import GRU, LSTM, Elman, Recurrence
from ..claim import Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Exact, Near
from ..small import fit_line, shortest_chain

WIDTH, LENGTH, PROBES = 32, 64, 8
CHECKED = (2, 5, 9, 17, 33)  # words of a text whose chains are counted
DRAWN = (1, 2, 4, 8, 12, 16, 24, 32, 48, 63)
SEEDS = {"quick": 5, "standard": 10, "full": 20}


def elman() -> Recurrence:
    return Elman(WIDTH, WIDTH)


def gru() -> Recurrence:
    return GRU(WIDTH, WIDTH)


def lstm() -> Recurrence:
    return LSTM(WIDTH, WIDTH)


def remembering() -> Recurrence:
    """Its forget gate starts open, at a bias of 1."""
    made = LSTM(WIDTH, WIDTH)
    nn.init.ones_(made.kernel.bias_ih_l0[WIDTH : 2 * WIDTH])  # type: ignore[index]
    return made


def look(words_ND: list[Tensor]) -> Tensor:
    """One attention layer without weights: what the last word takes from all of them."""
    x_11TD = torch.stack(words_ND)[None, None]
    return attend_plain(x_11TD[:, :, -1:], x_11TD, x_11TD)[0, 0, 0]


# Paths.


def recurrent_path(seed: int, size: str) -> dict[str, float]:
    """Dependent steps from the first word to the last state, counted in the graph of tanh(x W + h U)."""
    off = 0.0
    W, U = torch.randn(2, WIDTH, WIDTH, dtype=torch.float64)
    for length in CHECKED:
        words = [torch.randn(WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(length)]
        h = torch.zeros(WIDTH, dtype=torch.float64)
        for x in words:
            h = torch.tanh(x @ W + h @ U)
        off = max(off, abs(shortest_chain(h, words[0], ["Tanh"]) - length))
    return {"steps beside n": off}


def attention_path(seed: int, size: str) -> dict[str, float]:
    """The same in attention: the operations on the way do not depend on how far the word is."""
    off = 0.0
    for length in CHECKED:
        words = [torch.randn(WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(length)]
        out = look(words)
        steps = [shortest_chain(out, word, ["Stack", "UnsafeView", "Bmm"]) for word in (words[0], words[-2])]
        off = max(off, abs(steps[0] - steps[1]), float(steps[0] < 0))
    return {"steps more than for a neighbor": off}


# Influence.


def influence(out_D: Tensor, x_TD: Tensor) -> Tensor:
    """[T]: the size of d out / d x for each word, by random directions of the output."""
    found_T = torch.zeros(len(x_TD), dtype=x_TD.dtype)
    for _ in range(PROBES):
        direction_D = torch.randn(len(out_D), dtype=x_TD.dtype)
        (grad_TD,) = torch.autograd.grad(out_D @ direction_D, x_TD, retain_graph=True)
        found_T += grad_TD.square().sum(-1) / PROBES
    return found_T.sqrt()


def described(found_T: Tensor) -> dict[str, float]:
    by_distance_T = found_T.flip(0)  # distance 0 is the last word itself
    points = torch.arange(1, 33)
    log = by_distance_T[points].clamp(min=1e-300).log()
    curve = {at("influence", d): float(by_distance_T[d]) for d in DRAWN}
    return {"nats per word": -fit_line(points.double(), log), **curve}


def recurrent_influence(make: object) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        assert callable(make)
        layer = make().double()
        x_TD = torch.randn(LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
        out_1TD = layer(x_TD[None], layer.nothing(x_TD[None]))
        return described(influence(out_1TD[0, -1], x_TD))

    return arm


def attention_influence(seed: int, size: str) -> dict[str, float]:
    x_TD = torch.randn(LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    wq, wk, wv = torch.randn(3, WIDTH, WIDTH, dtype=torch.float64) / WIDTH**0.5
    q, k, v = ((x_TD @ w)[None, None] for w in (wq, wk, wv))
    out_D = attend_plain(q[:, :, -1:], k, v)[0, 0, 0]
    return described(influence(out_D, x_TD))


PATHS = {"recurrent path": recurrent_path, "attention path": attention_path}
LAYERS = {
    "tanh RNN": recurrent_influence(elman),
    "GRU": recurrent_influence(gru),
    "LSTM": recurrent_influence(lstm),
    "LSTM, forget bias 1": recurrent_influence(remembering),
    "attention": attention_influence,
}
FADES = "nats per word"


def summary(results: Results) -> str:
    tanh, lstm_, open_ = (
        results.mean(arm, at("influence", 32)) / results.mean(arm, at("influence", 1))
        for arm in ("tanh RNN", "LSTM", "LSTM, forget bias 1")
    )
    return (
        "Yes. Between two words at distance n lie n dependent steps in a recurrent network, and one in "
        f"attention, whatever n is. At initialization, a word 32 places back has {tanh:.0e} of the influence "
        f"of the last one in a tanh network, {lstm_:.0e} in an LSTM and {open_:.0e} in one with an open "
        "forget gate. In attention it does not fade with distance. So long distances can be expected to be "
        "harder to learn."
    )


def draw(results: Results) -> Drawing:
    curves = {arm: results.series(arm, "influence") for arm in LAYERS}
    rates = {arm: results.values(arm, FADES) for arm in LAYERS}
    return figure(
        "How much a word still matters, by its distance (fresh weights)",
        [
            LinePanel("influence on the last output", "distance in words", curves, (False, True)),
            DotPanel("how fast it fades", "nats per word (1 nat: a factor of 2.7)", rates),
        ],
        [f"Influence: size of the derivative of the last output by the word. Width {WIDTH}. Dots: seeds."],
    )


CLAIM = Claim(
    says=(
        "In a recurrent network distant words need O(n) steps to interact, and gradients fade on the way; in "
        "attention one."
    ),
    lecture="L1 L5",
    predicts=(
        "Paths have n steps and 1 step, counted in the graph. At initialization influence falls "
        "exponentially with distance in a tanh network, more slowly with an open forget gate, and not in "
        "attention."
    ),
    parts=(
        ClaimPart(
            "recurrent path",
            "A word n places back is n dependent steps away in a recurrent network.",
            PATHS,
            Exact(("recurrent path",), {"steps beside n": 0}),
            {"quick": 1, "standard": 1, "full": 1},
        ),
        ClaimPart(
            "attention path",
            "In attention every word is as near as the neighbor.",
            PATHS,
            Exact(("attention path",), {"steps more than for a neighbor": 0}),
            {"quick": 1, "standard": 1, "full": 1},
        ),
        ClaimPart(
            "fading",
            "Influence fades in a tanh network, by more than 0.2 nats a word more than in attention.",
            LAYERS,
            Direction("tanh RNN", "attention", FADES, 0.2),
            SEEDS,
        ),
        ClaimPart(
            "gates",
            "An open forget gate makes it fade more slowly than in a tanh network.",
            LAYERS,
            Direction("tanh RNN", "LSTM, forget bias 1", FADES, 0.05),
            SEEDS,
        ),
        ClaimPart(
            "attention",
            "In attention influence does not fade with distance.",
            LAYERS,
            Near("attention", FADES, 0.0, 0.05),
            SEEDS,
        ),
    ),
    summary=summary,
    changes=(
        "Trained weights change it: gates can learn to keep what matters, so distance makes learning harder, "
        "not impossible. The experiment looks at fresh weights only."
    ),
    figure=draw,
    question=(
        "How much does a word 32 places back change the last state of an RNN, compared with the last word?"
    ),
    minutes={"quick": 0.2, "standard": 0.3, "full": 0.6},
)
