"""GPT-3 (Brown et al. 2020): GPT-2, larger, every second layer looking only at a band of recent tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..parts.masks import causal, window
from . import gpt2
from .base.config import Config
from .base.fields import SIZE, Context, Dropout, Heads, Layers, TieEmbeddings, Vocab, Width
from .base.shells import Decoder


@dataclass(frozen=True)
class GPT3Config(Config):
    vocab: Vocab = 50257
    context: Context = 2048
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    window: Annotated[int, SIZE, "tokens that every second layer sees"] = 128
    dropout: Dropout = 0.0
    tie_embeddings: TieEmbeddings = True


# The paper's table prints 24 heads of 128 for 2048 and a width of 5140 for 40 heads of 128; neither
# multiplies out. Here: 16 heads, and 5120.
PRESETS = {
    "gpt3-125m": GPT3Config(layers=12, width=768, heads=12),
    "gpt3-350m": GPT3Config(layers=24, width=1024, heads=16),
    "gpt3-760m": GPT3Config(layers=24, width=1536, heads=16),
    "gpt3-1.3b": GPT3Config(layers=24, width=2048, heads=16),
    "gpt3-2.7b": GPT3Config(layers=32, width=2560, heads=32),
    "gpt3-6.7b": GPT3Config(layers=32, width=4096, heads=32),
    "gpt3-13b": GPT3Config(layers=40, width=5120, heads=40),
    "gpt3-175b": GPT3Config(layers=96, width=12288, heads=96),
}


def build(config: GPT3Config) -> Decoder:
    """GPT-2's decoder with two masks that take turns: dense, then banded."""
    c = config
    model = gpt2.build(
        gpt2.GPT2Config(
            vocab=c.vocab,
            context=c.context,
            layers=c.layers,
            width=c.width,
            heads=c.heads,
            ffn_width=4 * c.width,
            dropout=c.dropout,
            attention_dropout=c.dropout,
            tie_embeddings=c.tie_embeddings,
        )
    )
    model.masks = (causal(), causal() & window(c.window))
    return model
