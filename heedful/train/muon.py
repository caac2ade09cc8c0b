"""Muon (Jordan 2024): momentum whose directions are made equally long, for the matrices inside a model.

An update G = U S V' becomes nearly U V': no direction of a matrix learns faster than another. The polynomial
that does so (Newton and Schulz's, five times) is only matrix products, and here all matrices of one shape
take part in the same products: a small model has dozens of them, and one call each costs more than its
arithmetic. Processes that have the same matrices, or parts of them, share the work: each makes whole ones of
its share, and gives the others what comes out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Jordan's: steepest at zero; singular values end between 0.7 and 1.2.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalize(updates_NAB: Tensor) -> Tensor:
    """Each matrix with its singular values brought near 1. On a GPU in bf16, which is exact enough.

    Args:
        updates_NAB: N matrices.

    Returns:
        Matrices of the same shape.

    Example:
        >>> found = orthogonalize(torch.tensor([[[3.0, 0.0], [0.0, 1.0]]]))
        >>> bool((torch.linalg.svdvals(found) - 1).abs().max() < 0.4)
        True
    """
    dtype = updates_NAB.dtype
    x = updates_NAB.bfloat16() if updates_NAB.device.type == "cuda" else updates_NAB
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(dtype)


AT_ONCE = 1 << 28  # bytes of whole matrices that a process holds, or one matrix of each process


def orthogonalize_together(updates: Sequence[Tensor]) -> list[Tensor]:
    """Each of many matrices orthogonalized, by one process. They are alike, and every process has all of
    them, or parts of all."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    processes, rank = dist.get_world_size(), dist.get_rank()
    few = max(1, AT_ONCE // (updates[0].numel() * updates[0].element_size()) // processes)
    found: list[Tensor] = []
    while len(found) < len(updates):
        some = updates[len(found) : len(found) + few * processes]
        each = -(-len(some) // processes)
        whole = [update.full_tensor() if isinstance(update, DTensor) else update for update in some]
        mine = whole[rank * each : (rank + 1) * each]
        mine += [torch.zeros_like(whole[0])] * (each - len(mine))
        own_NAB = orthogonalize(torch.stack(mine))
        all_NAB = own_NAB.new_empty(each * processes, *own_NAB.shape[1:])
        gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # torch 2.13 renamed it
        gather(all_NAB, own_NAB)
        for update, made_AB in zip(some, all_NAB, strict=False):
            if isinstance(update, DTensor):
                made_AB = distribute_tensor(
                    made_AB, update.device_mesh, update.placements, src_data_rank=None
                )
            found.append(made_AB)
    return found


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum; updates have the size AdamW's would have (Moonshot's rule: 0.2 a weight).

    Args:
        matrices: The weights to train, each a matrix.
        lr: Learning rate; it may be a tensor.
        weight_decay: Weight decay.
        momentum: Share of the last update that is kept.

    Attributes:
        found_inf: As in torch's fused optimizers: a tensor that leaves the update out where it is 1.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
        >>> (weight.sum()).backward()
        >>> _ = Muon([weight], lr=0.1, weight_decay=0.0).step()
        >>> bool(weight.any())
        True
    """

    found_inf: Tensor | None = None
    together = False  # whether all processes make the same updates, or have parts of the same matrices

    def __init__(
        self, matrices: Sequence[Tensor], lr: float, weight_decay: float, momentum: float = 0.95
    ) -> None:
        for matrix in matrices:
            if matrix.ndim != 2:
                raise ValueError(f"Muon is for matrices, not for a weight of shape {tuple(matrix.shape)}")
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike[tuple(matrix.shape)].append(matrix)
            for matrices in alike.values():
                self._update(matrices, group["lr"], group["weight_decay"], group["momentum"])

    def _update(self, matrices: list[Tensor], rate: float | Tensor, decay: float, momentum: float) -> None:
        for matrix in matrices:
            if "momentum_buffer" not in self.state[matrix]:
                self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        buffers = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
        if self.found_inf is not None:  # then nothing moves: momentum meets itself, and the rate is 0
            good = 1 - self.found_inf
            gradients = [torch.where(good > 0, g, b) for g, b in zip(gradients, buffers, strict=True)]
            rate = rate * good
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)
        if self.together:
            updates = orthogonalize_together(ahead)
        else:
            updates = list(orthogonalize(torch.stack(tuple(ahead))).unbind())
        torch._foreach_mul_(updates, -rate * 0.2 * math.sqrt(max(matrices[0].shape)))
        torch._foreach_mul_(matrices, 1 - rate * decay)
        torch._foreach_add_(matrices, updates)
