"""A score in four parts: what words and positions say to each other in the first layer.

Where positions are added to embeddings, a query is q = q_word + q_position, and so is a key. Their product is

    q·k  =  q_word·k_word  +  q_word·k_position  +  q_position·k_word  +  q_position·k_position

(Ke et al. 2020, https://arxiv.org/abs/2006.15595). The split is exact as long as the way from the embeddings
to q and k is linear. A norm is linear once the number that it divides by is known, and that number is taken
from the pass itself. Whatever does not depend on the position counts as the word: segments and all biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadInput
from ..parts.layers import (
    BareLayerNorm,
    BareRMSNorm,
    GainLayerNorm,
    LayerNorm,
    OffsetRMSNorm,
    PostNorm,
    RMSNorm,
)
from ..parts.positions.absolute import Absolute, Concatenated
from ..parts.positions.base import Position
from ..parts.watch import Watchable
from .drawing import scheme
from .hooks import Hook
from .look.layers import attending_shells
from .sublayer import Projections, Sublayer, plain

CENTERED = (LayerNorm, GainLayerNorm, BareLayerNorm)
SCALED = (RMSNorm, OffsetRMSNorm, BareRMSNorm)
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}  # of the largest number; others are rounded more
ROUNDED = 0.05


@dataclass(frozen=True)
class PositionShare:
    """What positions contribute to the queries [H, T, K] and keys [H, S, K] of a layer."""

    q_HTK: Tensor = field(repr=False)
    k_HSK: Tensor = field(repr=False)


def input_hooks(model: nn.Module, attention: Watchable, caught: dict[str, Tensor]) -> list[Hook]:
    """Hooks that catch the sum of embeddings and positions; none where nothing is known to follow it."""
    inputs = inputs_before(model, attention)
    first = getattr(inputs, "norm", None) or getattr(inputs, "dropout", None)
    if not isinstance(first, nn.Module):
        return []

    def catch(args: tuple[Any, ...]) -> None:
        caught["inputs_TD"] = plain(args[0][0])

    return [Hook(first, catch)]


def inputs_before(model: nn.Module, attention: Watchable) -> Any:
    """What makes the vectors that the shell around an attention reads."""
    shells = attending_shells(model).values()
    around = [shell for shell in shells if any(one is attention for one in shell.modules())]
    return getattr(around[0], "inputs", None) if around else None


@torch.no_grad()
def position_share(
    model: nn.Module,
    attention: Any,
    residual: Any,
    inputs_TD: Tensor | None,
    sublayer: Sublayer,
    projections: list[Projections],
) -> PositionShare:
    """What positions contribute to queries and keys of the first layer; refused where that is not known."""
    inputs, weight = inputs_before(model, attention), next(model.parameters())
    refuse_scheme(inputs, attention, projections)
    if inputs_TD is None:
        raise BadInput("nothing is known of how this model adds positions to its embeddings")
    x_TD, p_TD = inputs_TD, encoding_of(inputs.position, inputs_TD, weight.device)
    norms = [getattr(inputs, "norm", nn.Identity())]
    norms += [] if isinstance(residual, PostNorm) else [residual.norm]
    for norm in norms:
        if not isinstance(norm, nn.Identity):
            refuse_norm(norm)
            p_TD = linear_part(norm, x_TD, p_TD)
            x_TD = plain(norm(x_TD.to(weight.device, weight.dtype)))
    refuse_other_way(x_TD, sublayer.normed_TD, weight.dtype)
    return PositionShare(
        torch.stack([p_TD @ one.W_q_KD.to(p_TD.dtype).T for one in projections]),
        torch.stack([p_TD @ one.W_k_KD.to(p_TD.dtype).T for one in projections]),
    )


def encoding_of(position: Position, x_TD: Tensor, device: torch.device) -> Tensor:
    """What a scheme adds to embeddings, or puts beside them."""
    T, D = x_TD.shape
    none_1TE = torch.zeros(1, T, D - position.added_width, dtype=x_TD.dtype, device=device)
    return plain(position.embed(none_1TE, torch.arange(T, device=device))[0])


def linear_part(norm: Any, x_TD: Tensor, part_TD: Tensor) -> Tensor:
    """A norm of x, applied to a part of x: the same center, gain and divisor, and no bias."""
    if isinstance(norm, CENTERED):
        x_TD, part_TD = (one - one.mean(-1, keepdim=True) for one in (x_TD, part_TD))
    divisor_T1 = (x_TD.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    gain = plain(norm.weight).to(x_TD.dtype) if hasattr(norm, "weight") else 1.0
    gain = 1 + gain if isinstance(norm, OffsetRMSNorm) else gain
    return gain * part_TD / divisor_T1


# Where there is no exact split


def refuse_place(which: str, layer: int) -> None:
    """Only what reads the embeddings themselves can be split."""
    if which == "cross":
        raise BadInput(
            "cross-attention reads vectors in which layers have mixed words and positions: only "
            "self-attention of layer 1 can be split"
        )
    if layer > 1:
        raise BadInput(
            f"layer {layer} reads vectors in which the layers before it have mixed words and positions: only "
            "layer 1 can be split"
        )


def refuse_score(multiplied: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """Refuse scores that are no plain products: those of queries and keys that something else changes."""
    if not all(torch.equal(plain(x), plain(y)) for x, y in zip(multiplied, given, strict=True)):
        raise BadInput("the scores of this model are no plain products of queries and keys")


def refuse_scheme(inputs: Any, attention: Any, projections: list[Projections]) -> None:
    """Refuse a model whose order enters elsewhere than at the embeddings."""
    own = getattr(inputs, "_modules", {}).get("position")
    if not isinstance(own, Absolute | Concatenated):
        name = scheme(attention._modules.get("position"))
        told = (
            f"its positions ({name}) enter in the attention itself" if name else "it has no positions there"
        )
        raise BadInput(f"no positions are added to the embeddings of this model: {told}")
    changed = sorted({word for one in projections for word in one.changed})
    if changed:
        told = " and ".join(changed)
        raise BadInput(f"queries and keys of this model are {told} after their projection, which mixes both")


def refuse_norm(norm: nn.Module) -> None:
    if not isinstance(norm, CENTERED + SCALED):
        raise BadInput(f"between embeddings and scores stands a {type(norm).__name__}, which is not linear")


def refuse_other_way(found_TD: Tensor, read_TD: Tensor, dtype: torch.dtype) -> None:
    """Refuse where the attention reads something else than normed embeddings, as under some edits."""
    if found_TD.shape == read_TD.shape:
        most = TOLERANCE.get(dtype, ROUNDED) * float(read_TD.abs().max())
        if float((found_TD - read_TD).abs().max()) <= most:
            return
    raise BadInput("the attention reads other vectors than the embeddings: words and positions are not apart")
