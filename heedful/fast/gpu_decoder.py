"""A decoder for the decoding kernels: one token a row, weights joined, every norm moved to where it is read.

`gpu_decoder_of` makes a `GPUDecoder` of a decoder whose parts all have kernels: the Transformer's decoder,
GPT-1 to 3, LLaMA. It computes what the decoder computes, with an eighth of the launches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.base.shells import Decoder
from ..parts.attention import Dot, ScaledDot
from ..parts.blocks import AttentionStack, Block
from ..parts.cache import KeysValues
from ..parts.embeddings import Inputs, Tied, Untied
from ..parts.layers import ACTIVATIONS as FUNCTIONS
from ..parts.layers import FeedForward, GatedFeedForward, LayerNorm, PostNorm, PreNorm, RMSNorm
from ..parts.masks import causal
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Absolute
from ..parts.positions.base import NoPosition
from ..parts.positions.rotary import Rotary, StretchedRotary
from .kernels.attend import HALVES, INTERLEAVED, attend_cached, attend_source
from .kernels.embed import embed
from .kernels.folded import Folded, fold
from .kernels.linear import WIDEST, linear, linear_sum
from .kernels.loss import MULTIPLE
from .kernels.norms import ACTIVATIONS, LAYER, NO_NORM, RMS, Norm, normalize
from .kernels.packed import Weight, packed
from .training import plain_class

Pair = tuple[Weight, Tensor | None]  # a weight and its bias


class NoKernel(Exception):
    """A part of a decoder has no kernel; the message names the part."""


@dataclass(frozen=True)
class StepBuffers:
    """The past of each row of a step, and its source, in buffers of fixed size."""

    lengths_R: Tensor  # tokens before the new one
    keys_values: list[KeysValues]  # of each layer, [R, G, slots, K]
    origin_RS: Tensor  # in which row each of them lies
    sources: list[KeysValues]  # of each layer, [B, G, S, K]; none without an encoder
    sources_R: Tensor  # which source each row reads
    source_lengths_B: Tensor
    ended_RH: Tensor  # zeros, for programs that share a row's past


@dataclass(frozen=True)
class ResidualStream:
    """The vectors that run through the blocks.

    The norm of a single row is yet to be applied, by the kernel that reads it; that of several rows is
    applied where they are made.
    """

    x_RD: Tensor
    norm: Norm = NO_NORM
    read_RD: Tensor | None = None  # what the next layer reads, if it is made already


@dataclass(frozen=True)
class GPUResidual:
    """The residual connection around a layer: the norm before it, or after the sum."""

    norm: Norm
    before: bool
    after: Norm = NO_NORM  # what is applied to the sum next: this norm, or that of the next layer

    def read(self, stream: ResidualStream) -> tuple[Tensor, Norm]:
        """What the layer reads, and the norm to apply to it."""
        if stream.read_RD is not None:
            return stream.read_RD, NO_NORM
        return stream.x_RD, self.norm if self.before else stream.norm

    def add(self, stream: ResidualStream, x_RK: Tensor, layer: Pair) -> ResidualStream:
        """The layer's last matrix, and the sum."""
        if len(x_RK) == 1:
            y_RD = linear(x_RK, *layer, residual_MN=stream.x_RD, residual_norm=stream.norm)
            return ResidualStream(y_RD, NO_NORM if self.before else self.norm)
        y_RD, read_RD = linear_sum(x_RK, *layer, stream.x_RD, self.after)
        return ResidualStream(y_RD if self.before else read_RD, read_RD=read_RD)


@dataclass(frozen=True)
class GPUSelfAttention:
    """Self-attention of one token a row, and its residual connection."""

    residual: GPUResidual
    qkv: Pair
    out: Pair
    heads: int
    scale: float
    rotary: Rotary | None
    folded: tuple[Folded, ...]

    def __call__(
        self, stream: ResidualStream, buffers: StepBuffers, layer: int, angles: dict[Rotary, tuple]
    ) -> ResidualStream:
        x_RD, norm = self.residual.read(stream)
        qkv_RX = linear(x_RD, *self.qkv, norm=norm, folded=self.folded)
        turned = None if self.rotary is None else angles[self.rotary]
        mixed_RD = attend_cached(
            qkv_RX,
            *buffers.keys_values[layer],
            buffers.lengths_R,
            heads=self.heads,
            scale=self.scale,
            origin_RS=buffers.origin_RS,
            rotary=turned,
            ended_RH=buffers.ended_RH,
        )
        return self.residual.add(stream, mixed_RD, self.out)


