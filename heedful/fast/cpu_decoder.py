"""Packed models: a model for decoding on a CPU, with the same weights in another order, or in fewer bits.

    model = packed(model)              # the same to rounding, sooner
    model = packed(model, "fp16")      # half the bytes to read, the same to three digits
    model = packed(model, "int8")      # a quarter of them, and about two digits

The shells stay, so a packed model is used like any other. Inside a block the work is done in fewer and larger
pieces: queries, keys and values by one product, one query by a formula of three lines. Blocks of other parts
stay as they are. A packed model has no gradient and no dropout, and keeps the model it was made of: `watch`
shows it under the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import BadInput
from ..models.base.shells import Decoder, Encoder, EncoderDecoder
from ..parts.attention import Dot, ScaledDot
from ..parts.blocks import AttentionStack, Block, ParallelBlock, StackLike
from ..parts.cache import Cache, KeysValues, LayerCache
from ..parts.embeddings import Inputs, Tied, TokenEmbedding, Untied
from ..parts.layers import Branch, FeedForward, GatedFeedForward, LayerNorm, PostNorm, PreNorm, RMSNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Absolute, Sinusoidal
from ..parts.positions.base import Memo, Position, Positions, index_of, once
from ..parts.positions.rotary import Rotary, StretchedRotary
from ..parts.view import View
from ..parts.watch import WATCHERS, is_watched
from .cpu_weights import LinearWeights, Matrices, Matrix, matrices

ZERO = torch.zeros((), dtype=torch.float32, device="cpu")
FEW = 64  # heads of all rows together, up to which torch's own kernel for one query is the quickest


def packed(model: Decoder | EncoderDecoder, weights: str = "fp32") -> Decoder | EncoderDecoder:
    """The model with packed weights, for decoding on a CPU. weights: "fp32", "fp16" or "int8".

    Layouts are made when they are first needed, so the first answer takes longer. What fewer bits cost: fp16
    moves a weight by 1/2048 of itself at most; int8 a weight, and an input, by 1/254 of the largest of its
    row. Matrices of fewer than 131,072 weights stay as they are.
    """
    make = matrices(weights)
    if isinstance(model, Decoder):
        return packed_decoder(model, make).eval()
    if isinstance(model, EncoderDecoder):
        return EncoderDecoder(packed_encoder(model.encoder, make), packed_decoder(model.decoder, make)).eval()
    raise BadInput(f"only models that write can be packed, not {type(model).__name__}")


def packed_encoder(encoder: Encoder, make: Matrices) -> Encoder:
    stack = PackedStack(encoder.stack, make)
    return Encoder(packed_inputs(encoder.inputs), stack, encoder.masks, encoder.project_out)


def packed_decoder(decoder: Decoder, make: Matrices) -> Decoder:
    if not isinstance(decoder.head, Tied | Untied):
        raise BadInput(f"a {type(decoder.head).__name__} cannot be packed: heads are Tied or Untied")
    head = PackedHead(decoder.head, decoder.inputs.tokens, make)
    return Decoder(packed_inputs(decoder.inputs), PackedStack(decoder.stack, make), head, decoder.masks)


# Stack and blocks. Vectors of all tokens stand in rows, R = B T of them.


class PackedStack(AttentionStack):
    """The blocks of a stack by packed matrices; the blocks themselves stay, for `watch`."""

    def __init__(self, stack: StackLike, make: Matrices) -> None:
        super().__init__()
        assert isinstance(stack, AttentionStack)
        self.blocks, self.norm = stack.blocks, stack.norm
        self.packed = [packed_block(block, make) for block in stack.blocks]  # type: ignore[arg-type]
        self.last = norm_of(stack.norm)

    def forward(
        self,
        x_BTD: Tensor,
        views: Sequence[View],
        source_BSD: Tensor | None = None,
        source_view: View | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        with torch.no_grad() if WATCHERS.get() else torch.inference_mode():  # what is recorded stays usable
            (B, T, _), x_RD = x_BTD.shape, x_BTD.flatten(0, 1)
            for i, block in enumerate(self.packed):
                layer_cache = None if cache is None else cache.layers[i]
                x_RD = block(x_RD, B, views[i % len(views)], source_BSD, source_view, layer_cache)
            return self.last(x_RD).unflatten(0, (B, T))


def packed_block(block: Block, make: Matrices) -> Callable[..., Tensor]:
    """A block that is made of known parts, packed; any other as it is."""
    parts = [part for part in (block.attention, block.cross, block.feed_forward) if part is not None]
    known = all(isinstance(part, PreNorm | PostNorm | Branch) and joinable(part.layer) for part in parts)
    kind = PACKED.get(type(block)) if known else None
    return UnpackedBlock(block) if kind is None else kind(block, make)


def joinable(layer: nn.Module) -> bool:
    """Whether a layer can be packed: heads of one width can be split after one product."""
    if not isinstance(layer, MultiHeadAttention):
        return isinstance(layer, FeedForward | GatedFeedForward)
    return layer.query.out_features // layer.heads == layer.key_width == layer.value_width


class UnpackedBlock:
    """A block that stays as it is: it works on [B, T, D], between others that work on rows."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def __call__(self, x_RD: Tensor, B: int, view: View, *args: Any) -> Tensor:
        return self.block(x_RD.unflatten(0, (B, view.T)), view, *args).flatten(0, 1)


