"""The three shapes: encoder, decoder, encoder-decoder. They differ only in masks and source.

A shell turns tokens and their places into positions, masks and views; everything below only uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...parts.aux_loss import Aux
from ...parts.blocks import DecoderStackLike, StackLike
from ...parts.cache import Cache, GrowingCache, StaticCache, check_rows
from ...parts.embeddings import Inputs
from ...parts.masks import Mask, causal, full
from ...parts.multihead import MultiHeadAttention
from ...parts.places import IN_ORDER, At, Lengths, Places, Source
from ...parts.positions.base import Position, Tree, check_length, index_of
from ...parts.view import View, right_padded


class Encoder(nn.Module):
    """Everyone sees everyone: tokens (or patches) to vectors that know their context."""

    def __init__(
        self,
        inputs: Any,
        stack: StackLike,
        masks: Sequence[Mask] = (full(),),
        project_out: nn.Module | None = None,
    ) -> None:
        """project_out: a layer after the stack; without it, the stack's vectors are the output."""
        super().__init__()
        self.inputs, self.stack, self.masks = inputs, stack, tuple(masks)
        self.project_out = nn.Identity() if project_out is None else project_out

    def forward(
        self,
        tokens: Tensor,
        places: Places = IN_ORDER,
        segments_BT: Tensor | None = None,
        *,
        aux: Aux | None = None,
    ) -> Tensor:
        """Vectors [B, T, D]. tokens: [B, T] numbers, or whatever `inputs` reads (images).

        places: where the tokens stand. segments: which of two texts each belongs to.
        aux: collects what experts report.
        """
        T = self.inputs.length(tokens)
        places.check_rows(len(tokens))
        aux = None if aux is None else aux.among(partial(places.real, T))
        if not places.restarts:
            check_length(T, self.inputs.position)
        positions = places.positions(T)
        masks, embedded_at = places.apart(self.masks, T)
        views = [View(mask, T, T, tokens.device, positions, positions) for mask in masks]
        x_BTD = self.inputs(tokens, views[0].q_pos if embedded_at is None else embedded_at, segments_BT)
        x_BTD = self.stack(x_BTD, views) if aux is None else self.stack(x_BTD, views, aux=aux)
        return self.project_out(x_BTD)

    @property
    def needs_tree(self) -> bool:
        """Whether it reads sentences with their dependency trees only: positions must be a `Tree`."""
        return any(module.needs_tree for module in self.modules() if isinstance(module, Position))


