"""torch.nn: nn.Transformer, and for a language model nn.TransformerEncoder with a causal mask.

It has no cache to decode with, so it is measured in training only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import units
from ..work import FULL, TrainGPT2, TrainTransformer, Work, dropout_of
from . import Place, Variant

PACKAGE = DISTRIBUTION = "torch"
INSTALL = "pip install torch"


def variants(work: Work) -> list[Variant]:
    if not work.trains or (isinstance(work, TrainGPT2) and work.attention != FULL):
        return []
    differs = "weights of its own; the vocabulary filled up to a multiple of 64"
    if dropout_of(work):
        differs += "; dropout inside attention and feed-forward layers as well, but not of embeddings"
    return [Variant("", differs=differs), Variant("compiled", compiled=True, differs=differs)]


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    torch.manual_seed(units.SEED)
    if isinstance(work, TrainGPT2):
        model, batch = TorchLanguageModel(work).to(place.device), [units.windows(work, place)]
        return units.training(model, model, batch, variant.compiled, place)
    assert isinstance(work, TrainTransformer)
    translator = TorchTranslator(work).to(place.device)
    return units.training(translator, translator, units.pairs(work, place), variant.compiled, place)


class TorchLanguageModel(nn.Module):
    """From windows to their loss."""

    mask_TT: Tensor

    def __init__(self, work: TrainGPT2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(units.padded(work.vocab), work.width)
        self.positions = nn.Embedding(work.length, work.width)
        layer = nn.TransformerEncoderLayer(
            work.width, work.heads, work.hidden, 0.0, gelu_tanh, batch_first=True, norm_first=True
        )
        self.stack = nn.TransformerEncoder(
            layer, work.layers, nn.LayerNorm(work.width), enable_nested_tensor=False
        )
        self.register_buffer("mask_TT", nn.Transformer.generate_square_subsequent_mask(work.length))
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, windows_BT: Tensor) -> Tensor:
        x_BTD = self.tokens(windows_BT[:, :-1]) + self.positions.weight
        x_BTD = self.stack(x_BTD, self.mask_TT, is_causal=True)
        return units.cross_entropy(x_BTD @ self.tokens.weight.T, windows_BT[:, 1:])


class TorchTranslator(nn.Module):
    """From sources and targets to their loss."""

    mask_TT: Tensor
    positions_TD: Tensor

    def __init__(self, work: TrainTransformer) -> None:
        super().__init__()
        self.width = work.width
        self.tokens = nn.Embedding(units.padded(work.vocab), work.width)
        self.body = nn.Transformer(
            work.width, work.heads, work.layers, work.layers, work.hidden, work.dropout, batch_first=True
        )
        self.register_buffer("positions_TD", sinusoids(max(work.source, work.target), work.width))
        self.register_buffer("mask_TT", nn.Transformer.generate_square_subsequent_mask(work.target))
        nn.init.normal_(self.tokens.weight, std=1 / math.sqrt(work.width))

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        read, written = self.embed(source_BS), self.embed(target_BT[:, :-1])
        x_BTD = self.body(read, written, tgt_mask=self.mask_TT, tgt_is_causal=True)
        return units.cross_entropy(x_BTD @ self.tokens.weight.T, target_BT[:, 1:])

    def embed(self, tokens_BT: Tensor) -> Tensor:
        return self.tokens(tokens_BT) * math.sqrt(self.width) + self.positions_TD[: tokens_BT.shape[1]]


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def sinusoids(length: int, width: int) -> Tensor:
    angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, width, 2) / width))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
