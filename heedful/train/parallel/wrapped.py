"""A model inside what spreads it: all that is done with it happens inside one forward pass of the wrapper."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..loss import Loss


class Wrapped(nn.Module):
    """A model whose forward pass does what is asked: torch gathers weights and adds gradients around it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, do: Callable[[nn.Module], Any]) -> Any:
        return do(self.model)


def bare(model: nn.Module) -> nn.Module:
    """The model itself, whose paths are those of the plain one."""
    if isinstance(model, DistributedDataParallel):
        model = model.module
    return model.model if isinstance(model, Wrapped) else model


def within(model: nn.Module, do: Callable[[nn.Module], Any]) -> Any:
    """Do something with a model that may be spread over processes; then every process must."""
    if isinstance(model, DistributedDataParallel):
        return model(do) if torch.is_grad_enabled() else do(bare(model))
    if not isinstance(model, Wrapped):
        return do(model)
    done = model(do)
    if not torch.is_grad_enabled():  # with gradients, the backward pass shards the weights again
        model.reshard()  # type: ignore[operator]
    return done


def loss_within(loss_of: Callable[[nn.Module, Any], Loss]) -> Callable[[nn.Module, Any], Loss]:
    """The loss of a model that is wrapped, for the loop."""

    def loss(wrapped: nn.Module, batch: Any) -> Loss:
        def sums(model: nn.Module) -> tuple[Tensor, Tensor, Tensor | None]:
            found = loss_of(model, batch)
            return found.total, found.nll, found.expert_load_LE

        total, nll, expert_load_LE = within(wrapped, sums)
        return Loss(total, nll, batch.count, expert_load_LE)

    return loss


def reducing(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """A micro-batch of a step: copies add up gradients at the last one only.

    Shards add theirs up at each, so that no process holds whole gradients; copies of shards wait.
    """
    if isinstance(model, DistributedDataParallel):
        return nullcontext() if last else model.no_sync()
    if isinstance(model, Wrapped):
        model.set_requires_all_reduce(last)  # type: ignore[operator]
    return nullcontext()