class PackedBlock:
    """A block: attention, attention to the source, feed-forward, each inside its residual."""

    def __init__(self, block: Block, make: Matrices) -> None:
        attention: Any = block.attention
        feed_forward: Any = block.feed_forward
        cross: Any = block.cross
        self.attention = residual(attention, PackedSelfAttention(attention.layer, make))
        self.feed_forward = residual(feed_forward, packed_feed(feed_forward.layer, make))
        self.cross: Callable[..., Tensor] | None = None
        if cross is not None:
            self.cross = residual(cross, PackedCrossAttention(cross.layer, make))

    def __call__(
        self,
        x_RD: Tensor,
        B: int,
        view: View,
        source_BSD: Tensor | None,
        source_view: View | None,
        cache: LayerCache | None,
    ) -> Tensor:
        x_RD = self.attention(x_RD, B, view, cache)
        if self.cross is not None:
            x_RD = self.cross(x_RD, B, source_view, cache, source_BSD)
        return self.feed_forward(x_RD)


class PackedParallelBlock:
    """A block whose attention and feed-forward layer read the same vectors."""

    def __init__(self, block: ParallelBlock, make: Matrices) -> None:
        attention: Any = block.attention
        feed_forward: Any = block.feed_forward
        self.attention = PackedSelfAttention(attention.layer, make)
        self.feed_forward = packed_feed(feed_forward.layer, make)
        self.before_attention = norm_of(attention.norm)
        self.before_feed_forward = (
            None if feed_forward.norm is attention.norm else norm_of(feed_forward.norm)
        )  # GPT-J has one norm for both

    def __call__(
        self,
        x_RD: Tensor,
        B: int,
        view: View,
        source_BSD: Tensor | None,
        source_view: View | None,
        cache: LayerCache | None,
    ) -> Tensor:
        normed_RD = self.before_attention(x_RD)
        y_RD = self.attention(x_RD, normed_RD, B, view, cache)
        other_RD = normed_RD if self.before_feed_forward is None else self.before_feed_forward(x_RD)
        return self.feed_forward(y_RD, other_RD)


PACKED: dict[type[Block], Callable[..., Any]] = {Block: PackedBlock, ParallelBlock: PackedParallelBlock}


