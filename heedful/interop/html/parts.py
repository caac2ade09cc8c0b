"""The description of a model for static/model.js: a walk over its module tree, one entry for each part.

A part without JavaScript is refused by its name. Tensors are numbered in the order in which they are met; one
that is used twice is one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ...errors import BadInput
from ...models.albert import NarrowInputs
from ...models.base import heads
from ...models.base.shells import Decoder, DecoderClassifier, Encoder, EncoderDecoder, WithHeads
from ...models.ernie import TaskInputs
from ...models.modernbert import FillAfter, LabelAfter, Prepared
from ...models.opt import WidenedInputs
from ...parts import attention, layers
from ...parts.blocks import Block, ParallelBlock, Stack
from ...parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ...parts.experts import Experts, NoisyTopK, SwitchTopK
from ...parts.multihead import MultiHeadAttention
from .positions import describe_mask, describe_position

Entry = dict[str, Any]
WORDS = {activation: name for name, activation in layers.ACTIVATIONS.items()}
ROWS = (nn.Linear, TokenEmbedding)  # whose matrices are multiplied row by row, and can be int8


class NoTwin(BadInput):
    """A part that has no JavaScript."""

    def __init__(self, part: object) -> None:
        super().__init__(f"{part} has no JavaScript: export to onnx")


@dataclass
class Description:
    """What is written of a model: its parts, and its tensors by their numbers."""

    names: dict[int, str]  # {id of a parameter: its name}
    tensors: list[tuple[str, Tensor, bool]] = field(
        default_factory=list
    )  # name, value, whether rows can be int8
    numbers: dict[int, int] = field(default_factory=dict)

    def tensor(self, value: Tensor | None, rows: bool = False) -> int | None:
        """The number of a parameter; None where a part has none."""
        if value is None:
            return None
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.tensors)
            self.tensors.append((self.names[id(value)], value, rows))
        return self.numbers[id(value)]

    def part(self, module: Any) -> Entry:
        """The entry of a module, by its own class: a subclass may compute something else."""
        kind = type(module)
        if kind not in PARTS:
            raise NoTwin(f"the part {kind.__name__}")
        return {"part": kind.__name__} | PARTS[kind](self, module)

    def steps(self, module: nn.Module) -> list[Entry]:
        """A module as steps one after the other; what does nothing has none."""
        if isinstance(module, nn.Sequential):
            return [entry for one in module for entry in self.steps(one)]
        return [] if isinstance(module, nn.Identity | nn.Dropout) else [self.part(module)]


def describe(model: nn.Module) -> tuple[Entry, list[tuple[str, Tensor, bool]]]:
    """(the description of a model, its tensors in their order)."""
    made = Description({id(value): name for name, value in model.named_parameters()})
    if type(model) not in SHELLS:
        raise NoTwin(f"a {type(model).__name__}")
    entry = {"shell": type(model).__name__} | SHELLS[type(model)](made, model)
    return entry, made.tensors


# Shells.


def encoder(to: Description, m: Encoder) -> Entry:
    return shell(to, m) | {"project_out": to.steps(m.project_out)}


def decoder(to: Description, m: Decoder) -> Entry:
    if not all(mask.past_only for mask in m.masks):
        raise NoTwin("a decoder that sees tokens before they are written")
    return shell(to, m) | {"head": to.part(m.head)}


def shell(to: Description, m: Encoder | Decoder) -> Entry:
    if type(m.stack) is not Stack:
        raise NoTwin(f"the part {type(m.stack).__name__}")
    masks = [describe_mask(mask, NoTwin) for mask in m.masks]
    return {"inputs": to.part(m.inputs), "stack": stack(to, m.stack), "masks": masks}


def stack(to: Description, m: Stack) -> Entry:
    return {"blocks": [to.part(block) for block in m.blocks], "norm": to.steps(m.norm)}


SHELLS: dict[type, Callable[[Description, Any], Entry]] = {
    Encoder: lambda to, m: {"encoder": encoder(to, m)},
    Decoder: lambda to, m: {"decoder": decoder(to, m)},
    EncoderDecoder: lambda to, m: {"encoder": encoder(to, m.encoder), "decoder": decoder(to, m.decoder)},
    DecoderClassifier: lambda to, m: {"decoder": decoder(to, m.decoder), "linear": to.part(m.linear)},
    WithHeads: lambda to, m: {
        "encoder": encoder(to, m.encoder),
        "heads": {name: to.part(head) for name, head in m.heads.items()},
    },
}


# Parts.


def name_of(activation: Callable[[Tensor], Tensor]) -> str:
    if activation not in WORDS:
        raise NoTwin(f"the activation {getattr(activation, '__name__', activation)}")
    return WORDS[activation]


def linear(to: Description, m: nn.Linear) -> Entry:
    return {"weight": to.tensor(m.weight, rows=True), "bias": to.tensor(m.bias)}


def norm(to: Description, m: Any) -> Entry:
    weight, bias = getattr(m, "weight", None), getattr(m, "bias", None)
    return {"weight": to.tensor(weight), "bias": to.tensor(bias), "eps": m.eps}


def inputs(to: Description, m: Any) -> Entry:
    segments = None if m.segments is None else to.tensor(m.segments.weight)
    return {
        "tokens": to.tensor(m.tokens.weight, rows=True),
        "scale": m.tokens.scale,
        "widen": to.steps(m.widen) if isinstance(m, WidenedInputs) else [],
        "segments": segments,
        "position": describe_position(to, m.position, NoTwin),
        "added": first_row(to, m.tasks.weight) if isinstance(m, TaskInputs) else None,
        "finish": to.steps(m.norm) + (to.steps(m.widen) if isinstance(m, NarrowInputs) else []),
    }


def first_row(to: Description, table: Tensor) -> int | None:
    """A table of which a model reads its first row only, which stands at its address."""
    return to.tensor(table)


def attend(to: Description, m: MultiHeadAttention) -> Entry:
    """An attention layer; a norm of queries and keys is one step each."""
    sizes = {name: getattr(m, name) for name in ("heads", "kv_heads", "key_width", "value_width")}
    return sizes | {
        **{side: to.part(getattr(m, side)) for side in ("query", "key", "value", "out")},
        "query_norm": to.steps(m.query_norm),
        "key_norm": to.steps(m.key_norm),
        "score": score(to, m.score, m.key_width),
        "position": describe_position(to, m.position, NoTwin),
    }


def score(to: Description, m: attention.Score, key_width: int) -> Entry:
    """How queries and keys are scored: a dot product and its scale, or the part itself."""
    scales: dict[type, Callable[[Any], float]] = {
        attention.Dot: lambda m: 1.0,
        attention.ScaledDot: lambda m: 1 / math.sqrt(key_width),
        attention.ScaledBy: lambda m: m.scale,
    }
    if type(m) in scales:
        return {"part": "Dot", "scale": scales[type(m)](m)}
    if isinstance(m, attention.SoftCapped):
        return {"part": "SoftCapped", "cap": m.cap, "score": score(to, m.score, key_width)}
    return to.part(m)


def experts(to: Description, m: Experts) -> Entry:
    if type(m.gate) not in (NoisyTopK, SwitchTopK):
        raise NoTwin(f"the part {type(m.gate).__name__}")
    return {
        "weight": to.tensor(m.gate.weight),
        "chosen": m.gate.chosen,
        "over_all": isinstance(m.gate, SwitchTopK),
        "experts": [to.part(one) for one in m.experts],
    }


def residual(to: Description, m: Any) -> Entry:
    after = {"after": to.steps(m.after)} if isinstance(m, layers.SandwichNorm) else {}
    return {"layer": to.part(m.layer), "norm": to.steps(m.norm)} | after


def block(to: Description, m: Block) -> Entry:
    cross = None if m.cross is None else to.part(m.cross)
    return {"attention": to.part(m.attention), "cross": cross, "feed_forward": to.part(m.feed_forward)}


def dense(to: Description, m: Any) -> Entry:
    return {"dense": to.part(m.dense), "activation": name_of(m.activation)}


def feed_forward(to: Description, m: Any) -> Entry:
    gate = {"gate": to.part(m.gate)} if isinstance(m, layers.GatedFeedForward) else {}
    ends = {"up": to.part(m.up), "down": to.part(m.down), "activation": name_of(m.activation)}
    return ends | gate


def nothing(to: Description, m: Any) -> Entry:
    return {}


NORMS = (layers.LayerNorm, layers.GainLayerNorm, layers.BareLayerNorm)
RMS_NORMS = (layers.RMSNorm, layers.OffsetRMSNorm, layers.BareRMSNorm)
RESIDUALS = (layers.PreNorm, layers.PostNorm, layers.Branch, layers.SandwichNorm)
POOLS = (heads.FirstToken, heads.MeanOverReal, heads.MaxOverTokens)

PARTS: dict[type, Callable[[Description, Any], Entry]] = {
    nn.Linear: linear,
    **dict.fromkeys((*NORMS, *RMS_NORMS), norm),
    **dict.fromkeys((Inputs, WidenedInputs, NarrowInputs, TaskInputs), inputs),
    MultiHeadAttention: attend,
    attention.Bilinear: lambda to, m: {"weight": to.tensor(m.W)},
    attention.Additive: lambda to, m: {
        "query": to.part(m.query),
        "key": to.part(m.key),
        "score": to.part(m.score),
    },
    **dict.fromkeys((layers.FeedForward, layers.GatedFeedForward), feed_forward),
    Experts: experts,
    **dict.fromkeys(RESIDUALS, residual),
    **dict.fromkeys((Block, ParallelBlock), block),
    Tied: lambda to, m: {"bias": to.tensor(m.bias), "scale": m.scale},
    Untied: lambda to, m: {"linear": to.part(m.linear), "scale": m.scale},
    **dict.fromkeys(POOLS, nothing),
    heads.Pooled: dense,
    heads.Classify: lambda to, m: {"pool": to.part(m.pool), "linear": to.part(m.linear)},
    **dict.fromkeys((heads.Tag, heads.Span), lambda to, m: {"linear": to.part(m.linear)}),
    heads.Replaced: lambda to, m: dense(to, m) | {"linear": to.part(m.linear)},
    heads.MaskedLM: lambda to, m: dense(to, m) | {"norm": to.steps(m.norm), "bias": to.tensor(m.bias)},
    Prepared: lambda to, m: dense(to, m) | {"norm": to.steps(m.norm)},
    FillAfter: lambda to, m: {"prepare": to.part(m.prepare), "bias": to.tensor(m.bias)},
    LabelAfter: lambda to, m: {
        "pool": None if m.pool is None else to.part(m.pool),
        "prepare": to.part(m.prepare),
        "linear": to.part(m.linear),
    },
}
