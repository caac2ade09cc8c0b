"""A judge of pictures: a small convolutional network that answers several questions about a picture at once.

It has nothing in common with the models that draw, which is what it is for.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn

from .base.config import Config
from .base.fields import SIZE, Channels, Dropout, ImageSize


@dataclass(frozen=True)
class JudgeConfig(Config):
    image_size: ImageSize = 32
    channels: Channels = 3
    layers: Annotated[int, SIZE, "convolutions; each halves the sides and doubles the width"] = 3
    width: Annotated[int, SIZE, "width of the first convolution"] = 32
    answers: Annotated[tuple[int, ...], "number of answers to each question"] = (2,)
    dropout: Dropout = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size < 2**self.layers:
            raise ValueError(
                f"pictures of {self.image_size} pixels cannot be halved {self.layers} times: fewer layers"
            )


PRESETS = {"judge": JudgeConfig()}


class Judge(nn.Module):
    """Pictures [B, C, H, W] to scores of the answers to each question."""

    def __init__(self, config: JudgeConfig) -> None:
        super().__init__()
        c = config
        self.config = c
        widths = [c.channels, *(c.width << i for i in range(c.layers))]
        parts: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            parts += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        side = c.image_size >> c.layers
        self.body = nn.Sequential(
            *parts,
            nn.Flatten(),
            nn.Linear(widths[-1] * side * side, 2 * widths[-1]),
            nn.ReLU(),
            nn.Dropout(c.dropout),
        )
        self.questions = nn.ModuleList([nn.Linear(2 * widths[-1], answers) for answers in c.answers])

    def forward(self, pixels_BCHW: Tensor) -> list[Tensor]:
        seen_BD = self.body(pixels_BCHW)
        return [question(seen_BD) for question in self.questions]


def build(config: JudgeConfig) -> Judge:
    """With fresh weights, torch's own."""
    return Judge(config)
