"""An open encoder: BERT's heads over layers of any parts, with the choices of `OpenConfig`.

Named encoders (bert, roberta and others) are as they were published, and can be saved for Hugging Face. This
one is for comparing parts: positions, score functions, widths of heads, norms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from ..parts.embeddings import Inputs, TokenEmbedding
from .base.choices import ALONE, POSITIONS, OpenConfig, Side, build_norm, build_position, build_stack
from .base.fields import (
    RATE,
    Activation,
    AttentionDropout,
    Context,
    Dropout,
    Eps,
    FfnWidth,
    Heads,
    Labels,
    Layers,
    Norm,
    PredictionHeads,
    Segments,
    Vocab,
    Width,
    plain_position_names,
    ratio,
)
from .base.initialize import normal_
from .base.settings import Choices, same_as
from .base.shells import Encoder, WithHeads
from .bert import build_heads


@dataclass(frozen=True)
class EncoderConfig(OpenConfig):
    vocab: Vocab = 30522
    context: Context = 512
    segments: Segments = 2
    layers: Layers = 12
    width: Width = 768
    heads: Heads = 12
    ffn_width: FfnWidth = ratio(4, "width")
    activation: Activation = "gelu"
    norm: Norm = "pre"
    dropout: Dropout = 0.1
    attention_dropout: AttentionDropout = same_as("dropout")
    eps: Eps = 1e-5
    prediction_heads: PredictionHeads = ("pooled",)
    labels: Labels = 2
    classifier_dropout: Annotated[float, RATE, "dropout rate before the classifier"] = same_as("dropout")
    positions: Annotated[str, Choices(plain_position_names), "position encoding"] = "rotary"

    @property
    def before_labels(self) -> float:
        """The dropout of heads that tell labels apart."""
        return self.classifier_dropout


PRESETS = {"encoder-110m": EncoderConfig()}


def build(config: EncoderConfig) -> WithHeads:
    """The encoder and its heads, with fresh weights: N(0, 0.02)."""
    c, side = config, side_of(config)
    inputs = Inputs(
        TokenEmbedding(c.vocab, side.token_width),
        build_position(side, side.order.input),
        nn.Embedding(c.segments, side.token_width),
        build_norm(side),
        c.dropout,
    )
    own = None if side.token_width == c.width else side.token_width
    model = WithHeads(Encoder(inputs, build_stack(side)), build_heads(c, "the open encoder", own))
    normal_(model, std=0.02)
    return model


def side_of(c: EncoderConfig) -> Side:
    return Side(
        config=c,
        order=POSITIONS[c.positions][1],
        both_ways=True,
        attention_dropout=c.attention_dropout,
        **{name: getattr(c, name) for name in ALONE},
    )
