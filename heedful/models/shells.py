"""The three shapes: encoder, decoder, encoder-decoder. They differ only in masks and source.

A shell turns tokens and lengths into positions, masks and views; everything below only uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..parts.attention import MultiHeadAttention
from ..parts.blocks import Stack
from ..parts.cache import Cache, GrowingCache, StaticCache
from ..parts.layers import Inputs
from ..parts.masks import Mask, View, causal, document, full, right_padded
from ..parts.positions import Positions, check_length, index_of


class Encoder(nn.Module):
    """Everyone sees everyone: tokens (or patches) to vectors that know their context."""

    def __init__(self, inputs: Any, stack: Stack, masks: Sequence[Mask] = (full(),)) -> None:
        super().__init__()
        self.inputs, self.stack, self.masks = inputs, stack, tuple(masks)

    def forward(
        self,
        tokens_BT: Tensor,
        lengths_B: Tensor | None = None,
        segments_BT: Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        """lengths: real tokens in each row, the rest being padding at its end; positions instead say more."""
        T, device = self.inputs.length(tokens_BT), tokens_BT.device
        if positions is None and lengths_B is not None:
            positions = right_padded(lengths_B, T)
        views = [View(mask, T, T, device, positions, positions) for mask in self.masks]
        x_BTD = self.inputs(tokens_BT, views[0].q_pos, segments_BT)
        return self.stack(x_BTD, views)


class Decoder(nn.Module):
    """Nobody sees the future: tokens to scores for the token after each."""

    def __init__(
        self, inputs: Inputs, stack: Stack, head: nn.Module, masks: Sequence[Mask] = (causal(),)
    ) -> None:
        super().__init__()
        self.inputs, self.stack, self.head, self.masks = inputs, stack, head, tuple(masks)

    def forward(
        self,
        tokens_BT: Tensor,
        lengths_B: Tensor | None = None,
        **how: Any,
    ) -> Tensor:
        """Scores [B, T, V]; `how` is what `hidden` takes."""
        return self.head(self.hidden(tokens_BT, lengths_B, **how), self.inputs.tokens)

    def hidden(
        self,
        tokens_BT: Tensor,
        lengths_B: Tensor | None = None,
        *,
        cache: Cache | None = None,
        documents_BT: Tensor | None = None,
        positions: Positions | None = None,
        source_BSD: Tensor | None = None,
        source_positions: Tensor | None = None,
    ) -> Tensor:
        """The vectors before the scores.

        lengths: real tokens in each row, the rest being padding at its end. cache: what came before; tokens
        are then the new ones only. documents: which document each token of a packed row belongs to.
        positions: instead of all these, exactly where each token stands (-1: padding).
        """
        T, device = tokens_BT.shape[1], tokens_BT.device
        if cache is not None and documents_BT is not None:
            raise ValueError(
                "a row of several documents cannot be decoded with a cache: give each its own row"
            )
        S, k_pos = T, positions
        if cache is not None:
            positions = cache.next_positions(T, lengths_B) if positions is None else positions
            S, k_pos = cache.begin(None if positions is None else index_of(positions), T)
        elif positions is None and lengths_B is not None and not self.blind_to_padding:
            positions = k_pos = right_padded(lengths_B, T)
        masks = self.masks if documents_BT is None else [mask & document(documents_BT) for mask in self.masks]
        views = [View(mask, T, S, device, positions, k_pos) for mask in masks]
        if views[0].in_order:
            check_length(S, self.inputs.position)
        places = views[0].q_pos if documents_BT is None else within_documents(documents_BT)
        source_view = None
        if source_BSD is not None:
            source_view = View(full(), T, source_BSD.shape[1], device, views[0].q_pos, source_positions)
        return self.stack(self.inputs(tokens_BT, places), views, source_BSD, source_view, cache)

    @property
    def blind_to_padding(self) -> bool:
        """Padding at the end of a row lies in the future of every real token: a causal mask hides it already."""
        return all(mask == causal() for mask in self.masks)

    def attentions(self) -> list[MultiHeadAttention]:
        """Each block's self-attention."""
        return [block.attention.layer for block in self.stack.blocks]  # type: ignore[union-attr,misc]

    def growing_cache(self) -> GrowingCache:
        return GrowingCache(len(self.stack.blocks))

    def static_cache(self, batch: int, capacity: int) -> StaticCache:
        check_length(capacity, self.inputs.position)
        shapes = [(a.kv_heads, a.key_width, a.value_width) for a in self.attentions()]
        weight = self.inputs.tokens.weight
        return StaticCache(batch, capacity, shapes, weight.device, weight.dtype)


def within_documents(documents_BT: Tensor) -> Tensor:
    """Position of each token in its own document: counts start anew where the document changes."""
    slots_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    changes = torch.ones_like(documents_BT, dtype=torch.bool)
    changes[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    return slots_T - torch.where(changes, slots_T, 0).cummax(-1).values


class EncoderDecoder(nn.Module):
    """An encoder reads the source; a decoder writes the target, looking at the encoder's top layer."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        source_BS: Tensor,
        target_BT: Tensor,
        source_lengths_B: Tensor | None = None,
        target_lengths_B: Tensor | None = None,
        positions: Positions | None = None,
    ) -> Tensor:
        """Scores [B, T, V] for the token after each of target (which starts with the beginning-of-sentence)."""
        memory_BSD = self.encoder(source_BS, source_lengths_B, positions=positions)
        return self.decode(memory_BSD, target_BT, source_lengths_B, target_lengths_B)

    def decode(
        self,
        memory_BSD: Tensor,
        target_BT: Tensor,
        source_lengths_B: Tensor | None = None,
        target_lengths_B: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The decoder alone, given what the encoder said."""
        source_positions = None
        if source_lengths_B is not None:
            source_positions = right_padded(source_lengths_B, memory_BSD.shape[1])
        return self.decoder(
            target_BT,
            target_lengths_B,
            cache=cache,
            source_BSD=memory_BSD,
            source_positions=source_positions,
        )


class WithHeads(nn.Module):
    """An encoder and what is read off it: every head by name, each given the encoder's output."""

    def __init__(self, encoder: Encoder, heads: dict[str, nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(heads)

    def forward(
        self,
        tokens_BT: Tensor,
        lengths_B: Tensor | None = None,
        segments_BT: Tensor | None = None,
        positions: Positions | None = None,
    ) -> dict[str, Tensor]:
        """{head: output}, always."""
        hidden_BTD = self.encoder(tokens_BT, lengths_B, segments_BT, positions)
        return {name: head(hidden_BTD, self.encoder.inputs) for name, head in self.heads.items()}
