"""What a trace is made of: the attention of each layer, its exact inside, and the axes of each kind."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from .sublayer import Projections, Sublayer

NOT_RECORDED = "this trace was saved without the contribution of positions: trace the text again"


@dataclass(frozen=True)
class Kind:
    """One kind of attention: the labels of its queries (`down`) and keys (`across`), and its sizes."""

    down: list[str]
    across: list[str]
    layers: int
    heads: int


@dataclass(frozen=True)
class LayerAttention:
    """What the attention of one layer did, head by head."""

    weights_HTS: Tensor = field(repr=False)  # fp16
    q_HTK: Tensor = field(repr=False)
    k_HSK: Tensor = field(repr=False)
    v_HSL: Tensor = field(repr=False)


@dataclass(frozen=True)
class LayerDetail:
    """The exact inside of one attention layer, from scores to weights, and its sublayer.

    A layer that scores otherwise than by a scaled dot product has a scale of 1. A recurrent model has neither
    sublayer nor projections.
    """

    weights_HTS: Tensor = field(repr=False)
    dots_HTS: Tensor = field(repr=False)  # q·k
    scores_HTS: Tensor = field(repr=False)  # scaled, before bias and mask
    scale: float
    bias_HTS: Tensor | None = field(repr=False)
    added_HTL: Tensor | None = field(repr=False)  # what relative positions add to the values (Shaw)
    sublayer: Sublayer | None = field(repr=False)
    projections: list[Projections] = field(repr=False)  # head by head
    q_position_HTK: Tensor | None = field(repr=False, default=None)  # what positions contribute to q
    k_position_HSK: Tensor | None = field(repr=False, default=None)
    no_parts: str = NOT_RECORDED  # why these two are None; "" where they are not
