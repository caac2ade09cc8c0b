"""A model spread over the processes of a run, as its grid says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from ..loss import Loss
from .replicate import BUCKET_MEGABYTES, replicate
from .shard import shard
from .tensor import split
from .way import ProcessGrid
from .wrapped import loss_within

LossOf = Callable[[nn.Module, Any], Loss]
AXES = ("replicas", "shards", "tensor")


def spread(
    model: nn.Module,
    loss_of: LossOf,
    grid: ProcessGrid,
    device: torch.device,
    bucket_megabytes: float = BUCKET_MEGABYTES,
) -> tuple[nn.Module, LossOf]:
    """The model as the loop sees it, and its loss. Every process must call this."""
    if grid.shards == grid.tensor == 1:
        return replicate(model, bucket_megabytes), loss_within(loss_of)
    mesh = init_device_mesh(device.type, (grid.replicas, grid.shards, grid.tensor), mesh_dim_names=AXES)
    if grid.tensor > 1:
        split(model, mesh["tensor"])
    if grid.replicas * grid.shards == 1:
        return model, loss_of
    # Copies of matrices in parts are shards of one process each: DistributedDataParallel takes no parts.
    return shard(model, mesh["shards"] if grid.replicas == 1 else mesh["replicas", "shards"]), loss_within(
        loss_of
    )
