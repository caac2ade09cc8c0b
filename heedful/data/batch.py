"""Batches as dataclasses of tensors: moved to a device, pinned and iterated, whatever their fields are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor


class Seen(NamedTuple):
    """How much a model has seen, in what people count: the unit of the speed of training."""

    number: int
    unit: str = "tokens"

    def a_second(self, seconds: float) -> str:
        """So many of it a second, the slow ones not rounded to none."""
        speed = self.number / seconds
        return f"{speed:,.1f} {self.unit}" if speed < 10 else f"{speed:,.0f} {self.unit}"


def seen_in(micro: Sequence[Any]) -> Seen:
    """What micro-batches of one kind have together; those that do not say so have their target tokens."""
    parts = [getattr(batch, "seen", None) or Seen(batch.count) for batch in micro]
    return Seen(sum(part.number for part in parts), parts[0].unit)


class Tensors:
    """The base of a frozen dataclass that has tensors among its fields."""

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name, in the order of the fields; those that are None are left out."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def with_each(self, do: Callable[[Tensor], Tensor]) -> Self:
        """The same with something done to every tensor."""
        made: dict[str, Any] = {name: do(tensor) for name, tensor in self.tensors().items()}
        return replace(self, **made)  # type: ignore[type-var]

    def to(self, device: torch.device) -> Self:
        """The same on a device, which is not waited for."""
        return self if device.type == "cpu" else self.with_each(lambda t: t.to(device, non_blocking=True))
