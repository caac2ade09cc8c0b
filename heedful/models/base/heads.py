"""Heads: layers on top of an encoder. Each gets the encoder's output and, for tied weights, its inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...parts.embeddings import Inputs
from ...parts.layers import LayerNorm, activation


class FirstToken(nn.Module):
    """The vector of the first token ([CLS]), as it is."""

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return hidden_BTD[:, 0]


class Pooled(nn.Module):
    """tanh(h_CLS W + b): one vector for the whole sequence."""

    def __init__(self, width: int, activation_name: str = "tanh", dropout: float = 0.0) -> None:
        """dropout: of h_CLS."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(width, width)
        self.activation = activation(activation_name)

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return self.activation(self.dense(self.dropout(hidden_BTD[:, 0])))


class MeanOverTokens(nn.Module):
    """The mean of all vectors but the first tokens' (ViT's global average pooling)."""

    def __init__(self, first: int = 1) -> None:
        super().__init__()
        self.first = first

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return hidden_BTD[:, self.first :].mean(1)


class MeanOverReal(nn.Module):
    """The mean of all vectors that are not padding, which is 0 in an encoder that says `zero_padding`."""

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        real_BT1 = (hidden_BTD != 0).any(-1, keepdim=True)
        return hidden_BTD.sum(1) / real_BT1.sum(1)


class MaxOverTokens(nn.Module):
    """The largest of every number over all tokens, and 0: padding, which is 0, changes nothing."""

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return hidden_BTD.amax(1).clamp(min=0)


class Classify(nn.Module):
    """Scores for each label, from one vector for the whole sequence."""

    def __init__(self, pool: nn.Module, width: int, labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, labels)

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return self.linear(self.dropout(self.pool(hidden_BTD, inputs)))


class ClassifyBoth(nn.Module):
    """Scores for each label: the mean of the class token's and the distillation token's (DeiT)."""

    def __init__(self, width: int, labels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, labels)
        self.taught = nn.Linear(width, labels)

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return (self.linear(hidden_BTD[:, 0]) + self.taught(hidden_BTD[:, 1])) / 2


class Tag(nn.Module):
    """Scores for each label at every token."""

    def __init__(self, width: int, labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, labels)

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return self.linear(self.dropout(hidden_BTD))


class Replaced(nn.Module):
    """Whether each token was put in another's place: one score a token, [B, T] (ELECTRA's discriminator)."""

    def __init__(self, width: int, activation_name: str) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = activation(activation_name)
        self.linear = nn.Linear(width, 1)

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return self.linear(self.activation(self.dense(hidden_BTD))).squeeze(-1)


class Span(nn.Module):
    """Where an answer starts and ends: [B, T, 2] scores, S . h_i and E . h_i."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, 2)

    def forward(self, hidden_BTD: Tensor, inputs: nn.Module) -> Tensor:
        return self.linear(self.dropout(hidden_BTD))


class MaskedLM(nn.Module):
    """Fill in the blank: dense, activation, norm, then the embedding's own matrix and a bias."""

    def __init__(
        self,
        width: int,
        vocab: int,
        activation_name: str = "gelu",
        eps: float = 1e-12,
        embedding: int | None = None,
    ) -> None:
        """embedding: the width of embeddings, if it is another."""
        super().__init__()
        self.dense = nn.Linear(width, embedding or width)
        self.activation = activation(activation_name)
        self.norm = LayerNorm(embedding or width, eps)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, hidden_BTD: Tensor, inputs: Inputs) -> Tensor:
        x_BTE = self.norm(self.activation(self.dense(hidden_BTD)))
        return nn.functional.linear(x_BTE, inputs.tokens.weight, self.bias)
