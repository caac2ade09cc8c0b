"""Language model: predict every next token of a text."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..models.gpt2 import GPT2Config
from ..models.shells import Decoder
from ..recipe import Recipe
from ..train.loss import Loss, sequence_loss


@dataclass(frozen=True)
class WindowBatch:
    """Windows of a text, each one token longer than what the model reads."""

    tokens_BT: Tensor
    ids: tuple[int, ...] = ()  # where the windows start

    @property
    def count(self) -> int:
        return len(self.tokens_BT) * (self.tokens_BT.shape[1] - 1)

    def to(self, device: torch.device) -> WindowBatch:
        return (
            self
            if device.type == "cpu"
            else WindowBatch(self.tokens_BT.to(device, non_blocking=True), self.ids)
        )


def loss_of(model: Decoder, batch: WindowBatch, smoothing: float = 0.0) -> Loss:
    """Every token but the first is predicted from those before it."""
    hidden_BTD = model.hidden(batch.tokens_BT[:, :-1])
    answers_BT = batch.tokens_BT[:, 1:]
    return sequence_loss(
        lambda x: model.head(x, model.inputs.tokens), hidden_BTD, answers_BT, batch.count, smoothing
    )


def config_of(recipe: Recipe, vocab: int) -> GPT2Config:
    """GPT-2's architecture at the recipe's sizes."""
    m = recipe.model
    return GPT2Config(
        vocab=vocab,
        context=m.context,
        layers=m.layers,
        width=m.width,
        heads=m.heads,
        hidden=m.hidden,
        activation=m.activation,
        dropout=m.dropout,
        attention_dropout=m.dropout,
    )
