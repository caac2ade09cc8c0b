"""An LSTM (Hochreiter and Schmidhuber 1997) as a language model; the presets are those of Zaremba et al. 2014."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Config
from .recurrent import language_model
from .shells import Decoder


@dataclass(frozen=True)
class LSTMConfig(Config):
    vocab: int = 10000
    context: int = 35  # what it is trained on; a state itself never ends
    layers: int = 2
    width: int = 650
    dropout: float = 0.5


PRESETS = {
    "lstm-medium": LSTMConfig(),
    "lstm-large": LSTMConfig(width=1500, dropout=0.65),
}


def build(config: LSTMConfig) -> Decoder:
    """The decoder, with fresh weights."""
    c = config
    return language_model("lstm", c.vocab, c.layers, c.width, c.dropout)
