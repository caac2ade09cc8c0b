"""Where a computation is in parts: vectors go in whole, each process computes a part, and the sum comes out.

    whole x  --enter-->  each process: its heads, its hidden units, its words  --leave-->  whole y

What is copied on the way in has its gradients added on the way back, and the other way round (Shoeybi et al.
2019). Processes of a group compute everything outside alike.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard


def enter(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """x as it is; its gradient is the sum of what the parts say."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return x
    copies = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    return copies.to_local(grad_placements=[Partial()])


def leave(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The sum of all parts, in every process."""
    parts = DTensor.from_local(x, mesh, [Partial()], run_check=False)
    return parts.redistribute(placements=[Replicate()]).to_local()


def largest(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """The largest of all parts; a number that nobody learns from."""
    return DTensor.from_local(x.detach(), mesh, [Partial("max")], run_check=False).full_tensor()


def together(x: Tensor, mesh: DeviceMesh, axis: int, length: int) -> Tensor:
    """Parts side by side along an axis, of so many entries in all."""
    axis %= x.ndim
    shape = torch.Size([*x.shape[:axis], length, *x.shape[axis + 1 :]])
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        x.contiguous(), mesh, [Shard(axis)], run_check=False, shape=shape, stride=stride
    ).full_tensor()


def share_of(length: int, mesh: DeviceMesh) -> range:
    """Which of so many entries this process has, as `Shard` divides them."""
    size = -(-length // mesh.size())
    first = min(length, mesh.get_local_rank() * size)
    return range(first, min(length, first + size))
