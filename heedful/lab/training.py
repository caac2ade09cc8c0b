"""A training loop for toy tasks: AdamW, a short warm-up and a linear decay."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from .toys import ToyBatch

RATE, WARMUP = 3e-3, 30


def trained(model: nn.Module, batches: Callable[[int], ToyBatch], steps: int, rate: float = RATE) -> float:
    """Train on the batches of steps 0 to steps - 1; returns the mean loss of the last tenth, in nats."""
    optimizer = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / WARMUP, (steps - step) / steps)
        batch = batches(step)
        scores = model(batch.tokens_BT)
        loss = F.cross_entropy(scores.flatten(0, -2), batch.targets.flatten(), ignore_index=-1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last)
