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
from ...parts.blocks import DecoderStackLike, Stack, StackLike
from ...parts.cache import Cache, GrowingCache, StaticCache, check_rows
from ...parts.embeddings import Inputs
from ...parts.masks import Mask, causal, full
from ...parts.multihead import MultiHeadAttention
from ...parts.places import IN_ORDER, At, Lengths, Places, Source
from ...parts.positions.base import Position, Tree, check_length, index_of
from ...parts.view import View, right_padded
from .initialize import normal_


class Encoder(nn.Module):
    """Everyone sees everyone: tokens (or patches) to vectors that know their context."""

    def __init__(
        self,
        inputs: Any,
        stack: StackLike,
        masks: Sequence[Mask] = (full(),),
        project_out: nn.Module | None = None,
        zero_padding: bool = False,
    ) -> None:
        """project_out: a layer after the stack; without it, the stack's vectors are the output.

        zero_padding: the output is 0 at padding, for heads that take a mean over tokens.
        """
        super().__init__()
        self.zero_padding = zero_padding
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
        alike = {mask: View(mask, T, T, tokens.device, positions, positions) for mask in masks}
        views = [alike[mask] for mask in masks]  # layers with one mask share its tables
        x_BTD = self.inputs(tokens, views[0].q_pos if embedded_at is None else embedded_at, segments_BT)
        x_BTD = self.stack(x_BTD, views) if aux is None else self.stack(x_BTD, views, aux=aux)
        x_BTD = self.project_out(x_BTD)
        real_BT = places.real(T) if self.zero_padding else None
        return x_BTD if real_BT is None else x_BTD * real_BT[..., None]


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


class DecoderClassifier(nn.Module):
    """A decoder read at its last token, which alone has seen the whole text (GPT-1's fine-tuning)."""

    def __init__(
        self, decoder: Decoder, width: int, labels: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.decoder = decoder
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, labels, bias)

    def forward(self, tokens_BT: Tensor, places: Lengths) -> Tensor:
        """Scores [B, labels]."""
        return self.scores(self.decoder.hidden(tokens_BT, places), places.lengths_B)

    def scores(self, hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """Scores from the decoder's vectors, which a language-model loss may want too."""
        return self.judge(self.states(hidden_BTD, lengths_B))

    def states(self, hidden_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """The vector [B, D] of each row's last token."""
        rows_B = torch.arange(len(lengths_B), device=lengths_B.device)
        return hidden_BTD[rows_B, lengths_B - 1]

    def judge(self, states_BD: Tensor) -> Tensor:
        """Scores from such vectors, or from sums of them."""
        return self.linear(self.dropout(states_BD))


def classifier(
    model: nn.Module, config: Any, labels: int, dropout: float | None = None, bias: bool = True
) -> DecoderClassifier:
    """A decoder with a fresh head over it. dropout: before the head; without it, as in the decoder."""
    if not isinstance(model, Decoder):
        raise TypeError(f"only a decoder is read at its last token, not a {type(model).__name__}")
    dropout = getattr(config, "dropout", 0.0) if dropout is None else dropout
    width = getattr(config, "embedding_width", config.width)  # OPT's vectors come out as its embeddings are
    made = DecoderClassifier(model, width, labels, dropout, bias)
    normal_(made.linear, std=0.02)
    return made


class WithValue(nn.Module):
    """A decoder that learns from rewards, and the value of each place: the reward that is still to come.

    The value is needed while the decoder learns, and is no part of it afterwards (PPO's critic, on the
    decoder's own vectors). It is 0 at first.
    """

    def __init__(self, decoder: nn.Module, width: int) -> None:
        super().__init__()
        self.decoder = decoder
        self.value = nn.Linear(width, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)


def lasting(model: nn.Module) -> nn.Module:
    """What is left of a model when it has learned: all of it but a value."""
    return model.decoder if isinstance(model, WithValue) else model


def shells_of(model: nn.Module) -> dict[str, Encoder | Decoder]:
    """{name of the submodule: encoder or decoder} of a model; nothing for one that is made otherwise."""
    if isinstance(model, EncoderDecoder):
        return {"encoder": model.encoder, "decoder": model.decoder}
    if isinstance(model, DecoderClassifier):
        return {"decoder": model.decoder}
    if isinstance(model, WithHeads):
        return {"encoder": model.encoder}
    return {"": model} if isinstance(model, Encoder | Decoder) else {}


def decoder_of(model: Decoder | EncoderDecoder) -> Decoder:
    """The part of a model that writes."""
    return model if isinstance(model, Decoder) else model.decoder


def keeps_packed_rows(model: nn.Module) -> bool:
    """Whether a model reads rows of several documents (`Packed`) as if each document were alone.

    A part that reads across documents says so by `keeps_packed_rows = False`. Pairs are kept apart by
    attention alone: a recurrent decoder begins from one source.
    """
    if not all(getattr(module, "keeps_packed_rows", True) for module in model.modules()):
        return False
    sides = [side.stack for side in shells_of(model).values()]
    alone = isinstance(model, Decoder | DecoderClassifier)
    return bool(sides) and (alone or all(isinstance(stack, Stack) for stack in sides))


def needs_tree(model: nn.Module) -> bool:
    """Whether a model reads sentences with their dependency trees only."""
    return any(isinstance(module, Position) and module.needs_tree for module in model.modules())
