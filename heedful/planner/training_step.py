"""The computing of a training step on one GPU: its operations, and the seconds that they take.

Bytes that passes over memory move are counted from the kernels that heedful trains with, in bf16. A model is
a list of sections: its blocks, one by one, and what is before and after them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..errors import BadInput
from ..inside.costs import Costs, costs
from ..inside.costs.operations import AttentionProducts, MatrixProduct, VectorPass
from ..inside.costs.part import Part
from ..models.base.shells import Decoder, EncoderDecoder
from ..parts.masks import Mask
from .rates import SHORT, Rates

# Bytes of memory traffic for each number, forwards and backwards.
NORM = (8, 8)  # the sum is read twice and written, the normed vector is written; the same backwards
EAGER_NORM = (24, 52)  # without torch.compile: sums, copies and casts are kernels of their own
ACTIVATION = (2, 6)  # the product before it writes both; backwards: read, read, write
GATED = (6, 10)  # two are read and one is written; backwards three are read and two written
HEADS = (4, 4)  # queries, keys and values are put in order
BIAS = (0, 2)  # the bias' gradient sums up the output's
DROPOUT = (5, 5)  # without torch.compile: read, written, and a byte of its mask; else a part of other passes
SCORES = (2, 4)  # in one kernel: read, read, written over by their gradients
COPY = 6  # bytes a parameter and forward pass: its bf16 copy
UPDATE = 36  # bytes a parameter and step: norm and clipping of gradients 8, AdamW 28
EAGER = 3  # kernels without torch.compile for each with it
KNOWN = 0.9  # of a model's FLOPs that have to be in operations whose time is known
GRID = 64  # places of a mask that are looked at, across and down


@dataclass(frozen=True)
class TimedSection:
    """A block, or all that is not in blocks: its parameters, and the seconds of a micro-batch on one GPU."""

    is_block: bool
    parameters: int
    forward: float
    backward: float
    layers: int = 1  # layers whose results are added to the vectors
    vectors: int = 0  # numbers of these vectors


@dataclass(frozen=True)
class ComputeTime:
    """Seconds of one micro-batch on one GPU, and of the update that follows the last."""

    sections: tuple[TimedSection, ...]  # in the order of the forward pass; what is not in blocks is the last
    update: float

    @property
    def forward(self) -> float:
        return sum(section.forward for section in self.sections)

    @property
    def backward(self) -> float:
        return sum(section.backward for section in self.sections)

    def recomputed(self) -> float:
        """What activation checkpointing adds to a micro-batch: its blocks go forwards twice."""
        return sum(section.forward for section in self.sections if section.is_block)

    def step(self, micro_batches: int = 1, recompute: bool = False) -> float:
        """A whole step on one GPU."""
        once = self.forward + self.backward + recompute * self.recomputed()
        return micro_batches * once + self.update


def count_costs(model: Any, rows: int, length: int, source_length: int | None = None) -> Costs:
    """The costs in bf16 of a model whose time can be predicted."""
    try:
        found = costs(model, rows, length, source_length, "bf16")
    except ValueError as error:
        raise BadInput(str(error)) from None
    flops = sum(run.flops for run in found.whole.operations if not isinstance(run, VectorPass))
    if flops < KNOWN * found.whole.flops:
        missing = f"{1 - flops / found.whole.flops:.0%}"
        raise BadInput(
            f"the time of this model cannot be predicted: {missing} of its FLOPs are not in the matrix "
            f"products and the attention of a Transformer"
        )
    return found


def compute_time(
    rates: Rates, model: Any, found: Costs, tensor: int = 1, compiled: bool = True
) -> ComputeTime:
    """Seconds of a micro-batch; with tensor parallelism each GPU has a share of every product's columns."""
    sections, rest = [], TimedSection(False, 0, 0.0, 0.0)
    for whole, visible in sides(model, found):
        for part in whole.parts:
            forward, backward = part_time(rates, part, visible, tensor, compiled)
            layers, vectors = layers_of(part) // part.count, vectors_of(part)
            if is_block(part):
                n = part.count
                once = (part.parameters // n, forward / n, backward / n, layers, vectors)
                sections += n * [TimedSection(True, *once)]
            else:
                sums = (rest.parameters + part.parameters, rest.forward + forward, rest.backward + backward)
                rest = TimedSection(False, *sums, vectors=max(rest.vectors, vectors))
    scores = found.memory["logits"] / tensor / 2  # numbers
    forward, backward = (rates.moving(scores * size) for size in SCORES)
    sections.append(replace(rest, forward=rest.forward + forward, backward=rest.backward + backward))
    return ComputeTime(tuple(sections), update_time(rates, found.parameters / tensor))


def layers_of(part: Part) -> int:
    """How many layers a part has: attention, and feed-forward layers."""
    return sum(
        isinstance(run, AttentionProducts) or (isinstance(run, VectorPass) and "activation" in run.kind)
        for run in part.operations
    )


def vectors_of(part: Part) -> int:
    """Numbers of the vectors that pass between the layers of a part: those that a norm reads."""
    return max((run.numbers for run in norms_of(part)), default=0)


def norms_of(part: Part) -> list[VectorPass]:
    """The norms of a part."""
    return [run for run in part.operations if isinstance(run, VectorPass) and run.kind == "norm"]


def is_block(part: Part) -> bool:
    """Whether a part is one or several equal blocks."""
    return re.fullmatch(r"[0-9]+ blocks?", part.name) is not None


def part_time(rates: Rates, part: Part, visible: float, tensor: int, compiled: bool) -> tuple[float, float]:
    """(forward, backward) of all operations of a part, and of the bf16 copies of its weights."""
    forward, backward = rates.moving(COPY * part.parameters / tensor), 0.0
    for run, count in Counter(part.operations).items():
        once, back = operation_time(rates, divided(run, tensor), visible, compiled)
        forward, backward = forward + count * once, backward + count * back
    return forward, backward


def update_time(rates: Rates, parameters: float) -> float:
    """Seconds of clipping and AdamW for the parameters that a GPU looks after."""
    return rates.moving(UPDATE * parameters)


def operation_time(rates: Rates, run: Any, visible: float, compiled: bool) -> tuple[float, float]:
    """(forward, backward) of one operation and of the passes over memory that come with it."""
    more = 1 if compiled else EAGER
    if isinstance(run, MatrixProduct):
        once, back = rates.products_of(run)
        passes, numbers, kernels = BIAS, run.rows * run.outer, (0, more)
    elif isinstance(run, AttentionProducts):
        short = compiled and max(run.queries, run.keys) <= SHORT  # a kernel that is used in compiled steps
        once, back = rates.attention(run, 1.0 if run.of_source else visible, short)
        if short:  # it reads queries, keys and values where they are
            return once, back
        passes, numbers = HEADS, run.tables * (run.queries + 2 * run.keys) * run.width
        kernels = (more, more)
    elif run.kind == "dropout":
        if compiled:
            return 0.0, 0.0
        return rates.moving(DROPOUT[0] * run.numbers, 1), rates.moving(DROPOUT[1] * run.numbers, 1)
    else:
        once = back = 0.0
        passes = {"norm": NORM if compiled else EAGER_NORM, "activation": ACTIVATION}.get(run.kind, GATED)
        numbers, kernels = run.numbers, (more, more)
    moved = [rates.moving(size * numbers, kernel) for size, kernel in zip(passes, kernels, strict=True)]
    return once + moved[0], back + moved[1]


def divided(run: Any, tensor: int) -> Any:
    """The share of an operation that one of several GPUs has: of a product's columns, of the heads."""
    if tensor == 1 or (isinstance(run, VectorPass) and run.kind == "norm"):
        return run
    if isinstance(run, MatrixProduct):
        return MatrixProduct(run.rows, run.inner, -(-run.outer // tensor))
    if isinstance(run, AttentionProducts):
        return AttentionProducts(-(-run.tables // tensor), run.queries, run.keys, run.width, run.of_source)
    return VectorPass(run.kind, run.rows, -(-run.width // tensor))


def sides(model: Any, found: Costs) -> Iterator[tuple[Part, float]]:
    """(costs, share of pairs that attention sees) of a model, or of its encoder and its decoder."""
    if isinstance(model, EncoderDecoder):
        encoder, decoder = found.whole.parts
        yield encoder, share_seen(model.encoder.masks, found.source_length or found.length)
        yield decoder, share_seen(model.decoder.masks, found.length)
    else:
        inner = model if isinstance(model, Decoder) else getattr(model, "encoder", model)
        yield found.whole, share_seen(getattr(inner, "masks", ()), found.length)


def share_seen(masks: tuple[Mask, ...], length: int) -> float:
    """The share of pairs that masks let through, on average over the masks, from a grid of places."""
    if not masks:
        return 1.0
    places = torch.linspace(0, length - 1, min(GRID, length)).round().long()
    shares = [mask.dense(places, places).float().mean().item() for mask in masks]
    return max(sum(shares) / len(shares), 1 / length)
