"""Interaction distance: how far apart two words are in a model, and whether the first still matters."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...parts.attention import attend_plain
from ...parts.before.recurrent import GRU, LSTM, Elman, Recurrence
from ...parts.embeddings import TokenEmbedding
from ...parts.multihead import MultiHeadAttention
from ...parts.positions.absolute import Learned
from ..claim import LEARNING, Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Exact, Near, Reaches
from ..small import shortest_chain
from ..toys import ToyBatch, drawn
from ..training import TEST, Fit, accuracy, fitted

WIDTH, LENGTH, PROBES = 32, 64, 8
CHECKED = (2, 5, 9, 17, 33)  # words of a text whose chains are counted
DRAWN = (1, 2, 4, 8, 12, 16, 24, 32, 48, 63)
SEEDS = {"quick": 5, "standard": 10, "full": 20}
ONCE = {"quick": 1, "standard": 1, "full": 1}
SYMBOLS, LENGTHS = 8, (8, 16, 32)  # of the texts whose first or last word is recalled
STEPS = {"quick": 120, "standard": 120, "full": 120}
RATES = {"quick": (1e-2,), "standard": (3e-3, 1e-2), "full": (1e-3, 3e-3, 1e-2)}
BATCH, TESTED, LEARNED, ENOUGH = 32, 500, 0.95, 0.05  # ENOUGH: the loss, in nats, at which training stops


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
    return {"difference from n steps": off}


def attention_path(seed: int, size: str) -> dict[str, float]:
    """The same in attention: the operations on the way do not depend on how far the word is."""
    off = 0.0
    for length in CHECKED:
        words = [torch.randn(WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(length)]
        out = look(words)
        steps = [shortest_chain(out, word, ["Stack", "UnsafeView", "Bmm"]) for word in (words[0], words[-2])]
        off = max(off, abs(steps[0] - steps[1]), float(steps[0] < 0))
    return {"difference from a neighbor's steps": off}


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
    return {"nats per word": -statistics.linear_regression(points.tolist(), log.tolist()).slope, **curve}


def recurrent_influence(make: Callable[[], Recurrence]) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
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


# Learning.


class LastState(nn.Module):
    """What a recurrent layer says after the last word."""

    def __init__(self, layer: Recurrence) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.layer(x_BTD, self.layer.nothing(x_BTD))[:, -1]


class LastLook(nn.Module):
    """The last word, and what it takes from all words: one attention layer with a residual and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.position, self.layer = Learned(max(LENGTHS), WIDTH), MultiHeadAttention(WIDTH, 1)
        nn.init.normal_(self.position.table, std=WIDTH**-0.5)  # as large as the embeddings

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = self.position.embed(x_BTD, torch.arange(x_BTD.shape[1]))
        return (x_BTD + self.layer(x_BTD))[:, -1]


def recall(seed: int, step: int, rows: int, length: int, place: int) -> ToyBatch:
    """Random symbols, one of which is to be recalled after the last."""
    tokens_BT = torch.randint(SYMBOLS, (rows, length), generator=drawn(seed, step))
    return ToyBatch(tokens_BT, tokens_BT[:, place])


def recalls(layer: Callable[[], nn.Module], place: int, lengths: tuple[int, ...], times: int = 1) -> Arm:
    """times: with so many times the steps."""

    def arm(seed: int, size: str) -> dict[str, float]:
        found, fits = dict[str, float](), list[Fit]()
        for length in lengths:

            def make() -> nn.Module:
                return nn.Sequential(TokenEmbedding(SYMBOLS, WIDTH), layer(), nn.Linear(WIDTH, SYMBOLS))

            def batches(step: int, length: int = length) -> ToyBatch:
                return recall(seed, step, BATCH if step >= 0 else TESTED, length, place)

            fits.append(fitted(make, batches, times * STEPS[size], RATES[size], until=ENOUGH))
            found[at("accuracy", length)] = accuracy(fits[-1].model, batches(TEST))
            found[at("steps", length)] = len(fits[-1].losses)
        for rate in RATES[size]:
            found[at("validation", rate)] = statistics.fmean(fit.tried[rate] for fit in fits)
        return {**found, "learning rate": statistics.mode(fit.rate for fit in fits)}

    return arm


PATHS = {"recurrent path": recurrent_path, "attention path": attention_path}
CELLS: dict[str, Callable[[], Recurrence]] = {
    "tanh RNN": partial(Elman, WIDTH, WIDTH),
    "GRU": partial(GRU, WIDTH, WIDTH),
    "LSTM": partial(LSTM, WIDTH, WIDTH),
    "LSTM, forget bias 1": remembering,
}
LAYERS = {
    **{name: recurrent_influence(cell) for name, cell in CELLS.items()},
    "attention": attention_influence,
}
FADES = "nats per word"
READERS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda cell=cell: LastState(cell()) for name, cell in CELLS.items()},  # type: ignore[misc]
    "attention": LastLook,
}
LONGER = "first word: GRU, 3 x the steps"
FIRST = {f"first word: {name}": recalls(reader, 0, LENGTHS) for name, reader in READERS.items()}
FIRST[LONGER] = recalls(READERS["GRU"], 0, LENGTHS, times=3)
LAST = {f"last word: {name}": recalls(reader, -1, LENGTHS[-1:]) for name, reader in READERS.items()}
RECURRENT = tuple(f"first word: {name}" for name in CELLS)