@dataclass(frozen=True)
class GPUCrossAttention:
    """Attention to the source of one token a row, and its residual connection."""

    residual: GPUResidual
    query: Pair
    out: Pair
    heads: int
    scale: float
    folded: tuple[Folded, ...]

    def __call__(self, stream: ResidualStream, buffers: StepBuffers, layer: int) -> ResidualStream:
        x_RD, norm = self.residual.read(stream)
        q_RD = linear(x_RD, *self.query, norm=norm, folded=self.folded)
        source = (*buffers.sources[layer], buffers.sources_R, buffers.source_lengths_B)
        mixed_RD = attend_source(q_RD, *source, heads=self.heads, scale=self.scale)
        return self.residual.add(stream, mixed_RD, self.out)


@dataclass(frozen=True)
class GPUFeedForward:
    """A feed-forward layer, gated or not, and its residual connection."""

    residual: GPUResidual
    up: Pair
    gated: Pair | None
    down: Pair
    activation: str
    folded: tuple[Folded, ...]

    def __call__(self, stream: ResidualStream) -> ResidualStream:
        x_RD, norm = self.residual.read(stream)
        how: dict[str, Any] = {"activation": self.activation, "gated": self.gated, "folded": self.folded}
        hidden_RH = linear(x_RD, *self.up, norm=norm, **how)
        return self.residual.add(stream, hidden_RH, self.down)


GPUBlock = tuple[GPUSelfAttention, GPUCrossAttention | None, GPUFeedForward]  # a block


class GPUDecoder:
    """A decoder by its kernels. It holds copies of joined weights: make it anew when the weights change."""

    def __init__(self, decoder: Decoder, kind: str | None = None) -> None:
        """kind: "int8" or "fp8" packs the weights that a step multiplies with."""
        if decoder.training:
            raise NoKernel("training")
        if any(mask != causal() for mask in decoder.masks):
            raise NoKernel("masks")
        inputs, stack = decoder.inputs, decoder.stack
        if not isinstance(stack, AttentionStack):
            raise NoKernel("layers without attention")
        position = inputs.position
        if plain_class(inputs) is not Inputs:
            raise NoKernel(type(inputs).__name__)
        if not isinstance(position, NoPosition | Absolute) or inputs.segments is not None:
            raise NoKernel("inputs")
        if norm_of(inputs.norm) is not NO_NORM:
            raise NoKernel("a norm of the inputs")
        self.decoder, self.stack, self.kind = decoder, stack, kind
        self.device = inputs.tokens.weight.device
        blocks = [gpu_block(block, kind) for block in stack.blocks]  # type: ignore[arg-type]
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
        weight_VD, bias_V = head.matrix(inputs.tokens)
        self.head, self.words = head, len(weight_VD)
        self.word_weight = in_bits(weight_VD.detach(), kind)
        self.padded_PD = padded(weight_VD.detach()) if kind is None else None
        last = self.last if head.scale == 1 or self.last is NO_NORM else scaled(self.last, head.scale)
        folded = fold(self.word_weight, bias_V, last)
        self.folded = () if folded is None else (folded,)
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
    def __call__(self, tokens_R: Tensor, buffers: StepBuffers) -> Tensor:
        """Scores [R, V] for the token after the new one, in fp32. The new token stands at lengths[r]."""
        embedding = self.decoder.inputs.tokens
        encodings_SD, angles = self.table(buffers.keys_values[0][0].shape[2])
        weight_VD = embedding.weight.detach()
        stream = ResidualStream(embed(tokens_R, buffers.lengths_R, weight_VD, encodings_SD, embedding.scale))
        for i, (attention, cross, feed) in enumerate(self.blocks):
            stream = attention(stream, buffers, i, angles)
            if cross is not None:
                stream = cross(stream, buffers, i)
            stream = feed(stream)
        if stream.read_RD is not None:
            return self.scores(stream.read_RD)
        return self.scores(stream.x_RD, self.last if self.last is not NO_NORM else stream.norm)

    def scores(self, x_RD: Tensor, norm: Norm = NO_NORM) -> Tensor:
        """Scores [R, V] of the last block's output; norm: the norm yet to be applied to it."""
        head = self.head
        _, bias = head.matrix(self.decoder.inputs.tokens)
        if head.scale != 1:
            x_RD, norm = (x_RD * head.scale, norm) if norm is NO_NORM else (x_RD, scaled(norm, head.scale))
        folded = self.folded if norm is not NO_NORM and self.last is not NO_NORM else ()
        return scores_of(x_RD, self.word_weight, bias, norm, folded, self.padded_PD)


def padded(weight_VD: Tensor) -> Tensor:
    """The weight with rows of zeros up to a multiple that matrix products like; a copy, unless it fits."""
    return F.pad(weight_VD, (0, 0, 0, -len(weight_VD) % MULTIPLE))


