"""The three shapes: encoder, decoder, encoder-decoder. They differ only in masks and source.

A shell turns tokens and lengths into positions, masks and views; everything below only uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...parts.aux_loss import Aux
from ...parts.blocks import Stack
from ...parts.cache import Cache, GrowingCache, StaticCache, check_rows
from ...parts.embeddings import Inputs
from ...parts.long.windowed_cache import OwnCache, Remembering
from ...parts.masks import FromStart, Mask, across, causal, document, full
from ...parts.multihead import MultiHeadAttention
from ...parts.positions.base import Position, Positions, Tree, check_length, index_of
from ...parts.view import View, right_padded


class Encoder(nn.Module):
    """Everyone sees everyone: tokens (or patches) to vectors that know their context."""

    def __init__(
        self,
        inputs: Any,
        stack: Stack,
        masks: Sequence[Mask] = (full(),),
        project_out: nn.Module | None = None,
    ) -> None:
        """project_out: what becomes of the vectors of all tokens; without it, they are handed on as they are."""
        super().__init__()
        self.inputs, self.stack, self.masks = inputs, stack, tuple(masks)
        self.project_out = nn.Identity() if project_out is None else project_out

    def forward(
        self,
        tokens: Tensor,
        lengths_B: Tensor | None = None,
        segments_BT: Tensor | None = None,
        *,
        documents_BT: Tensor | None = None,
        positions: Positions | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        """Vectors [B, T, D]. tokens: [B, T] numbers, or whatever `inputs` reads (images).

        lengths: real tokens in each row, the rest being padding at its end. documents: which document each
        token of a packed row belongs to. positions, instead of both: exactly where each token stands (-1: padding).
        aux: hears what experts have to say.
        """
        T = self.inputs.length(tokens)
        aux = None if aux is None else aux.among(real_tokens(T, lengths_B, documents_BT, positions))
        positions = given_positions(len(tokens), T, lengths_B, documents_BT, positions)
        masks, places = packed(self.masks, documents_BT)
        if documents_BT is None:
            check_length(T, self.inputs.position)
        views = [View(mask, T, T, tokens.device, positions, positions) for mask in masks]
        if lengths_B is not None:  # padding comes last, and nobody sees its vectors: all rows are in order
            places = torch.arange(T, device=tokens.device)
        x_BTD = self.inputs(tokens, views[0].q_pos if places is None else places, segments_BT)
        x_BTD = self.stack(x_BTD, views) if aux is None else self.stack(x_BTD, views, aux=aux)
        return self.project_out(x_BTD)

    @property
    def needs_tree(self) -> bool:
        """Whether it reads sentences with their dependency trees only: positions must be a `Tree`."""
        return any(module.needs_tree for module in self.modules() if isinstance(module, Position))


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
        *,
        cache: Cache | None = None,
        documents_BT: Tensor | None = None,
        positions: Positions | None = None,
        source_BSD: Tensor | None = None,
        source_positions: Tensor | None = None,
    ) -> Tensor:
        """Scores [B, T, V] for the token after each; the arguments are those of `hidden`."""
        hidden_BTD = self.hidden(
            tokens_BT,
            lengths_B,
            cache=cache,
            documents_BT=documents_BT,
            positions=positions,
            source_BSD=source_BSD,
            source_positions=source_positions,
        )
        return self.head(hidden_BTD, self.inputs.tokens)

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
        source_documents_BS: Tensor | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        """The vectors [B, T, D] before the scores.

        lengths: real tokens in each row, the rest being padding at its end. cache: what came before; tokens
        are then the new ones only. documents: which document each token of a packed row belongs to.
        positions, instead of these: exactly where each token stands (-1: padding). source: what an encoder said,
        for decoders that attend to it, and where its tokens stand; or, if rows are packed, which document each belongs to.
        aux: hears what experts have to say.
        """
        (B, T), device = tokens_BT.shape, tokens_BT.device
        aux = None if aux is None else aux.among(real_tokens(T, lengths_B, documents_BT, positions))
        if cache is not None and documents_BT is not None:
            raise ValueError(
                "a row of several documents cannot be decoded with a cache: give each its own row"
            )
        positions = given_positions(B, T, lengths_B, documents_BT, positions, self.blind_to_padding, cache)
        S, k_pos = T, positions
        if cache is not None:
            S, k_pos = cache.begin(None if positions is None else index_of(positions), B, T)
        masks, places = packed(self.masks, documents_BT)
        alike = {mask: View(mask, T, S, device, positions, k_pos) for mask in masks}
        views = [alike[mask] for mask in masks]  # layers with one mask share its tables
        if views[0].in_order and documents_BT is None:
            check_length(S, self.inputs.position)
        source_view = None
        if source_BSD is not None:
            seen = full()
            if documents_BT is not None and source_documents_BS is not None:
                seen = across(documents_BT, source_documents_BS)
            source_view = View(seen, T, source_BSD.shape[1], device, views[0].q_pos, source_positions)
        x_BTD = self.inputs(tokens_BT, views[0].q_pos if places is None else places)
        heard = {} if aux is None else {"aux": aux}
        x_BTD = self.stack(x_BTD, views, source_BSD, source_view, cache, **heard)
        if cache is not None:
            cache.advance()
        return x_BTD

    @property
    def blind_to_padding(self) -> bool:
        """Padding at the end of a row lies in the future of every real token: a causal mask hides it already."""
        return all(mask.past_only for mask in self.masks)

    def attentions(self) -> list[MultiHeadAttention]:
        """Each block's self-attention."""
        return [block.attention.layer for block in self.stack.blocks]  # type: ignore[union-attr,misc]

    def crosses(self) -> list[MultiHeadAttention]:
        """Each block's attention to the source, of a decoder that has one."""
        return [block.cross.layer for block in self.stack.blocks]  # type: ignore[union-attr,misc]

    def growing_cache(self) -> GrowingCache:
        """A cache for any number of rows and tokens."""
        own = getattr(self.stack, "own_cache", None)  # of what remembers states instead of keys and values
        if own is not None:
            return own()
        layers = [a.layer_cache() for a in self.attentions() if isinstance(a, Remembering)]
        return OwnCache(layers) if layers else GrowingCache(len(self.stack.blocks))  # type: ignore[return-value]

    def static_cache(self, batch: int, capacity: int, dtype: torch.dtype | None = None) -> StaticCache:
        """A cache of fixed size, in the precision that keys and values will have."""
        check_length(capacity, self.inputs.position)
        if hasattr(self.stack, "own_cache"):  # a state has one size, however many tokens it has read
            return self.growing_cache()  # type: ignore[return-value]
        if any(isinstance(a, Remembering) for a in self.attentions()):
            return self.growing_cache()  # type: ignore[return-value]  # layers forget in ways of their own
        shapes = [(a.kv_heads, a.key_width, a.value_width) for a in self.attentions()]
        weight = self.inputs.tokens.weight
        if dtype is None and torch.is_autocast_enabled(weight.device.type):
            dtype = torch.get_autocast_dtype(weight.device.type)
        return StaticCache(batch, capacity, shapes, weight.device, dtype or weight.dtype)


