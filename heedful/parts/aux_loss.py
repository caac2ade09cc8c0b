"""What a part deep inside a model has to tell the task beside its output: an `Aux`, passed down like a cache.

    aux = Aux()
    hidden_BTD = model.hidden(tokens_BT, aux=aux)
    told = aux.close()                              # the auxiliary loss, and the loads of the experts

It belongs to one forward pass. No part keeps anything, no output becomes a tuple, and whoever does not ask
passes none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Told:
    """What all parts said together."""

    loss: Tensor  # the sum over parts
    expert_load_LE: Tensor  # tokens that each expert got, a row for each part that spoke


@dataclass
class Book:
    """Where everyone who has the same `Aux` writes."""

    losses: list[Tensor] = field(default_factory=list)
    loads: list[Tensor] = field(default_factory=list)
    closed: bool = False


class Aux:
    """Collects what parts say in one forward pass, and tells them which tokens are real."""

    def __init__(self, real: Callable[[], Tensor | None] | None = None, book: Book | None = None) -> None:
        self._real = real
        self._book = Book() if book is None else book

    def among(self, real: Callable[[], Tensor | None]) -> Aux:
        """The same book for a part of the model that sees other tokens. real: computed if somebody asks."""
        return Aux(real, self._book)

    @cached_property
    def real_BT(self) -> Tensor | None:
        """Which tokens are no padding; None if all are."""
        return None if self._real is None else self._real()

    def say(self, loss: Tensor, load_E: Tensor) -> None:
        """Add a loss and the load of each expert.

        Whatever comes after `close` is not heard: a block that is computed again in the backward pass says it
        again.
        """
        if not self._book.closed:
            self._book.losses.append(loss)
            self._book.loads.append(load_E.detach())

    def close(self) -> Told | None:
        """All that was said, once; None if nothing was."""
        book = self._book
        book.closed = True
        return Told(torch.stack(book.losses).sum(), torch.stack(book.loads)) if book.losses else None
