"""Extrapolation: which positions still work in texts that are longer than all texts in training?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...models.base.shells import Decoder
from ...parts.embeddings import Inputs, TokenEmbedding, Untied
from ...parts.places import At
from ...parts.positions.absolute import Learned, Sinusoidal
from ...parts.positions.base import Position
from ...parts.positions.relative import ALiBi, T5Buckets
from ...parts.positions.rotary import Rotary
from ..claim import LEARNING, Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Reaches
from ..small import small_stack
from ..toys import ToyBatch, delayed
from ..training import RATE, RATES, TEST, accuracy, fitted, likelihood

WIDTH, HEADS, LAYERS, SYMBOLS, ROWS = 64, 4, 2, 16, 16
SHORTEST, LONGEST = 8, 32  # texts in training
LENGTHS = (16, 32, 48, 64, 128, 256)  # texts in the test
DELAY, LAST = 3, 16  # words back, and words at the end of a text that count
EMBEDDING, TABLE = 4.0, 0.5  # scale: words and positions are then about as large as each other
STEPS = {"quick": 300, "standard": 500, "full": 1500}
LEARNED, SOLVED = 0.85, 0.95


# Models.


def decoder(at_input: Position | None = None, in_scores: Position | None = None) -> Decoder:
    inputs = Inputs(TokenEmbedding(SYMBOLS, WIDTH, EMBEDDING), at_input)
    return Decoder(inputs, small_stack(LAYERS, WIDTH, HEADS, in_scores), Untied(WIDTH, SYMBOLS))


class RandomStart(nn.Module):
    """Texts of the training begin anywhere, so that all positions of the test occur; in the test at 0."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens_BT: Tensor) -> Tensor:
        if not self.training:
            return self.decoder(tokens_BT)
        B, T = tokens_BT.shape
        starts_B1 = torch.randint(LENGTHS[-1] - T + 1, (B, 1))
        return self.decoder(tokens_BT, At(starts_B1 + torch.arange(T)))


def long_table() -> Position:
    """As many rows as the longest test needs; only the first 32 are ever trained."""
    position = Learned(LENGTHS[-1], WIDTH)
    nn.init.normal_(position.table, std=TABLE)
    return position


