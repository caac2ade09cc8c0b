"""Averages of weights over steps: smoother than the last ones, and often better.

MovingAverage   weights of every step, the older the less (Polyak and Juditsky 1992, with a memory that fades)
TailAverage     weights of a few steps near the end, all alike (the Transformer paper's last checkpoints)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every weight by its name; tied ones have one name."""
    return {name: weight.detach() for name, weight in model.named_parameters()}


class Average(ABC):
    """A second set of weights that follows a model's."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {name: weight.clone() for name, weight in weights_of(model).items()}

    @abstractmethod
    def share(self, step: int) -> float:
        """What this step's weights count in the average, from 0 to 1."""

    @abstractmethod
    def ready(self, step: int) -> bool:
        """Whether the average is worth trying after this step."""

    def after(self, step: int, model: nn.Module) -> None:
        """Take in the weights of a step."""
        share = self.share(step)
        if share:
            new = weights_of(model)
            torch._foreach_lerp_(list(self.weights.values()), [new[name] for name in self.weights], share)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """The model with these weights; its own come back afterwards, to the bit."""
        own = {name: weight.clone() for name, weight in weights_of(model).items()}
        put(model, self.weights)
        try:
            yield
        finally:
            put(model, own)


class MovingAverage(Average):
    """average = decay average + (1 - decay) weights; at first faster, so that the start is soon forgotten.

    Args:
        model: The model whose weights are averaged.
        decay: Share of the average that is kept at each step.

    Example:
        >>> model = torch.nn.Linear(2, 2)
        >>> average = MovingAverage(model, decay=0.9)
        >>> average.after(1, model)
        >>> with average.in_place_of(model):
        ...     output = model(torch.ones(1, 2))
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__(model)
        self.decay = decay

    def share(self, step: int) -> float:
        return 1 - min(self.decay, (1 + step) / (10 + step))

    def ready(self, step: int) -> bool:
        return True


class TailAverage(Average):
    """The mean of the weights after the given steps, which follow from the recipe.

    Args:
        model: The model whose weights are averaged.
        steps: The steps.

    Example:
        >>> average = TailAverage(torch.nn.Linear(2, 2), steps=[90, 100])
        >>> average.ready(step=1)
        False
    """

    def __init__(self, model: nn.Module, steps: Sequence[int]) -> None:
        super().__init__(model)
        self.steps = sorted(steps)

    def share(self, step: int) -> float:
        return 1 / (1 + self.steps.index(step)) if step in self.steps else 0.0

    def ready(self, step: int) -> bool:
        return step == self.steps[-1]


def put(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Weights by their names into a model."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(tensors[name])
