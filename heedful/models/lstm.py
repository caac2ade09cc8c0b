"""An LSTM (Hochreiter and Schmidhuber 1997) as a language model, with the presets of Zaremba et al. 2014."""

from __future__ import annotations

from .base.recurrent import RecurrentConfig, language_model
from .base.shells import Decoder


class LSTMConfig(RecurrentConfig):
    """Sizes of an LSTM."""


PRESETS = {
    "lstm-medium": LSTMConfig(),
    "lstm-large": LSTMConfig(width=1500, dropout=0.65),
}


def build(config: LSTMConfig) -> Decoder:
    """The decoder, with fresh weights."""
    return language_model("lstm", config)
