"""Prefill: read the source and the prompts into a runner's buffers, and score the last tokens, in one go.

This computes what the encoder and the decoder compute by themselves, but writes straight into a runner's
buffers, of few sizes. Nothing on the way asks the host for anything, so all of it can be one captured graph:
a prompt takes some hundred launches, and a GPU is done with a short one before they are made.

Packed weights are for steps: prompts and sources are read with the model's own.

A prompt may be padded to any length. Padding lies in the future of every real token, and what it leaves in
the buffers is overwritten before it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..decode.step import at_last
from ..models.base.shells import Decoder, Encoder
from ..parts.attention import Dot, ScaledDot
from ..parts.blocks import Block, Stack
from ..parts.cache import KeysValues, LayerCache
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.fused import attend_fused
from ..parts.layers import FeedForward, GatedFeedForward, LayerNorm, PostNorm, PreNorm, RMSNorm
from ..parts.masks import Mask, causal, full
from ..parts.multihead import MultiHeadAttention, join_heads, split_heads
from ..parts.positions.absolute import Learned, Sinusoidal
from ..parts.positions.base import Memo, NoPosition, Position
from ..parts.positions.rotary import Rotary, StretchedRotary
from ..parts.view import View, right_padded
from ..parts.watch import is_watched
from .gpu_decoder import GPUDecoder, ResidualStream
from .kernels.linear import linear
from .training import plain_class

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cuda_graph import GraphRunner

FEW = 256  # tokens, padding included, up to which the kernels of a step are quicker than the vendor's
FEW_INTERPRETED = 24  # the same without a GPU, where kernels run number by number
MOST = 1 << 14  # tokens, padding included: more keep a GPU busy while they are launched


def padded_length(T: int) -> int:
    """Tokens that a prompt of T is padded to, so that few graphs are needed."""
    multiple = 16 if T <= 64 else 64
    return T if T == 1 else -(-T // multiple) * multiple


class Prefill:
    """Reads what a step begins with: the decoder's prompts and, if there is an encoder, their sources."""

    def __init__(self, gpu: GPUDecoder, encoder: Encoder | None) -> None:
        self.gpu, self.encoder = gpu, encoder
        self.layers = [] if encoder is None else attentions(encoder)
        self.angles: dict[tuple[Mask, int], Memo] = {}
        self.encodings: dict[int, Tensor] = {}

    def suits(self, tokens_BT: Tensor, source_BS: Tensor | None) -> bool:
        """Whether these can be read here: not what is watched, and not what the models would refuse."""
        decoder = self.gpu.decoder
        if not len(tokens_BT) or not fits(tokens_BT.shape[1], decoder.inputs.position):
            return False
        if self.encoder is not None:
            if source_BS is None or len(source_BS) != len(tokens_BT):
                return False
            if not fits(source_BS.shape[1], self.encoder.inputs.position):
                return False
        watched = any(is_watched(layer) for layer in [*decoder.attentions(), *self.layers])
        return not watched and not torch.is_autocast_enabled(tokens_BT.device.type)

    @torch.no_grad()
    def __call__(self, runner: GraphRunner, T: int) -> Tensor:
        """Scores [R, V] after each row's last token, of the first T in the runner's buffers.

        Every row has its own past and its own source.
        """
        buffers, decoder = runner.buffers, self.gpu.decoder
        buffers.origin_RS.copy_(runner.own_RS)
        view = self.view(causal(), T, None, decoder.attentions())
        source_BSD = source_view = None
        if self.encoder is not None:
            assert runner.source_BS is not None
            buffers.sources_R.copy_(runner.own_RS[:, 0])
            S = runner.source_BS.shape[1]
            places_BS = right_padded(buffers.source_lengths_B, S)
            source_BSD = self.encode(self.encoder, runner.source_BS, places_BS)
            source_view = View(full(), T, S, source_BSD.device, view.q_pos, places_BS)
        encodings_TD = self.gpu.table(runner.slots)[0][:T]
        x_RTD = decoder.inputs.tokens(runner.prompts_RS[:, :T]) + encodings_TD
        few = 1 < runner.rows * T <= (FEW if x_RTD.is_cuda else FEW_INTERPRETED)
        if self.encoder is None and self.gpu.kind is None and few:
            return self.gpu.scores(at_last(self.by_kernels(runner, x_RTD, view), buffers.lengths_R))
        for block, layer in zip(self.gpu.stack.blocks, prefill_caches(runner), strict=True):
            x_RTD = block(x_RTD, view, source_BSD, source_view, layer)
        return self.gpu.scores(self.gpu.stack.norm(at_last(x_RTD, buffers.lengths_R)))

    def by_kernels(self, runner: GraphRunner, x_RTD: Tensor, view: View) -> Tensor:
        """What the head reads after few tokens, by the kernels of a step: half as many launches."""
        R, T, _ = x_RTD.shape
        stream = ResidualStream(x_RTD.flatten(0, 1))
        for (attention, _, feed), cache in zip(self.gpu.blocks, prefill_caches(runner), strict=True):
            x_MD, norm = attention.residual.read(stream)
            heads_RHTK = split_heads(
                linear(x_MD, *attention.qkv, norm=norm).unflatten(0, (R, T)),
                attention.heads + 2 * cache.own[0].shape[1],
            )
            q_RHTK, k_RGTK, v_RGTK = heads_RHTK.tensor_split(
                (attention.heads, attention.heads + cache.own[0].shape[1]), 1
            )
            if attention.rotary is not None:
                q_RHTK = attention.rotary.rotate(q_RHTK, view.q_pos, view.memo)
                k_RGTK = attention.rotary.rotate(k_RGTK, view.q_pos, view.memo)
            k_RGTK, v_RGTK = cache.append(k_RGTK, v_RGTK)
            mixed_RHTK = attend_fused(q_RHTK, k_RGTK, v_RGTK, view, None, attention.scale, 0.0)
            stream = attention.residual.add(stream, join_heads(mixed_RHTK).flatten(0, 1), attention.out)
            stream = feed(stream)
        assert stream.read_RD is not None
        return stream.read_RD.unflatten(0, (R, T))

    def encode(self, encoder: Encoder, tokens_BS: Tensor, places_BS: Tensor) -> Tensor:
        """The encoder's output for sources whose padding stands at -1."""
        S, inputs = tokens_BS.shape[1], encoder.inputs
        if S not in self.encodings:
            self.encodings[S] = encodings(inputs.position, S, inputs.tokens.weight)
        x_BSD = inputs.norm(inputs.tokens(tokens_BS) + self.encodings[S])
        return encoder.stack(x_BSD, [self.view(full(), S, places_BS, self.layers)])

    def view(
        self, mask: Mask, T: int, places_BT: Tensor | None, layers: Sequence[MultiHeadAttention]
    ) -> View:
        """T tokens among themselves, in order; places: -1 where nobody is to look.

        Rotary angles depend on T alone, so they are made once, and not by every replay of a graph.
        """
        view = View(mask, T, T, self.gpu.device, None, places_BT)
        if (mask, T) not in self.angles:
            memo = self.angles[mask, T] = {}
            for layer in layers:
                nothing = layer.key.weight.new_zeros(1, 1, T, layer.key_width)
                layer.position.rotate(nothing, view.q_pos, memo)
        view.memo.update(self.angles[mask, T])
        return view


