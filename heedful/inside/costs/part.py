"""A part of a model and its costs; how the costs of parts add up; and the parameters of a whole model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch import nn

from ...parts.experts import Experts
from .operations import Operations

FULL = 4  # bytes of a number that stays in fp32 whatever the precision


@dataclass(frozen=True)
class Part:
    """A piece of a model and what it costs, its own parts included.

    Attributes:
        name: Its name.
        detail: Its shape in words.
        parameters: Its parameters.
        flops: FLOPs of a forward pass, for the whole batch.
        kept: Bytes kept for the backward pass, for the whole batch.
        count: How many equal pieces these are together.
        parts: What it consists of.
        idle: Parameters that are not used for a token.
        pairs: FLOPs between queries and keys.
        formula: The FLOPs as arithmetic; "" where torch counted them.
        operations: What a forward pass asks of a device.

    Example:
        >>> from heedful.inside.costs import costs
        >>> whole = costs(heedful.load("runs/lm").model, batch=2, length=32).whole
        >>> whole.parameters == sum(part.parameters for part in whole.parts)
        True
    """

    name: str
    detail: str = ""
    parameters: int = 0
    flops: int = 0
    kept: int = 0
    count: int = 1
    parts: tuple[Part, ...] = ()
    idle: int = 0
    pairs: int = 0
    formula: str = ""
    operations: Operations = ()


def whole(name: str, parts: Iterable[Part], detail: str = "", kept: int = 0) -> Part:
    """The sum of several parts, plus the bytes that are kept beside theirs; empty parts fall away."""
    there = tuple(part for part in parts if part != Part(part.name))
    return Part(
        name,
        detail,
        sum(part.parameters for part in there),
        sum(part.flops for part in there),
        kept + sum(part.kept for part in there),
        parts=there,
        idle=sum(part.idle for part in there),
        pairs=sum(part.pairs for part in there),
        formula=added(there),
        operations=tuple(operation for part in there for operation in part.operations),
    )


def added(parts: Iterable[Part]) -> str:
    """The sum of the parts' formulas, equal ones taken together; "" if one of them has none."""
    terms = Counter(part.formula for part in parts if part.flops)
    return "" if "" in terms else " + ".join(several(count, term) for term, count in terms.items())


def several(count: int, term: str) -> str:
    """A formula times a number."""
    if count == 1 or not term:
        return term
    return f"{count:,} × ({term})" if "+" in term else f"{count:,} × {term}"


def product(*factors: int) -> str:
    """A product as people write it."""
    return " × ".join(f"{factor:,}" for factor in factors)


def alike(blocks: Sequence[Part]) -> list[Part]:
    """Neighbors that cost the same become one part, "12 blocks"."""
    groups = [list(group) for _, group in groupby(blocks)]
    return [times(group[0], len(group), f"{len(group)} block{'s' * (len(group) > 1)}") for group in groups]


def times(part: Part, count: int, name: str | None = None) -> Part:
    """The sum of `count` equal parts."""
    return Part(
        name or part.name,
        part.detail,
        count * part.parameters,
        count * part.flops,
        count * part.kept,
        count,
        tuple(times(inner, count) for inner in part.parts),
        count * part.idle,
        count * part.pairs,
        several(count, part.formula),
        count * part.operations,
    )


def count_parameters(model: nn.Module) -> int:
    """The number of parameters, each weight counted once."""
    return sum(weight.numel() for weight in model.parameters())


def count_active(model: nn.Module) -> int:
    """The number of parameters used per token."""
    mixtures = [module for module in model.modules() if isinstance(module, Experts)]
    return count_parameters(model) - sum(map(count_idle, mixtures))


def count_idle(layer: Experts) -> int:
    """The parameters of the experts to which a token is not sent; all experts have the same size."""
    return (len(layer.experts) - layer.gate.chosen) * count_parameters(layer.experts[0])
