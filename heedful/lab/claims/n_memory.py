"""Memory: checkpointing and accumulation change no gradient; half precision does not halve what is kept."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...models.base.shells import Decoder
from ...parts.blocks import Stack
from ...parts.embeddings import Inputs, TokenEmbedding, Untied
from ...parts.layers import LayerNorm
from ...parts.positions.absolute import Sinusoidal
from ..claim import Arm, Claim, ClaimPart
from ..clock import saved_bytes
from ..figures import DotPanel, figure
from ..results import Results
from ..rules import Direction, Exact, Near
from ..small import JoinedBlocks, small_block

LAYERS, WIDTH, HEADS, VOCAB = 4, 64, 4, 17
ROWS, LENGTH, SHORT = 8, 64, 20  # texts, and their words where bytes or gradients are measured
PARTS = 4  # micro-batches
SEEDS = {"quick": 4, "standard": 5, "full": 10}


def language_model(together: int = 1, recompute: bool = False, dropout: float = 0.0) -> Decoder:
    """A decoder. together: blocks of which only the first one's input is kept, if recompute."""
    blocks = [small_block(WIDTH, HEADS, dropout=dropout) for _ in range(LAYERS)]
    joined = [JoinedBlocks(blocks[i : i + together]) for i in range(0, LAYERS, together)]
    stack = Stack(joined, LayerNorm(WIDTH))  # type: ignore[arg-type]
    stack.recompute = recompute
    return Decoder(Inputs(TokenEmbedding(VOCAB, WIDTH), Sinusoidal(WIDTH)), stack, Untied(WIDTH, VOCAB))


def data(length: int) -> tuple[Tensor, Tensor]:
    """Words, and targets of which rows have different numbers: -1 is padding."""
    tokens_BT, targets_BT = torch.randint(VOCAB, (2, ROWS, length))
    lengths_B = torch.linspace(4, length, ROWS).long()
    return tokens_BT, targets_BT.masked_fill(torch.arange(length) >= lengths_B[:, None], -1)


def loss_sum(model: nn.Module, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
    scores = model(tokens_BT).flatten(0, 1)
    return F.cross_entropy(scores, targets_BT.flatten(), ignore_index=-1, reduction="sum")


def gradients(model: nn.Module, losses: list[Tensor]) -> Tensor:
    """One vector of all gradients, added up over micro-batches."""
    for loss in losses:
        loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])  # type: ignore[union-attr]


def whole(model: nn.Module, tokens_BT: Tensor, targets_BT: Tensor) -> list[Tensor]:
    return [loss_sum(model, tokens_BT, targets_BT) / (targets_BT >= 0).sum()]


def accumulated(model: nn.Module, tokens_BT: Tensor, targets_BT: Tensor) -> list[Tensor]:
    """Divided by the tokens of all micro-batches together."""
    count = (targets_BT >= 0).sum()
    pieces = zip(tokens_BT.chunk(PARTS), targets_BT.chunk(PARTS), strict=True)
    return [loss_sum(model, x, t) / count for x, t in pieces]


def mean_of_means(model: nn.Module, tokens_BT: Tensor, targets_BT: Tensor) -> list[Tensor]:
    """The common mistake: every micro-batch counts the same, however many tokens it has."""
    pieces = zip(tokens_BT.chunk(PARTS), targets_BT.chunk(PARTS), strict=True)
    return [loss_sum(model, x, t) / (t >= 0).sum() / PARTS for x, t in pieces]


Losses = Callable[[nn.Module, Tensor, Tensor], list[Tensor]]


def differing(losses: Losses = whole, dropout: float = 0.0, **sizes: int) -> Arm:
    """How far gradients are from those of the plain model, relative to the largest."""

    def arm(seed: int, size: str) -> dict[str, float]:
        found = {}
        for name, dtype in (("difference", torch.float64), ("difference in float32", torch.float32)):
            grads = []
            for more, way in (({}, whole), (sizes, losses)):
                torch.default_generator.manual_seed(seed)
                model = language_model(dropout=dropout, **more).to(dtype)  # type: ignore[arg-type]
                tokens_BT, targets_BT = data(SHORT)
                grads.append(gradients(model, way(model, tokens_BT, targets_BT)))
            found[name] = float((grads[0] - grads[1]).abs().max() / grads[0].abs().max())
        return found

    return arm