def given_positions(
    B: int,
    T: int,
    lengths_B: Tensor | None,
    documents_BT: Tensor | None,
    positions: Positions | None,
    blind_to_padding: bool = False,
    cache: Cache | None = None,
) -> Positions | None:
    """Where the tokens stand, from whichever the caller gave; None if plainly in order."""
    if sum(x is not None for x in (lengths_B, documents_BT, positions)) > 1:
        raise ValueError(
            "give lengths, documents or positions, not two of them: each says where tokens stand"
        )
    if lengths_B is not None:
        check_rows(len(lengths_B), B, "the batch of tokens")
    if documents_BT is not None:
        check_rows(len(documents_BT), B, "the batch of tokens")
    if positions is not None:
        return positions
    if cache is not None:
        return cache.next_positions(T, lengths_B)
    return None if lengths_B is None or blind_to_padding else right_padded(lengths_B, T)


def real_tokens(
    T: int, lengths_B: Tensor | None, documents_BT: Tensor | None, positions: Positions | None
) -> Callable[[], Tensor | None]:
    """Which tokens are no padding, computed when it is asked for: not every model wants to know."""

    def real() -> Tensor | None:
        if lengths_B is not None:
            return right_padded(lengths_B, T) >= 0
        if documents_BT is not None:
            return documents_BT >= 0
        return None if positions is None else index_of(positions) >= 0

    return real


