"""A model without positions, in one thread: its position schemes do nothing there, and work elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BadInput
from ..parts.positions.base import NoPosition, Position, Positions

OFF: ContextVar[frozenset[nn.Module]] = ContextVar("modules without positions", default=frozenset())
LOCK = Lock()
USERS: dict[nn.Module, int] = {}  # how many edits need the switch of a module
PLACES = ("embed", "rotate", "bias", "values", "uses_values")  # where order enters


class PositionSwitch:
    """Stands before a position scheme: for threads without positions it does nothing."""

    def __init__(self, holder: nn.Module, own: Any) -> None:
        self.holder, self.own, self.none = holder, own, WithoutPosition(own.added_width)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.none if name in PLACES and self.holder in OFF.get() else self.own, name)


class WithoutPosition(NoPosition):
    """No order; zeros where a scheme widens its input."""

    def __init__(self, added_width: int) -> None:
        super().__init__()
        self.added_width = added_width

    def embed(self, x_BTD: Tensor, positions: Positions) -> Tensor:
        return F.pad(x_BTD, (0, self.added_width)) if self.added_width else x_BTD


def holders(model: nn.Module) -> list[nn.Module]:
    """The modules that have positions."""
    found = [(one, one._modules.get("position")) for one in model.modules()]
    return [one for one, own in found if isinstance(own, Position) and not isinstance(own, NoPosition)]


@contextmanager
def without_positions(models: Sequence[nn.Module]) -> Iterator[None]:
    """Take positions from models in this thread, as long as the block lasts."""
    found = [one for model in models for one in holders(model)]
    if models and not found:
        raise BadInput("positions:none: this model has no positions to take away")
    with LOCK:
        for one in found:
            if not USERS.get(one):  # beside the module's own, which keeps its name and its weights
                one.__dict__["position"] = PositionSwitch(one, one._modules["position"])
            USERS[one] = USERS.get(one, 0) + 1
    before = OFF.get()
    OFF.set(before | frozenset(found))
    try:
        yield
    finally:
        OFF.set(before)
        with LOCK:
            for one in found:
                USERS[one] -= 1
                if not USERS[one]:
                    del USERS[one], one.__dict__["position"]
