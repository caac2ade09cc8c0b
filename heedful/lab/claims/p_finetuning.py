"""Fine-tuning: what a model learned from texts without labels makes few labels go further."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...inside.look.drawing import Drawing
from ...models.base.shells import Encoder
from ..claim import Arm, Claim, ClaimPart
from ..figures import DotPanel, LinePanel, figure
from ..results import Results, at
from ..rules import Direction, Equal, VerdictRule
from ..small import small_encoder
from ..toys import ToyBatch, drawn
from ..training import TEST, VALIDATION, Batches, Fit, accuracy, fitted, trained

TOPICS, WORDS, LENGTH = 4, 160, 16  # each topic has a quarter of the words
FAITHFUL = 0.4  # a word is one of its topic with this probability, else any word
MASKED = 0.3
WIDTH, HEADS, LAYERS = 48, 4, 1
DRAWS = {16: 6, 64: 2, 256: 1, 1024: 1}  # {labels: sets of so many texts, over which accuracy is averaged}
BATCH, TESTED, VALIDATED = 32, 1000, 300
LABELED = -3  # the step of the first set of labeled texts; the next are at -4, -5, ...
STEPS = {"quick": 400, "standard": 600, "full": 2000}  # of pre-training
STEPS_OF_TUNING = {"quick": 100, "standard": 100, "full": 200}
STEPS_OF_PROBE = {"quick": 300, "standard": 300, "full": 600}
RATE = 3e-3  # of pre-training
RATES = {"quick": (3e-3,), "standard": (1e-3, 1e-2), "full": (1e-3, 3e-3, 1e-2)}
PROBE_RATES = {"quick": (1e-2,), "standard": (1e-2, 3e-2), "full": (1e-2, 3e-2)}
SEEDS = {"quick": 4, "standard": 6, "full": 10}


# Texts.


def texts(seed: int, step: int, rows: int) -> tuple[Tensor, Tensor]:
    """(words, topics) of texts; a word of topic k is a number that leaves k when it is divided by TOPICS."""
    rng = drawn(seed, step)
    topics_B = torch.randint(TOPICS, (rows,), generator=rng)
    words_BT = torch.randint(WORDS, (rows, LENGTH), generator=rng)
    true_BT = torch.rand(rows, LENGTH, generator=rng) < FAITHFUL
    own_BT = words_BT - words_BT % TOPICS + topics_B[:, None]
    return torch.where(true_BT, own_BT, words_BT), topics_B


def masked(seed: int, step: int, rows: int, shuffled: bool) -> ToyBatch:
    """Texts with blanks to fill in. shuffled: words change places with those of other texts: no topics."""
    words_BT, _ = texts(seed, step, rows)
    rng = drawn(seed, step + 500_000)
    if shuffled:
        words_BT = words_BT.flatten()[torch.randperm(words_BT.numel(), generator=rng)].view_as(words_BT)
    blank_BT = torch.rand(rows, LENGTH, generator=rng) < MASKED
    return ToyBatch(words_BT.masked_fill(blank_BT, WORDS), words_BT.masked_fill(~blank_BT, -1))


def labeled(seed: int, labels: int, draw: int) -> Batches:
    """Batches of a set of labeled texts, and held-out texts."""
    words_NT, topics_N = texts(seed, LABELED - draw, labels)

    def batches(step: int) -> ToyBatch:
        if step < 0:
            return ToyBatch(*texts(seed, step, VALIDATED))
        chosen_B = torch.randperm(labels, generator=drawn(seed, step))[:BATCH]
        return ToyBatch(words_NT[chosen_B], topics_N[chosen_B])

    return batches


def best_accuracy() -> float:
    """The share that is right if the words of each topic are known: the topic with most words is guessed."""
    words_NT, topics_N = texts(0, TEST, 20_000)
    counts_NK = F.one_hot(words_NT % TOPICS, TOPICS).sum(1)
    return float((counts_NK.argmax(1) == topics_N).double().mean())


# Models.


class MeanVector(nn.Module):
    """The mean over the words of a text."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.mean(1)


