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
from ...errors import BadInput
from ...models.clip import Clip, ClipConfig, contrast
from ...train.loss import Loss
from ..captioned import (
    PictureBatch,
    batches_of,
    captions_of,
    cells_of,
    describe_data,
    evaluation_rows,
    padded,
    pictures_of,
    planned,
    spread,
    vocabulary_of,
)
from ..evaluation import EvaluationRequest, Measured
from ..recipe.settings import DataSettings, Recipe
from ..task import Job

AMONG = 32  # held-out pairs that each has to be found among


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


def pair_loss(model: Clip, batch: CaptionPictureBatch, data: DataSettings) -> Loss:
    """What captions and pictures lose by not finding each other, as nats a pair."""
    scores_BB = model(batch.words_BL, batch.lengths_B, normal(batch.pixels_BHWC, data))
    total = contrast(scores_BB, batch.same_BB)
    return Loss(total, total.detach(), batch.count)


def make_job(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Job:
    """Read the pictures once, tokenize their captions, and plan the batches."""
    d = recipe.data
    train, there = pictures_of(recipe, folder, say)
    captions = captions_of(train)
    vocab = vocabulary_of(recipe, folder, captions)
    config = config_of(recipe, vocab.size)
    length = (d.image_size // config.patch_size) ** 2 + 1
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
        task="text-to-image",
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
            "loss": (f"nats a pair, one of {AMONG} as good as another", math.log(min(AMONG, len(valid))))
        },
        plan=[
            describe_data(len(train), len(valid), len(there), d),
            f"pairs: {plan.rows:,} captions and pictures a step, each to be found among the others",
            f"vocabulary: {vocab.size:,} of {vocab.kind}",
        ],
        steady=True,
        facts={"data": train.hash, "held-out data": there.hash},
    )


def config_of(recipe: Recipe, vocab: int) -> ClipConfig:
    d, m = recipe.data, recipe.model
    cells_of(d.image_size, m.patch)
    return ClipConfig(
        vocab=vocab,
        text_length=d.max_length,
        image_size=d.image_size,
        channels=3 if d.color else 1,
        **m.pick("layers", "width", "heads", "activation", "dropout", ffn_width="hidden", patch_size="patch"),
        projection_width=m.width,
    )


def numbered(captions: list[str]) -> np.ndarray:
    """A number for each caption, the same for the same words."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(" ".join(text.lower().split()), len(known)) for text in captions])


def scores(model: nn.Module, batches: Iterable[CaptionPictureBatch], data: DataSettings) -> dict[str, float]:
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