def scores_of(
    x_RD: Tensor,
    weight_VD: Weight,
    bias_V: Tensor | None,
    norm: Norm,
    folded: tuple[Folded, ...],
    padded_PD: Tensor | None,
) -> Tensor:
    """Scores in fp32: of several rows by cuBLAS, which has no fast kernel for one row.

    padded_PD: the weight for cuBLAS, unless it is packed.
    """
    if len(x_RD) == 1 or not x_RD.is_cuda or x_RD.dtype == torch.float32 or padded_PD is None:
        return linear(x_RD, weight_VD, bias_V, norm=norm, folded=folded, dtype=torch.float32)
    scores_RP = torch.mm(normalize(x_RD, norm), padded_PD.t(), out_dtype=torch.float32)
    scores_RV = scores_RP[:, : len(weight_VD)]
    return scores_RV if bias_V is None else scores_RV.add_(bias_V)


def scaled(norm: Norm, scale: float) -> Norm:
    """A norm whose output is multiplied by a scale, as T5 does before its head: its gain takes the scale."""
    assert norm.gain is not None
    shift = None if norm.shift is None else norm.shift * scale
    return Norm(norm.kind, norm.gain * scale, shift, norm.eps)


def gpu_decoder_of(decoder: Decoder) -> GPUDecoder | None:
    """The decoder by its kernels, weights as they are; None if a part of it has none."""
    try:
        return GPUDecoder(decoder)
    except NoKernel:
        return None


def gpu_block(block: Block, kind: str | None) -> GPUBlock:
    cross = None if block.cross is None else gpu_cross_attention(block.cross, kind)
    return gpu_self_attention(block.attention, kind), cross, gpu_feed_forward(block.feed_forward, kind)


def linked(blocks: list[GPUBlock], last: Norm) -> list[GPUBlock]:
    """The blocks, each layer with the norm that follows its sum. last: the norm after all blocks."""
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
    """A norm in the kernels' form; None if it has none."""
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


def gpu_residual(module: nn.Module) -> GPUResidual:
    if not isinstance(module, PreNorm | PostNorm):
        raise NoKernel(type(module).__name__)
    return GPUResidual(kernel_norm(module.norm), isinstance(module, PreNorm))


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


def gpu_self_attention(module: nn.Module, kind: str | None) -> GPUSelfAttention:
    residual, (layer, scale) = gpu_residual(module), attention_of(module)
    if type(layer.position) not in (NoPosition, Rotary, StretchedRotary):
        raise NoKernel(type(layer.position).__name__)
    rotary = layer.position if isinstance(layer.position, Rotary) else None
    qkv = joined([layer.query, layer.key, layer.value], kind)
    out = pair(layer.out, kind)
    return GPUSelfAttention(residual, qkv, out, layer.heads, scale, rotary, folded_into(residual, qkv))


def gpu_cross_attention(module: nn.Module, kind: str | None) -> GPUCrossAttention:
    residual, (layer, scale) = gpu_residual(module), attention_of(module)
    if type(layer.position) is not NoPosition:
        raise NoKernel("positions between source and target")
    query, out = pair(layer.query, kind), pair(layer.out, kind)
    return GPUCrossAttention(residual, query, out, layer.heads, scale, folded_into(residual, query))


def gpu_feed_forward(module: nn.Module, kind: str | None) -> GPUFeedForward:
    residual, layer = gpu_residual(module), module.layer
    if not isinstance(layer, FeedForward | GatedFeedForward):
        raise NoKernel(type(layer).__name__)
    name = next((name for name, function in FUNCTIONS.items() if function is layer.activation), None)
    if name not in ACTIVATIONS or layer.down.weight.shape[1] > WIDEST:
        raise NoKernel("feed-forward")
    first, gated = pair(layer.up, kind), None
    if isinstance(layer, GatedFeedForward):
        first, gated = pair(layer.gate, kind), first
    both = [first] if gated is None else [first, gated]
    return GPUFeedForward(residual, first, gated, pair(layer.down, kind), name, folded_into(residual, *both))


def folded_into(residual: GPUResidual, *matrices: Pair) -> tuple[Folded, ...]:
    """The norm before a layer, folded into its matrices; nothing if it comes after, or in fp32."""
    found = [fold(*matrix, residual.norm) for matrix in matrices] if residual.before else []
    return tuple(one for one in found if one is not None)


def in_bits(weight_NK: Tensor, kind: str | None) -> Weight:
    """A weight as the kernels read it. kind: "int8" or "fp8" packs it."""
    return weight_NK if kind is None else packed(weight_NK, kind)


def pair(layer: nn.Linear, kind: str | None) -> Pair:
    return in_bits(layer.weight.detach(), kind), None if layer.bias is None else layer.bias.detach()


def joined(layers: list[nn.Linear], kind: str | None) -> Pair:
    """Several layers that read the same input, as one."""
    weight = in_bits(torch.cat([layer.weight.detach() for layer in layers]), kind)
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return weight, torch.cat(biases) if biases else None
