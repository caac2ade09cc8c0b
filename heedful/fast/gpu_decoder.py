"""A decoder as the kernels want it: one token a row, weights joined, every norm moved to where it is read.

`lower` takes a decoder apart into `Lowered`, if it is made of parts that there are kernels for: the Transformer's
decoder, GPT-1 to 3, LLaMA. What it then computes is what the decoder computes, with an eighth of the launches.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.base.shells import Decoder
from ..parts.attention import Dot, ScaledDot
from ..parts.blocks import AttentionStack, Block
from ..parts.cache import KeysValues
from ..parts.embeddings import Tied, Untied
from ..parts.layers import ACTIVATIONS as FUNCTIONS
from ..parts.layers import FeedForward, GatedFeedForward, LayerNorm, PostNorm, PreNorm, RMSNorm
from ..parts.masks import causal
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Absolute
from ..parts.positions.base import NoPosition
from ..parts.positions.rotary import Rotary, StretchedRotary
from .kernels.attend import HALVES, INTERLEAVED, attend_cached, attend_source
from .kernels.embed import embed
from .kernels.linear import ACTIVATIONS, LAYER, NO_NORM, RMS, WIDEST, Norm, linear, linear_sum, normalize
from .kernels.loss import MULTIPLE

Pair = tuple[Tensor, Tensor | None]  # a weight and its bias


class NoKernel(Exception):
    """There is no kernel for a part, and its name is given."""


@dataclass(frozen=True)
class Room:
    """Where a step finds what came before: buffers of fixed size, one row for each row of the step."""

    lengths_R: Tensor  # tokens before the new one
    keys_values: list[KeysValues]  # of each layer, [R, G, slots, K]
    origin_RS: Tensor | None = None  # in which row each of them lies, if not in its own
    sources: list[KeysValues] = field(default_factory=list)  # of each layer, [B, G, S, K]
    sources_R: Tensor | None = None  # which source each row reads
    source_lengths_B: Tensor | None = None


@dataclass(frozen=True)
class Stream:
    """What runs through the blocks. A single row's norm is yet to be applied, by whoever reads it, in passing; of
    several rows it is applied where the row is made."""

    x_RD: Tensor
    norm: Norm = NO_NORM
    read_RD: Tensor | None = None  # what the next layer reads, where that is made already


@dataclass(frozen=True)
class Residual:
    """The residual connection around a layer: the norm before it, or after the sum."""

    norm: Norm
    before: bool
    after: Norm = NO_NORM  # what is applied to the sum next: this norm, or that of the next layer

    def read(self, stream: Stream) -> tuple[Tensor, Norm]:
        """What the layer reads, and the norm to apply to it."""
        if stream.read_RD is not None:
            return stream.read_RD, NO_NORM
        return stream.x_RD, self.norm if self.before else stream.norm

    def add(self, stream: Stream, x_RK: Tensor, layer: Pair) -> Stream:
        """The layer's last matrix, and the sum."""
        if len(x_RK) == 1:
            y_RD = linear(x_RK, *layer, residual_MN=stream.x_RD, residual_norm=stream.norm)
            return Stream(y_RD, NO_NORM if self.before else self.norm)
        y_RD, read_RD = linear_sum(x_RK, *layer, stream.x_RD, self.after)
        return Stream(y_RD if self.before else read_RD, read_RD=read_RD)


@dataclass(frozen=True)
class SelfAttention:
    residual: Residual
    qkv: Pair
    out: Pair
    heads: int
    scale: float
    rotary: Rotary | None

    def __call__(self, stream: Stream, room: Room, layer: int, angles: dict[Rotary, tuple]) -> Stream:
        x_RD, norm = self.residual.read(stream)
        qkv_RX = linear(x_RD, *self.qkv, norm=norm)
        turned = None if self.rotary is None else angles[self.rotary]
        mixed_RD = attend_cached(
            qkv_RX, *room.keys_values[layer], room.lengths_R, heads=self.heads, scale=self.scale,
            origin_RS=room.origin_RS, rotary=turned,
        )  # fmt: skip
        return self.residual.add(stream, mixed_RD, self.out)


@dataclass(frozen=True)
class CrossAttention:
    residual: Residual
    query: Pair
    out: Pair
    heads: int
    scale: float

    def __call__(self, stream: Stream, room: Room, layer: int) -> Stream:
        assert room.sources_R is not None and room.source_lengths_B is not None
        x_RD, norm = self.residual.read(stream)
        q_RD = linear(x_RD, *self.query, norm=norm)
        mixed_RD = attend_source(
            q_RD, *room.sources[layer], room.sources_R, room.source_lengths_B, heads=self.heads, scale=self.scale
        )  # fmt: skip
        return self.residual.add(stream, mixed_RD, self.out)


