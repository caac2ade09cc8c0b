"""CLIP (Radford et al. 2021), small: a caption and its picture become vectors that point the same way.

Two encoders, one for words and one for patches, each with a matrix to a common space; the cosine there is the
score of a pair. In a batch of pairs, each caption has to find its picture among all, and each picture its
caption.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..parts.blocks import Stack
from ..parts.embeddings import Inputs, TokenEmbedding
from ..parts.layers import LayerNorm
from ..parts.places import Lengths
from ..parts.positions.absolute import Learned
from ..parts.view import right_padded
from . import vit
from .base.config import Config
from .base.fields import (
    SIZE,
    Activation,
    Channels,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    ImageSize,
    Layers,
    PatchSize,
    TextLength,
    Vocab,
    Width,
    ratio,
)
from .base.initialize import normal_
from .base.settings import same_as
from .base.shells import Encoder
from .vit import ViTConfig

SHARPEST = math.log(100)  # the paper's limit, without which training is unstable


@dataclass(frozen=True)
class ClipConfig(Config):
    vocab: Vocab = 49408
    text_length: TextLength = 77
    image_size: ImageSize = 224
    patch_size: PatchSize = 32
    channels: Channels = 3
    layers: Layers = 12
    width: Width = 512
    heads: Heads = 8
    ffn_width: FfnWidth = ratio(4, "width")
    projection_width: Annotated[int, SIZE, "width of the common space of texts and images"] = same_as("width")
    activation: Activation = "gelu"
    dropout: Dropout = 0.0
    eps: Eps = 1e-05

    @property
    def vision(self) -> ViTConfig:
        """The tower of pictures."""
        return ViTConfig(
            image_size=self.image_size,
            patch_size=self.patch_size,
            channels=self.channels,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            ffn_width=self.ffn_width,
            activation=self.activation,
            dropout=self.dropout,
            eps=self.eps,
            prediction_heads=("class_token",),
        )


PRESETS = {"clip": ClipConfig()}


class Clip(nn.Module):
    """Captions and pictures to unit vectors in one space."""

    def __init__(self, words: Encoder, pictures: nn.Module, width: int, common: int) -> None:
        super().__init__()
        self.words, self.pictures = words, pictures
        self.from_words = nn.Linear(width, common, bias=False)
        self.from_pictures = nn.Linear(width, common, bias=False)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def read_words(self, words_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Captions to unit vectors [B, E], through the mean of their words."""
        hidden_BTD = self.words(words_BT, Lengths(lengths_B))
        here_BT1 = (right_padded(lengths_B, words_BT.shape[1]) >= 0)[..., None]
        mean_BD = (hidden_BTD * here_BT1).sum(1) / lengths_B[:, None].clamp(min=1)
        return F.normalize(self.from_words(mean_BD).float(), dim=-1)

    def read_pictures(self, pixels_BCHW: Tensor) -> Tensor:
        """Pictures to unit vectors [B, E], through their class token."""
        first_BD = self.pictures(pixels_BCHW)["class_token"]
        return F.normalize(self.from_pictures(first_BD).float(), dim=-1)

    def forward(self, words_BT: Tensor, lengths_B: Tensor, pixels_BCHW: Tensor) -> Tensor:
        """Scores [B, B] of every caption (downwards) with every picture: the cosine, sharpened."""
        cosines_BB = self.read_words(words_BT, lengths_B) @ self.read_pictures(pixels_BCHW).T
        return cosines_BB * self.log_sharpness.clamp(max=SHARPEST).exp()

    def fit(self, words_BT: Tensor, lengths_B: Tensor, pixels_BCHW: Tensor) -> Tensor:
        """The cosine of each caption with the picture in the same row [B]."""
        return (self.read_words(words_BT, lengths_B) * self.read_pictures(pixels_BCHW)).sum(-1)


def contrast(scores_BB: Tensor, same_BB: Tensor | None = None) -> Tensor:
    """What captions and pictures lose by not finding each other, half each, summed over the batch.

    same: pairs whose captions are equal, which are no mistakes to choose; nobody is asked to tell them apart.
    """
    if same_BB is not None:
        others = same_BB & ~torch.eye(len(same_BB), dtype=torch.bool, device=same_BB.device)
        scores_BB = scores_BB.masked_fill(others, -math.inf)
    answers_B = torch.arange(len(scores_BB), device=scores_BB.device)
    found, finding = (F.cross_entropy(s, answers_B, reduction="sum") for s in (scores_BB, scores_BB.T))
    return (found + finding) / 2


def build(config: ClipConfig) -> Clip:
    """Both towers, with fresh weights."""
    c = config
    tower = replace(c.vision, labels=1)
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), Learned(c.text_length, c.width), dropout=c.dropout)
    stack = Stack([vit.build_block(tower) for _ in range(c.layers)], LayerNorm(c.width, c.eps))
    model = Clip(Encoder(inputs, stack), vit.build(tower), c.width, c.projection_width)
    normal_(model.words, std=0.02)
    for linear in (model.from_words, model.from_pictures):
        nn.init.normal_(linear.weight, std=1 / math.sqrt(c.width))
    return model