def fits(size: int, position: Position) -> bool:
    return size > 0 and (position.longest is None or size <= position.longest)


def attentions(encoder: Encoder) -> list[MultiHeadAttention]:
    return [module for module in encoder.modules() if isinstance(module, MultiHeadAttention)]


def can_prefill(decoder: Decoder, encoder: Encoder | None) -> bool:
    """Whether no part of them asks the host for anything, and the encoder masks nothing."""
    modules = [*decoder.modules(), *(() if encoder is None else encoder.modules())]
    if any(module.training or plain_class(module) not in HOSTLESS for module in modules):
        return False
    return encoder is None or all(mask == full() for mask in encoder.masks)


SHELLS = {Encoder, Decoder, Tied, Untied, Inputs, TokenEmbedding, Stack, Block, PreNorm, PostNorm}
LAYERS = {MultiHeadAttention, ScaledDot, Dot, FeedForward, GatedFeedForward, LayerNorm, RMSNorm}
POSITIONS = {NoPosition, Sinusoidal, Learned, Rotary, StretchedRotary}
HOSTLESS = SHELLS | LAYERS | POSITIONS | {nn.ModuleList, nn.Linear, nn.Dropout, nn.Identity}


def encodings(position: Position, S: int, weight_VD: Tensor) -> Tensor:
    """The encodings of so many positions; zeros past the end of a learned table."""
    size = S if position.longest is None else min(S, position.longest)
    nothing = weight_VD.new_zeros(1, size, weight_VD.shape[1])
    encoded_SD = position.embed(nothing, torch.arange(size, device=weight_VD.device))[0]
    return F.pad(encoded_SD, (0, 0, 0, S - size))


class PrefillCache(LayerCache):
    """One layer's buffers, while the prompts are read: nothing came before what it is given."""

    def __init__(self, own: KeysValues, source: KeysValues | None) -> None:
        super().__init__()
        self.own, self.of_source = own, source

    def append(self, k_BGTK: Tensor, v_BGTL: Tensor) -> KeysValues:
        return stored((k_BGTK, v_BGTL), self.own)

    def source(self, compute: Callable[[], KeysValues]) -> KeysValues:
        assert self.of_source is not None
        return stored(compute(), self.of_source)


def stored(kv: KeysValues, buffers: KeysValues) -> KeysValues:
    """Keys and values, after they were copied into the first slots of the buffers."""
    for into, x in zip(buffers, kv, strict=True):
        into[:, :, : x.shape[2]] = x
    return kv


def prefill_caches(runner: GraphRunner) -> Sequence[PrefillCache]:
    own, sources = runner.buffers.keys_values, runner.buffers.sources
    return [PrefillCache(kv, sources[i] if sources else None) for i, kv in enumerate(own)]
