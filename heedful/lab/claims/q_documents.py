"""Documents: a Transformer beside a recurrent network with attention, on questions of several kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ...inside.look.drawing import Drawing
from ...models.base.shells import Encoder
from ...parts.attention import Additive
from ...parts.before.recurrent import GRU, BidirectionalStack, BothWays
from ...parts.embeddings import Inputs, TokenEmbedding
from ...parts.positions.absolute import Sinusoidal
from ..claim import LEARNING, Arm, Claim, ClaimPart
from ..figures import LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Equal, Exact, Reaches, VerdictRule
from ..small import small_stack
from ..toys import ToyBatch, drawn
from ..training import TEST, accuracy, fitted

WORDS, WIDTH, HEADS, LAYERS, ROWS = 64, 32, 2, 2, 32
LENGTHS = SHORT, _, LONG = (4, 8, 16)  # words of a document; batches take turns
STEPS = {"quick": 300, "standard": 400, "full": 1500}
RATES = {"quick": (1e-2,), "standard": (3e-3, 1e-2), "full": (3e-3, 1e-2)}  # 1e-2 won most pilots
TESTED, MORE = 500, 1.25  # documents to judge by, and how many times the steps a further RNN takes
ACCURACY, FALL = at("accuracy", LONG), f"loss of accuracy from {SHORT} to {LONG} words"


# Questions. The last token is the question; an answer is a place in the document, or a word.


def drawn_words(seed: int, step: int, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Different words [B, n], and two different places before the last one [B, 2]."""
    rng = drawn(seed, step)
    words_BT = torch.rand(rows, WORDS, generator=rng).argsort(-1)[:, :length]
    return words_BT, torch.rand(rows, length - 1, generator=rng).argsort(-1)[:, :2]


def find(seed: int, step: int, rows: int, length: int) -> ToyBatch:
    """Where is this word?"""
    words_BT, places_B2 = drawn_words(seed, step, rows, length)
    return ToyBatch(torch.cat([words_BT, words_BT.gather(1, places_B2[:, :1])], 1), places_B2[:, 0])


def after(seed: int, step: int, rows: int, length: int) -> ToyBatch:
    """Where is the word after this one?"""
    batch = find(seed, step, rows, length)
    return ToyBatch(batch.tokens_BT, batch.targets + 1)


def repeated(seed: int, step: int, rows: int, length: int) -> ToyBatch:
    """Where is the word that has occurred before?"""
    words_BT, places_B2 = drawn_words(seed, step, rows, length)
    first_B1, second_B1 = places_B2.sort(-1).values.split(1, 1)
    words_BT = words_BT.scatter(1, second_B1, words_BT.gather(1, first_B1))
    return ToyBatch(torch.cat([words_BT, torch.full_like(first_B1, WORDS)], 1), second_B1[:, 0])


def named(seed: int, step: int, rows: int, length: int) -> ToyBatch:
    """Which word occurs twice? The document is that of `repeated`."""
    batch = repeated(seed, step, rows, length)
    return ToyBatch(batch.tokens_BT, batch.tokens_BT.gather(1, batch.targets[:, None])[:, 0])


# Models: an encoder of either kind, and one look at all its vectors with the vector of the question.


def transformer() -> Encoder:
    inputs = Inputs(TokenEmbedding(WORDS + 1, WIDTH, WIDTH**0.5), Sinusoidal(WIDTH))
    return Encoder(inputs, small_stack(LAYERS, WIDTH, HEADS))


def recurrent(state: int) -> Encoder:
    """A GRU from the left and one from the right."""
    layer = BothWays(GRU(WIDTH, state), GRU(WIDTH, state))
    return Encoder(Inputs(TokenEmbedding(WORDS + 1, WIDTH, WIDTH**0.5)), BidirectionalStack([layer]))


def asked(score: Additive, vectors_BTD: Tensor) -> Tensor:
    """The scores [B, n] of all words for the vector of the question."""
    vectors_B1TD = vectors_BTD[:, None]
    return score(vectors_B1TD[:, :, -1:], vectors_B1TD[:, :, :-1])[:, 0, 0]


