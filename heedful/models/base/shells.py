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
    """Everyone sees everyone: tokens (or patches) to vectors that know their context.

    Args:
        inputs: What the first block sees, such as `Inputs`.
        stack: The blocks.
        masks: Rules that the layers take in turns.
        project_out: A layer after the stack; None: the stack's vectors are the output.
        zero_padding: Whether the output is 0 at padding.

    Example:
        >>> encoder = heedful.load("runs/demo").model.encoder
        >>> encoder(torch.tensor([[5, 7, 9]])).shape  # calls forward
        torch.Size([1, 3, 32])
    """

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
        """Tokens to vectors.

        Args:
            tokens: [B, T] numbers, or whatever `inputs` reads (images).
            places: Where the tokens stand.
            segments_BT: Which of two texts each token belongs to.
            aux: Collects what experts report.

        Returns:
            Vectors [B, T, D].
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
    """Nobody sees the future: tokens to scores for the token after each.

    Args:
        inputs: What the first block sees.
        stack: The blocks.
        head: Vectors to scores, such as `Tied`.
        masks: Rules that the layers take in turns.

    Example:
        >>> model = heedful.load("runs/lm").model
        >>> model(torch.tensor([[5, 7, 9]])).shape  # calls forward
        torch.Size([1, 3, 1028])
        >>> model.hidden(torch.tensor([[5, 7, 9]])).shape
        torch.Size([1, 3, 32])
        >>> type(model.growing_cache()).__name__, type(model.static_cache(1, 16)).__name__
        ('GrowingCache', 'StaticCache')
    """

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
        """Tokens to scores for the token after each.

        Args:
            tokens_BT: Numbers of tokens; with a cache, the new ones only.
            places: Where the tokens stand.
            cache: What came before.
            source: What an encoder made of its source, for decoders that attend to it.

        Returns:
            Scores [B, T, V].
        """
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
        """The vectors before the scores.

        Args:
            tokens_BT: As in `forward`.
            places: As in `forward`.
            cache: As in `forward`.
            source: As in `forward`.
            aux: Collects what experts report.

        Returns:
            Vectors [B, T, D].
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
        """A cache for any number of rows and tokens.

        Returns:
            A fresh cache, usually a `GrowingCache`.
        """
        return self.stack.growing_cache()

    def static_cache(self, batch: int, capacity: int, dtype: torch.dtype | None = None) -> StaticCache:
        """A cache of fixed size.

        Args:
            batch: Rows.
            capacity: Tokens of a row.
            dtype: The precision that keys and values will have; None: that of the weights.

        Returns:
            A fresh cache, usually a `StaticCache`.
        """
        check_length(capacity, self.inputs.position)
        weight = self.inputs.tokens.weight
        if dtype is None and torch.is_autocast_enabled(weight.device.type):
            dtype = torch.get_autocast_dtype(weight.device.type)
        return self.stack.static_cache(batch, capacity, weight.device, dtype or weight.dtype)


class EncoderDecoder(nn.Module):
    """An encoder reads the source; a decoder writes the target, looking at the encoder's top layer.

    Args:
        encoder: Reads.
        decoder: Writes; its blocks have cross-attention.

    Example:
        >>> model = heedful.load("runs/demo").model
        >>> source, target = torch.tensor([[5, 7, 9]]), torch.tensor([[1, 4]])
        >>> scores = model(source, target)  # calls forward
        >>> bool(torch.allclose(scores, model.decode(model.read(source), target), atol=1e-5))
        True
    """

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
        """Source and target to scores for the token after each of the target.

        Args:
            source_BS: Numbers of tokens.
            target_BT: Numbers of tokens, the start token first.
            source_places: Where the tokens of the source stand.
            target_places: Where the tokens of the target stand.

        Returns:
            Scores [B, T, V].
        """
        return self.decode(self.read(source_BS, source_places), target_BT, target_places)

    def read(self, source_BS: Tensor, places: Places = IN_ORDER) -> Source:
        """The encoder alone.

        Args:
            source_BS: Numbers of tokens.
            places: Where they stand.

        Returns:
            What the decoder attends to.
        """
        return Source(self.encoder(source_BS, places), places)

    def decode(
        self,
        source: Source,
        target_BT: Tensor,
        places: Places = IN_ORDER,
        *,
        cache: Cache | None = None,
    ) -> Tensor:
        """The decoder alone, given what the encoder made of the source.

        Args:
            source: What `read` gave.
            target_BT: Numbers of tokens, the start token first.
            places: Where they stand.
            cache: What came before.

        Returns:
            Scores [B, T, V].
        """
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
