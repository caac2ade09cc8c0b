"""The stage codes of text-to-image: a discrete VAE learns to write a picture as a grid of codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...data.images.gallery import Gallery
from ...models.base.settings import Range, Share
from ...models.dvae import DVAE, annealed, begin_with, inside, logit_laplace, rising
from ...train.loss import Loss
from ..captioned import (
    PictureBatch,
    PictureExamples,
    batches_of,
    cells_of,
    check_cells,
    describe_data,
    evaluation_rows,
    in_parts,
    pictures_of,
    planned,
    spread,
)
from ..configs import config_of
from ..evaluation import EvaluationRequest, Measured
from ..recipe.settings import (
    BatchTokens,
    EmaDecay,
    LearningRate,
    PictureSettings,
    Recipe,
    Steps,
    TrainSettings,
    WarmupSteps,
)
from ..task import Corpus, Job, Task

BEGUN_WITH = 10_000_000  # numbers of pictures, to take the first codes from
LOOKED_AT = 200  # pictures, for how likely a pixel is without learning


@dataclass(frozen=True)
class CodesTraining(TrainSettings):
    steps: Steps = 1500
    batch_tokens: BatchTokens = 1024
    learning_rate: LearningRate = 1e-3
    warmup_steps: WarmupSteps = 100
    ema_decay: EmaDecay = 0.995
    final_temperature: Annotated[float, Range(0, 1, "(]"), "where the relaxation's temperature ends"] = 0.0625
    temperature_decay_fraction: Annotated[Share, "share of the steps in which the temperature falls"] = 0.7
    kl_weight: Annotated[float, Range(0, 1000), "weight of the divergence from even use of all codes"] = 0.1
    kl_warmup_fraction: Annotated[Share, "share of the steps in which that weight rises"] = 0.005


@dataclass(frozen=True, kw_only=True)
class CodesBatch(PictureBatch):
    """Pictures, and how far the schedules are."""

    pixels_BHWC: Tensor
    temperature: Tensor
    divergence: Tensor

    @property
    def count(self) -> int:
        return self.pixels_BHWC.numel()


def bright(pixels_BHWC: Tensor) -> Tensor:
    """Pixels 0 to 255 as numbers from 0 to 1, [B, C, H, W]."""
    return pixels_BHWC.permute(0, 3, 1, 2).float() / 255


def codes_loss(model: DVAE, batch: CodesBatch) -> Loss:
    """-log p(x | z) + beta KL, as nats per number of the picture."""
    log_p_B, kl_B = model(bright(batch.pixels_BHWC), batch.temperature)
    total = (batch.divergence * kl_B - log_p_B).sum()
    return Loss(total, -log_p_B.detach().sum(), batch.count)


def read(recipe: Recipe, folder: Path, origin: None, say: Callable[[str], None]) -> PictureExamples:
    """Read the pictures once."""
    side = cells_of(recipe.data.image_size, recipe.model.patch_size)
    return PictureExamples(*pictures_of(recipe, folder, say), length=side * side)


def job(recipe: Recipe, examples: PictureExamples) -> Job:
    """Plan the batches, and put together what a run needs."""
    d, t, train, there = recipe.data, recipe.train, examples.train, examples.valid
    config = config_of(recipe)
    side = cells_of(d.image_size, config.patch_size)
    plan = planned(recipe, len(train), side * side)
    valid = spread(len(there), recipe.evaluate.rows)
    some = spread(len(train), max(1, BEGUN_WITH // train.pixels_NHWC[0].size))

    def make(ids: np.ndarray, step: int) -> CodesBatch:
        heat = annealed(step, round(t.temperature_decay_fraction * t.steps), last=t.final_temperature)
        weight = rising(step, round(t.kl_warmup_fraction * t.steps), t.kl_weight)
        return CodesBatch(
            pixels_BHWC=train.pixels(ids),
            temperature=torch.tensor(heat),
            divergence=torch.tensor(weight),
            length=side * side,
            ids=tuple(ids.tolist()),
        )

    return Job(
        task="text-to-image-codes",
        architecture="dvae",
        config=config,
        vocab=None,
        batches=batches_of(plan, recipe, make),
        steps_per_epoch=plan.batches,
        loss=codes_loss,
        evaluate=lambda model: scores(model, (there.pixels(ids) for ids in in_parts(valid))),
        show=lambda model: [],
        held_out=len(valid),
        baselines={"loss": ("loss (all pictures alike), nats per number", plain_loss(there, valid))},
        plan=[
            describe_data(len(train), len(valid), len(there), d),
            (
                f"codes: {config.codes:,} for each of {side} x {side} cells of "
                f"{config.patch_size} x {config.patch_size} pixels; "
                f"{plan.rows:,} pictures a step"
            ),
        ],
        begin=lambda model: begin_with(model, bright(train.pixels(some)), t.seed),  # type: ignore[arg-type]
        steady=True,
        facts={"data": train.hash, "held-out data": there.hash},
    )


def scores(model: Any, parts: Iterable[Tensor]) -> dict[str, float]:
    """Scores of held-out pictures as codes: -log p (nats per number), the error of pixels, codes in use."""
    weight = next(model.parameters())
    nll, off, numbers, used = 0.0, 0.0, 0, torch.zeros(model.config.codes)
    for pixels_BHWC in parts:
        x_BCHW = bright(pixels_BHWC.to(weight.device)).to(weight.dtype)
        codes_Bhw = model.encode(x_BCHW)
        nll -= model.likelihood(x_BCHW, model.one_hot(codes_Bhw)).sum().item()
        off += (model.decode(codes_Bhw) - x_BCHW).abs().sum().item()
        numbers += x_BCHW.numel()
        used += torch.bincount(codes_Bhw.flatten().cpu(), minlength=len(used))
    shares = used[used > 0] / used.sum()
    effective = math.exp(-(shares * shares.log()).sum().item())
    return {"loss": nll / numbers, "off": off / numbers, "codes": effective}


def measure(model: nn.Module, asked: EvaluationRequest) -> Measured:
    """The same on all held-out pictures."""
    pixels = np.stack([row.pixels_HWC for row in evaluation_rows(asked)])
    parts = [torch.from_numpy(pixels[ids]) for ids in in_parts(np.arange(len(pixels)))]
    found = scores(model, asked.track(parts, "writing codes"))
    return Measured(examples=len(pixels), unit="pictures", per="number of a picture", metrics=found)


def plain_loss(gallery: Gallery, ids: np.ndarray) -> float:
    """The loss of giving every pixel of every picture the same distribution, the best there is."""
    y = inside(bright(gallery.pixels(ids[:LOOKED_AT])))
    logit_CN = torch.logit(y).transpose(0, 1).flatten(1)
    center_C1 = logit_CN.median(1, keepdim=True).values
    scale_C1 = (logit_CN - center_C1).abs().mean(1, keepdim=True).clamp(min=1e-6)
    return -logit_laplace(torch.sigmoid(logit_CN), center_C1, scale_C1.log()).mean().item()


TASK = Task(
    name="text-to-image-codes",
    data=PictureSettings,
    train=CodesTraining,
    architectures={"dvae": {"codes": 1024, "patch_size": 4, "dropout": 0.0}},
    sizes={
        "tiny": {"layers": 1, "width": 96},
        "small": {"layers": 1, "width": 128},
        "base": {"layers": 2, "width": 256},
        "large": {"layers": 4, "width": 512},
    },
    corpora={"shapes": Corpus(("valid", "test"))},
    read=read,
    job=job,
    measure=measure,
    metric="loss",
    own_data=({"images": ("data.valid_images",)},),
    next=("look {path} your-own.png", "train text-to-image-decoder --images FOLDER --from {path}"),
    check=check_cells,
)
