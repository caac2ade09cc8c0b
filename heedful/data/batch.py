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
    """The base of a batch: a frozen dataclass that has tensors among its fields.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Rows(Tensors):
        ...     tokens_BT: torch.Tensor
        ...     names: tuple[str, ...] = ()
        >>> rows = Rows(torch.ones(2, 3), ("a", "b"))
        >>> list(rows.tensors()), rows.to(torch.device("cpu")) is rows
        (['tokens_BT'], True)
        >>> rows.with_each(lambda tensor: tensor[:1]).tokens_BT.shape
        torch.Size([1, 3])
    """

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name, in the order of the fields.

        Returns:
            The tensors, without those that are None.
        """
        found = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def with_each(self, do: Callable[[Tensor], Tensor]) -> Self:
        """The same batch with something done to every tensor.

        Args:
            do: What is done to a tensor.

        Returns:
            A new batch.
        """
        made: dict[str, Any] = {name: do(tensor) for name, tensor in self.tensors().items()}
        return replace(self, **made)  # type: ignore[type-var]

    def to(self, device: torch.device) -> Self:
        """The same batch on a device. The copy is not waited for.

        Args:
            device: The device.

        Returns:
            A new batch, or this one on a CPU.
        """
        return self if device.type == "cpu" else self.with_each(lambda t: t.to(device, non_blocking=True))
