"""Blocks and stacks: attention, then (in a decoder with a source) attention to it, then feed-forward; L times.

A block does not know how its parts were made: each comes wrapped in its residual (`PreNorm` or `PostNorm`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .aux_loss import Aux
from .cache import Cache, LayerCache
from .positions.base import CLOSED
from .view import View


class Block(nn.Module):
    """One layer of the Transformer."""

    def __init__(self, attention: nn.Module, feed_forward: nn.Module, cross: nn.Module | None = None) -> None:
        super().__init__()
        self.attention = attention
        self.cross = cross
        self.feed_forward = feed_forward

    def forward(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: LayerCache | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        if (self.cross is None) != (source_BSD is None):
            wants = (
                "reads no source, but one was given"
                if self.cross is None
                else "reads a source, but none was given"
            )
            raise ValueError(f"this block {wants}")
        x_BTD = self.attention(x_BTD, view, cache=cache)
        if self.cross is not None:
            x_BTD = self.cross(x_BTD, source_view, source_BSD, cache=cache)
        return self.feed_forward(x_BTD) if aux is None else self.feed_forward(x_BTD, aux)


class Stack(nn.Module):
    """Blocks on top of each other, and what stands after the last (the final norm of a pre-norm model)."""

    def __init__(self, blocks: Sequence[Block], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or nn.Identity()
        self.recompute = (
            False  # keep only each block's input, and compute its inside again in the backward pass
        )

    def forward(
        self,
        x_BTD: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        """views: one for all layers, or several that take turns (layer i uses views[i mod n])."""
        recompute = self.recompute and torch.is_grad_enabled()
        if (
            recompute and torch.compiler.is_compiling()
        ):  # which lets nothing be written from inside of what is computed again
            for view in (*views, source_view):
                if view is not None:
                    view.memo[CLOSED] = True
        for i, block in enumerate(self.blocks):
            layer_cache = None if cache is None else cache.layers[i]
            given = (x_BTD, views[i % len(views)], source_BSD, source_view, layer_cache, aux)
            if recompute:  # Chen et al. 2016: memory for one more forward pass
                x_BTD = checkpoint(block, *given, use_reentrant=False)
            else:
                x_BTD = block(*given)
        return self.norm(x_BTD)
