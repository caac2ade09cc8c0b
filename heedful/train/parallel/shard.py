"""Shards: every process has a part of each weight, block by block (FSDP2); copies of shards, if asked for."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from ...parts.blocks import Block
from .wrapped import Wrapped


def shard(model: nn.Module, mesh: DeviceMesh) -> Wrapped:
    """mesh: shards, or copies of shards; gradients are added, not averaged."""
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    wrapped = Wrapped(model)
    fully_shard(wrapped, mesh=mesh)
    for module in wrapped.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # the loss was divided by the tokens of all processes
            module.set_force_sum_reduction_for_comms(True)
    return wrapped
