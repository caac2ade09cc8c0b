"""The plan of a run, described before the first step: data, model, steps, memory and baselines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ..inside.costs import costs, count_active, count_parameters
from ..models.base.shells import DecoderClassifier, WithValue
from ..parts.blocks import Block
from ..parts.multihead import MultiHeadAttention
from ..tasks.recipe.settings import Recipe
from ..tasks.rollouts import UpdateBatch
from ..tasks.task import Job
from ..train.processes import World

LOOKED_AT = 5  # batches, to find a large one
TIGHT = 0.9  # of the memory that is free; the estimate leaves out what kernels take for themselves


def describe_plan(
    recipe: Recipe, job: Job, model: nn.Module, world: World, device: torch.device
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
    needed = memory_needed(recipe, job, model, world, device)
    if needed is not None:
        free = free_memory(device)
        yield f"memory: about {format_bytes(needed)} of {format_bytes(free)} that are free"
        if needed > TIGHT * free:
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


def memory_needed(
    recipe: Recipe, job: Job, model: nn.Module, world: World, device: torch.device
) -> int | None:
    """Bytes that training takes at its largest, estimated; None for a model whose costs are not known."""
    t = recipe.train
    shapes = [
        shape_of(batch)
        for step in range(min(LOOKED_AT, t.steps))
        for batch in job.batches(step, world.rank, world.size) or job.batches(step)
    ]
    rows, length, source = max(shapes, key=lambda shape: shape[0] * (shape[1] + (shape[2] or 0)))
    length = min(length, getattr(job.config, "context", length))  # the last token of a window is not read
    body = model.decoder if isinstance(model, DecoderClassifier | WithValue) else model
    try:
        memory = costs(body, rows, length, source, "fp32" if t.precision == "fp32" else "bf16").memory
    except ValueError:
        return None
    weights = weights_kept(model, rows, length) if device.type == "cpu" else 0
    needed = memory["training"] + weights
    held = sum(weight.numel() for weight in model.parameters() if not weight.requires_grad)
    needed -= (memory["gradients"] + memory["optimizer"]) * held // max(1, count_parameters(model))
    if t.activation_checkpointing:  # only one block's activations exist at a time
        kept, blocks = memory["activations"] + weights, sum(isinstance(m, Block) for m in model.modules())
        needed -= kept - kept // blocks
    if t.fsdp:
        state = memory["weights"] + memory["gradients"] + memory["optimizer"]
        needed -= state - state // world.size
    elif world.size > 1:  # gradients travel in one message
        needed += memory["gradients"]
    return needed + (memory["weights"] if t.ema_decay or t.average_checkpoints else 0)


def weights_kept(model: nn.Module, rows: int, length: int) -> int:
    """Bytes of the attention weights that dropout keeps where its kernel is not fused, as on a CPU.

    They are kept as they were, as they became, and as what they were multiplied by.
    """
    heads = sum(m.heads for m in model.modules() if isinstance(m, MultiHeadAttention) and m.dropout)
    return 3 * 4 * rows * heads * length * length


def shape_of(batch: Any) -> tuple[int, int, int | None]:
    """Rows, length, and the length of the source if there is one."""
    if isinstance(batch, UpdateBatch):  # whose rows are written in its step
        return len(batch.rows), batch.longest, None
    if hasattr(batch, "source_BS"):
        rows, length = batch.target_BT.shape
        return rows, length, batch.source_BS.shape[1]
    if hasattr(batch, "pixels_BHWC"):
        return len(batch.pixels_BHWC), batch.length, getattr(batch, "patches", None)
    tokens = batch.tokens_NT if hasattr(batch, "tokens_NT") else batch.tokens_BT
    rows, length = tokens.shape[:2]  # words may be spelled out
    return rows, length, None


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = next(line for line in lines if line.startswith("MemAvailable"))
        return 1024 * int(found.split()[1])
    except (OSError, StopIteration):  # not Linux: what there is in all
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 33


def peak_memory(device: torch.device) -> int:
    """Bytes that were in use at the most, by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def format_bytes(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def format_seconds(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
