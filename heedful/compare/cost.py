"""What a variant costs, before it is trained: parameters, FLOPs and tokens of a step, and memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ..inside.costs import costs, count_active, count_parameters
from ..models.base.shells import DecoderClassifier
from ..parts.watch import watch
from ..runs import setup
from ..runs.memory import shape_of
from ..tasks.recipe.settings import Recipe
from ..tasks.task import Job
from ..train import loop

LOOKED_AT = 10  # steps whose batches stand for all


@dataclass(frozen=True)
class VariantCost:
    """What a variant costs."""

    parameters: int
    active: int  # of them, those that a token meets
    flops: float  # of a training step: matrix products, forward and backward, padding included
    tokens: float  # targets of a step
    memory: int  # bytes of tensors in a training step at most


def cost_of(recipe: Recipe, job: Job, device: torch.device) -> VariantCost:
    """Build the model, and make two steps that are thrown away."""
    few = replace(recipe, train=replace(recipe.train, steps=2, compile=False))
    model = setup.new_model(job, few, device)
    batches = [job.batches(step) for step in range(LOOKED_AT)]
    rule = flops_rule(model, job, recipe)
    return VariantCost(
        count_parameters(model),
        count_active(model),
        statistics.fmean(sum(map(rule, micro)) for micro in batches),
        statistics.fmean(sum(batch.count for batch in micro) for micro in batches),
        step_memory(model, few, job, max(batches, key=padded_size), device),
    )


def padded_size(micro: Any) -> int:
    return max(rows * (length + (source or 0)) for rows, length, source in map(shape_of, micro))


# FLOPs: by arithmetic where there is a rule for every part, else counted while the model runs. The two
# agree where both can be had.


def flops_rule(model: nn.Module, job: Job, recipe: Recipe) -> Callable[[Any], float]:
    """From a micro-batch to the FLOPs of training on it."""
    body = model.decoder if isinstance(model, DecoderClassifier) else model

    def by_arithmetic(batch: Any) -> float:
        rows, length, source = shape_of(batch)
        return (
            3.0 * costs(body, rows, min(length, getattr(job.config, "context", length)), source).whole.flops
        )

    def by_counting(batch: Any) -> float:
        return counted(model, job, batch)

    try:
        by_arithmetic(job.batches(0)[0])
        return by_arithmetic
    except (ValueError, AttributeError):
        return by_counting


def counted(model: nn.Module, job: Job, batch: Any) -> float:
    """What torch counts; attention is watched, and so computed by products that torch knows."""
    device = next(model.parameters()).device
    try:
        watched: Any = watch(model)
        watched.__enter__()
    except ValueError:  # no attention of the kind that can be watched
        watched = nullcontext()
    try:
        with FlopCounterMode(display=False) as counter:
            job.loss(model.train(), batch.to(device)).total.backward()
    finally:
        watched.__exit__(None, None, None)
        model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


# Memory.


def step_memory(model: nn.Module, recipe: Recipe, job: Job, micro: Any, device: torch.device) -> int:
    """Bytes of tensors alive at once, at most, in a training step on the largest batch; weights included."""
    trained, loss_of = setup.prepare_model(model, job.loss, recipe, device)
    optimizers = setup.make_optimizers(recipe, model)
    settings, scaler = setup.loop_settings(recipe, job, device), setup.make_scaler(recipe, device)
    made = loop.train(trained, lambda step: micro, loss_of, optimizers, settings, scaler=scaler)
    next(made)  # from now on the optimizer's own memory is there
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        next(made)
        return torch.cuda.max_memory_allocated(device)
    states = [value for o in optimizers for state in o.state.values() for value in state.values()]
    with LiveMemory(
        [*model.parameters(), *(value for value in states if isinstance(value, Tensor))]
    ) as alive:
        next(made)
    return alive.most


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive after each operation, each storage once."""

    def __init__(self, there: list[Any]) -> None:
        super().__init__()
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = self.now = 0
        for tensor in there:
            self.note(tensor)

    def note(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        known = self.storages.get(storage._cdata)
        if known is None or known[0].expired():
            self.now += storage.nbytes() - (0 if known is None else known[1])
            self.storages[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())

    def prune(self) -> None:
        for key in [key for key, (storage, _) in self.storages.items() if storage.expired()]:
            self.now -= self.storages.pop(key)[1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.prune()
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.note(tensor)
        self.most = max(self.most, self.now)
        return out
