"""The stage ranker of text-to-image: how well captions and pictures fit, learned by telling pairs apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ...data.images.prepare import normal
from ...data.vocab import Vocab
from ...errors import BadInput
from ...models.clip import Clip, contrast
from ...train.loss import Loss
from ..captioned import (
    CaptionTokens,
    PictureBatch,
    PictureExamples,
    batches_of,
    captions_of,
    cells_of,
    check_cells,
    describe_data,
    evaluation_rows,
    padded,
    pictures_of,
    planned,
    spread,
    vocabulary_of,
)
from ..configs import config_of
from ..evaluation import EvaluationRequest, Measured
from ..recipe.settings import (
    BatchTokens,
    LearningRate,
    NormalizedPictures,
    Optimizer,
    Recipe,
    Steps,
    TrainSettings,
    WarmupSteps,
)
from ..task import Corpus, Job, Task

AMONG = 32  # held-out pairs that each has to be found among


@dataclass(frozen=True)
class RankerData(NormalizedPictures, CaptionTokens):
    """Pictures and their captions, as pairs."""


@dataclass(frozen=True)
class RankerTraining(TrainSettings):
    steps: Steps = 2000
    batch_tokens: BatchTokens = 2080
    optimizer: Optimizer = "muon"
    learning_rate: LearningRate = 4e-3
    warmup_steps: WarmupSteps = 100


@dataclass(frozen=True)
class RankerExamples(PictureExamples):
    """What was read: pictures, and the vocabulary of their captions."""

    vocab: Vocab


@dataclass(frozen=True, kw_only=True)
class CaptionPictureBatch(PictureBatch):
    """Captions and their pictures; `kinds`: equal captions have equal numbers."""

    words_BL: Tensor
    lengths_B: Tensor
    pixels_BHWC: Tensor
    kinds_B: Tensor

    @property
    def count(self) -> int:
        return len(self.words_BL)

    @property
    def same_BB(self) -> Tensor:
        return self.kinds_B[:, None] == self.kinds_B


def pair_loss(model: Clip, batch: CaptionPictureBatch, data: NormalizedPictures) -> Loss:
    """What captions and pictures lose by not finding each other, as nats per pair."""
    scores_BB = model(batch.words_BL, batch.lengths_B, normal(batch.pixels_BHWC, data))
    total = contrast(scores_BB, batch.same_BB)
    return Loss(total, total.detach(), batch.count)


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> RankerExamples:
    """Read the pictures once, and learn a vocabulary from their captions."""
    train, there = pictures_of(recipe, folder, say)
    vocab = vocabulary_of(recipe, folder, captions_of(train))
    length = cells_of(recipe.data.image_size, recipe.model.patch_size) ** 2 + 1
    return RankerExamples(train, there, length, vocab)


def job(recipe: Recipe, examples: RankerExamples) -> Job:
    """Tokenize the captions, plan the batches, and put together what a run needs."""
    d, vocab, train, there = recipe.data, examples.vocab, examples.train, examples.valid
    length, captions = examples.length, captions_of(train)
    config = config_of(recipe, vocab=vocab.size)
    plan = planned(recipe, len(train), length)
    if plan.rows < 2:
        raise BadInput("a caption has to find its picture among several: raise train.batch_tokens")
    valid = spread(len(there), recipe.evaluate.rows)
    words, kinds = vocab.encode_batch(captions), numbered(captions)
    held_out = captions_of(there)
    held_out_words, held_out_kinds = vocab.encode_batch(held_out), numbered(held_out)

    def make(ids: np.ndarray, step: int) -> CaptionPictureBatch:
        words_BL, lengths_B = padded([words[i] for i in ids], config.text_length)
        return CaptionPictureBatch(
            words_BL=words_BL,
            lengths_B=lengths_B,
            pixels_BHWC=train.pixels(ids),
            kinds_B=torch.from_numpy(kinds[ids]),
            length=length,
            ids=tuple(ids.tolist()),
        )

    def tried() -> Iterator[CaptionPictureBatch]:
        for ids in (valid[i : i + AMONG] for i in range(0, len(valid), AMONG)):
            words_BL, lengths_B = padded([held_out_words[i] for i in ids], config.text_length)
            yield CaptionPictureBatch(
                words_BL=words_BL,
                lengths_B=lengths_B,
                pixels_BHWC=there.pixels(ids),
                kinds_B=torch.from_numpy(held_out_kinds[ids]),
                length=length,
            )

    return Job(
        task="text-to-image-ranker",
        architecture="clip",
        config=config,
        vocab=vocab,
        batches=batches_of(plan, recipe, make),
        steps_per_epoch=plan.batches,
        loss=lambda model, batch: pair_loss(model, batch, d),
        evaluate=lambda model: scores(model, tried(), d),
        show=lambda model: [],
        held_out=len(valid),
        baselines={
            "loss": (f"loss (one of {AMONG} at random), nats per pair", math.log(min(AMONG, len(valid))))
        },
        plan=[
            describe_data(len(train), len(valid), len(there), d),
            f"pairs: {plan.rows:,} captions and pictures a step, each to be found among the others",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
        ],
        steady=True,
        facts={"data": train.hash, "held-out data": there.hash},
    )


def numbered(captions: list[str]) -> np.ndarray:
    """A number for each caption, the same for the same words."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(" ".join(text.lower().split()), len(known)) for text in captions])