SCHEMES: dict[str, Callable[[], nn.Module]] = {
    "no positions": decoder,
    "sinusoidal": lambda: decoder(Sinusoidal(WIDTH)),
    "sinusoidal, random start": lambda: RandomStart(decoder(Sinusoidal(WIDTH))),
    "learned": lambda: decoder(long_table()),
    "T5 buckets": lambda: decoder(in_scores=T5Buckets(HEADS, both_ways=False)),
    "ALiBi": lambda: decoder(in_scores=ALiBi(HEADS)),
    "rotary": lambda: decoder(in_scores=Rotary(WIDTH // HEADS)),
}


# Training on short texts, and testing on long ones.


def short_text(seed: int, step: int, delay: int) -> ToyBatch:
    """Lengths take turns in training; validation has the longest."""
    length = LONGEST if step < 0 else SHORTEST + 7 * step % (LONGEST - SHORTEST + 1)
    return delayed(seed, step, ROWS, length, delay, SYMBOLS)


def end_of_text(seed: int, length: int, delay: int) -> ToyBatch:
    """A test text whose last words alone count."""
    batch = delayed(seed, TEST, ROWS, length, delay, SYMBOLS)
    batch.targets[:, :-LAST] = -1
    return batch


def taught(make: Callable[[], nn.Module], delay: int) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        def batches(step: int) -> ToyBatch:
            return short_text(seed, step, delay)

        steps, rates = (STEPS[size], RATES[size]) if delay else (STEPS[size] // 4, (RATE,))
        fit = fitted(make, batches, steps, rates, likelihood)
        found = {at("accuracy", n): accuracy(fit.model, end_of_text(seed, n, delay)) for n in LENGTHS}
        return {**found, **fit.numbers}

    return arm


ARMS = {name: taught(make, DELAY) for name, make in SCHEMES.items()}
NEXT = "ALiBi, one word back"
ONE_BACK = {NEXT: taught(SCHEMES["ALiBi"], 1)}
COPIES = {
    f"same word: {name}": taught(SCHEMES[name], 0)
    for name in ("sinusoidal", "learned", "T5 buckets", "rotary")
}


def summary(results: Results) -> str:
    def means(arm: str, *lengths: int) -> str:
        return ", ".join(f"{results.mean(arm, at('accuracy', length)):.0%}" for length in lengths)

    far = (64, 128, 256)
    return (
        "It depends on the scheme. All models were trained on texts of up to 32 words. At 48 words, "
        f"sinusoids are right in {means('sinusoidal', 48)} of cases and a learned table in "
        f"{means('learned', 48)}. Relative schemes go further, but not without limit: at 64, 128 and 256 "
        f"words, rotary has {means('rotary', *far)} and T5 buckets have {means('T5 buckets', *far)}. ALiBi "
        f"learns only an easier task, one word back; there it has {means(NEXT, 256)} at 256."
    )


def draw(results: Results) -> Drawing:
    every = (*ARMS, *ONE_BACK)
    lines = {arm: results.series(arm, "accuracy") for arm in every}
    twice = {arm: results.values(arm, at("accuracy", 64)) for arm in every}
    return figure(
        "Repeating the word three words back, in texts longer than those of the training",
        [
            LinePanel(
                "accuracy at the end of a text",
                "words in the text",
                lines,
                (True, False),
                {"training ends": LONGEST},
                (340, 230),
            ),
            DotPanel(
                "at 64 words", "share of 256 answers that are right", twice, marks={"chance": 1 / SYMBOLS}
            ),
        ],
        ["Trained on 8 to 32 words of 16 symbols; 2 layers. The last 16 words of a text count. Dots: seeds."],
    )


CLAIM = Claim(
    says=(
        "Sinusoids were hoped to extrapolate to longer texts and do not; a learned table ends where it ends; "
        "relative positions are more flexible."
    ),
    lecture="L1 L5",
    predicts=(
        "Sinusoidal and learned positions fail at 1.5 times the length of the training. T5 buckets and "
        "rotary do better at 2 times, and rotary holds to 4 times. Neither holds at 8 times. ALiBi does, "
        "where it learns the task. Sinusoids that begin anywhere in training carry on too."
    ),
    parts=(
        ClaimPart(
            "absolute",
            "At 48 words, sinusoidal and learned positions are wrong more often than right.",
            ARMS,
            Reaches(at("accuracy", 48), 0.5, miss=("sinusoidal", "learned")),
            LEARNING,
        ),
        ClaimPart(
            "T5 and sinusoids",
            "At 64 words, T5 buckets are right more often than sinusoids.",
            ARMS,
            Direction("T5 buckets", "sinusoidal", at("accuracy", 64), 0.2),
            LEARNING,
        ),
        ClaimPart(
            "T5 and a table",
            "At 64 words, T5 buckets are right more often than a learned table.",
            ARMS,
            Direction("T5 buckets", "learned", at("accuracy", 64), 0.2),
            LEARNING,
        ),
        ClaimPart(
            "rotary",
            "With rotary positions, most answers are right at 128 words.",
            ARMS,
            Reaches(at("accuracy", 128), LEARNED, ("rotary",)),
            LEARNING,
        ),
        ClaimPart(
            "without limit",
            "T5 buckets and rotary positions extrapolate without limit: they solve the task at 256 words.",
            ARMS,
            Reaches(at("accuracy", 256), SOLVED, ("T5 buckets", "rotary")),
            LEARNING,
            expects="contradicted",
        ),
        ClaimPart(
            "ALiBi",
            "With ALiBi, repeating the word one word back is learned, and still right at 256 words.",
            ONE_BACK,
            Reaches(at("accuracy", 256), SOLVED, (NEXT,)),
            LEARNING,
        ),
        ClaimPart(
            "price of ALiBi",
            "After as many steps, ALiBi is worse than rotary at 32 words.",
            ARMS,
            Direction("rotary", "ALiBi", at("accuracy", 32), 0.2),
            LEARNING,
        ),
        ClaimPart(
            "random start",
            "Sinusoids do better at 64 words if the texts of the training begin at random positions.",
            ARMS,
            Direction("sinusoidal, random start", "sinusoidal", at("accuracy", 64), 0.2),
            LEARNING,
        ),
        ClaimPart(
            "learned",
            "At 32 words, the task is learned.",
            ARMS,
            Reaches(
                at("accuracy", 32),
                LEARNED,
                ("sinusoidal", "sinusoidal, random start", "learned", "T5 buckets", "rotary"),
            ),
            LEARNING,
            control=True,
        ),
        ClaimPart(
            "same word",
            "Repeating the word itself, which needs no positions, still works at 256 words.",
            COPIES,
            Reaches(at("accuracy", 256), SOLVED, tuple(COPIES)),
            LEARNING,
            control=True,
        ),
    ),
    summary=summary,
    changes=(
        "If texts in training begin at random positions, sinusoids carry on too. Longer texts in training "
        "help all schemes."
    ),
    figure=draw,
    question=(
        "A model was trained on texts of up to 32 words. Which positions still work at 48, 64 and 256 words?"
    ),
    minutes={"quick": 0.9, "standard": 4.0, "full": 20.0},
)
