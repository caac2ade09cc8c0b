"""The blocks of a model, by shell."""

from __future__ import annotations

from torch import nn

from ..models.base.shells import Decoder, shells_of
from ..parts.blocks import AttentionStack


def stacks_of(model: nn.Module) -> dict[str, AttentionStack]:
    """{"encoder" or "decoder": its blocks}, of the shells that are made of blocks of attention."""
    found = {}
    for name, shell in shells_of(model).items():
        if isinstance(shell.stack, AttentionStack):
            found[name or ("decoder" if isinstance(shell, Decoder) else "encoder")] = shell.stack
    return found
