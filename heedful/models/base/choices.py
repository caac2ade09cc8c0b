"""Choices of parts: what is in `parts/` and fits every Transformer is a setting of the open architectures.

`transformer`, `decoder` and `encoder` are open: their configs extend `OpenConfig`, and their layers are built
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from torch import nn

from ...parts.attention import SCORES
from ...parts.blocks import Block, Stack
from ...parts.embeddings import Inputs, TokenEmbedding
from ...parts.layers import NORMS, RESIDUALS, FeedForward
from ...parts.multihead import MultiHeadAttention
from ...parts.positions import COMBINED
from ...parts.positions import POSITIONS as SCHEMES
from ...parts.positions.base import NoPosition, Position, PositionSizes
from .config import Config
from .fields import (
    SIZE,
    Buckets,
    MaxDistance,
    RelationScope,
    SinusoidLayout,
    SinusoidPrecision,
    choices,
    position_names,
)
from .settings import Choices, derived


@dataclass(frozen=True, kw_only=True)
class OpenConfig(Config):
    """The choices that all open architectures have."""

    positions: Annotated[str, Choices(position_names), "position encoding"] = "sinusoidal"
    max_distance: MaxDistance = derived("16; 128 for t5", lambda made: 128 if made.positions == "t5" else 16)
    buckets: Buckets = 32
    relation_scope: RelationScope = "edge"
    sinusoid_layout: SinusoidLayout = "interleaved"
    sinusoid_precision: SinusoidPrecision = "float32"
    position_width: Annotated[int, SIZE, "concatenated positions: their width"] = derived(
        "width / 4", lambda made: max(2, getattr(made, "width", 512) // 8 * 2)
    )
    score: Annotated[str, choices("attention.py", "SCORES"), "score function of attention"] = "scaled"
    key_width: Annotated[int | None, SIZE, "width of a head's queries and keys; None: width / heads"] = None
    value_width: Annotated[int | None, SIZE, "width of a head's values; None: as key_width"] = None
    norm_kind: Annotated[str, choices("layers.py", "NORMS"), "LayerNorm or RMSNorm"] = "layernorm"
    norm_affine: Annotated[bool, "gain (and bias) in norms"] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if "rotary" in self.positions and self.score not in ("scaled", "dot"):
            raise ValueError(
                f"rotary positions are relative only under a dot product: "
                f"set score to scaled or dot, not {self.score}, or choose other positions"
            )


CLASSIC = ("score", "key_width", "value_width", "norm_kind", "norm_affine")


def unusual(c: OpenConfig) -> list[str]:
    """The settings in which the parts are other than those of the Transformer as it was published."""
    usual = OpenConfig()
    return [f"{name}={getattr(c, name)}" for name in CLASSIC if getattr(c, name) != getattr(usual, name)]


def unused(c: OpenConfig) -> dict[str, Any]:
    """The settings of positions that sinusoids alone have no use for, as they are by default."""
    return {f.name: f.default for f in fields(c) if f.name in UNUSED}


UNUSED = ("max_distance", "buckets", "relation_scope", "position_width")


@dataclass(frozen=True)
class Order:
    """How order enters one side: an encoding at the input, a distance in the self-attention."""

    input: type[Position] = NoPosition
    attention: type[Position] = NoPosition


def order_of(schemes: Sequence[str], has_tree: bool) -> Order:
    """The order of one side. A target has no tree while it is written: positions from syntax are the
    encoder's alone, and the decoder has those of the plain sentence (Wang, Tu, Wang and Shi 2019)."""
    kinds = [SCHEMES[name] for name in schemes]
    return Order(**{kind.place: kind if has_tree else kind.without_tree or kind for kind in kinds})


CHOICES: dict[str, tuple[str, ...]] = {**{name: (name,) for name in SCHEMES}, **COMBINED}
# {name: (the encoder's, the decoder's)}
POSITIONS = {name: (order_of(some, True), order_of(some, False)) for name, some in CHOICES.items()}


# The sizes of a model that is one side alone.
ALONE = ("width", "layers", "heads", "ffn_width", "context", "activation", "norm", "eps", "dropout")


@dataclass(frozen=True)
class Side:
    """The sizes of one side, encoder or decoder, and how it is put together."""

    config: OpenConfig
    order: Order
    width: int
    layers: int
    heads: int
    ffn_width: int
    context: int
    activation: str
    norm: str
    eps: float
    dropout: float
    attention_dropout: float
    activation_dropout: float = 0.0
    both_ways: bool = False  # whether a token sees those after it
    cross: bool = False  # whether it reads a source
    bias: bool = True

    @property
    def key_width(self) -> int:
        if self.config.key_width is None and self.width % self.heads:
            raise ValueError(f"a width of {self.width} cannot be divided into {self.heads} heads")
        return self.config.key_width or self.width // self.heads

    @property
    def value_width(self) -> int:
        return self.config.value_width or self.key_width

    @property
    def token_width(self) -> int:
        """Of embeddings; the rest of the width is that of concatenated positions."""
        return self.width - build_position(self, self.order.input).added_width


def build_position(side: Side, kind: type[Position]) -> Position:
    c = side.config
    return kind.build(
        PositionSizes(
            side.width,
            side.heads,
            side.key_width,
            side.value_width,
            side.context,
            own_width=c.position_width,
            layout=c.sinusoid_layout,
            precision=c.sinusoid_precision,
            clip=c.max_distance,
            buckets=c.buckets,
            both_ways=side.both_ways,
            scope=c.relation_scope,
        )
    )


def build_norm(side: Side) -> nn.Module:
    return NORMS[side.config.norm_kind][0 if side.config.norm_affine else 1](side.width, side.eps)


def build_inputs(side: Side, tokens: TokenEmbedding) -> Inputs:
    return Inputs(tokens, build_position(side, side.order.input), dropout=side.dropout)


def build_stack(side: Side) -> Stack:
    """Each layer has its own distances, as in Shaw's base, unless the scheme has one table for all (T5)."""
    kind = side.order.attention
    shared = build_position(side, kind) if kind.one_for_all else None
    blocks = [build_block(side, shared or build_position(side, kind)) for _ in range(side.layers)]
    return Stack(blocks, build_norm(side) if side.norm == "pre" else None)


def build_block(side: Side, position: Position) -> Block:
    residual = RESIDUALS[side.norm]

    def attention(position: Position) -> nn.Module:
        return residual(build_attention(side, position), build_norm(side), side.dropout)

    feed_forward = FeedForward(
        side.width, side.ffn_width, side.activation, bias=side.bias, dropout=side.activation_dropout
    )
    return Block(
        attention(position),
        residual(feed_forward, build_norm(side), side.dropout),
        attention(NoPosition()) if side.cross else None,
    )


def build_attention(side: Side, position: Position) -> MultiHeadAttention:
    return MultiHeadAttention(
        side.width,
        side.heads,
        key_width=side.key_width,
        value_width=side.value_width,
        bias=side.bias,
        dropout=side.attention_dropout,
        score=SCORES[side.config.score](side.key_width),
        position=position,
    )
