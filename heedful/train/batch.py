"""Batches as dataclasses of tensors: taken to a device, held for it, and gone through, whatever their fields are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Self

import torch
from torch import Tensor


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