def residual(module: PreNorm | PostNorm, layer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """x + layer(norm(x)), or norm(x + layer(x)): the layer adds its output to its first argument."""
    norm = norm_of(module.norm)
    if isinstance(module, PreNorm):
        return lambda x_RD, *args: layer(x_RD, norm(x_RD), *args)
    return lambda x_RD, *args: norm(layer(x_RD, x_RD, *args))


def norm_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """The norm as a function: calling a module costs more than the norm of a few rows."""
    if isinstance(module, LayerNorm):
        shape, eps = (len(module.weight),), module.eps
        gain, shift = module.weight.detach(), module.bias.detach()
        return lambda x: torch.layer_norm(x, shape, gain, shift, eps)
    if isinstance(module, RMSNorm):
        return root_mean_square_norm(module.weight.detach(), module.eps)
    return module


def root_mean_square_norm(gain_D: Tensor, eps: float) -> Callable[[Tensor], Tensor]:
    """x / sqrt(mean x^2 + eps) * gain, as sqrt(D) gain x / hypot(|x|, sqrt(D eps)).

    That is four operations. torch's own norm is made of ten on a CPU, and takes twice as long for a few rows.
    """
    D = len(gain_D)
    gain_D, floor = gain_D * math.sqrt(D), torch.tensor(math.sqrt(D * eps))

    def norm(x_RD: Tensor) -> Tensor:
        length_R1 = torch.linalg.vector_norm(x_RD, dim=-1, keepdim=True)
        return x_RD.div(length_R1.hypot_(floor)).mul_(gain_D)

    return norm


def joined(layers: Sequence[nn.Linear], make: Matrices) -> Matrix:
    """One matrix of layers that read the same input."""
    return make(LinearWeights([layer.weight for layer in layers], [layer.bias for layer in layers]))


# Attention.


class PackedSelfAttention:
    """Self-attention: queries, keys and values by one product, their heads side by side."""

    def __init__(self, layer: MultiHeadAttention, make: Matrices) -> None:
        self.attend, self.turning = PackedAttention(layer), turning_of(layer)
        self.H, self.G = layer.heads, layer.kv_heads
        self.qkv = make(self.weights(layer))
        self.out = joined([layer.out], make)

    def weights(self, layer: MultiHeadAttention) -> LinearWeights:
        """Those of queries, keys and values; the coordinates of a pair that is turned stand side by side."""
        parts = [layer.query, layer.key, layer.value]
        weights: list[Tensor] = [part.weight for part in parts]
        biases: list[Tensor | None] = [part.bias for part in parts]
        if self.turning is not None and layer.position.layout == "halves":
            for i in (0, 1):
                order_R, bias = self.turning.order(len(weights[i])), biases[i]
                weights[i], biases[i] = weights[i][order_R], None if bias is None else bias[order_R]
        return LinearWeights(weights, biases)

    def __call__(self, onto_RD: Tensor, x_RD: Tensor, B: int, view: View, cache: LayerCache | None) -> Tensor:
        heads = [self.H, self.G, self.G]
        y_RX = self.qkv(x_RD)
        if self.turning is not None:
            y_BTXK = y_RX.view(B, view.T, sum(heads), -1)
            self.turning(y_BTXK.narrow(2, 0, self.H + self.G), view)
        q_BHTK, k_BGTK, v_BGTK = split(y_RX, B, view.T, heads)
        if self.turning is None:
            q_BHTK = self.attend.queries(q_BHTK, view)
            k_BGTK = self.attend.keys(k_BGTK, view.q_pos, view.memo)
        if cache is not None:
            k_BGTK, v_BGTK = cache.append(k_BGTK, v_BGTK)
        if self.turning is not None and is_watched(self.attend.layer):
            q_BHTK, k_BGTK = self.turning.plain(q_BHTK), self.turning.plain(k_BGTK)
        return self.out.onto(onto_RD, rows_of(self.attend(q_BHTK, k_BGTK, v_BGTK, view)))


class PackedCrossAttention:
    """Attention to the source, whose keys and values are computed once.

    Rows may share a source, as beams do.
    """

    def __init__(self, layer: MultiHeadAttention, make: Matrices) -> None:
        self.attend = PackedAttention(layer)
        self.heads, self.kv_heads = [layer.heads], [layer.kv_heads, layer.kv_heads]
        self.query = joined([layer.query], make)
        self.kv = joined([layer.key, layer.value], make)
        self.out = joined([layer.out], make)

    def __call__(
        self,
        onto_RD: Tensor,
        x_RD: Tensor,
        B: int,
        view: View,
        cache: LayerCache | None,
        source_BSD: Tensor,
    ) -> Tensor:
        (q_BHTK,) = split(self.query(x_RD), B, view.T, self.heads)
        q_BHTK = self.attend.queries(q_BHTK, view)

        def compute() -> KeysValues:
            k_BGSK, v_BGSK = split(self.kv(source_BSD.flatten(0, 1)), B, view.S, self.kv_heads)
            k_BGSK = self.attend.keys(k_BGSK, view.k_pos)
            return k_BGSK.contiguous(), v_BGSK.contiguous()  # read again at every step

        (k_NGSK, v_NGSK), sharing = (compute(), 1) if cache is None else cache.shared_source(compute)
        if sharing > 1 and not self.attend.knows(view):
            k_NGSK, v_NGSK = k_NGSK.repeat_interleave(sharing, 0), v_NGSK.repeat_interleave(sharing, 0)
        return self.out.onto(onto_RD, rows_of(self.attend(q_BHTK, k_NGSK, v_NGSK, view)))


def split(y_RX: Tensor, B: int, T: int, heads: list[int]) -> Sequence[Tensor]:
    """[B T, (H + H' + ...) K] to [B, H, T, K], [B, H', T, K], ..."""
    H = sum(heads)
    y_BHTK = y_RX.view(B, T, H, y_RX.shape[1] // H).transpose(1, 2)
    return torch.split_with_sizes(y_BHTK, heads, 1)


def rows_of(x_BHTK: Tensor) -> Tensor:
    """[B, H, T, K] to [B T, H K]."""
    B, H, T, K = x_BHTK.shape
    return (x_BHTK if T == 1 else x_BHTK.transpose(1, 2)).reshape(B * T, H * K)


class PackedAttention:
    """Attention of one new token a row, which is all that a step needs; the layer itself does anything else.

    N sources may serve B rows: then the B / N rows that share one lie side by side.
    """

    def __init__(self, layer: MultiHeadAttention) -> None:
        self.layer, position = layer, type(layer.position)
        self.scale = 1 / math.sqrt(layer.key_width) if isinstance(layer.score, ScaledDot) else 1.0
        self.plain = type(layer.score) in (Dot, ScaledDot) and not layer.position.uses_values
        self.normed = not isinstance(layer.query_norm, nn.Identity)
        self.turned = position.rotate is not Position.rotate
        self.biased = position.bias is not Position.bias

    def queries(self, q_BHTK: Tensor, view: View) -> Tensor:
        q_BHTK = self.layer.query_norm(q_BHTK) if self.normed else q_BHTK
        return self.layer.position.rotate(q_BHTK, view.q_pos, view.memo) if self.turned else q_BHTK

    def keys(self, k_BGSK: Tensor, positions: Positions, memo: Memo | None = None) -> Tensor:
        k_BGSK = self.layer.key_norm(k_BGSK) if self.normed else k_BGSK
        return self.layer.position.rotate(k_BGSK, positions, memo) if self.turned else k_BGSK

    def knows(self, view: View) -> bool:
        """Whether the formula here serves this view, and not the layer itself."""
        return view.T == 1 and self.plain and not is_watched(self.layer)

    def __call__(self, q_BHTK: Tensor, k_NGSK: Tensor, v_NGSK: Tensor, view: View) -> Tensor:
        if not self.knows(view):
            return self.layer.attend(q_BHTK, k_NGSK, v_NGSK, view)
        table, empty = hidden_of(view, self.layer.heads)
        if self.biased:
            bias = self.layer.position.bias(q_BHTK, k_NGSK, view.q_pos, view.k_pos, view.memo)
            table = bias if table is None or bias is None else bias + table
        out_BH1K = attend_one(q_BHTK, k_NGSK, v_NGSK, self.scale, table)
        return out_BH1K if empty is None else out_BH1K.masked_fill(empty, 0)


class Turning:
    """Plain rotary positions of packed heads: a pair of coordinates is a complex number, turned by a product.

    The coordinates of a pair must be neighbors. Where they are not, the rows of the joined matrix are put in
    another order, those of queries and keys alike, so that no score changes.
    """

    def __init__(self, rotary: Rotary) -> None:
        self.rotary = rotary

    def __call__(self, x_BTXK: Tensor, view: View) -> None:
        """Turn these heads where they are."""
        turn = once(view.memo, ("turn", self.rotary.kind), lambda: self.turn(view.q_pos))
        torch.view_as_complex(x_BTXK.unflatten(-1, (-1, 2))).mul_(turn)

    def turn(self, positions: Positions) -> Tensor:
        """[T, 1, K/2] or [B, T, 1, K/2], like the tokens."""
        cos, sin = self.rotary.angles(index_of(positions), torch.float32)
        turn = torch.complex(cos, sin)
        return turn[:, None] if turn.ndim == 2 else turn.transpose(1, 2)

    def order(self, rows: int) -> Tensor:
        """The order of a projection's rows in which the coordinates of each pair are neighbors."""
        order_R = torch.arange(rows)
        if self.rotary.layout == "interleaved":
            return order_R
        return order_R.view(-1, 2, self.rotary.width // 2).transpose(1, 2).flatten()

    def plain(self, x_BHTK: Tensor) -> Tensor:
        """Queries or keys with their coordinates as the model has them, for whoever looks."""
        return x_BHTK[..., self.order(x_BHTK.shape[-1]).argsort()]


def turning_of(layer: MultiHeadAttention) -> Turning | None:
    """How a layer's heads are turned by one product; None if they are turned otherwise, or not at all."""
    plain = type(layer.position) in (Rotary, StretchedRotary) and isinstance(layer.query_norm, nn.Identity)
    return Turning(layer.position) if plain else None


def hidden_of(view: View, H: int) -> tuple[Tensor | None, Tensor | None]:
    """-inf where a key is hidden and 0 elsewhere, to be added to scores; None where nothing is hidden.

    Second, which rows see nothing: those are shown all keys, and their output is set to 0.
    """

    def compute() -> tuple[Tensor | None, Tensor | None]:
        if view.sees_all:
            return None, None
        allowed, empty = view.safe(H)
        return torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf")), empty

    return once(view.memo, ("hidden", H), compute)


def attend_one(
    q_BH1K: Tensor, k_NGSK: Tensor, v_NGSK: Tensor, scale: float, table: Tensor | None = None
) -> Tensor:
    """softmax(q k^T scale + table) v for a single query a row, as two products for all of them together.

    The M heads that share a key, and the W rows that share a source, are queries of one product.
    """
    (B, H, _, K), (N, G, S, _) = q_BH1K.shape, k_NGSK.shape
    W, M = B // N, H // G
    alone = W == M == 1
    if alone and B * H <= FEW:
        return F.scaled_dot_product_attention(q_BH1K, k_NGSK, v_NGSK, table, scale=scale)

    def together(x_BH1X: Tensor) -> Tensor:
        if W == 1:
            return x_BH1X.reshape(N * G, M, -1)
        return x_BH1X.reshape(N, W, G, M, -1).transpose(1, 2).reshape(N * G, W * M, -1)

    keys_PSK, values_PSK = k_NGSK.flatten(0, 1), v_NGSK.flatten(0, 1)  # P = N G products
    scores_PXS = torch.baddbmm(ZERO, together(q_BH1K), keys_PSK.mT, beta=0, alpha=scale)
    if table is not None:
        scores_PXS += together(table.expand(B, H, 1, S))
    out_PXK = torch.bmm(scores_PXS.softmax(-1), values_PSK)
    if W == 1:
        return out_PXK.view(B, H, 1, K)
    return out_PXK.view(N, G, W, M, K).transpose(1, 2).reshape(B, H, 1, K)


# Feed-forward.


def packed_feed(layer: FeedForward | GatedFeedForward, make: Matrices) -> Callable[[Tensor, Tensor], Tensor]:
    """A feed-forward layer; gate and value of a gated one by one product."""
    down = joined([layer.down], make)
    if isinstance(layer, GatedFeedForward):
        both, activation = joined([layer.gate, layer.up], make), layer.activation

        def gated(onto_RD: Tensor, x_RD: Tensor) -> Tensor:
            gate_RF, value_RF = both(x_RD).chunk(2, -1)
            return down.onto(onto_RD, activation(gate_RF).mul_(value_RF))

        return gated
    up, activation = joined([layer.up], make), layer.activation
    if activation is F.relu:
        return lambda onto_RD, x_RD: down.onto(onto_RD, up.rectified(x_RD))
    return lambda onto_RD, x_RD: down.onto(onto_RD, activation(up(x_RD)))


# Both ends.


class PackedHead(nn.Module):
    """Scores for the next token. A tied matrix is packed here, and stays the embedding's."""

    def __init__(self, head: Tied | Untied, embedding: TokenEmbedding, make: Matrices) -> None:
        super().__init__()
        self.head, self.scale = head, head.scale
        if isinstance(head, Tied):
            self.matrix = make(LinearWeights([embedding.weight], [head.bias]))
        else:
            self.matrix = joined([head.linear], make)

    def forward(self, x_BTD: Tensor, embedding: TokenEmbedding) -> Tensor:
        with torch.no_grad():
            x_BTD = x_BTD if self.scale == 1 else x_BTD * self.scale
            return self.matrix(x_BTD.flatten(0, 1)).view(*x_BTD.shape[:-1], -1)


def packed_inputs(inputs: Inputs) -> Inputs:
    """The same inputs; sinusoids are kept once computed."""
    if not isinstance(inputs.position, Sinusoidal):
        return inputs
    return Inputs(inputs.tokens, SinusoidTable(inputs.position), inputs.segments, inputs.norm)


class SinusoidTable(Absolute):
    """Sinusoidal encodings of the first positions, in a table that grows."""

    def __init__(self, position: Absolute) -> None:
        super().__init__()
        self.position, self.width = position, position.width
        self.table_SD = torch.empty(0, position.width)

    def encode(self, positions: Positions) -> Tensor:
        index = index_of(positions).clamp(min=0)
        needed = int(index.max()) + 1 if index.numel() else 0
        if needed > len(self.table_SD):
            self.table_SD = self.position.encode(torch.arange(2 * needed + 64)).float()
        return F.embedding(index, self.table_SD)
