"""Elman's network (Elman 1990) as a language model: tanh(x W + h U + b), again and again."""

from __future__ import annotations

from .base.recurrent import RecurrentConfig, language_model
from .base.shells import Decoder


class RNNConfig(RecurrentConfig):
    """Sizes of an Elman network."""


PRESETS = {
    "rnn-650": RNNConfig(),
}


def build(config: RNNConfig) -> Decoder:
    """The decoder, with fresh weights."""
    return language_model("rnn", config)
