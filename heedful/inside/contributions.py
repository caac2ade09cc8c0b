"""Contributions: what each sublayer adds to the residual stream, and to the score of the predicted token.

A stack adds up: embedding, then attention and feed-forward of every block. Norms on the way are linear once
their scale is fixed, and the scale is that of this input. So each part's way to the score is a product of
matrices, and the scores of all parts, with those of the biases, sum to the score itself (direct logit
attribution, Elhage et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..parts.blocks import Block, ParallelBlock, Stack
from ..parts.embeddings import Tied, TokenEmbedding, Untied
from ..parts.layers import (
    BareLayerNorm,
    BareRMSNorm,
    Branch,
    GainLayerNorm,
    LayerNorm,
    OffsetRMSNorm,
    PostNorm,
    PreNorm,
    RMSNorm,
    SandwichNorm,
)
from .hooks import Hook

PARTS = {"attention": "attention", "cross": "cross-attention", "feed_forward": "feed-forward"}


@dataclass(frozen=True)
class Contribution:
    """What one part of the model adds at every position.

    Attributes:
        layer: Number of the layer, from 1; 0 for the embedding and the biases.
        part: embedding, attention, cross-attention, feed-forward or biases.
        norm_T: Length of the vector that is added; None for biases.
        score_T: Its share of the predicted token's score; None where the way to the score is not linear.

    Example:
        >>> part = heedful.load("runs/lm").lens("The old king is").parts[0]
        >>> part.part, part.norm_T.shape
        ('embedding', torch.Size([4]))
    """

    layer: int
    part: str
    norm_T: Tensor | None = field(repr=False)
    score_T: Tensor | None = field(repr=False)


@dataclass
class Sublayers:
    """The sublayers of a stack at work, caught by hooks."""

    stack: Stack
    added: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # [T, D] by block, from 0, and part
    summed: dict[tuple[int, str], Tensor] = field(default_factory=dict)  # before the norm after a sum

    def hooks(self) -> list[Hook]:
        found = []
        for i, block in enumerate(self.stack.blocks):
            for part in PARTS:
                wrapper: Any = getattr(block, part, None)
                if isinstance(wrapper, PreNorm | PostNorm | Branch | SandwichNorm):
                    last = wrapper.after if isinstance(wrapper, SandwichNorm) else wrapper.layer
                    found.append(Hook(last, after=self.keep_added(i, part)))
                if isinstance(wrapper, PostNorm):
                    found.append(Hook(wrapper.norm, before=self.keep_sum(i, part)))
        return found

    def keep_added(self, i: int, part: str) -> Any:
        def keep(_: Any, output_BTD: Tensor) -> None:
            self.added[i, part] = output_BTD[0].detach().double()

        return keep

    def keep_sum(self, i: int, part: str) -> Any:
        def keep(args: tuple[Any, ...]) -> None:
            self.summed[i, part] = args[0][0].detach().double()

        return keep


def contributions(
    caught: Sublayers,
    embedded_TD: Tensor,
    last_TD: Tensor,
    head: nn.Module,
    embedding: TokenEmbedding | None,
    tokens_T: Tensor,
) -> list[Contribution]:
    """The embedding, every sublayer and the biases, in order.

    last_TD: the stream after the last block. tokens: whose score is meant, at every position.
    """
    parts = {(0, "embedding"): embedded_TD.double()}
    parts |= {(i + 1, PARTS[part]): vector_TD for (i, part), vector_TD in sorted_parts(caught)}
    scores = scores_of(caught, parts, last_TD.double(), head, embedding, tokens_T)
    found = [
        Contribution(*place, vector_TD.norm(dim=-1).float().cpu(), None if scores is None else scores[place])
        for place, vector_TD in parts.items()
    ]
    return found if scores is None else [*found, Contribution(0, "biases", None, scores[0, "biases"])]


def sorted_parts(caught: Sublayers) -> list[tuple[tuple[int, str], Tensor]]:
    """What was added, block by block, in the order of a block's parts."""
    order = list(PARTS)
    return sorted(caught.added.items(), key=lambda item: (item[0][0], order.index(item[0][1])))


def scores_of(
    caught: Sublayers,
    parts: dict[tuple[int, str], Tensor],
    last_TD: Tensor,
    head: nn.Module,
    embedding: TokenEmbedding | None,
    tokens_T: Tensor,
) -> dict[tuple[int, str], Tensor] | None:
    """The score [T] of each part; None if something on the way is not linear."""
    if not isinstance(head, Tied | Untied) or any(
        type(b) not in (Block, ParallelBlock) for b in caught.stack.blocks
    ):
        return None
    assert embedding is not None
    moved = {(0, "embedding"): parts[0, "embedding"], (0, "biases"): parts[0, "embedding"] * 0}
    for (i, part), _ in sorted_parts(caught):
        moved[i + 1, PARTS[part]] = parts[i + 1, PARTS[part]]
        if (i, part) in caught.summed:
            wrapper: Any = getattr(caught.stack.blocks[i], part)
            stepped = passed(moved, wrapper.norm, caught.summed[i, part])
            if stepped is None:
                return None
            moved = stepped
    x_TD = last_TD
    for module in caught.stack.norm if isinstance(caught.stack.norm, nn.Sequential) else [caught.stack.norm]:
        stepped = passed(moved, module, x_TD)
        if stepped is None:
            return None
        moved, x_TD = stepped, sum(stepped.values())  # type: ignore[assignment]
    matrix_VD, bias_V = head.matrix(embedding)
    rows_TD = matrix_VD[tokens_T].double() * head.scale
    scores = {place: (vector_TD * rows_TD).sum(-1) for place, vector_TD in moved.items()}
    if bias_V is not None:
        scores[0, "biases"] = scores[0, "biases"] + bias_V[tokens_T].double()
    return {place: score_T.float().cpu() for place, score_T in scores.items()}


def passed(
    parts: dict[tuple[int, str], Tensor], module: nn.Module, x_TD: Tensor
) -> dict[tuple[int, str], Tensor] | None:
    """The parts after a module that is given their sum x; its bias goes to the biases."""
    if isinstance(module, nn.Identity | nn.Dropout):
        return parts
    bias: Tensor | None = getattr(module, "bias", None)
    if isinstance(module, nn.Linear):
        moved = {place: vector @ module.weight.double().mT for place, vector in parts.items()}
    elif isinstance(module, LayerNorm | GainLayerNorm | BareLayerNorm):
        scale_T1 = (x_TD.var(-1, keepdim=True, correction=0) + module.eps).sqrt()
        moved = {
            place: gain_of(module) * (vector - vector.mean(-1, keepdim=True)) / scale_T1
            for place, vector in parts.items()
        }
    elif isinstance(module, RMSNorm | OffsetRMSNorm | BareRMSNorm):
        scale_T1 = (x_TD.square().mean(-1, keepdim=True) + module.eps).sqrt()
        moved = {place: gain_of(module) * vector / scale_T1 for place, vector in parts.items()}
    else:
        return None
    if bias is not None:
        moved[0, "biases"] = moved[0, "biases"] + bias.double()
    return moved


def gain_of(norm: Any) -> Tensor | float:
    """What a norm multiplies each dimension by."""
    if isinstance(norm, OffsetRMSNorm):
        return 1 + norm.weight.double()
    weight = getattr(norm, "weight", None)
    return 1.0 if weight is None else weight.double()
