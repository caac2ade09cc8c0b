"""LoRA (Hu et al. 2022): a frozen layer, and beside it a product of two thin matrices that learns.

    y = x W^T + b  +  (alpha / rank) dropout(x) A^T B^T        A [rank, in], B [out, rank]

B is zero at the start, so an adapted model begins as exactly the model it adapts. What was learned is a
matrix of low rank, and can be added to W once and for all (`merge`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks import Block

LAYERS = ("query", "key", "value", "out", "gate", "up", "down")  # linear layers of a block, by our names
USUAL = ("query", "value")  # what the paper adapts


@dataclass(frozen=True)
class Lora:
    """The numbers of an adapter, and which layers of each block have one.

    Attributes:
        rank: Width r of the adapter.
        alpha: Its output is multiplied by alpha / rank.
        dropout: Share of its input that is set to 0 in training.
        layers: Names of linear layers; by default those that the paper adapts.

    Example:
        >>> Lora(rank=4, alpha=8.0).scale
        2.0
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    layers: tuple[str, ...] = USUAL

    @property
    def scale(self) -> float:
        """Factor of the adapter's output: alpha / rank."""
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """A linear layer with an adapter: W x + (alpha / rank) B A x. Only A and B learn.

    Args:
        base: The layer that the adapter stands beside; its weight and bias keep their names.
        lora: Rank, scale and dropout.

    Example:
        >>> layer = LoraLinear(torch.nn.Linear(4, 6), Lora(rank=2, alpha=4.0))
        >>> x_BTD = torch.ones(1, 3, 4)
        >>> torch.allclose(layer(x_BTD), layer.merged()(x_BTD))
        True
    """

    def __init__(self, base: nn.Linear, lora: Lora) -> None:
        super().__init__(base.in_features, base.out_features, bias=False, device="meta")
        self.weight, self.bias = base.weight, base.bias
        self.A = nn.Parameter(base.weight.new_empty(lora.rank, base.in_features))
        self.B = nn.Parameter(base.weight.new_zeros(base.out_features, lora.rank))
        self.scale, self.dropout = lora.scale, nn.Dropout(lora.dropout)
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))  # as nn.Linear begins

    def forward(self, x_BTD: Tensor) -> Tensor:
        thin_BTR = F.linear(self.dropout(x_BTD), self.A)
        return F.linear(x_BTD, self.weight, self.bias) + self.scale * F.linear(thin_BTR, self.B)

    def merged(self) -> nn.Linear:
        """One layer that does the same, with the adapter added to its weight.

        Returns:
            `torch.nn.Linear`.
        """
        layer = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        weight_XD = self.weight.detach()
        wide = torch.promote_types(weight_XD.dtype, torch.float32)
        learned_XD = self.scale * (self.B.detach().to(wide) @ self.A.detach().to(wide))
        layer.weight = nn.Parameter((weight_XD.to(wide) + learned_XD).to(weight_XD.dtype))
        if self.bias is not None:
            layer.bias = self.bias
        return layer


def adapt(model: nn.Module, lora: Lora) -> list[str]:
    """Give every layer of these names, in every block, an adapter; all other weights are frozen.

    Layers that have one weight in common (ALBERT's) have one adapter in common too.

    Args:
        model: A model, which is changed.
        lora: The adapters.

    Returns:
        The paths of the adapted layers, in the order of the model.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> len(adapt(model, Lora(rank=2)))
        4
    """
    found = [path for path, _ in adaptable(model, lora.layers)]
    first: dict[int, LoraLinear] = {}
    for path in found:
        base: Any = model.get_submodule(path)
        made = LoraLinear(base, lora)
        if (other := first.setdefault(id(base.weight), made)) is not made:
            made.A, made.B = other.A, other.B
        put(model, path, made)
    return found


def adaptable(model: nn.Module, names: Collection[str]) -> Iterator[tuple[str, nn.Linear]]:
    """(path, layer) of the linear layers inside blocks that have one of these names."""
    for path, block in model.named_modules():
        if isinstance(block, Block):
            for inner, layer in block.named_modules():
                if type(layer) is nn.Linear and inner.rpartition(".")[2] in names:
                    yield f"{path}.{inner}", layer


def adapters(model: nn.Module) -> dict[str, LoraLinear]:
    """The layers of a model that have an adapter.

    Args:
        model: A model.

    Returns:
        {path: layer}.

    Example:
        >>> adapters(heedful.load("runs/lm").model)
        {}
    """
    return {path: layer for path, layer in model.named_modules() if isinstance(layer, LoraLinear)}


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """Meanwhile the model is the one that was adapted."""
    scales = {layer: layer.scale for layer in adapters(model).values()}
    try:
        for layer in scales:
            layer.scale = 0.0
        yield
    finally:
        for layer, scale in scales.items():
            layer.scale = scale


def merge(model: nn.Module) -> nn.Module:
    """Add what adapters have learned to the layers that they stand beside; the model has none afterwards.

    Args:
        model: A model with adapters, which is changed.

    Returns:
        The same model.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> paths = adapt(model, Lora(rank=2))
        >>> len(adapters(merge(model)))
        0
    """
    first: dict[int, nn.Linear] = {}  # of layers that have one weight in common
    for path, layer in adapters(model).items():
        made = layer.merged()
        made.weight = first.setdefault(id(layer.weight), made).weight
        put(model, path, made)
    return model


def put(model: nn.Module, path: str, layer: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, layer)
