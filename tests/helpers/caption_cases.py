"""A tiny captioner, for tests of the network and of what looks into it."""

from __future__ import annotations

from dataclasses import replace

from heedful.models import captioner
from helpers import tiny

CONFIG = captioner.CaptionerConfig(
    vocab=17,
    image_size=12,
    patch_size=4,
    channels=3,
    layers=2,
    decoder_layers=3,
    width=12,
    heads=3,
    ffn_width=20,
    dropout=0.0,
)


def built(sees="grid", seed=5):
    """A tiny captioner in fp64."""
    return tiny.build((captioner, replace(CONFIG, source=sees)), seed=seed)
