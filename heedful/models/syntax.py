"""Syntax: an encoder with heads for each word's tag, its head, and its relation to the head.

The heads are biaffine (Dozat and Manning 2017): a word as a dependent and a word as a head are two small
vectors, and a matrix between them scores the arc. A word without a head depends on the first token, the root.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..parts.blocks import Block, Stack
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import RESIDUALS, FeedForward, LayerNorm
from ..parts.multihead import MultiHeadAttention
from ..parts.positions.absolute import Sinusoidal
from ..parts.positions.rotary import Rotary
from .base.config import Config
from .base.fields import (
    RATE,
    SIZE,
    Activation,
    AttentionDropout,
    Dropout,
    FfnWidth,
    Heads,
    Labels,
    Layers,
    Norm,
    PredictionHeads,
    Vocab,
    Width,
    ratio,
)
from .base.heads import Tag
from .base.initialize import normal_, xavier_
from .base.settings import GIVEN, same_as
from .base.shells import Encoder, WithHeads


@dataclass(frozen=True)
class SyntaxConfig(Config):
    vocab: Vocab = 8000
    layers: Layers = 6
    width: Width = 256
    heads: Heads = 4
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    norm: Norm = "pre"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    prediction_heads: PredictionHeads = ("tag", "arcs", "relations")
    labels: Labels = 17
    relations: Annotated[int, SIZE, "number of relations", GIVEN] = 37
    arc_width: Annotated[int, SIZE, "width of a word as a dependent, or as a head"] = 256
    relation_width: Annotated[int, SIZE, "the same for relations"] = 64
    head_dropout: Annotated[float, RATE, "dropout rate of those vectors"] = 0.33


PRESETS = {"syntax-small": SyntaxConfig()}


SyntaxEncoder = WithHeads  # a kind of its own: its heads are for words and trees


def build(config: SyntaxConfig) -> SyntaxEncoder:
    """The encoder and its heads, with fresh weights; at first, every head is as likely as every other."""
    c = config
    inputs = Inputs(
        TokenEmbedding(c.vocab, c.width, math.sqrt(c.width)), Sinusoidal(c.width), dropout=c.dropout
    )
    norm = LayerNorm(c.width) if c.norm == "pre" else None
    encoder = Encoder(inputs, Stack([build_block(c) for _ in range(c.layers)], norm))
    model = WithHeads(encoder, build_heads(c))
    xavier_(model)
    for head in model.heads.values():
        if isinstance(head, Arcs | Relations):
            head.forget()
        else:
            normal_(head, std=0.02)
    return model


def build_block(c: SyntaxConfig) -> Block:
    residual = RESIDUALS[c.norm]
    position = Rotary(c.width // c.heads)
    attention = MultiHeadAttention(c.width, c.heads, position=position, dropout=c.attention_dropout)
    feed_forward = FeedForward(c.width, c.ffn_width, c.activation, dropout=c.dropout)
    return Block(
        residual(attention, LayerNorm(c.width), c.dropout),
        residual(feed_forward, LayerNorm(c.width), c.dropout),
    )


def build_heads(c: SyntaxConfig) -> dict[str, nn.Module]:
    known: dict[str, Callable[[], nn.Module]] = {
        "tag": lambda: Tag(c.width, c.labels, c.head_dropout),
        "arcs": lambda: Arcs(c.width, c.arc_width, c.head_dropout),
        "relations": lambda: Relations(c.width, c.relation_width, c.relations, c.head_dropout),
    }
    for head in c.prediction_heads:
        if head not in known:
            raise ValueError(f'there is no head "{head}" for words; there are {", ".join(known)}')
    return {head: make() for head, make in known.items() if head in c.prediction_heads}


# Biaffine heads


class Roles(nn.Module):
    """A word in its two roles: small vectors of it as a dependent and as a head."""

    def __init__(self, width: int, small: int, dropout: float) -> None:
        super().__init__()
        self.dependent, self.head = nn.Linear(width, small), nn.Linear(width, small)
        self.dropout = nn.Dropout(dropout)

    def forward(self, dependents: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
        as_dependent, as_head = self.dependent(dependents), self.head(heads)
        return self.dropout(F.leaky_relu(as_dependent, 0.1)), self.dropout(F.leaky_relu(as_head, 0.1))


class Arcs(nn.Module):
    """Scores of all arcs, s_ij = d_i U h_j + u h_j, [B, N, N]; the second term says who is a head at all."""

    def __init__(self, width: int, small: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.roles = Roles(width, small, dropout)
        self.between = nn.Linear(small, small)  # d U + u

    def forget(self) -> None:
        """Scores of zero."""
        nn.init.zeros_(self.between.weight)
        nn.init.zeros_(self.between.bias)

    def forward(self, nodes_BND: Tensor, inputs: nn.Module) -> Tensor:
        dependents_BNK, heads_BNK = self.roles(nodes_BND, nodes_BND)
        return self.between(dependents_BNK) @ heads_BNK.mT


class Relations(nn.Module):
    """What a word is to its head, if that is its head: s_l = [d; 1] U_l [h; 1] for each relation l."""

    def __init__(self, width: int, small: int, relations: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.roles = Roles(width, small, dropout)
        self.between_LKJ = nn.Parameter(torch.zeros(relations, small + 1, small + 1))

    def forget(self) -> None:
        """Scores of zero."""
        nn.init.zeros_(self.between_LKJ)

    def forward(self, nodes_BND: Tensor, inputs: nn.Module) -> Tensor:
        """Scores [B, N, N, L] of every pair: for sentences, not for texts."""
        dependents_BNK, heads_BMJ = map(with_one, self.roles(nodes_BND, nodes_BND))
        return torch.einsum("bnk,lkj,bmj->bnml", dependents_BNK, self.between_LKJ, heads_BMJ)

    def of(self, dependents_ND: Tensor, heads_ND: Tensor) -> Tensor:
        """Scores [N, L] of pairs."""
        dependents_NK, heads_NJ = map(with_one, self.roles(dependents_ND, heads_ND))
        return torch.einsum("nk,lkj,nj->nl", dependents_NK, self.between_LKJ, heads_NJ)


def with_one(x: Tensor) -> Tensor:
    """[x; 1]: a matrix between two of these holds both of their linear terms and a bias."""
    return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)