def summary(results: Results) -> str:
    tanh, lstm_ = (
        results.mean(arm, at("influence", 32)) / results.mean(arm, at("influence", 1))
        for arm in ("tanh RNN", "LSTM")
    )
    far = at("accuracy", 32)
    seen, most = results.mean("first word: attention", far), max(results.mean(arm, far) for arm in RECURRENT)
    before, after = (results.mean(arm, at("accuracy", 8)) for arm in ("first word: GRU", LONGER))
    return (
        "Yes. A word n places back is n dependent steps away in a recurrent network, and one in attention. "
        f"With fresh weights, a word 32 places back has {tanh:.0e} of the last one's influence in a tanh "
        f"network and {lstm_:.0e} in an LSTM; in attention, influence does not fade. Trained equally long, "
        f"attention recalls the first of 32 words ({seen:.0%}), and recurrent networks do not (at most "
        f"{most:.0%}). That is harder, not impossible: for the first of 8 words, three times the steps take "
        f"a GRU from {before:.0%} to {after:.0%}."
    )


def draw(results: Results) -> Drawing:
    curves = {
        arm: {
            d: [math.log10(max(value, 1e-30)) for value in some]
            for d, some in results.series(arm, "influence").items()
        }
        for arm in LAYERS
    }
    rates = {arm: results.values(arm, FADES) for arm in LAYERS}
    right = {arm.partition(": ")[2]: results.series(arm, "accuracy") for arm in FIRST}
    return figure(
        "How much a word still matters, by its distance, and who learns to recall it",
        [
            LinePanel("log10 of influence, fresh weights", "distance in words", curves, (False, False)),
            DotPanel("how fast it fades", "nats per word (1 nat: a factor of 2.7)", rates, wide=180),
            LinePanel("first word recalled, trained", "words in a text", right, (True, False)),
        ],
        [
            f"Influence: size of the derivative of the last output by the word. Width {WIDTH}. Dots: seeds.",
            f"Recalled: share of {TESTED} texts. Guessing gives {1 / SYMBOLS:.3g}.",
        ],
    )


CLAIM = Claim(
    says=(
        "In a recurrent network, distant words need O(n) steps to interact, and gradients fade on the way. "
        "In attention they need one step."
    ),
    lecture="L1 L5",
    predicts=(
        "Paths have n steps and 1 step, counted in the graph. At initialization influence falls "
        "exponentially with distance in a tanh network, more slowly with an open forget gate, and not in "
        "attention. After equal steps, attention recalls the first of 32 words, and no recurrent network "
        "does. Three times the steps let a GRU recall the first of 8."
    ),
    parts=(
        ClaimPart(
            "recurrent path",
            "A word n places back is n dependent steps away in a recurrent network.",
            PATHS,
            Exact(("recurrent path",), {"difference from n steps": 0}),
            ONCE,
        ),
        ClaimPart(
            "attention path",
            "In attention, every word is as near as a neighbor.",
            PATHS,
            Exact(("attention path",), {"difference from a neighbor's steps": 0}),
            ONCE,
        ),
        ClaimPart(
            "fading",
            "In a tanh network, influence fades by 0.2 nats per word more than in attention, or faster.",
            LAYERS,
            Direction("tanh RNN", "attention", FADES, 0.2),
            SEEDS,
        ),
        ClaimPart(
            "gates",
            "An open forget gate makes influence fade more slowly than in a tanh network.",
            LAYERS,
            Direction("tanh RNN", "LSTM, forget bias 1", FADES, 0.05),
            SEEDS,
        ),
        ClaimPart(
            "attention",
            "In attention, influence does not fade with distance.",
            LAYERS,
            Near("attention", FADES, 0.0, 0.05),
            SEEDS,
        ),
        ClaimPart(
            "recall",
            "After equal steps, attention recalls the first of 32 words, and recurrent networks do not.",
            FIRST,
            Reaches(at("accuracy", 32), LEARNED, ("first word: attention",), RECURRENT),
            LEARNING,
        ),
        ClaimPart(
            "more steps",
            "Harder, not impossible: a GRU recalls the first of 8 words with three times the steps only.",
            FIRST,
            Reaches(at("accuracy", 8), LEARNED, (LONGER,), ("first word: GRU",)),
            LEARNING,
        ),
        ClaimPart(
            "last word",
            "All of them recall the last of 32 words.",
            LAST,
            Reaches(at("accuracy", 32), LEARNED, tuple(LAST)),
            LEARNING,
            control=True,
        ),
    ),
    summary=summary,
    changes="More steps, or recurrent weights that start near the identity, may change it.",
    figure=draw,
    question=(
        "How much does a word 32 places back change the last state of an RNN, compared with the last word? "
        "Can training mend that?"
    ),
    minutes={"quick": 0.7, "standard": 2.0, "full": 4.5},
)
