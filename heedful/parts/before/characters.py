"""Characters: a word's vector from its letters alone, so that no word is unknown.

The model is that of Kim et al. 2016 as Peters et al. 2018 use it.

    BEGIN c a t END . . .     letters, each a small vector
    windows of 1, 2, 3 ...    filters: each says how well it fits a window; of all windows the best counts
    highway, projection       what the filters found, mixed with itself, to the width of the model

A letter is a byte of UTF-8, so there is no unknown letter either.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..embeddings import residual_dtype
from ..positions.base import NoPosition, Positions

# After the 256 bytes: around a whole text, around a word, and what fills up a row.
TEXT_BEGINS, TEXT_ENDS, BEGIN, END, NO_LETTER = range(256, 261)
LETTERS = 261


class Highway(nn.Module):
    """t relu(x W + b) + (1 - t) x with t = sigmoid(x V + c): t decides how much of x is transformed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * F.relu(self.change(x)) + (1 - t) * x


class CharacterCNN(nn.Module):
    """Letters [N, C] of words to their vectors [N, D].

    filters: how many there are of width 1, 2, 3 and so on.
    """

    def __init__(self, letter_width: int, filters: Sequence[int], highways: int, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, letter_width)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(letter_width, count, size) for size, count in enumerate(filters, 1)
        )
        self.highways = nn.Sequential(*(Highway(sum(filters)) for _ in range(highways)))
        self.projection = nn.Linear(sum(filters), width)

    def forward(self, letters_NC: Tensor) -> Tensor:
        x_NEC = self.letters(self.without_tail(letters_NC)).mT
        best = [convolution(x_NEC).amax(-1) for convolution in self.convolutions]
        return self.projection(self.highways(F.relu(torch.cat(best, -1))))

    def without_tail(self, letters_NC: Tensor) -> Tensor:
        """The letters without columns that change nothing: one window of padding is enough for each width."""
        longest = int((letters_NC != NO_LETTER).sum(-1).max())
        return letters_NC[:, : longest + len(self.convolutions)]


class Spelled(nn.Module):
    """The inputs of spelled words: tokens [B, T, 1 + C] are each a word's id and its letters.

    A word's vector depends on nothing but its letters, so a word that occurs often is computed once.
    """

    def __init__(self, words: CharacterCNN, letters: int, dropout: float = 0.0) -> None:
        """letters: of each word, filling included."""
        super().__init__()
        self.words, self.letters = words, letters
        self.position = NoPosition()
        self.dropout = nn.Dropout(dropout)

    def length(self, tokens_BTC: Tensor) -> int:
        return tokens_BTC.shape[1]

    def forward(self, tokens_BTC: Tensor, positions: Positions, segments_BT: Tensor | None = None) -> Tensor:
        letters_NC, which_M = tokens_BTC[..., 1:].flatten(0, 1).unique(dim=0, return_inverse=True)
        x_BTD = self.words(letters_NC)[which_M].unflatten(0, tokens_BTC.shape[:2])
        x_BTD = self.dropout(x_BTD)
        return x_BTD.to(residual_dtype(x_BTD))


def numbers_of(tokens: Tensor) -> Tensor:
    """The words' numbers [B, T], however they are read."""
    return tokens[..., 0] if tokens.ndim == 3 else tokens
