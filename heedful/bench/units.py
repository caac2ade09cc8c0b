"""Units of work in torch: the tokens everyone is given, and the training step that every peer in torch makes.

A step is forward, cross-entropy, backward and AdamW, on one batch that lies on the device; no clipping, no
look at the loss, as in nanoGPT's own bench.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .peers import Place
from .work import Decode, TrainGPT2, TrainTransformer, Translate

SEED, RATE = 1234, 3e-4


def tokens(vocab: int, rows: int, length: int, place: Place, what: int = 0) -> Tensor:
    """The same random tokens in every process; the first and the last of a vocabulary have meanings."""
    fixed = torch.Generator().manual_seed(SEED + what)
    return torch.randint(1, vocab - 1, (rows, length), generator=fixed).to(place.device)


def windows(work: TrainGPT2, place: Place) -> Tensor:
    """[B, T + 1]: each token is to be predicted from those before it."""
    return tokens(work.vocab, work.batch, work.length + 1, place)


def pairs(work: TrainTransformer, place: Place) -> tuple[Tensor, Tensor]:
    """Source [B, S] and target [B, T + 1]."""
    source_BS = tokens(work.vocab, work.batch, work.source, place)
    return source_BS, tokens(work.vocab, work.batch, work.target + 1, place, 1)


def prompts(work: Decode, place: Place) -> Tensor:
    return tokens(work.vocab, work.batch, work.prompt, place)


def sources(work: Translate, place: Place) -> Tensor:
    return tokens(work.vocab, work.batch, work.source, place)


def padded(vocab: int) -> int:
    """A vocabulary size as a GPU likes it: a multiple of 64, unless it is a small one of characters."""
    return vocab if vocab < 1000 else -(-vocab // 64) * 64


def cross_entropy(scores_BTV: Tensor, answers_BT: Tensor) -> Tensor:
    return F.cross_entropy(scores_BTV.flatten(0, 1), answers_BT.flatten())


def training(
    model: nn.Module,
    loss_of: Callable[..., Tensor],
    batch: Iterable[Tensor],
    compiled: bool,
    place: Place,
    optimizer: torch.optim.Optimizer | None = None,
) -> Callable[[], Any]:
    """One training step a call, on the same batch every time; it gives the loss before the step."""
    model.to(place.device).train()
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    given = tuple(batch)
    score = torch.compile(loss_of) if compiled else loss_of

    def step() -> Tensor:
        with place.autocast():
            loss = score(*given)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step