class Pointing(nn.Module):
    """The answer is a place: the scores of the look are the scores of the places."""

    def __init__(self, encoder: Encoder, width: int) -> None:
        super().__init__()
        self.encoder, self.score = encoder, Additive(width, width, WIDTH)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return asked(self.score, self.encoder(tokens_BT))


class Naming(nn.Module):
    """The answer is a word, read from what the look finds and from the vector of the question."""

    def __init__(self, encoder: Encoder, width: int) -> None:
        super().__init__()
        self.encoder, self.score = encoder, Additive(width, width, WIDTH)
        self.linear = nn.Linear(2 * width, WORDS)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        vectors_BTD = self.encoder(tokens_BT)
        weights_B1T = asked(self.score, vectors_BTD).softmax(-1)[:, None]
        found_BD = (weights_B1T @ vectors_BTD[:, :-1])[:, 0]
        return self.linear(torch.cat([found_BD, vectors_BTD[:, -1]], -1))


@dataclass(frozen=True)
class DocumentTask:
    """A question, who answers it, and its share of the steps."""

    draw: Callable[[int, int, int, int], ToyBatch]
    share: float = 1.0
    answers: Callable[[Encoder, int], nn.Module] = Pointing
    state: int = 45  # of each GRU: then the RNN has as many parameters as the Transformer

    def transformer(self) -> nn.Module:
        return self.answers(transformer(), WIDTH)

    def recurrent(self) -> nn.Module:
        return self.answers(recurrent(self.state), 2 * self.state)

    def batches(self, seed: int, step: int) -> ToyBatch:
        """Documents of all lengths in turn; those for validation have 16 words."""
        if step < 0:
            return self.draw(seed, step, TESTED, LONG)
        return self.draw(seed, step, ROWS, LENGTHS[step % len(LENGTHS)])


FIND, NEXT = "find a word", "find the next word"
POINT, NAME = "point to the repeated word", "name the repeated word"
TASKS = {
    FIND: DocumentTask(find, 0.6),
    POINT: DocumentTask(repeated, 1.5),
    NAME: DocumentTask(named, 0.8, Naming, 39),
    NEXT: DocumentTask(after),
}


def costs(seed: int, size: str) -> dict[str, float]:
    """Parameters of all models, and FLOPs of those that point, over documents of all lengths."""
    models = {name: (task.transformer(), task.recurrent()) for name, task in TASKS.items()}
    counts = [[sum(one.numel() for one in model.parameters()) for model in pair] for pair in models.values()]
    first, second = (sum(flops(model, n) for n in LENGTHS) for model in models[POINT])
    return {
        "difference in parameters": max(abs(other / one - 1) for one, other in counts),
        "FLOPs relative to the RNN": first / second,
    }


