"""Embeddings: from tokens to the inputs of the first block, and from the last block's vectors to scores."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .positions.base import NoPosition, Position, Positions


class TokenEmbedding(nn.Module):
    """One vector per token, times `scale` (the Transformer's sqrt(D) keeps it level with positions).

    Args:
        vocab: Number of tokens V.
        width: Width D of the vectors.
        scale: Factor of the vectors.

    Example:
        >>> TokenEmbedding(vocab=100, width=8)(torch.tensor([[5, 7]])).shape
        torch.Size([1, 2, 8])
    """

    def __init__(self, vocab: int, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, width))
        self.scale = scale
        nn.init.normal_(self.weight, std=1 / math.sqrt(width))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = F.embedding(tokens_BT, self.weight)
        return x_BTD if self.scale == 1 else x_BTD * self.scale


class Inputs(nn.Module):
    """What the first block sees: token embedding, position, and (BERT) segment; then norm and dropout.

    Args:
        tokens: The embedding of tokens.
        position: A scheme that acts at the input, such as `Sinusoidal`; None: none.
        segments: The embedding of segments; None: none.
        norm: What stands after the sum; None: nothing.
        dropout: Share of the numbers that are set to 0 in training.

    Example:
        >>> from heedful.parts.positions.absolute import Sinusoidal
        >>> inputs = Inputs(TokenEmbedding(100, 8), Sinusoidal(8))
        >>> inputs(torch.tensor([[5, 7]]), torch.tensor([[0, 1]])).shape
        torch.Size([1, 2, 8])
    """

    def __init__(
        self,
        tokens: TokenEmbedding,
        position: Position | None = None,
        segments: nn.Embedding | None = None,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.position = position or NoPosition()
        self.segments = segments
        self.norm = norm or nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def length(self, tokens_BT: Tensor) -> int:
        return tokens_BT.shape[1]

    def forward(self, tokens_BT: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        return self.finish(self.sum(tokens_BT, positions, segments_BT))

    def sum(self, tokens_BT: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        """The vectors of tokens, segments and positions, added up."""
        x_BTD = self.tokens(tokens_BT)
        if self.segments is not None:
            x_BTD = x_BTD + self.segments(torch.zeros_like(tokens_BT) if segments_BT is None else segments_BT)
        return self.position.embed(x_BTD, positions)

    def finish(self, x_BTD: Tensor) -> Tensor:
        """Norm and dropout, in the precision of the residual stream."""
        x_BTD = self.dropout(self.norm(x_BTD))
        return x_BTD.to(residual_dtype(x_BTD))


def residual_dtype(x: Tensor) -> torch.dtype:
    """The precision of x in the blocks: bf16 under bf16 autocast, which halves memory traffic.

    fp16 has no room for it: a sum over layers may pass its largest number.
    """
    kind = x.device.type
    half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16
    return torch.bfloat16 if half else x.dtype


class Tied(nn.Module):
    """Scores for the next word with the embedding's own matrix: no second copy exists, so it stays tied.

    Args:
        vocab: Gives the scores a bias of that size; None: no bias.
        scale: Factor of what comes in (T5's D^-1/2).

    Example:
        >>> Tied()(torch.randn(2, 5, 8), TokenEmbedding(100, 8)).shape
        torch.Size([2, 5, 100])
    """

    def __init__(self, vocab: int | None = None, scale: float = 1.0) -> None:
        """vocab: gives the scores a bias of that size."""
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab)) if vocab else None
        self.scale = scale

    def forward(self, x_BTD: Tensor, embedding: TokenEmbedding) -> Tensor:
        return F.linear(x_BTD if self.scale == 1 else x_BTD * self.scale, embedding.weight, self.bias)

    def matrix(self, embedding: TokenEmbedding) -> tuple[Tensor, Tensor | None]:
        """The matrix and its bias."""
        return embedding.weight, self.bias


class Untied(nn.Module):
    """Scores for the next word with a matrix of its own.

    Args:
        width: Width D of the vectors.
        vocab: Number of tokens V.
        bias: Whether the scores have a bias.
        scale: Factor of what comes in.

    Example:
        >>> Untied(8, 100)(torch.randn(2, 5, 8), TokenEmbedding(100, 8)).shape
        torch.Size([2, 5, 100])
    """

    def __init__(self, width: int, vocab: int, bias: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(width, vocab, bias=bias)
        self.scale = scale

    def forward(self, x_BTD: Tensor, embedding: TokenEmbedding) -> Tensor:
        return self.linear(x_BTD if self.scale == 1 else x_BTD * self.scale)

    def matrix(self, embedding: TokenEmbedding) -> tuple[Tensor, Tensor | None]:
        """The matrix and its bias."""
        return self.linear.weight, self.linear.bias
