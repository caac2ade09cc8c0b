"""The tally of one model: its batch and precision, the weights counted so far, and the rules for the smallest
parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from ...parts.layers import ACTIVATIONS, LayerNorm, RMSNorm
from .counted import count, vectors
from .operations import MatrixProduct, Operations, VectorPass
from .part import FULL, Part, product, whole

# What an activation keeps: tensors beside its result, and whether it keeps its result.
KEEPS = {
    "relu": (0, True),
    "relu_squared": (1, False),
    "tanh": (0, True),
    "gelu": (1, False),
    "gelu_tanh": (1, False),
    "silu": (1, False),
    "gelu_sigmoid": (2, False),
}


class Tally:
    """What has been counted of one model. Weights count where they are met first."""

    def __init__(self, batch: int, number: int) -> None:
        """number: bytes of a number in a matrix product."""
        self.batch, self.number = batch, number
        self.seen: set[int] = set()  # weights counted already
        self.multiplied: dict[int, int] = {}  # weights that matrix products use: their sizes
        # Bytes and FLOPs of scores that were counted by running them.
        self.scores: dict[object, tuple[int, int]] = {}

    def weights(self, weights: Iterable[Tensor]) -> int:
        """How many numbers these hold, leaving out what was counted before."""
        new = {id(weight): weight.numel() for weight in weights if id(weight) not in self.seen}
        self.seen |= new.keys()
        return sum(new.values())

    def table(self, name: str, table: Tensor) -> Part:
        """A table that is looked up: no products, and nothing kept."""
        shared = id(table) in self.seen
        rows, width = table.shape
        return Part(
            name, "shared with the encoder" if shared else f"{rows:,} x {width:,}", self.weights([table])
        )

    def linear(self, name: str, layer: nn.Linear, rows: int) -> Part:
        """Parameters and FLOPs only: the caller counts the input, once for all layers that share it."""
        self.multiplied[id(layer.weight)] = layer.weight.numel()
        detail = f"{layer.in_features:,} to {layer.out_features:,}"
        formula, runs = product(2, rows, *layer.weight.shape), product_of(rows, *layer.weight.shape)
        weights = self.weights(layer.parameters())
        return Part(name, detail, weights, runs.flops, formula=formula, operations=(runs,))

    def dense(self, name: str, layer: Any, rows: int) -> Part:
        """A linear layer with its input in fp32, however its weights are stored."""
        sizes, detail = (
            layer.in_features * layer.out_features,
            f"{layer.in_features:,} to {layer.out_features:,}",
        )
        kept = FULL * rows * layer.in_features
        formula = product(2, rows, layer.in_features, layer.out_features)
        runs = (product_of(rows, layer.out_features, layer.in_features),)
        weights = self.weights(layer.parameters())
        return Part(name, detail, weights, 2 * rows * sizes, kept, formula=formula, operations=runs)

    def tied(self, name: str, table: Tensor, bias: Tensor | None, rows: int) -> Part:
        """A product with the token embedding."""
        self.multiplied[id(table)] = table.numel()
        own = self.weights([] if bias is None else [bias])
        formula, runs = product(2, rows, *table.shape), product_of(rows, *table.shape)
        told = "tied to the token embedding"
        return Part(name, told, own, runs.flops, formula=formula, operations=(runs,))

    def norm(self, norm: nn.Module, rows: int, width: int) -> Part:
        """A norm keeps its input and, for each row, a mean and a scale (RMSNorm: a scale)."""
        if isinstance(norm, nn.Identity):
            return Part("norm")
        if isinstance(norm, nn.Sequential):
            return replace(whole("norm", [self.norm(each, rows, width) for each in norm]), parts=())
        if isinstance(norm, nn.Linear):  # OPT's way back to narrower embeddings
            return replace(self.linear("norm", norm, rows), kept=self.number * rows * width)
        if isinstance(norm, nn.Dropout):
            return Part("norm", kept=self.dropout(norm, rows * width))
        if isinstance(norm, LayerNorm | RMSNorm):
            statistics = 2 if isinstance(norm, LayerNorm) else 1
            kept, weights = FULL * rows * (width + statistics), self.weights(norm.parameters())
            runs = (VectorPass("norm", rows, width),)
            return Part("norm", parameters=weights, kept=kept, operations=runs)
        return count(self, "norm", norm, lambda meta: meta(vectors(rows, width)))

    def dropout(self, dropout: Any, numbers: int) -> int:
        """Bytes of a dropout mask: one for each number."""
        return numbers if dropout.p > 0 else 0

    def dropped(self, dropout: Any, rows: int, width: int) -> Operations:
        """The pass over vectors that dropout is."""
        return (VectorPass("dropout", rows, width),) if dropout.p > 0 else ()


def product_of(rows: int, out_features: int, *in_features: int) -> MatrixProduct:
    """The product with a weight of this shape; of a convolution, with all places that it sees."""
    return MatrixProduct(rows, math.prod(in_features), out_features)


def activation_rule(function: Any) -> tuple[str, int, bool]:
    """An activation's name, how many tensors it keeps beside its result, and whether it keeps its result."""
    name = next((name for name, known in ACTIVATIONS.items() if known is function), None)
    if name is None:  # not one of ours: it keeps its input and its result at most
        return getattr(function, "__name__", type(function).__name__), 1, True
    return name, *KEEPS[name]


def rule_for(rules: dict[type, Callable[..., Any]], module: object) -> Callable[..., Any] | None:
    """The rule of the module's class or of the nearest class above it; None: there is none, so it must be
    run."""
    return next((rules[kind] for kind in type(module).__mro__ if kind in rules), None)
