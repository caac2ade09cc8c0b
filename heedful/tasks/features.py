"""Features: what a task that reads ELMo's vectors takes over, and what it learns. The language models'
weights lie in the run, which needs nothing else to be used."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..files import one_line
from ..interop.formats import load
from ..models.elmo import ElmoConfig
from ..models.elmo_reader import ElmoReaderConfig, mix_penalty
from ..models.syntax import SyntaxConfig
from ..train.loss import Loss
from .configs import config_of
from .origin import Origin, check_same
from .recipe.settings import Recipe


def reader_config(recipe: Recipe, origin: Origin, heads: tuple[str, ...], labels: int) -> ElmoReaderConfig:
    """The sizes of the language models, and the recipe's for the network that reads them."""
    sizes = {f.name: getattr(origin.config, f.name) for f in fields(ElmoConfig)}
    return config_of(recipe, **sizes, prediction_heads=heads, labels=labels)


def check_start(recipe: Recipe, origin: Origin) -> None:
    """Refuse a start from a model that has labels already, and to tune an elmo."""
    if isinstance(origin.config, SyntaxConfig | ElmoReaderConfig):
        raise BadInput(
            one_line(f"{origin.folder} was trained for tags or labels: start from what it started from")
        )
    if origin.architecture == "elmo" and recipe.train.tune != "whole":
        raise BadInput(one_line(f"{origin.folder} is an elmo, which stays as it is: leave out train.tune"))


def begin(model: nn.Module, origin: Origin) -> None:
    """Put the weights of the language models in their place; all others stay fresh."""
    check_same(origin)
    source: Any = load(origin.folder).model
    reader: Any = model
    found = dict(source.encoder.named_parameters())
    with torch.no_grad():
        for name, weight in reader.encoder.features.model.named_parameters():
            weight.copy_(found[name])


def penalized(loss: Loss, model: nn.Module, weight: float) -> Loss:
    """The loss plus the penalty on the mixes' weights: one number a batch, counted once for each target."""
    told: Tensor | float = mix_penalty(model)
    return Loss(loss.total + loss.count * weight * told, loss.nll, loss.count) if weight else loss


def describe_mixes(model: nn.Module) -> list[str]:
    """What each mix has come to: how much of every layer, and gamma."""
    encoder = getattr(model, "encoder", None)
    found = {"input": getattr(encoder, "mix", None), "output": getattr(encoder, "output", None)}
    lines = []
    for name, mix in found.items():
        if mix is not None:
            shares = ", ".join(f"{share:.2f}" for share in mix.weights.softmax(0).tolist())
            lines.append(f"    ELMo at the {name}: layers {shares}, gamma {mix.gamma.item():.2f}")
    return lines
