"""Names: other people's names for our weights, as one table that works in both directions.

A rule says which tensor of theirs is which of ours, and what must be done to it (a transposition, a split).
`{}` stands for a layer number. A table turns whole sets of weights, so that
`to_theirs(to_ours(w)) == w`, bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rule:
    """One tensor of theirs, one or several of ours, and the way there and back."""

    theirs: str
    ours: tuple[str, ...]
    split: Callable[[Tensor], Sequence[Tensor]]
    join: Callable[[Sequence[Tensor]], Tensor]


def same(theirs: str, ours: str) -> Rule:
    return Rule(theirs, (ours,), lambda t: (t,), lambda ts: ts[0])


def transposed(theirs: str, ours: str) -> Rule:
    """Theirs is [in, out], as GPT-2's Conv1D keeps it."""
    return Rule(theirs, (ours,), lambda t: (t.T,), lambda ts: ts[0].T)


def reshaped(theirs: str, ours: str, shape: Sequence[int], ours_shape: Sequence[int]) -> Rule:
    """The same numbers in another shape."""
    return Rule(theirs, (ours,), lambda t: (t.reshape(*ours_shape),), lambda ts: ts[0].reshape(*shape))


def thirds(theirs: str, *ours: str) -> Rule:
    """Query, key and value side by side in one tensor, along its last axis; matrices are also [in, out]."""
    return Rule(
        theirs,
        ours,
        lambda t: [part.T if part.ndim == 2 else part for part in t.tensor_split(3, -1)],
        lambda ts: side_by_side([t.T if t.ndim == 2 else t for t in ts]),
    )


def stacked(theirs: str, *ours: str) -> Rule:
    """Matrices of one size, or their biases, one after another along the first axis."""

    def join(ts: Sequence[Tensor]) -> Tensor:
        if ts[0].is_meta:  # a shape: torch would import its compiler
            return ts[0].new_empty(len(ts) * len(ts[0]), *ts[0].shape[1:])
        return torch.cat(list(ts))

    return Rule(theirs, ours, lambda t: t.tensor_split(len(ours)), join)


def by_heads(theirs: str, heads: int, *ours: str) -> Rule:
    """Query, key and value of one head side by side, then those of the next, along the first axis."""

    def split(t: Tensor) -> list[Tensor]:
        return [part.flatten(0, 1) for part in t.unflatten(0, (heads, len(ours), -1)).unbind(1)]

    def join(ts: Sequence[Tensor]) -> Tensor:
        if ts[0].is_meta:  # a shape: torch would import its compiler
            return ts[0].new_empty(len(ts) * len(ts[0]), *ts[0].shape[1:])
        return torch.stack([t.unflatten(0, (heads, -1)) for t in ts], 1).flatten(0, 2)

    return Rule(theirs, ours, split, join)


def one_below_another(theirs: str, ours: Mapping[str, int]) -> Rule:
    """Several matrices as one: {name of ours: its rows}, along the first axis."""
    rows = list(ours.values())

    def join(ts: Sequence[Tensor]) -> Tensor:
        if ts[0].is_meta:  # a shape: torch would import its compiler
            return ts[0].new_empty(sum(rows), *ts[0].shape[1:])
        return torch.cat(list(ts))

    return Rule(theirs, tuple(ours), lambda t: t.split(rows), join)


def side_by_side(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors joined along the last axis. On the meta device a shape: torch would import its compiler."""
    first = tensors[0]
    if first.is_meta:
        return first.new_empty(*first.shape[:-1], sum(t.shape[-1] for t in tensors))
    return torch.cat(list(tensors), -1)


def weight_and_bias(theirs: str, ours: str, kind: Callable[[str, str], Rule] = same) -> list[Rule]:
    """A linear layer or a norm: its weight by `kind`, its bias as it is."""
    return [kind(f"{theirs}.weight", f"{ours}.weight"), same(f"{theirs}.bias", f"{ours}.bias")]


@dataclass(frozen=True)
class Fixed:
    """A tensor that is computed: its shape, and what makes it."""

    shape: tuple[int, ...]
    make: Callable[[], Tensor]


@dataclass(frozen=True)
class Table:
    """All rules of a family.

    prefix: what names of the whole model start with, and those of a bare encoder or decoder do not.
    bare: whether this is a bare one.
    copies: tensors of theirs that repeat another (tied weights); absent or equal, never needed.
    ignored: tensors of theirs that hold no weights (masks, position ids), by pattern.
    old: older spellings, {ending: today's ending}.
    zeros: tensors of theirs that are all zero where a file leaves them out.
    fixed: tensors of theirs that were never learned; where a file has one, it must be this.
    """

    rules: Sequence[Rule]
    prefix: str = ""
    bare: bool = False
    copies: Mapping[str, str] | None = None
    ignored: Sequence[str] = ()
    old: Mapping[str, str] | None = None
    zeros: Collection[str] = ()
    fixed: Mapping[str, Fixed] = field(default_factory=dict)

    def today(self, name: str) -> str | None:
        """Today's full spelling of a name found in a file; None if it holds no weight."""
        for ending, new in (self.old or {}).items():
            if name.endswith(ending):
                name = name.removesuffix(ending) + new
        known = [rule.theirs for rule in self.rules] + list(self.copies or ())
        for full in (name, self.prefix + name):
            if any(match(pattern, full) is not None for pattern in known):
                return full
        bare = name.removeprefix(self.prefix)
        if name in self.fixed:
            return None
        return None if any(match(pattern, bare) is not None for pattern in self.ignored) else name

    def spelled(self, full: str) -> str:
        """A full name as this model's own files spell it."""
        return full.removeprefix(self.prefix) if self.bare else full

    def to_ours(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Their weights under our names."""
        ours: dict[str, Tensor] = {}
        for name, tensor in theirs.items():
            full = self.today(name) or name
            for rule in self.rules:
                numbers = match(rule.theirs, full)
                if numbers is not None:
                    ours.update(zip(fill(rule.ours, numbers), rule.split(tensor), strict=True))
                    break
            else:
                raise KeyError(f"{name} is not the name of a weight")
        return ours

    def to_theirs(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our weights under their names; copies are left out."""
        theirs: dict[str, Tensor] = {}
        for name in ours:
            for rule in self.rules:
                numbers = match(rule.ours[0], name)
                if numbers is not None:
                    parts = [ours[part] for part in fill(rule.ours, numbers)]
                    theirs[self.spelled(fill((rule.theirs,), numbers)[0])] = rule.join(parts)
                    break
            else:
                if not any(match(part, name) is not None for rule in self.rules for part in rule.ours[1:]):
                    raise KeyError(f"{name} has no name over there")
        return theirs


def match(pattern: str, name: str) -> tuple[str, ...] | None:
    """The numbers that `{}` stands for, or None if the name is another."""
    found = re.fullmatch(re.escape(pattern).replace(r"\{\}", r"(\d+)"), name)
    return found.groups() if found else None


def fill(patterns: Sequence[str], numbers: Sequence[str]) -> list[str]:
    return [pattern.format(*numbers) for pattern in patterns]