def fresh(seed: int, size: str) -> Encoder:
    return small_encoder(WORDS + 1, WIDTH, HEADS, LAYERS)


def pretrained(seed: int, size: str, shuffled: bool = False) -> Encoder:
    """An encoder that has learned to fill in blanks."""
    encoder = fresh(seed, size)
    model = nn.Sequential(encoder, nn.Linear(WIDTH, WORDS))
    trained(model, lambda step: masked(seed, step, BATCH, shuffled), STEPS[size], RATE)
    return encoder


# Arms.

FEW, SOME, MANY = (at("accuracy", labels) for labels in (16, 64, 1024))
GAIN, SPENT = "gain from 16 to 1,024 labels", "training steps"
Learning = Callable[[int, int], Fit]  # from a number of labels and a draw
Beginning = Callable[[int, str], Encoder]  # from a seed and a size


def by_labels(seed: int, learn: Learning, draws: Mapping[int, int] = DRAWS) -> dict[str, float]:
    """Accuracy with each number of labels, and the learning rates of all trainings: means over draws."""
    found, test, fits = dict[str, float](), ToyBatch(*texts(seed, TEST, TESTED)), list[Fit]()
    for labels, many in draws.items():
        some = [learn(labels, draw) for draw in range(many)]
        found[at("accuracy", labels)] = statistics.fmean(accuracy(fit.model, test) for fit in some)
        fits += some
    if MANY in found:
        found[GAIN] = found[MANY] - found[FEW]
    for rate in fits[0].tried:
        found[at("validation", rate)] = statistics.fmean(fit.tried[rate] for fit in fits)
    return {**found, "learning rate": statistics.mode(fit.rate for fit in fits)}


def tuned(begin: Beginning, longer: bool = False, draws: Mapping[int, int] = DRAWS) -> Arm:
    """Train all weights, from an encoder on. longer: with the steps that pre-training would take, too."""

    def arm(seed: int, size: str) -> dict[str, float]:
        encoder, steps = begin(seed, size), STEPS_OF_TUNING[size] + longer * STEPS[size]

        def make() -> nn.Module:
            return nn.Sequential(deepcopy(encoder), MeanVector(), nn.Linear(WIDTH, TOPICS))

        def learn(labels: int, draw: int) -> Fit:
            return fitted(make, labeled(seed, labels, draw), steps, RATES[size])

        spent = steps if begin is fresh else steps + STEPS[size]
        return {**by_labels(seed, learn, draws), SPENT: spent}

    return arm


def frozen(seed: int, size: str) -> dict[str, float]:
    """The pre-trained encoder stays as it is: a linear layer learns from the mean of its vectors."""
    reader = nn.Sequential(pretrained(seed, size), MeanVector()).eval()

    @torch.no_grad()
    def features(words_NT: Tensor, topics_N: Tensor) -> ToyBatch:
        return ToyBatch(reader(words_NT), topics_N)

    held_out = features(*texts(seed, VALIDATION, VALIDATED))

    def learn(labels: int, draw: int) -> Fit:
        known, steps = features(*texts(seed, LABELED - draw, labels)), STEPS_OF_PROBE[size]
        probe = partial(nn.Linear, WIDTH, TOPICS)
        fit = fitted(probe, lambda step: known if step >= 0 else held_out, steps, PROBE_RATES[size])
        return replace(fit, model=nn.Sequential(reader, fit.model))

    return {**by_labels(seed, learn), SPENT: STEPS[size] + STEPS_OF_PROBE[size]}


ARMS = {
    "from scratch": tuned(fresh),
    "fine-tuned": tuned(pretrained),
    "frozen, linear layer": frozen,
    "pre-trained on shuffled texts": tuned(partial(pretrained, shuffled=True)),
    "from scratch, same steps": tuned(fresh, longer=True, draws={64: DRAWS[64]}),
}


