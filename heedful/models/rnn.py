"""Elman's network (1990) as a language model: tanh(x W + h U + b), again and again."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config
from .recurrent import language_model
from .shells import Decoder


@dataclass(frozen=True)
class RNNConfig(Config):
    vocab: int = 10000
    context: int = 35  # what it is trained on; a state itself never ends
    layers: int = 2
    width: int = 650
    dropout: float = 0.5


PRESETS = {
    "rnn-650": RNNConfig(),
}


def build(config: RNNConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    return language_model("rnn", c.vocab, c.layers, c.width, c.dropout)