def kept(half: str = "", rows: int = ROWS, **sizes: int) -> Arm:
    """The bytes that a forward pass keeps, also relative to those of the plain model."""

    def arm(seed: int, size: str) -> dict[str, float]:
        plain = forward_bytes(language_model(), data(LENGTH)[0], "")
        model, tokens_BT = language_model(**sizes), data(LENGTH)[0][:rows]  # type: ignore[arg-type]
        found = forward_bytes(model, tokens_BT, half)
        return {"megabytes": found / 1e6, "share": found / plain}

    return arm


def forward_bytes(model: nn.Module, tokens_BT: Tensor, half: str) -> int:
    if half == "pure":
        model = model.bfloat16()

    def work() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=half == "autocast"):
            return model(tokens_BT)

    return saved_bytes(work, tuple(model.parameters()))


SAME = {
    "recomputed": differing(recompute=True),
    "recomputed by twos": differing(recompute=True, together=2),
    "recomputed with dropout": differing(recompute=True, dropout=0.1),
    "accumulated": differing(accumulated),
    "mean of means": differing(mean_of_means),
}
BYTES = {
    "plain": kept(),
    "checkpointing": kept(recompute=True),
    "checkpointing by twos": kept(recompute=True, together=2),
    "a micro-batch": kept(rows=ROWS // PARTS),
    "bf16 autocast": kept("autocast"),
    "pure bf16": kept("pure"),
}


def summary(results: Results) -> str:
    def share(arm: str) -> str:
        return f"{results.mean(arm, 'share'):.0%}"

    return (
        "It depends on the remedy. Checkpointing and accumulation give the same gradients to rounding, and "
        f"keep {share('checkpointing')} and {share('a micro-batch')} of the memory between the passes. Half "
        f"precision keeps {share('bf16 autocast')}, not half: some of what is kept stays in fp32. "
        "Micro-batches of different lengths must be divided by the tokens of all of them, or gradients are "
        "wrong."
    )


def draw(results: Results) -> Drawing:
    shares = {arm: results.values(arm, "share") for arm in BYTES}
    differences = {arm: results.values(arm, "difference") for arm in SAME}
    return figure(
        "What a forward pass keeps for the backward pass",
        [
            DotPanel(
                "bytes kept, relative to the plain model",
                "share of the plain model's bytes",
                shares,
                marks={"half": 0.5},
            ),
            DotPanel(
                "gradients, compared with the plain model",
                "largest difference, relative, float64",
                differences,
                True,
            ),
        ],
        [f"{LAYERS} layers of width {WIDTH}, {ROWS} texts of {LENGTH} words. Weights are not counted."],
    )


CLAIM = Claim(
    says="Half precision, gradient accumulation and checkpointing lower the memory of training.",
    lecture="L4",
    predicts=(
        "Checkpointing and accumulation give the same gradients. Checkpointing keeps one input per block. "
        "bf16 halves what is kept."
    ),
    parts=(
        ClaimPart(
            "checkpointing",
            "Recomputation changes no bit of a gradient, also with dropout.",
            SAME,
            Exact(("recomputed", "recomputed by twos", "recomputed with dropout"), {"difference": 0}),
            SEEDS,
        ),
        ClaimPart(
            "accumulation",
            "Four micro-batches give the gradients of one batch.",
            SAME,
            Exact(("accumulated",), {"difference": 1e-12, "difference in float32": 1e-4}),
            SEEDS,
        ),
        ClaimPart(
            "a mistake",
            "A mean of the micro-batches' means gives other gradients.",
            SAME,
            Direction("mean of means", "accumulated", "difference", 0.01),
            SEEDS,
            control=True,
        ),
        ClaimPart(
            "kept",
            "Checkpointing keeps less than a fifth of the bytes.",
            BYTES,
            Near("checkpointing", "share", 0.1, 0.1),
            SEEDS,
        ),
        ClaimPart(
            "micro-batch",
            "A micro-batch keeps a fourth of the bytes.",
            BYTES,
            Near("a micro-batch", "share", 1 / PARTS, 0.02),
            SEEDS,
        ),
        ClaimPart(
            "half",
            "Autocast to bf16 keeps half of the bytes.",
            BYTES,
            Near("bf16 autocast", "share", 0.5, 0.05),
            SEEDS,
            expects="contradicted",
        ),
    ),
    summary=summary,
    changes=(
        "Other sizes would change the shares. Weights and the memory of an optimizer are not counted here."
    ),
    figure=draw,
    question="Which of the three remedies changes a gradient, and which halves the memory?",
    minutes={"quick": 0.2, "standard": 0.3, "full": 0.3},
)
