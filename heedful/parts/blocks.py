"""Blocks and stacks: attention, then attention to the source where there is one, then feed-forward, L times.

A block does not know how its parts were made: each comes wrapped in its residual (`PreNorm` or `PostNorm`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .aux_loss import Aux
from .cache import Cache, GrowingCache, LayerCache, StaticCache
from .layers import Branch
from .long.windowed_cache import OwnCache, Remembering
from .positions.base import CLOSED
from .view import View


class Block(nn.Module):
    """One layer of the Transformer: attention, perhaps cross-attention, and a feed-forward layer.

    Args:
        attention: Self-attention within its norm and skip, such as `PreNorm(MultiHeadAttention(...), ...)`.
        feed_forward: The feed-forward layer within its own.
        cross: Cross-attention within its own; None: an encoder, or a decoder alone.

    Example:
        >>> from heedful.parts.layers import FeedForward, LayerNorm, PreNorm
        >>> from heedful.parts.multihead import MultiHeadAttention
        >>> attention = PreNorm(MultiHeadAttention(8, heads=2), LayerNorm(8))
        >>> block = Block(attention, PreNorm(FeedForward(8, 32), LayerNorm(8)))
        >>> block(torch.randn(2, 5, 8)).shape  # calls forward
        torch.Size([2, 5, 8])
    """

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
        """The vectors after this layer.

        Args:
            x_BTD: Vectors.
            view: Who may see whom among them. None: everyone sees everyone.
            source_BSD: What an encoder made of the source, for cross-attention.
            source_view: Who may see what of the source.
            cache: Keys and values of earlier tokens.
            aux: Collects what experts report.

        Returns:
            Vectors [B, T, D].
        """
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


class ParallelBlock(Block):
    """x + attention(norm(x)) + feed_forward(norm(x)): both read the same vectors (GPT-J, GPT-NeoX).

    One layer does not wait for the other (Wang and Komatsuzaki 2021).

    Args:
        attention: Self-attention within a `Branch`.
        feed_forward: The feed-forward layer within a `Branch`.

    Example:
        >>> from heedful.parts.layers import Branch, FeedForward, LayerNorm
        >>> from heedful.parts.multihead import MultiHeadAttention
        >>> attention = Branch(MultiHeadAttention(8, heads=2), LayerNorm(8))
        >>> block = ParallelBlock(attention, Branch(FeedForward(8, 32), LayerNorm(8)))
        >>> block(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, attention: Branch, feed_forward: Branch) -> None:
        super().__init__(attention, feed_forward)

    def forward(
        self,
        x_BTD: Tensor,
        view: View | None = None,
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: LayerCache | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        return x_BTD + self.attention(x_BTD, view, cache=cache) + self.feed_forward(x_BTD)


class StackLike(Protocol):
    """What an encoder asks of its layers: vectors go in, and come out knowing their context."""

    @property
    def blocks(self) -> nn.ModuleList: ...

    def __call__(self, *given: Any, **more: Any) -> Tensor: ...

    def forward(self, x_BTD: Tensor, views: Sequence[View], /) -> Tensor: ...


class DecoderStackLike(StackLike, Protocol):
    """What a decoder asks of its layers: they can read a source and a cache, and make their caches."""

    def forward(
        self,
        x_BTD: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
        /,
    ) -> Tensor: ...

    def growing_cache(self) -> Any:
        """A cache for any number of rows and tokens."""

    def static_cache(self, batch: int, capacity: int, device: torch.device, dtype: torch.dtype) -> Any:
        """A cache of fixed size; one that grows, where layers have no use for a fixed size."""


class AttentionStack(nn.Module):
    """Blocks of attention, and the caches of keys and values that they need."""

    blocks: nn.ModuleList
    norm: nn.Module

    def attentions(self) -> list[Any]:
        """Each block's self-attention."""
        return [block.attention.layer for block in self.blocks]  # type: ignore[union-attr]

    def growing_cache(self) -> Cache:
        layers = [layer.layer_cache() for layer in self.attentions() if isinstance(layer, Remembering)]
        return OwnCache(layers) if layers else GrowingCache(len(self.blocks))

    def static_cache(self, batch: int, capacity: int, device: torch.device, dtype: torch.dtype) -> Cache:
        layers = self.attentions()
        if any(isinstance(layer, Remembering) for layer in layers):  # each forgets in a way of its own
            return self.growing_cache()
        shapes = [(layer.kv_heads, layer.key_width, layer.value_width) for layer in layers]
        return StaticCache(batch, capacity, shapes, device, dtype)


class Stack(AttentionStack):
    """Blocks on top of each other, and what stands after the last (the final norm of a pre-norm model).

    Args:
        blocks: The blocks, the first one first.
        norm: What stands after the last; None: nothing.

    Example:
        >>> stack = heedful.load("runs/demo").model.encoder.stack
        >>> type(stack).__name__, len(stack.blocks)
        ('Stack', 3)
    """

    def __init__(self, blocks: Sequence[Block], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm or nn.Identity()
        self.recompute = False  # whether to keep each block's input only, and compute its inside again later

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
        if recompute and torch.compiler.is_compiling():
            # A compiler lets nothing be written from inside of what is computed again.
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