@dataclass(frozen=True)
class Feed:
    residual: Residual
    up: Pair
    gated: Pair | None
    down: Pair
    activation: str

    def __call__(self, stream: Stream) -> Stream:
        x_RD, norm = self.residual.read(stream)
        hidden_RH = linear(x_RD, *self.up, norm=norm, activation=self.activation, gated=self.gated)
        return self.residual.add(stream, hidden_RH, self.down)


Lower = tuple[SelfAttention, CrossAttention | None, Feed]  # a block


class Lowered:
    """A decoder taken apart. It holds copies of joined weights: make it anew when the weights change."""

    def __init__(self, decoder: Decoder) -> None:
        if decoder.training:
            raise NoKernel("training")
        if any(mask != causal() for mask in decoder.masks):
            raise NoKernel("masks")
        inputs, stack = decoder.inputs, decoder.stack
        if not isinstance(stack, AttentionStack):
            raise NoKernel("layers without attention")
        position = inputs.position
        if not isinstance(position, NoPosition | Absolute) or inputs.segments is not None:
            raise NoKernel("inputs")
        if norm_of(inputs.norm) is not NO_NORM:
            raise NoKernel("a norm of the inputs")
        self.decoder, self.stack = decoder, stack
        blocks = [lower_block(block) for block in stack.blocks]  # type: ignore[arg-type]
        for layers in (decoder.attentions(), decoder.crosses() if blocks[0][1] is not None else []):
            if len({(layer.kv_heads, layer.key_width) for layer in layers}) > 1:
                raise NoKernel("layers of unequal width")
        self.last = kernel_norm(stack.norm)
        if self.last is not NO_NORM and not blocks[-1][-1].residual.before:
            raise NoKernel("two norms in a row")
        self.blocks = linked(blocks, self.last)
        head = decoder.head
        if not isinstance(head, Tied | Untied) or inputs.tokens.weight.shape[1] > WIDEST:
            raise NoKernel("head")
        self.head = head
        weight_VD = head.matrix(inputs.tokens)[0].detach()
        self.words, self.padded_PD = len(weight_VD), padded(weight_VD)
        self.tables: dict[int, tuple[Tensor, dict[Rotary, tuple]]] = {}

    @torch.no_grad()
    def table(self, slots: int) -> tuple[Tensor, dict[Rotary, tuple]]:
        """Position encodings and rotary angles of so many positions."""
        if slots not in self.tables:
            tokens, position = self.decoder.inputs.tokens.weight, self.decoder.inputs.position
            size = slots if position.longest is None else min(slots, position.longest)
            nothing = torch.zeros(1, size, tokens.shape[1], dtype=tokens.dtype, device=tokens.device)
            places = torch.arange(slots, device=tokens.device)
            angles = {}
            for attention, *_ in self.blocks:
                if (rotary := attention.rotary) is not None:
                    layout = HALVES if rotary.layout == "halves" else INTERLEAVED
                    angles[rotary] = (layout, *rotary.angles(places, torch.float32))
            encodings_SD = position.embed(nothing, places[:size])[0]
            self.tables[slots] = F.pad(encodings_SD, (0, 0, 0, slots - size)), angles
        return self.tables[slots]

    @torch.no_grad()
    def __call__(self, tokens_R: Tensor, room: Room) -> Tensor:
        """Scores [R, V] for the token after the new one, in fp32. The new token stands at lengths[r]."""
        embedding = self.decoder.inputs.tokens
        encodings_SD, angles = self.table(room.keys_values[0][0].shape[2])
        weight_VD = embedding.weight.detach()
        stream = Stream(embed(tokens_R, room.lengths_R, weight_VD, encodings_SD, embedding.scale))
        for i, (attention, cross, feed) in enumerate(self.blocks):
            stream = attention(stream, room, i, angles)
            if cross is not None:
                stream = cross(stream, room, i)
            stream = feed(stream)
        if stream.read_RD is not None:
            return self.scores(stream.read_RD)
        return self.scores(stream.x_RD, self.last if self.last is not NO_NORM else stream.norm)

    def scores(self, x_RD: Tensor, norm: Norm = NO_NORM) -> Tensor:
        """Scores [R, V] of what comes out of the last block; norm: what it has yet to go through."""
        head = self.head
        weight, bias = head.matrix(self.decoder.inputs.tokens)
        if head.scale != 1:
            x_RD, norm = (x_RD * head.scale, norm) if norm is NO_NORM else (x_RD, scaled(norm, head.scale))
        return scores_of(x_RD, weight.detach(), bias, norm, self.padded_PD)


def padded(weight_VD: Tensor) -> Tensor:
    """With rows of zeros up to a multiple that matrix products like; a copy, unless it has one."""
    return F.pad(weight_VD, (0, 0, 0, -len(weight_VD) % MULTIPLE))


def scores_of(
    x_RD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, norm: Norm, padded_PD: Tensor
) -> Tensor:
    """In fp32, whatever they are made of: of several rows by the vendor's library, which has no kernel for one."""
    if len(x_RD) == 1 or not x_RD.is_cuda or x_RD.dtype == torch.float32:
        return linear(x_RD, weight_VD, bias_V, norm=norm, dtype=torch.float32)
    scores_RP = torch.mm(normalize(x_RD, norm), padded_PD.t(), out_dtype=torch.float32)
    scores_RV = scores_RP[:, : len(weight_VD)]
    return scores_RV if bias_V is None else scores_RV.add_(bias_V)


