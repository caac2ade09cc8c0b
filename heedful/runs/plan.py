"""The plan of a run, described before the first step: data, model, steps, memory and baselines."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ..inside.costs import count_active, count_parameters
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Job
from ..train.processes import World
from .memory import format_bytes
from .parallel import Spreading, describe_spreading


def describe_plan(
    recipe: Recipe, job: Job, model: nn.Module, world: World, device: torch.device, spread: Spreading
) -> Iterator[str]:
    """Sentences, one by one."""
    t = recipe.train
    yield from job.plan
    everything, active = count_parameters(model), count_active(model)
    some = f", {active:,} of them active for a token" if active < everything else ""
    learn = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    some += f", of which {learn:,} learn" if job.tuning is not None else ""
    yield f"model: {job.architecture}, {everything:,} parameters{some}"
    epochs = t.steps / job.steps_per_epoch
    together = f", {world.size} processes" if world.size > 1 else ""
    yield (
        f"steps: {t.steps:,} ({format_epochs(epochs)}), warm-up {t.warmup_steps:,}, seed {t.seed}, "
        f"{t.precision} on {device.type}{together}"
    )
    yield from describe_spreading(spread, t.parallel)
    if spread.here is not None:
        yield f"memory: about {format_bytes(spread.here)} of {format_bytes(spread.free)} that are free"
        if not spread.fits:
            yield (
                "warning: that may not fit; fewer train.batch_tokens, more train.accumulation_steps, or "
                "train.activation_checkpointing=true "
                "take less"
            )
    for what, score in job.baselines.values():
        yield f"baseline {what}: {score:.3f}"


def format_epochs(epochs: float) -> str:
    """How often each example is seen, with as many digits as say something."""
    if epochs < 0.05:
        return f"{epochs:.1g} epochs"
    return f"{epochs:,.1f} epochs"


def format_seconds(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
