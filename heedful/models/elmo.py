"""ELMo's bidirectional language model (Peters et al. 2018): characters, two stacks of LSTMs, one softmax.

The preset is the paper's, with the vocabulary of its softmax: 93.7 million weights without that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from ..parts.before.both_ways import ProjectedLSTM, TwoDirections
from ..parts.before.characters import CharacterCNN, Highway, Spelled
from ..parts.before.recurrent import orthogonal_
from ..parts.embeddings import Inputs, TokenEmbedding, Untied
from .base.config import Config
from .base.fields import SIZE, Context, Dropout, Layers, Vocab, ratio
from .base.initialize import xavier_
from .base.settings import derived
from .base.shells import Encoder, WithHeads

SHARES = (1, 1, 2, 4, 8, 16, 32)  # the paper's filters of widths 1 to 7 are 32 times these


@dataclass(frozen=True)
class ElmoConfig(Config):
    vocab: Vocab = 793471
    input: Annotated[Literal["characters", "pieces"], "a word is read by its characters, or has a vector"] = (
        "characters"
    )
    context: Context = 256
    layers: Layers = 2
    width: Annotated[int, SIZE, "width of a word, and of each direction"] = 512
    cell_width: Annotated[int, SIZE, "width of an LSTM cell, which is projected to width"] = ratio(8, "width")
    max_characters: Annotated[int, SIZE, "characters of a word, with its two marks"] = 50
    character_width: Annotated[int, SIZE, "width of a character"] = 16
    filters: Annotated[tuple[int, ...], "filters of each width, from one character on"] = derived(
        "4 x width in all", lambda made: share_filters(4 * made.width)
    )
    highways: Annotated[int, SIZE, "highway layers over the filters"] = 2
    dropout: Dropout = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cell_width <= self.width:
            raise ValueError(f"{self.cell_width} cells are projected to fewer numbers, not to {self.width}")
        if not self.filters or any(type(count) is not int or count < 1 for count in self.filters):
            raise ValueError(
                f"filters are as many whole numbers from 1 on as there are widths, not {self.filters}"
            )
        if self.max_characters < max(len(self.filters), 3):
            raise ValueError(f"a word of {self.max_characters} letters is too short for its filters")


def share_filters(count: int) -> tuple[int, ...]:
    """So many filters in the paper's proportions; the widest are the rest."""
    first = [max(1, count * share // sum(SHARES)) for share in SHARES[:-1]]
    return (*first, max(1, count - sum(first)))


def spelled(c: ElmoConfig) -> Spelled:
    return Spelled(
        CharacterCNN(c.character_width, c.filters, c.highways, c.width), c.max_characters, c.dropout
    )


def whole(c: ElmoConfig) -> Inputs:
    return Inputs(TokenEmbedding(c.vocab, c.width), dropout=c.dropout)


INPUTS: dict[str, Callable[[ElmoConfig], Spelled | Inputs]] = {"characters": spelled, "pieces": whole}
PRESETS = {"elmo": ElmoConfig()}


class Neighbors(nn.Module):
    """Scores for the next word, from the left-to-right stack, and for the previous word, from the other."""

    def __init__(self, width: int, vocab: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.words = Untied(width, vocab, bias=True)
        self.dropout = nn.Dropout(dropout)

    def top(self, layers_BTX: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's two directions, [B, T, D] each."""
        from_left_BTD, from_right_BTD = layers_BTX[..., -2 * self.width :].chunk(2, -1)
        return self.dropout(from_left_BTD), self.dropout(from_right_BTD)

    def forward(self, layers_BTX: Tensor, inputs: Any) -> Tensor:
        """[B, T, 2 D] to [B, T, 2 V]: of the next word, then of the one before."""
        from_left_BTD, from_right_BTD = self.top(layers_BTX)
        return torch.cat([self.words(from_left_BTD, inputs), self.words(from_right_BTD, inputs)], -1)


LanguageModels = WithHeads  # a kind of its own: two of them, which predict words in both directions


def build(config: ElmoConfig) -> LanguageModels:
    """The model with fresh weights; its encoder gives all layers side by side."""
    c = config
    model = WithHeads(language_models(c), {"neighbors": Neighbors(c.width, c.vocab, c.dropout)})
    initialize(model)
    return model


def language_models(c: ElmoConfig) -> Encoder:
    """Both directions, without what they were trained by."""
    forwards, backwards = (
        [ProjectedLSTM(c.width, c.cell_width, c.width) for _ in range(c.layers)] for _ in range(2)
    )
    return Encoder(INPUTS[c.input](c), TwoDirections(forwards, backwards, c.dropout))


def initialize(model: nn.Module) -> None:
    """Glorot's, orthogonal where a state is read; highways that begin by letting pass, and small scores."""
    xavier_(model)
    orthogonal_(model)
    for module in model.modules():
        if isinstance(module, nn.LSTM) and module.proj_size:
            nn.init.xavier_uniform_(module.weight_hr_l0)  # type: ignore[arg-type]
        elif isinstance(module, CharacterCNN):
            nn.init.normal_(module.letters.weight, std=1 / math.sqrt(module.letters.embedding_dim))
        elif isinstance(module, nn.Conv1d):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        elif isinstance(module, Highway):
            nn.init.constant_(module.gate.bias, -2.0)  # Srivastava et al. 2015
        elif isinstance(module, Untied):
            nn.init.normal_(module.linear.weight, std=0.02)
