"""A GRU (Cho et al. 2014) as a language model: gates decide how much of the state each token replaces."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config
from .recurrent import language_model
from .shells import Decoder


@dataclass(frozen=True)
class GRUConfig(Config):
    vocab: int = 10000
    context: int = 35  # what it is trained on; a state itself never ends
    layers: int = 2
    width: int = 650
    dropout: float = 0.5


PRESETS = {
    "gru-650": GRUConfig(),
}


def build(config: GRUConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    return language_model("gru", c.vocab, c.layers, c.width, c.dropout)