def scaled(norm: Norm, scale: float) -> Norm:
    """T5 multiplies what goes into the head; after a norm, that is a matter of its gain."""
    assert norm.gain is not None
    shift = None if norm.shift is None else norm.shift * scale
    return Norm(norm.kind, norm.gain * scale, shift, norm.eps)


def lower(decoder: Decoder) -> Lowered | None:
    """The decoder for the kernels; None if it has a part that there is none for."""
    try:
        return Lowered(decoder)
    except NoKernel:
        return None


def lower_block(block: Block) -> Lower:
    cross = None if block.cross is None else lower_cross(block.cross)
    return lower_self(block.attention), cross, lower_feed(block.feed_forward)


def linked(blocks: list[Lower], last: Norm) -> list[Lower]:
    """The blocks, each of their layers knowing the norm that follows its sum. last: the one after them all."""
    residuals = [layer.residual for block in blocks for layer in block if layer is not None]
    before = residuals[0].before
    if any(residual.before != before for residual in residuals):
        raise NoKernel("norms before some layers and after others")
    norms = [residual.norm for residual in residuals]
    after = iter([*norms[1:], last] if before else norms)

    def link(layer: Any) -> Any:
        return layer and replace(layer, residual=replace(layer.residual, after=next(after)))

    return [(link(attention), link(cross), link(feed)) for attention, cross, feed in blocks]


def norm_of(module: nn.Module) -> Norm | None:
    """The kernel's form of a norm; None if it has none."""
    if isinstance(module, nn.Identity):
        return NO_NORM
    if isinstance(module, LayerNorm):
        return Norm(LAYER, module.weight.detach(), module.bias.detach(), module.eps)
    if isinstance(module, RMSNorm):
        return Norm(RMS, module.weight.detach(), None, module.eps)
    return None


def kernel_norm(module: nn.Module) -> Norm:
    norm = norm_of(module)
    if norm is None:
        raise NoKernel(type(module).__name__)
    return norm


def lower_residual(module: nn.Module) -> Residual:
    if not isinstance(module, PreNorm | PostNorm):
        raise NoKernel(type(module).__name__)
    return Residual(kernel_norm(module.norm), isinstance(module, PreNorm))


def attention_of(module: nn.Module) -> tuple[MultiHeadAttention, float]:
    """The layer inside, and what its scores are multiplied by."""
    layer = module.layer
    if not isinstance(layer, MultiHeadAttention) or type(layer.score) not in (ScaledDot, Dot):
        raise NoKernel("score")
    if layer.value_width != layer.key_width or layer.key_width % 2 or layer.key_width > 256:
        raise NoKernel("widths of heads")
    if not isinstance(layer.query_norm, nn.Identity):
        raise NoKernel("normalized queries")
    return layer, layer.key_width**-0.5 if type(layer.score) is ScaledDot else 1.0


def lower_self(module: nn.Module) -> SelfAttention:
    residual, (layer, scale) = lower_residual(module), attention_of(module)
    if type(layer.position) not in (NoPosition, Rotary, StretchedRotary):
        raise NoKernel(type(layer.position).__name__)
    rotary = layer.position if isinstance(layer.position, Rotary) else None
    qkv = joined([layer.query, layer.key, layer.value])
    return SelfAttention(residual, qkv, pair(layer.out), layer.heads, scale, rotary)


def lower_cross(module: nn.Module) -> CrossAttention:
    residual, (layer, scale) = lower_residual(module), attention_of(module)
    if type(layer.position) is not NoPosition:
        raise NoKernel("positions between source and target")
    return CrossAttention(residual, pair(layer.query), pair(layer.out), layer.heads, scale)


def lower_feed(module: nn.Module) -> Feed:
    residual, layer = lower_residual(module), module.layer
    if not isinstance(layer, FeedForward | GatedFeedForward):
        raise NoKernel(type(layer).__name__)
    name = next((name for name, function in FUNCTIONS.items() if function is layer.activation), None)
    if name not in ACTIVATIONS or layer.down.weight.shape[1] > WIDEST:
        raise NoKernel("feed-forward")
    first, gated = pair(layer.up), None
    if isinstance(layer, GatedFeedForward):
        first, gated = pair(layer.gate), pair(layer.up)
    return Feed(residual, first, gated, pair(layer.down), name)


def pair(layer: nn.Linear) -> Pair:
    return layer.weight.detach(), None if layer.bias is None else layer.bias.detach()


def joined(layers: list[nn.Linear]) -> Pair:
    """Several layers that read the same as one."""
    weights, biases = zip(*map(pair, layers), strict=True)
    return torch.cat(weights), None if biases[0] is None else torch.cat(biases)