def summary(results: Results) -> str:
    scratch, few, fixed, shuffled = (results.mean(arm, FEW) for arm in list(ARMS)[:4])
    some, longer = (results.mean(arm, SOME) for arm in ("fine-tuned", "from scratch, same steps"))
    tuned_1024, scratch_1024 = (results.mean(arm, MANY) for arm in ("fine-tuned", "from scratch"))
    return (
        f"Yes. With 16 labels, a fine-tuned model sorts {few:.0%} of new texts right, and one from scratch "
        f"{scratch:.0%}. With 1,024 labels it is {tuned_1024:.0%} against {scratch_1024:.0%}. With 16 "
        f"labels, frozen features and a linear layer do even better ({fixed:.0%}). The texts matter, not "
        f"the steps: pre-training on shuffled texts gives {shuffled:.0%}. With 64 labels, as many steps "
        f"from scratch give {longer:.0%}, and fine-tuning {some:.0%}."
    )


def draw(results: Results) -> Drawing:
    best = best_accuracy()
    lines = {arm: results.series(arm, "accuracy") for arm in list(ARMS)[:4]}
    lines["best possible"] = {labels: [best] for labels in DRAWS}
    dots = {arm: results.values(arm, SOME) for arm in ARMS}
    marks = {"chance": 1 / TOPICS, "best": best}
    spent = (results.mean(arm, SPENT) for arm in ("from scratch", "fine-tuned"))
    return figure(
        "Sorting texts by topic with few labels",
        [
            LinePanel("texts sorted right", "labels", lines, (True, False)),
            DotPanel("with 64 labels", f"share of {TESTED:,} new texts", dots, marks=marks),
        ],
        [
            f"Dots: seeds, each with labels of its own. {TOPICS} topics, texts of {LENGTH} words, 1 layer.",
            "Training steps: {:.0f} from scratch, {:.0f} with pre-training.".format(*spent),
        ],
    )


def part(name: str, says: str, rule: VerdictRule, control: bool = False) -> ClaimPart:
    return ClaimPart(name, says, ARMS, rule, SEEDS, control=control)


CLAIM = Claim(
    says="Pre-train on text without labels, then fine-tune: this beats training from scratch.",
    lecture="L3 L5",
    predicts=(
        "With 16 and 64 labels, fine-tuning beats training from scratch by more than 5 points, and the gap "
        "narrows up to 1,024 labels. With 16 labels, frozen features beat full fine-tuning. Pre-training on "
        "shuffled texts is as good as none, and more steps from scratch do not replace it."
    ),
    parts=(
        *(
            part(
                f"{labels} labels",
                f"With {labels} labels, fine-tuning beats training from scratch by more than 5 points.",
                Direction("fine-tuned", "from scratch", at("accuracy", labels), 0.05),
            )
            for labels in (16, 64)
        ),
        part(
            "gap",
            "The gap narrows: from 16 to 1,024 labels, the model from scratch gains over 5 points more.",
            Direction("from scratch", "fine-tuned", GAIN, 0.05),
        ),
        part(
            "frozen",
            "With 16 labels, a linear layer on frozen features beats full fine-tuning.",
            Direction("frozen, linear layer", "fine-tuned", FEW),
        ),
        part(
            "steps",
            "With 64 labels, as many steps from scratch do not replace pre-training.",
            Direction("fine-tuned", "from scratch, same steps", SOME, 0.05),
        ),
        part(
            "shuffled",
            "With 64 labels, pre-training on texts without topics is as good as none.",
            Equal("pre-trained on shuffled texts", "from scratch", SOME, 0.05),
            control=True,
        ),
    ),
    summary=summary,
    changes="Enough labels close the gap. Pre-training on texts that have nothing of the task does not help.",
    figure=draw,
    question=(
        "You have 16 labeled texts and thousands without labels. Would you train all weights, or only a last "
        "layer on a pre-trained model?"
    ),
    minutes={"quick": 1.0, "standard": 3.3, "full": 22.0},
)
