"""Optimizers: which weights are pulled towards zero, which are orthogonalized, and their state by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..parts.embeddings import TokenEmbedding
from ..parts.positions.absolute import Learned
from .muon import Muon
from .processes import placed_as


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """(name, weight) of every weight that is to be trained."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def decayed(model: nn.Module) -> set[str]:
    """Names of the weights that decay: matrices. Gains, biases and tables of vectors do not."""
    tables = {
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        if isinstance(module, TokenEmbedding | Learned | nn.Embedding)
        for name, _ in module.named_parameters(recurse=False)
    }
    return {name for name, weight in model.named_parameters() if weight.ndim >= 2 and name not in tables}


def adamw(
    model: nn.Module, rate: float, decay: float, betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-9
) -> list[torch.optim.Optimizer]:
    """AdamW by torch's fused kernel, with the Transformer paper's betas and eps.

    Args:
        model: The model. Matrices decay; gains, biases and tables of vectors do not.
        rate: Learning rate.
        decay: Weight decay.
        betas: Of the two moving averages.
        eps: Keeps the divisor above 0.

    Returns:
        The optimizer in a list, as `muon` gives its two.

    Example:
        >>> (optimizer,) = adamw(torch.nn.Linear(4, 4), rate=1e-3, decay=0.1)
        >>> type(optimizer).__name__
        'AdamW'
    """
    matrices = decayed(model)
    groups = [
        {"params": [p for n, p in trained(model) if n in matrices], "weight_decay": decay},
        {"params": [p for n, p in trained(model) if n not in matrices], "weight_decay": 0.0},
    ]
    kept = [group for group in groups if group["params"]]
    return [torch.optim.AdamW(kept, lr=rate, betas=betas, eps=eps, fused=True)]


def muon(
    model: nn.Module, rate: float, decay: float, betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-9
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices between embeddings and scores, AdamW for the rest, at one learning rate.

    Args:
        model: The model.
        rate: Learning rate.
        decay: Weight decay.
        betas: Of AdamW.
        eps: Of AdamW.

    Returns:
        Two optimizers.

    Example:
        >>> [type(one).__name__ for one in muon(heedful.load("runs/lm").model, rate=1e-3, decay=0.1)]
        ['Muon', 'AdamW']
    """
    inside = {n for n in decayed(model) if "stack." in n or "blocks." in n}
    matrices = [p for n, p in trained(model) if n in inside and p.ndim == 2]
    rest = [p for n, p in trained(model) if not (n in inside and p.ndim == 2)]
    made: list[torch.optim.Optimizer] = [Muon(matrices, rate, decay)] if matrices else []
    if rest:
        made.append(torch.optim.AdamW(rest, lr=rate, betas=betas, eps=eps, weight_decay=0.0, fused=True))
    return made


OPTIMIZERS = {"adamw": adamw, "muon": muon}


def set_rate(optimizers: list[torch.optim.Optimizer], rate: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def rate_on(optimizers: list[torch.optim.Optimizer], device: torch.device) -> None:
    """Keep the rate on the device, where a recorded step can read it."""
    rate = torch.zeros((), device=device)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate


def guard(optimizers: list[torch.optim.Optimizer], bad: Tensor) -> None:
    """Leave out every update while `bad`, a tensor on the device, is 1, as torch's gradient scaler does."""
    for optimizer in optimizers:
        optimizer.found_inf = bad  # type: ignore[attr-defined]


def named_state(
    model: nn.Module, optimizers: list[torch.optim.Optimizer]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(weight's name, its optimizer's state), in the order of the model."""
    for name, weight in model.named_parameters():
        for optimizer in optimizers:
            if weight in optimizer.state:
                yield name, optimizer.state[weight]


def state_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Everything the optimizers remember, as named tensors, spread over the processes as it is."""
    return {
        f"{name}:{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for name, state in named_state(model, optimizers)
        for key, value in state.items()
    }


def load_state_tensors(
    model: nn.Module, optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]
) -> None:
    """Put back what `state_tensors` gave. The tensors are kept, not copied."""
    weights = dict(model.named_parameters())
    owner = {id(p): o for o in optimizers for group in o.param_groups for p in group["params"]}
    for key, value in tensors.items():
        name, _, part = key.rpartition(":")
        weight = weights[name]
        # The number of steps stays on the CPU, unless the kernel is fused.
        counts = part == "step" and not owner[id(weight)].defaults.get("fused")
        own = value if counts else placed_as(weight, value)
        owner[id(weight)].state[weight][part] = own
