"""Tensor parallelism: a group of processes computes each example together, each with a part of every matrix.

    attention      some heads: query, key and value by columns, out by rows
    feed-forward   some hidden units: up and gate by columns, down by rows
    embeddings     some words, and so the scores and the loss (`vocabulary`)
    the rest       whole in every process, which all compute alike

Weights are DTensors, so that optimizers, clipping, checkpoints and FSDP know what they are parts of. A module
reads its own parts as plain tensors, so that inside a block nothing else changes. Processes of a group draw
the same random numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

from ...models.base.shells import Decoder, Encoder, EncoderDecoder
from ...parts.embeddings import Tied, TokenEmbedding, Untied
from ...parts.layers import FeedForward, GatedFeedForward
from ...parts.lora import LoraLinear
from ...parts.multihead import MultiHeadAttention
from .regions import enter, leave
from .splittable import kind_of, refuse_unsplittable
from .vocabulary import SplitEmbedding, SplitHead


def split(model: nn.Module, mesh: DeviceMesh) -> None:
    """Make each process of a mesh keep its part of the model only."""
    refuse_unsplittable(model, mesh.size())
    plan = SplitPlan(mesh)
    for module in list(model.modules()):
        if kind_of(module) is MultiHeadAttention:
            plan.attention(module)
        elif kind_of(module) in (FeedForward, GatedFeedForward):
            plan.feed_forward(module)
    plan.vocabulary(model)
    plan.carry_out(model)


# Who has what.


class SplitPlan:
    """The part of each weight that a process has, and what its modules do with it."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self.placements: dict[int, Placement] = {}  # by weight; others are whole
        self.summed: set[int] = set()  # whole weights that parts use: their gradients are added
        self.roles: dict[int, type[nn.Module]] = {}  # by module

    def attention(self, layer: Any) -> None:
        self.roles[id(layer)] = SplitAttention
        self.parts_use(layer)
        for linear in (layer.query, layer.key, layer.value):
            self.columns(linear)
        self.rows(layer.out)
        layer.heads //= self.mesh.size()
        layer.kv_heads //= self.mesh.size()

    def feed_forward(self, layer: Any) -> None:
        self.roles[id(layer)] = SplitFeedForward
        self.parts_use(layer)
        for linear in (layer.up, getattr(layer, "gate", None)):
            if linear is not None:
                self.columns(linear)
        self.rows(layer.down)

    def parts_use(self, module: nn.Module) -> None:
        self.summed |= {id(weight) for weight in module.parameters()}

    def columns(self, linear: nn.Linear) -> None:
        """Some of what a linear layer puts out."""
        self.place(Shard(0), linear.weight, linear.bias)
        if isinstance(linear, LoraLinear):
            self.place(Shard(0), linear.B)

    def rows(self, linear: nn.Linear) -> None:
        """Some of what a linear layer takes in; the bias is added once, to the sum."""
        self.roles[id(linear)] = SplitRows
        self.place(Shard(1), linear.weight)
        self.place(Replicate(), linear.bias)
        if isinstance(linear, LoraLinear):
            self.place(Shard(1), linear.A)

    def place(self, placement: Placement, *weights: Tensor | None) -> None:
        for weight in weights:
            if weight is not None:
                self.placements[id(weight)] = placement
                self.summed.discard(id(weight))

    def vocabulary(self, model: nn.Module) -> None:
        """Embeddings and scores by words, where nothing but a plain head reads the table."""
        decoder = model.decoder if kind_of(model) is EncoderDecoder else model
        if not isinstance(decoder, Decoder) or kind_of(decoder.head) not in (Tied, Untied):
            return
        sides = [side for side in model.modules() if isinstance(side, Encoder | Decoder)]
        tables: list[Any] = [side.inputs.tokens for side in sides if hasattr(side.inputs, "tokens")]
        if any(kind_of(table) is not TokenEmbedding or not self.divides(table.weight) for table in tables):
            return
        for table in tables:
            self.roles[id(table)] = SplitEmbedding
            self.place(Shard(0), table.weight)
        head: Any = decoder.head
        self.roles[id(head)] = SplitHead
        head.vocab = len(head.linear.weight if kind_of(head) is Untied else decoder.inputs.tokens.weight)
        for weight in head.parameters():
            self.place(Shard(0), weight)

    def divides(self, table_VD: Tensor) -> bool:
        """Whether every process gets a word."""
        size = -(-len(table_VD) // self.mesh.size())
        return size * (self.mesh.size() - 1) < len(table_VD)

    def carry_out(self, model: nn.Module) -> None:
        made: dict[int, nn.Parameter] = {}
        for module in list(model.modules()):
            names = []
            for name, weight in module._parameters.items():
                if weight is None:
                    continue
                names.append((name, id(weight) in self.summed))
                if id(weight) not in made:
                    made[id(weight)] = self.distributed(weight)
                module._parameters[name] = made[id(weight)]
            role: Any = self.roles.get(id(module))
            if names or role:
                kind: Any = type(module)
                module.__class__ = split_class(kind, role, tuple(names))
                module.tensor_mesh = self.mesh  # type: ignore[assignment]

    def distributed(self, weight: nn.Parameter) -> nn.Parameter:
        placement = self.placements.get(id(weight), Replicate())
        part = distribute_tensor(weight.detach(), self.mesh, [placement], src_data_rank=None)
        return nn.Parameter(part, requires_grad=weight.requires_grad)


# Modules that have a part.


@cache
def split_class(kind: Any, role: Any, names: tuple[tuple[str, bool], ...]) -> Any:
    """A class of modules that read their weights as plain tensors, and play a role."""
    read = {
        name: property(reader(name, summed, later=role is SplitRows and name == "bias"))
        for name, summed in names
    }
    bases = (kind,) if role is None else (role, kind)
    own = {"plain": getattr(kind, "plain", kind), "__module__": __name__}
    return type(f"Split{kind.__name__}", bases, {**own, **read})


def reader(name: str, summed: bool, later: bool) -> Any:
    """What a module sees of a weight: the part that this process has. later: nothing, until it asks."""

    def read(module: nn.Module) -> Tensor | None:
        weight: Any = module._parameters[name]
        if later and not (isinstance(weight, DTensor) and weight.device_mesh.ndim > 1):
            return None
        return local_part(weight, summed)

    return read


def local_part(weight: Tensor | None, summed: bool = False) -> Tensor | None:
    """The part of a weight; what FSDP has sharded as well is for FSDP alone to read."""
    if not isinstance(weight, DTensor) or weight.device_mesh.ndim > 1:
        return weight
    part = weight.to_local()
    return enter(part, weight.device_mesh) if summed else part


class SplitAttention(nn.Module):
    """Attention with some of the heads."""

    tensor_mesh: DeviceMesh

    def forward(
        self, x_BTD: Tensor, view: Any = None, source_BSD: Tensor | None = None, cache: Any = None
    ) -> Tensor:
        if source_BSD is not None:
            source_BSD = enter(source_BSD, self.tensor_mesh)
        given = (enter(x_BTD, self.tensor_mesh), view, source_BSD, cache)
        return super().forward(*given)


class SplitFeedForward(nn.Module):
    """Feed-forward with some of the hidden units."""

    tensor_mesh: DeviceMesh

    def forward(self, x_BTD: Tensor, aux: Any = None) -> Tensor:
        return super().forward(enter(x_BTD, self.tensor_mesh), aux)


class SplitRows(nn.Module):
    """A linear layer that takes in a part: the sum over processes, and then the bias."""

    tensor_mesh: DeviceMesh

    def forward(self, x: Tensor) -> Tensor:
        y = leave(super().forward(x), self.tensor_mesh)
        bias = local_part(self._parameters["bias"])
        return y if bias is None else y + bias.to(y.dtype)
