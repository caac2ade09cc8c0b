"""The stage judge of text-to-image: a model that draws nothing says what a picture of shapes shows.

Which thing a caption names first is random; the judge tells a scene in one way: from left to right, or from
above down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from ...corpora.shapes import COLORS, SHAPES, SIZES, Said, checked_caption
from ...data.images.prepare import normal
from ...errors import BadInput
from ...models.base.settings import Part
from ...train.loss import Loss, cross_entropy
from ..captioned import (
    PictureBatch,
    PictureExamples,
    batches_of,
    captions_of,
    describe_data,
    evaluation_rows,
    in_parts,
    pictures_of,
    planned,
    spread,
)
from ..configs import config_of
from ..evaluation import EvaluationRequest, Measured
from ..metrics import interval
from ..recipe.settings import (
    BatchTokens,
    LearningRate,
    NormalizedPictures,
    Recipe,
    SmoothedTraining,
    Steps,
    WarmupSteps,
)
from ..task import Corpus, Job, Task

RELATION = ("", "left of", "above")  # of one thing, or of two told in one way
THING = (tuple(SIZES), tuple(COLORS), SHAPES)
QUESTIONS: tuple[tuple[str, ...], ...] = (RELATION, *THING, *THING)
UNASKED = -100  # the second thing of a picture that has one
LENGTH = 64  # what a picture counts in a step


@dataclass(frozen=True)
class JudgeTraining(SmoothedTraining):
    steps: Steps = 5000
    batch_tokens: BatchTokens = 2048
    learning_rate: LearningRate = 2e-3
    warmup_steps: WarmupSteps = 100
    label_smoothing: Annotated[Part, "share of the target spread over all answers"] = 0.0


def answers_of(said: Said) -> list[int]:
    """The right answer to each question."""
    plain = said.plain
    found = [RELATION.index(plain.relation)]
    for i in range(2):
        here = plain.things[i] if i < len(plain.things) else (None,) * 3
        found += [
            UNASKED if what is None else kinds.index(what) for kinds, what in zip(THING, here, strict=True)
        ]
    return found


def said_by(answers: Sequence[int]) -> Said:
    """What answers say: the way back."""
    relation = RELATION[answers[0]]
    words = [[kinds[n] for kinds, n in zip(THING, answers[i : i + 3], strict=True)] for i in (1, 4)]
    return Said(tuple((size, color, shape) for size, color, shape in words[: 2 if relation else 1]), relation)


@dataclass(frozen=True)
class Right:
    """What of a picture is as its caption says."""

    things: bool  # every shape and every color, and as many
    relation: bool  # which thing lies where; of one thing, that it is one


def compare(found: Said, asked: Said) -> Right:
    """Things may be told in either order; a relation is right if it is between the right things."""
    kinds, wanted = ([thing[1:] for thing in said.plain.things] for said in (found, asked))
    things = sorted(kinds) == sorted(wanted)
    return Right(things, things and found.plain.relation == asked.plain.relation and kinds == wanted)


@dataclass(frozen=True, kw_only=True)
class JudgeBatch(PictureBatch):
    """Pictures and what they show."""

    pixels_BHWC: Tensor
    answers_BQ: Tensor

    @property
    def count(self) -> int:
        return len(self.pixels_BHWC)


def judge_loss(model: nn.Module, batch: JudgeBatch, data: NormalizedPictures, smoothing: float = 0.0) -> Loss:
    """The nats of all questions of a picture together."""
    found = model(normal(batch.pixels_BHWC, data))
    sums = [cross_entropy(scores, batch.answers_BQ[:, q], smoothing) for q, scores in enumerate(found)]
    total, plain = (sum(part) for part in zip(*sums, strict=True))
    return Loss(total, plain, batch.count)


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> PictureExamples:
    """Read the pictures once."""
    if recipe.data.corpus != "shapes":
        raise BadInput(
            "the judge knows the corpus shapes only: give --corpus shapes; classes are judged by "
            "image-classify"
        )
    return PictureExamples(*pictures_of(recipe, folder, say), length=LENGTH)


def job(recipe: Recipe, examples: PictureExamples) -> Job:
    """Read what the captions say, plan the batches, and put together what a run needs."""
    d, t, train, there = recipe.data, recipe.train, examples.train, examples.valid
    valid = spread(len(there), recipe.evaluate.rows)
    answers_NQ, tried_NQ = (
        np.array([answers_of(checked_caption(caption)) for caption in captions_of(gallery)])
        for gallery in (train, there)
    )
    config = config_of(recipe, answers=tuple(map(len, QUESTIONS)))
    plan = planned(recipe, len(train), LENGTH)

    def make(ids: np.ndarray, step: int) -> JudgeBatch:
        return JudgeBatch(
            pixels_BHWC=train.pixels(ids),
            answers_BQ=torch.from_numpy(answers_NQ[ids]),
            length=d.image_size**2,
            ids=tuple(ids.tolist()),
        )

    def evaluate(model: nn.Module) -> dict[str, float]:
        pairs = ((there.pixels(ids), tried_NQ[ids]) for ids in in_parts(valid))
        return scores(model, pairs, d)

    return Job(
        task="text-to-image-judge",
        architecture="judge",
        config=config,
        vocab=None,
        batches=batches_of(plan, recipe, make),
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: judge_loss(model, batch, d, t.label_smoothing),
        evaluate=evaluate,
        show=lambda model: [],
        held_out=len(valid),
        baselines={"loss": ("loss (answer frequencies), nats per picture", plain_loss(answers_NQ, tried_NQ))},
        plan=[
            describe_data(len(train), len(valid), len(there), d),
            f"questions: {len(QUESTIONS)}; {plan.rows} pictures a step",
        ],
        steady=True,
        facts={"data": train.hash, "held-out data": there.hash},
    )


def describe_pictures(model: nn.Module, pixels_BHWC: Tensor, data: NormalizedPictures) -> list[Said]:
    """What each picture shows, as the judge sees it."""
    device = next(model.parameters()).device
    found = model(normal(pixels_BHWC.to(device), data))
    answers_BQ = torch.stack([scores.argmax(-1) for scores in found], 1)
    return [said_by(row) for row in answers_BQ.tolist()]


def scores(
    model: nn.Module, pairs: Iterable[tuple[Tensor, np.ndarray]], data: NormalizedPictures
) -> dict[str, float]:
    """Held-out loss, and the shares of pictures whose shapes and colors, and whose relation, are found."""
    loss, things, relation, pictures = 0.0, 0, 0, 0
    for pixels_BHWC, answers_BQ in pairs:
        batch = JudgeBatch(pixels_BHWC=pixels_BHWC, answers_BQ=torch.from_numpy(answers_BQ), length=1)
        loss += judge_loss(model, batch.to(next(model.parameters()).device), data).nll.item()
        for found, row in zip(describe_pictures(model, pixels_BHWC, data), answers_BQ.tolist(), strict=True):
            right = compare(found, said_by([max(0, answer) for answer in row]))
            things, relation, pictures = things + right.things, relation + right.relation, pictures + 1
    return {"loss": loss / pictures, "things": things / pictures, "relation": relation / pictures}


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """The same on all held-out pictures."""
    rows = evaluation_rows(asked)
    answers_NQ = np.array([answers_of(checked_caption(row.caption)) for row in rows])
    pixels = np.stack([row.pixels_HWC for row in rows])
    parts = asked.track(list(in_parts(np.arange(len(rows)))), "judging")
    found = scores(
        model, ((torch.from_numpy(pixels[ids]), answers_NQ[ids]) for ids in parts), asked.recipe.data
    )
    between = {name: interval(found[name], len(rows)) for name in ("things", "relation")}
    return Measured(examples=len(rows), unit="pictures", per="picture", metrics=found, intervals=between)


def plain_loss(learned_NQ: np.ndarray, held_out_NQ: np.ndarray) -> float:
    """The loss of giving every answer its frequency."""
    loss = 0.0
    for q, kinds in enumerate(QUESTIONS):
        counts = np.bincount(learned_NQ[:, q][learned_NQ[:, q] >= 0], minlength=len(kinds)) + 1
        right = held_out_NQ[:, q][held_out_NQ[:, q] >= 0]
        loss -= float(np.log(counts[right] / counts.sum()).sum())
    return loss / len(held_out_NQ)


TASK = Task(
    name="text-to-image-judge",
    data=NormalizedPictures,
    train=JudgeTraining,
    architectures={"judge": {"dropout": 0.0}},
    sizes={
        "tiny": {"layers": 3, "width": 16},
        "small": {"layers": 3, "width": 32},
        "base": {"layers": 3, "width": 64},
        "large": {"layers": 4, "width": 128},
    },
    corpora={"shapes": Corpus(("valid", "test"))},
    read=read,
    job=job,
    measure=measure,
    metric="relation",
    own_data=({"images": ("data.valid_images",)},),
    next=("evaluate RUN --judge {path}",),
)