class Decoder(nn.Module):
    """Nobody sees the future: tokens to scores for the token after each."""

    def __init__(
        self, inputs: Inputs, stack: DecoderStackLike, head: nn.Module, masks: Sequence[Mask] = (causal(),)
    ) -> None:
        super().__init__()
        self.inputs, self.stack, self.head, self.masks = inputs, stack, head, tuple(masks)

    def forward(
        self,
        tokens_BT: Tensor,
        places: Places = IN_ORDER,
        *,
        cache: Cache | None = None,
        source: Source | None = None,
    ) -> Tensor:
        """Scores [B, T, V] for the token after each; the arguments are those of `hidden`."""
        return self.head(self.hidden(tokens_BT, places, cache=cache, source=source), self.inputs.tokens)

    def hidden(
        self,
        tokens_BT: Tensor,
        places: Places = IN_ORDER,
        *,
        cache: Cache | None = None,
        source: Source | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        """The vectors [B, T, D] before the scores.

        places: where the tokens stand. cache: what came before; tokens are then the new ones only.
        source: what an encoder said, for decoders that attend to it. aux: collects what experts report.
        """
        (B, T), device = tokens_BT.shape, tokens_BT.device
        places.check_rows(B)
        aux = None if aux is None else aux.among(partial(places.real, T))
        if cache is None:
            positions = places.positions(T, past_only=all(mask.past_only for mask in self.masks))
            masks, embedded_at = places.apart(self.masks, T)
            S, k_pos = T, positions
        else:
            positions = places.after(cache, T)
            masks, embedded_at = self.masks, None
            S, k_pos = cache.begin(None if positions is None else index_of(positions), B, T)
        alike = {mask: View(mask, T, S, device, positions, k_pos) for mask in masks}
        views = [alike[mask] for mask in masks]  # layers with one mask share its tables
        if views[0].in_order and not places.restarts:
            check_length(S, self.inputs.position)
        source_view = None if source is None else source.view(places, views[0].q_pos, T)
        x_BTD = self.inputs(tokens_BT, views[0].q_pos if embedded_at is None else embedded_at)
        source_BSD = None if source is None else source.vectors_BSD
        heard = {} if aux is None else {"aux": aux}
        x_BTD = self.stack(x_BTD, views, source_BSD, source_view, cache, **heard)
        if cache is not None:
            cache.advance()
        return x_BTD

    def attentions(self) -> list[MultiHeadAttention]:
        """Each block's self-attention."""
        return [block.attention.layer for block in self.stack.blocks]  # type: ignore[union-attr,misc]

    def crosses(self) -> list[MultiHeadAttention]:
        """Each block's attention to the source, of a decoder that has one."""
        return [block.cross.layer for block in self.stack.blocks]  # type: ignore[union-attr,misc]

    def growing_cache(self) -> GrowingCache:
        """A cache for any number of rows and tokens."""
        return self.stack.growing_cache()

    def static_cache(self, batch: int, capacity: int, dtype: torch.dtype | None = None) -> StaticCache:
        """A cache of fixed size, in the precision that keys and values will have."""
        check_length(capacity, self.inputs.position)
        weight = self.inputs.tokens.weight
        if dtype is None and torch.is_autocast_enabled(weight.device.type):
            dtype = torch.get_autocast_dtype(weight.device.type)
        return self.stack.static_cache(batch, capacity, weight.device, dtype or weight.dtype)


class EncoderDecoder(nn.Module):
    """An encoder reads the source; a decoder writes the target, looking at the encoder's top layer."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        source_BS: Tensor,
        target_BT: Tensor,
        source_places: Places = IN_ORDER,
        target_places: Places = IN_ORDER,
    ) -> Tensor:
        """Scores [B, T, V] for the token after each of target, which begins with a start token."""
        return self.decode(self.read(source_BS, source_places), target_BT, target_places)

    def read(self, source_BS: Tensor, places: Places = IN_ORDER) -> Source:
        """The encoder alone: what it says of the source."""
        return Source(self.encoder(source_BS, places), places)

    def decode(
        self,
        source: Source,
        target_BT: Tensor,
        places: Places = IN_ORDER,
        *,
        cache: Cache | None = None,
    ) -> Tensor:
        """The decoder alone, given what the encoder said."""
        check_rows(len(source.vectors_BSD), len(target_BT), "the target")
        source.places.check_rows(len(source.vectors_BSD))
        return self.decoder(target_BT, places, cache=cache, source=source)


class WithTrees(nn.Module):
    """An encoder together with the trees of the rows that it is about to read; called like the encoder."""

    def __init__(self, encoder: Encoder, heads_BW: Tensor, words_BT: Tensor | None) -> None:
        super().__init__()
        self.encoder, self.heads_BW, self.words_BT = encoder, heads_BW, words_BT

    def forward(self, tokens_BT: Tensor, places: Lengths) -> Tensor:
        index_BT = right_padded(places.lengths_B, tokens_BT.shape[1])
        return self.encoder(tokens_BT, At(Tree(index_BT, self.heads_BW, self.words_BT)))


class WithPictures(nn.Module):
    """An encoder together with the pictures that it is about to read; called like an encoder of tokens."""

    def __init__(self, encoder: Encoder, images_BCHW: Tensor) -> None:
        super().__init__()
        self.encoder, self.images_BCHW = encoder, images_BCHW

    def forward(self, tokens_BT: Tensor, places: Places) -> Tensor:
        return self.encoder(self.images_BCHW)


class WithHeads(nn.Module):
    """An encoder and what is read off it: every head by name, each given the encoder's output."""

    def __init__(self, encoder: Encoder, heads: dict[str, nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(heads)

    def forward(
        self, tokens: Tensor, places: Places = IN_ORDER, segments_BT: Tensor | None = None
    ) -> dict[str, Tensor]:
        """{head: output}, always."""
        hidden_BTD = self.encoder(tokens, places, segments_BT)
        return {name: head(hidden_BTD, self.encoder.inputs) for name, head in self.heads.items()}