def flops(model: nn.Module, length: int) -> int:
    """Of a document, with all scores of attention written out."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(torch.zeros(1, length + 1, dtype=torch.long))
    return counter.get_total_flops()


def taught(task: DocumentTask, make: Callable[[], nn.Module], more: float = 1.0) -> Arm:
    """more: how many times the steps."""

    def arm(seed: int, size: str) -> dict[str, float]:
        steps = max(1, round(more * task.share * STEPS[size]))
        fit = fitted(make, partial(task.batches, seed), steps, RATES[size])
        tested = {n: accuracy(fit.model, task.draw(seed, TEST, TESTED, n)) for n in LENGTHS}
        curve = {at("accuracy", n): share for n, share in tested.items()}
        return {**curve, FALL: tested[SHORT] - tested[LONG], **fit.numbers}

    return arm


BOTH, LONGER = ("Transformer", "RNN"), f"RNN, {POINT}, more steps"
ARMS: dict[str, Arm] = {
    **{f"Transformer, {name}": taught(task, task.transformer) for name, task in TASKS.items()},
    **{f"RNN, {name}": taught(task, task.recurrent) for name, task in TASKS.items()},
    LONGER: taught(TASKS[POINT], TASKS[POINT].recurrent, MORE),
}


def pair(name: str) -> tuple[str, str]:
    return f"Transformer, {name}", f"RNN, {name}"


def summary(results: Results) -> str:
    def told(name: str, n: int = LONG) -> str:
        one, other = (results.mean(arm, at("accuracy", n)) for arm in pair(name))
        return f"{one:.0%} and {other:.0%}"

    return (
        "It depends on the question (in brackets: accuracy of the Transformer and the RNN at 16 words). Both "
        f"find a word, which takes one look ({told(FIND)}). To point to a repeated word, all pairs must be "
        f"compared. There the Transformer is better ({told(POINT)}; at 4 words {told(POINT, SHORT)}). To "
        f"name that word, counts are enough, and the Transformer is not better ({told(NAME)}). The RNN is "
        f"better at finding the next word ({told(NEXT)})."
    )


def draw(results: Results) -> Drawing:
    def panel(title: str, tasks: dict[str, str]) -> LinePanel:
        lines = {
            f"{kind}, {told}": results.series(f"{kind}, {name}", "accuracy")
            for name, told in tasks.items()
            for kind in BOTH
        }
        return LinePanel(title, "words of the document", lines, (True, False))

    return figure(
        "Accuracy of a Transformer and of an RNN with attention as documents grow",
        [
            panel("where is this word, or the one after it?", {FIND: "this word", NEXT: "next word"}),
            panel("which word occurs twice?", {POINT: "points to it", NAME: "names it"}),
        ],
        ["Dots: seeds. Equal parameters and steps. Words of a document are different ones out of 64."],
    )


def part(name: str, says: str, rule: VerdictRule, expects: str = "", control: bool = False) -> ClaimPart:
    return ClaimPart(name, says, {arm: ARMS[arm] for arm in rule.arms}, rule, LEARNING, expects, control)


CLAIM = Claim(
    says="Transformers are better than recurrent networks with attention, above all as documents grow.",
    lecture="L1 L5",
    predicts=(
        "With equal parameters and steps, both find a word, which takes one look. The Transformer is better "
        "at pointing to a repeated word, which takes all pairs, and more so in longer documents. It is not "
        "better at naming that word, which takes counts, nor at finding the next word."
    ),
    parts=(
        ClaimPart(
            "costs",
            f"Parameters differ by at most 2 %, and the Transformer has at most {MORE} times the FLOPs.",
            {"costs": costs},
            Exact(("costs",), {"difference in parameters": 0.02, "FLOPs relative to the RNN": MORE}),
            {"quick": 1, "standard": 1, "full": 1},
        ),
        part(
            "one look",
            "Both find a word in 16 words equally well, within 0.02.",
            Equal(*pair(FIND), ACCURACY, 0.02),
        ),
        part(
            "all pairs",
            "The Transformer is better at pointing to the repeated word of 16 words, by more than 0.1.",
            Direction(*pair(POINT), ACCURACY, 0.1),
        ),
        part(
            "equal FLOPs",
            f"The Transformer is still better by more than 0.1 if the RNN takes {MORE} times the steps.",
            Direction(pair(POINT)[0], LONGER, ACCURACY, 0.1),
        ),
        part(
            "growth",
            "From 4 to 16 words the RNN loses more accuracy than the Transformer, by more than 0.1.",
            Direction(*pair(POINT)[::-1], FALL, 0.1),
        ),
        part(
            "counts",
            "The Transformer is also better at naming the repeated word of 16 words, by more than 0.1.",
            Direction(*pair(NAME), ACCURACY, 0.1),
            expects="contradicted",
        ),
        part(
            "neighbors",
            "The Transformer is better at finding the next word in 16 words.",
            Direction(*pair(NEXT), ACCURACY),
            expects="contradicted",
        ),
        part(
            "short documents",
            "Both learn to point to the repeated word of 4 words: 90 % of the answers are right.",
            Reaches(at("accuracy", SHORT), 0.9, pair(POINT)),
            control=True,
        ),
    ),
    summary=summary,
    changes="More steps narrow both gaps. The scale of published comparisons (WikiSum) is out of reach here.",
    figure=draw,
    question="Which is better at noticing that a word has occurred before, a Transformer or an RNN? And why?",
    minutes={"quick": 0.9, "standard": 3.5, "full": 20.0},
)
