"""Skeletons: models with shapes and no numbers, so that even the largest is there at once; and with room for
numbers, to be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ...errors import BadInput
from .. import family
from .shells import classifier


class Unfilled(TorchFunctionMode):
    """Leaves new weights as they are: filling tensors that hold nothing costs over a second of imports."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in ("normal_", "uniform_", "fill_", "zero_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def skeleton(architecture: str, config: Any, labels: int = 0, bias: bool = True) -> Any:
    """A model without numbers, so that even the largest is there at once: its tensors are on the meta device.

    Args:
        architecture: The architecture.
        config: Its config.
        labels: Labels of a decoder's head that classifies; 0: no such head.
        bias: Whether that head has a bias.

    Returns:
        The model.

    Raises:
        BadInput: The sizes are too large for any memory.

    Example:
        >>> from heedful.models import find_preset
        >>> model = skeleton(*find_preset("gpt3-175b"))
        >>> round(sum(weight.numel() for weight in model.parameters()) / 1e9)
        175
    """
    try:
        with torch.device("meta"), Unfilled():
            model = family(architecture).build(config)
            return classifier(model, config, labels, bias=bias) if labels else model
    except RuntimeError:  # a shape whose product has no 64-bit number
        raise BadInput("its sizes are too large for any memory") from None


def with_room(model: nn.Module, device: str | torch.device) -> nn.Module:
    """Give memory to a model without weights. torch's own `to_empty` would import symbolic mathematics."""
    made: dict[int, nn.Parameter] = {}  # a weight used twice stays one
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in made:
                    made[id(weight)] = nn.Parameter(
                        torch.empty(weight.shape, dtype=weight.dtype, device=device)
                    )
                setattr(module, name, made[id(weight)])  # a recurrent kernel of torch keeps a list of its own
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # side by side, as the kernels of a GPU want them
    return model


def config_with_head(architecture: str, config: Any, head: str, labels: int) -> Any:
    """The config of an encoder with this head, and with the pooling layer where the head reads it."""
    try:
        return config_with_heads(architecture, config, (head,), labels)
    except ValueError:
        return config_with_heads(architecture, config, ("pooled", head), labels)


def config_with_heads(architecture: str, config: Any, heads: tuple[str, ...], labels: int) -> Any:
    """The config of an encoder with these heads; a ValueError or a TypeError if there is none."""
    made = replace(config, prediction_heads=heads, labels=labels)
    skeleton(architecture, made)
    return made