def packed(masks: Sequence[Mask], documents_BT: Tensor | None) -> tuple[Sequence[Mask], Tensor | None]:
    """Masks that keep documents apart, and each token's position in its own document."""
    if documents_BT is None:
        return masks, None
    changes_BT = torch.ones_like(documents_BT, dtype=torch.bool)
    changes_BT[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    slots_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    starts_BT = torch.where(changes_BT, slots_T, 0).cummax(-1).values
    masks = [FromStart(mask, starts_BT) if mask.by_place else mask for mask in masks]
    # A document is a run: the same number again later in the row is another one.
    return [mask & document(changes_BT.cumsum(-1)) for mask in masks], slots_T - starts_BT


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
        *,
        source_positions: Positions | None = None,
    ) -> Tensor:
        """Scores [B, T, V] for the token after each of target (which starts with the beginning-of-sentence)."""
        memory_BSD = self.encoder(source_BS, source_lengths_B, positions=source_positions)
        return self.decode(
            memory_BSD, target_BT, source_lengths_B, target_lengths_B, source_positions=source_positions
        )

    def decode(
        self,
        memory_BSD: Tensor,
        target_BT: Tensor,
        source_lengths_B: Tensor | None = None,
        target_lengths_B: Tensor | None = None,
        *,
        source_positions: Positions | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """The decoder alone, given what the encoder said."""
        B, S, _ = memory_BSD.shape
        check_rows(B, len(target_BT), "the target")
        source_positions = given_positions(B, S, source_lengths_B, None, source_positions)
        return self.decoder(
            target_BT,
            target_lengths_B,
            cache=cache,
            source_BSD=memory_BSD,
            source_positions=None if source_positions is None else index_of(source_positions),
        )


class WithTrees(nn.Module):
    """An encoder that has been told the trees of the rows it is about to read; otherwise it is called as ever."""

    def __init__(self, encoder: Encoder, heads_BW: Tensor, words_BT: Tensor | None) -> None:
        super().__init__()
        self.encoder, self.heads_BW, self.words_BT = encoder, heads_BW, words_BT

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        index_BT = right_padded(lengths_B, tokens_BT.shape[1])
        return self.encoder(tokens_BT, positions=Tree(index_BT, self.heads_BW, self.words_BT))


class WithPictures(nn.Module):
    """An encoder that has been shown the pictures it is about to read; otherwise it is called as ever."""

    def __init__(self, encoder: Encoder, images_BCHW: Tensor) -> None:
        super().__init__()
        self.encoder, self.images_BCHW = encoder, images_BCHW

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        return self.encoder(self.images_BCHW)


class WithHeads(nn.Module):
    """An encoder and what is read off it: every head by name, each given the encoder's output."""

    def __init__(self, encoder: Encoder, heads: dict[str, nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(heads)

    def forward(
        self,
        tokens: Tensor,
        lengths_B: Tensor | None = None,
        segments_BT: Tensor | None = None,
        *,
        positions: Positions | None = None,
    ) -> dict[str, Tensor]:
        """{head: output}, always."""
        hidden_BTD = self.encoder(tokens, lengths_B, segments_BT, positions=positions)
        return {name: head(hidden_BTD, self.encoder.inputs) for name, head in self.heads.items()}
