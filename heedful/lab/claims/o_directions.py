"""Directions: what words on both sides of a blank tell, and words on one side do not."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...parts.masks import Mask, causal, full
from ...parts.positions.rotary import Rotary
from ..claim import Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Equal, Exact, Near, VerdictRule
from ..small import small_encoder
from ..toys import ToyBatch, drawn
from ..training import RATES, TEST, fitted, likelihood

SYMBOLS, SURE = 24, 0.6  # each symbol is followed by the next one of the alphabet with this probability
LENGTH, EVERY = 13, 3  # every third word is a blank, so that no two blanks are neighbors
WIDTH, HEADS, LAYERS = 48, 4, 2
BATCH, TESTED = 32, 1500
STEPS = {"quick": 700, "standard": 1000, "full": 2000}
SEEDS = {"quick": 4, "standard": 6, "full": 10}
CHECKED = ((3, 0.5, 5), (5, 0.3, 5), (5, 0.9, 4), (SYMBOLS, SURE, 3), (SYMBOLS, SURE, 4))  # with words


# The chain: its entropies in closed form, and by adding up all texts.


def entropy(sure: float, symbols: int, other: float) -> float:
    """Bits of one outcome that has the probability `sure`, and symbols - 1 that have `other` each."""
    return -sure * math.log2(sure) - (symbols - 1) * other * math.log2(other)


def bits_of_one_side(symbols: int = SYMBOLS, sure: float = SURE) -> float:
    """H(left): what is unknown of a word when the word before it is known. From the right it is the same."""
    return entropy(sure, symbols, (1 - sure) / (symbols - 1))


def bits_of_both_sides(symbols: int = SYMBOLS, sure: float = SURE) -> float:
    """H(both) = 2 H(left) - H(two steps), because H(x, y, z) - H(x, z) is what is unknown of y."""
    other = (1 - sure) / (symbols - 1)
    twice, else_ = sure**2 + (symbols - 1) * other**2, 2 * sure * other + (symbols - 2) * other**2
    return 2 * bits_of_one_side(symbols, sure) - entropy(twice, symbols, else_)


def transitions(symbols: int = SYMBOLS, sure: float = SURE) -> Tensor:
    """[symbol, next symbol]: probabilities."""
    table_SS = torch.full((symbols, symbols), (1 - sure) / (symbols - 1), dtype=torch.float64)
    table_SS[torch.arange(symbols), (torch.arange(symbols) + 1) % symbols] = sure
    return table_SS


def all_texts(symbols: int, sure: float, words: int) -> Tensor:
    """The probability of every text of so many words, as a table with one axis a word."""
    table = torch.full((symbols,), 1 / symbols, dtype=torch.float64)
    for _ in range(words - 1):
        table = table[..., None] * transitions(symbols, sure)
    return table


def unknown(table: Tensor, axis: int) -> tuple[float, float]:
    """(bits of one word, share of right guesses by the best rule) when all other words are known."""
    known = table.sum(axis, keepdim=True)
    bits = -(table * (table / known).log2()).sum()
    return float(bits), float(table.amax(axis).sum())


def enumerated(seed: int, size: str) -> dict[str, float]:
    """The formulas against sums over all texts of three to five words."""
    bits, right = 0.0, 0.0
    for symbols, sure, words in CHECKED:
        table = all_texts(symbols, sure, words)
        for axis in range(words):
            formula = bits_of_both_sides if 0 < axis < words - 1 else bits_of_one_side
            found, guessed = unknown(table, axis)
            bits = max(bits, abs(found - formula(symbols, sure)))
            right = max(right, abs(guessed - sure))
    return {"difference in bits": bits, "difference in accuracy": right}


# Learning to fill in blanks.


def blanks(seed: int, step: int, rows: int) -> ToyBatch:
    """Texts of the chain in which every third word is a blank; the first blank is at one of three places."""
    rng = drawn(seed, step)
    first_B1 = torch.randint(SYMBOLS, (rows, 1), generator=rng)
    wild_BT = torch.rand(rows, LENGTH - 1, generator=rng) >= SURE
    jumps_BT = 1 + wild_BT * torch.randint(1, SYMBOLS, (rows, LENGTH - 1), generator=rng)
    words_BT = torch.cat([first_B1, first_B1 + jumps_BT.cumsum(1)], 1) % SYMBOLS
    start_B1 = torch.randint(EVERY, (rows, 1), generator=rng)
    blank_BT = (torch.arange(LENGTH) - start_B1) % EVERY == 0
    return ToyBatch(words_BT.masked_fill(blank_BT, SYMBOLS), words_BT.masked_fill(~blank_BT, -1))


def posterior(tokens_BT: Tensor) -> Tensor:
    """[B, T, V]: the probability of each symbol at each place, given the words beside it."""
    table_SS, flat_1S = transitions(), torch.ones(1, SYMBOLS, dtype=torch.float64)  # a blank tells nothing
    after_BTV = torch.cat([table_SS, flat_1S])[tokens_BT]  # of the word after one
    before_BTV = torch.cat([table_SS.T, flat_1S])[tokens_BT]  # of the word before one
    found_BTV = torch.ones_like(after_BTV)
    found_BTV[:, 1:] *= after_BTV[:, :-1]
    found_BTV[:, :-1] *= before_BTV[:, 1:]
    return found_BTV / found_BTV.sum(-1, keepdim=True)


@torch.no_grad()
def by_place(model: nn.Module, batch: ToyBatch) -> dict[str, float]:
    """Bits at each place, and bits and accuracy where a blank has words on both sides.

    Both are means over all words that may stand there, by the chain, and not of the one that was drawn.
    """
    model.eval()
    scores_BTV, truth_BTV = model(batch.tokens_BT).double(), posterior(batch.tokens_BT)
    bits_BT = -(truth_BTV * scores_BTV.log_softmax(-1)).sum(-1) / math.log(2)
    right_BT = truth_BTV.gather(-1, scores_BTV.argmax(-1, keepdim=True))[..., 0]
    asked_BT = batch.targets >= 0
    inner_BT = asked_BT[:, 1:-1]
    places = {place + 1: bits_BT[asked_BT[:, place], place] for place in range(LENGTH)}
    return {
        "bits in the middle": float(bits_BT[:, 1:-1][inner_BT].mean()),
        "bits of the last place": float(places[LENGTH].mean()),
        "accuracy in the middle": float(right_BT[:, 1:-1][inner_BT].mean()),
        **{at("bits", place): float(bits_N.mean()) for place, bits_N in places.items()},
    }


def taught(mask: Mask) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        def make() -> nn.Module:
            rotary = Rotary(WIDTH // HEADS)
            encoder = small_encoder(SYMBOLS + 1, WIDTH, HEADS, LAYERS, None, rotary, mask)
            return nn.Sequential(encoder, nn.Linear(WIDTH, SYMBOLS))

        def batches(step: int) -> ToyBatch:
            return blanks(seed, step, BATCH if step >= 0 else TESTED)

        fit = fitted(make, batches, STEPS[size], RATES[size], likelihood)
        return {**by_place(fit.model, batches(TEST)), **fit.numbers}

    return arm


TAUGHT = {"both directions": taught(full()), "left to right": taught(causal())}


def summary(results: Results) -> str:
    both, left = (results.mean(arm, "bits in the middle") for arm in TAUGHT)
    last_both, last_left = (results.mean(arm, "bits of the last place") for arm in TAUGHT)
    right_both, right_left = (results.mean(arm, "accuracy in the middle") for arm in TAUGHT)
    return (
        f"Yes, in bits: a blank costs {both:.2f} bits with words on both sides and {left:.2f} with words on "
        f"the left. The chain's entropies are {bits_of_both_sides():.2f} and {bits_of_one_side():.2f}. At "
        f"the last place there is no right side, and the models are alike ({last_both:.2f} and "
        f"{last_left:.2f}). Accuracy shows nothing ({right_both:.0%} and {right_left:.0%}): the right side "
        "tells how sure a guess is, but gives no better one."
    )


def draw(results: Results) -> Drawing:
    inner = range(2, LENGTH)
    one, two = bits_of_one_side(), bits_of_both_sides()
    lines = {arm: results.series(arm, "bits") for arm in TAUGHT}
    floors: dict[str, dict[float, list[float]]] = {
        "H(left)": {place: [one] for place in (*inner, LENGTH)},
        "H(both)": {place: [two] for place in inner},
    }
    bits, right = (
        {arm: results.values(arm, f"{measure} in the middle") for arm in TAUGHT}
        for measure in ("bits", "accuracy")
    )
    return figure(
        "Filling in a blank with words on both sides, or on its left only",
        [
            LinePanel("bits by place", "place of the blank", {**lines, **floors}, (False, False)),
            DotPanel("in the middle", "bits", bits, marks={"H(both)": two, "H(left)": one}, wide=200),
            DotPanel(
                "accuracy in the middle",
                "share that is right",
                right,
                marks={"best": SURE, "chance": 1 / SYMBOLS},
                wide=200,
            ),
        ],
        [
            f"{SYMBOLS} symbols; each is followed by the next with probability {SURE}, else by any other.",
            "Dots: seeds. H: entropy of the chain, which no model can beat. 2 layers, rotary positions.",
        ],
    )


def part(name: str, says: str, rule: VerdictRule, control: bool = False) -> ClaimPart:
    return ClaimPart(name, says, TAUGHT, rule, SEEDS, control=control)


CLAIM = Claim(
    says="To fill in a blank, words on both sides help more than words on the left alone.",
    lecture="L1 L3 L5",
    predicts=(
        "In the middle, bits fall from H(left) to H(both), which follow from the chain. At the last place "
        "both models are alike. Accuracy cannot differ: the best guess from the left is also a best guess "
        "from both sides."
    ),
    parts=(
        ClaimPart(
            "entropies",
            "H(both) = 2 H(left) - H(two steps). The best guess is right as often with one side as both.",
            {"all texts": enumerated},
            Exact(("all texts",), {"difference in bits": 1e-12, "difference in accuracy": 1e-12}),
        ),
        part(
            "middle",
            "In the middle, a model that reads left to right needs over 0.3 bits more.",
            Direction("left to right", "both directions", "bits in the middle", 0.3),
        ),
        part(
            "last place",
            "At the last place, both models need the same number of bits.",
            Equal("both directions", "left to right", "bits of the last place", 0.1),
        ),
        part(
            "accuracy",
            "In the middle, both models are right equally often.",
            Equal("both directions", "left to right", "accuracy in the middle", 0.02),
        ),
        part(
            "trained, left to right",
            "The model that reads left to right comes near H(left).",
            Near("left to right", "bits in the middle", bits_of_one_side(), 0.1),
            control=True,
        ),
        part(
            "trained, both directions",
            "The model that reads both directions comes near H(both).",
            Near("both directions", "bits in the middle", bits_of_both_sides(), 0.1),
            control=True,
        ),
    ),
    summary=summary,
    changes=(
        "Uneven probabilities would change accuracy: here, guesses from both sides tie. "
        "A model that writes has no right side."
    ),
    figure=draw,
    question=(
        "In 'The cat sat on the ___ and purred', which words help? How would you measure their help if the "
        "best guess stays the same?"
    ),
    minutes={"quick": 0.7, "standard": 2.5, "full": 8.0},
)