def scores(
    model: nn.Module, batches: Iterable[CaptionPictureBatch], data: NormalizedPictures
) -> dict[str, float]:
    """Held-out loss, and how often a caption finds its picture, or one with the same words."""
    loss, found, pairs, device = 0.0, 0, 0, next(model.parameters()).device
    for batch in batches:
        batch = batch.to(device)
        scores_BB = model(batch.words_BL, batch.lengths_B, normal(batch.pixels_BHWC, data))
        loss += contrast(scores_BB, batch.same_BB).item()
        found += int(batch.same_BB.gather(1, scores_BB.argmax(1, keepdim=True)).sum())
        pairs += batch.count
    return {"loss": loss / pairs, "accuracy": found / pairs}


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """The same on all held-out pictures."""
    assert isinstance(model, Clip)
    rows, d = evaluation_rows(asked), asked.recipe.data
    captions = [row.caption or row.label for row in rows]
    words, kinds = asked.vocab().encode_batch(captions), numbered(captions)

    def batches() -> Iterator[CaptionPictureBatch]:
        for start in range(0, len(rows), AMONG):
            ids = range(start, min(start + AMONG, len(rows)))
            words_BL, lengths_B = padded([words[i] for i in ids], d.max_length)
            pixels_BHWC = torch.from_numpy(np.stack([rows[i].pixels_HWC for i in ids]))
            yield CaptionPictureBatch(
                words_BL=words_BL,
                lengths_B=lengths_B,
                pixels_BHWC=pixels_BHWC,
                kinds_B=torch.from_numpy(kinds[list(ids)]),
                length=1,
            )

    found = scores(model, asked.track(batches(), "finding pairs"), d)
    return Measured(examples=len(rows), unit="pictures", per="pair", metrics=found)


TASK = Task(
    name="text-to-image-ranker",
    data=RankerData,
    train=RankerTraining,
    architectures={"clip": {"patch_size": 4, "activation": "gelu", "dropout": 0.0}},
    sizes={
        "tiny": {"layers": 2, "width": 96, "heads": 3, "ffn_width": 384},
        "small": {"layers": 4, "width": 192, "heads": 4, "ffn_width": 768},
        "base": {"layers": 6, "width": 512, "heads": 8, "ffn_width": 2048},
        "large": {"layers": 12, "width": 768, "heads": 12, "ffn_width": 3072},
    },
    corpora={"shapes": Corpus(("valid", "test"))},
    read=read,
    job=job,
    measure=measure,
    metric="accuracy",
    own_data=({"images": ("data.valid_images",)},),
    next=(),
    check=check_cells,
)
