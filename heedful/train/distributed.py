"""Many processes: each takes its share of a step's examples, and gradients are added up.

Under `torchrun` the same command trains on several GPUs or machines. Data parallel keeps a copy of the model in every
process; "fsdp" keeps a shard in each (FSDP2). Either way a step has the same examples and the same divisor, the
number of target tokens over all processes, so the losses are those of one process, to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..parts.blocks import Block
from .loss import Loss

PATIENCE = timedelta(minutes=10)  # how long a process waits for the others before it gives up


@dataclass(frozen=True)
class World:
    """Which process this is, of how many."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """The one process that prints and writes."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def add_gradients(self, model: nn.Module) -> None:
        """Data parallel: every process gets the sum of all gradients. FSDP has done so already."""
        if self.size == 1 or is_sharded(model):
            return
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in gradients])  # one message instead of hundreds
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))


def join_world(device: torch.device) -> World:
    """The world torchrun describes in the environment; a world of one without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    return World(dist.get_rank(), size)


def leave_world(world: World) -> None:
    if world.size > 1 and dist.is_initialized():
        dist.destroy_process_group()


def is_sharded(model: nn.Module) -> bool:
    return isinstance(model, Whole)


class Whole(nn.Module):
    """A model together with its loss, so that FSDP sees one forward that uses every weight."""

    def __init__(self, model: nn.Module, loss_of: Callable[[nn.Module, Any], Loss]) -> None:
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward(self, batch: Any) -> tuple[Tensor, Tensor]:
        loss = self.loss_of(self.model, batch)
        return loss.total, loss.surprise


def whole_loss(whole: nn.Module, batch: Any) -> Loss:
    """The loss of a `Whole`, for the loop."""
    total, surprise = whole(batch)
    return Loss(total, surprise, batch.count)


def shard(
    model: nn.Module, loss_of: Callable[[nn.Module, Any], Loss], world: World, device: torch.device
) -> Whole:
    """Split every weight over the processes (FSDP2), block by block; gradients are added, not averaged."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(device.type, (world.size,))
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    whole = Whole(model, loss_of)
    fully_shard(whole, mesh=mesh)
    for module in whole.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(
                1.0
            )  # the loss is divided by the tokens of all processes already
            module.set_force_sum_reduction_for_comms(True)
    return whole
