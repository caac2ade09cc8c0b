"""What a picture of a model needs beside its costs: where norms stand, where order enters, what is masked.

for shell in drawing(heedful.load("runs/demo").model):
    print(shell.name, shell.norm, shell.input_position, shell.score_position, shell.masks)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from ..models.base.shells import Decoder, shells_of
from ..parts.positions import POSITIONS
from ..parts.positions.base import NoPosition
from ..parts.watch import Watchable
from .stacks import stacks_of
from .sublayer import ORDERS


@dataclass(frozen=True)
class DrawnShell:
    """One encoder or decoder. Schemes of positions are spelled as in settings; "" where there is none."""

    name: str  # encoder or decoder
    norm: str  # pre-norm, post-norm, sandwich or parallel; "" of layers that are no blocks
    input_position: str  # added to the embeddings
    score_position: str  # changes queries, keys or scores
    masks: list[str]  # one for each layer, or one for all


def drawing(model: nn.Module) -> list[DrawnShell]:
    """The shells of a model, as a picture shows them."""
    stacks, found = stacks_of(model), []
    for path, shell in shells_of(model).items():
        name = path or ("decoder" if isinstance(shell, Decoder) else "encoder")
        blocks = list(stacks[name].blocks) if name in stacks else []
        orders = [ORDERS[type(part)] for block in blocks for part in block.modules() if type(part) in ORDERS]
        masks = list(dict.fromkeys(type(mask).__name__ for mask in getattr(shell, "masks", ())))
        position = getattr(getattr(shell, "inputs", None), "position", None)
        found.append(
            DrawnShell(name, orders[0] if orders else "", scheme(position), scheme(attending(blocks)), masks)
        )
    return found


def attending(blocks: list[Any]) -> nn.Module | None:
    """The position scheme of the first attention of a stack."""
    for block in blocks:
        for part in block.modules():
            if isinstance(part, Watchable) and hasattr(part, "position"):
                return part.position
    return None


def scheme(position: Any) -> str:
    """The name of a scheme in settings; that of its class where settings have none."""
    if position is None or isinstance(position, NoPosition):
        return ""
    named = {kind: name for name, kind in POSITIONS.items()}
    return next((named[kind] for kind in type(position).__mro__ if kind in named), type(position).__name__)
