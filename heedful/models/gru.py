"""A GRU (Cho et al. 2014) as a language model: gates decide how much of the state each token replaces."""

from __future__ import annotations

from .base.recurrent import RecurrentConfig, language_model
from .base.shells import Decoder


class GRUConfig(RecurrentConfig):
    """Sizes of a GRU."""


PRESETS = {
    "gru-650": GRUConfig(),
}


def build(config: GRUConfig) -> Decoder:
    """The decoder, with fresh weights."""
    return language_model("gru", config)
