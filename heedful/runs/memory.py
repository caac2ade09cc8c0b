"""Memory of a run: an estimate before the first step, what is free, and what was used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..inside.costs import costs, count_parameters
from ..models.base.shells import DecoderClassifier, WithValue
from ..parts.blocks import Block
from ..parts.multihead import MultiHeadAttention
from ..tasks.recipe.settings import Recipe
from ..tasks.rollouts import UpdateBatch
from ..tasks.task import Job
from ..train.parallel.way import ProcessGrid
from ..train.processes import World

LOOKED_AT = 5  # batches, to find a large one


@dataclass(frozen=True)
class Needed:
    """Bytes that training takes at its largest, estimated."""

    state: int  # weights, gradients, the optimizer's numbers and averages: what shards share
    rest: int  # activations and scores

    def at(self, grid: ProcessGrid) -> int:
        """In one process."""
        return self.state // (grid.shards * grid.tensor) + self.rest


def memory_needed(
    recipe: Recipe, job: Job, model: nn.Module, world: World, device: torch.device
) -> Needed | None:
    """The estimate, of a whole model; None for one whose costs are not known."""
    t = recipe.train
    shapes = [
        shape_of(batch)
        for step in range(min(LOOKED_AT, t.steps))
        for batch in job.batches(step, world.share, world.shares) or job.batches(step)
    ]
    rows, length, source = max(shapes, key=lambda shape: shape[0] * (shape[1] + (shape[2] or 0)))
    length = min(length, getattr(job.config, "context", length))  # the last token of a window is not read
    body = model.decoder if isinstance(model, DecoderClassifier | WithValue) else model
    try:
        memory = costs(body, rows, length, source, "fp32" if t.precision == "fp32" else "bf16").memory
    except ValueError:
        return None
    weights = weights_kept(model, rows, length) if device.type == "cpu" else 0
    held = sum(weight.numel() for weight in model.parameters() if not weight.requires_grad)
    learning = memory["gradients"] + memory["optimizer"]
    state = memory["weights"] + learning
    rest = memory["training"] + weights - state
    state -= learning * held // max(1, count_parameters(model))
    if t.activation_checkpointing:  # only one block's activations exist at a time
        kept, blocks = memory["activations"] + weights, sum(isinstance(m, Block) for m in model.modules())
        rest -= kept - kept // blocks
    return Needed(state + (memory["weights"] if t.ema_decay or t.average_checkpoints else 0), rest)


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
