"""Effective attention (Luong et al. 2015): look after the step, not before it, and remember what was seen.

The score is `dot`, `general` or `concat`. The paper's encoder reads from left to right only; this one reads
both ways. Each direction is half as wide as a state by default, so that an annotation is as wide as a state:
`dot` needs that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import nn

from ..parts.attention import Additive, Bilinear, Dot, Score
from ..parts.before.attentive_decoders import Attentive
from ..parts.embeddings import Inputs, Untied
from .base.config import Config
from .base.fields import (
    SIZE,
    Cell,
    Dropout,
    EmbeddingWidth,
    Layers,
    ShareEmbeddings,
    TargetVocab,
    Vocab,
    Width,
)
from .base.recurrent import chain, check_shared, embeddings, initialize, reader
from .base.settings import same_as
from .base.shells import Decoder, EncoderDecoder

# From the widths of a state and of an annotation.
SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": lambda state, annotation: Dot(),
    "general": Bilinear,
    "concat": lambda state, annotation: Additive(state, annotation, state),
}


@dataclass(frozen=True)
class LuongConfig(Config):
    vocab: Vocab = 50000
    target_vocab: TargetVocab = 50000
    share_embeddings: ShareEmbeddings = False
    cell: Cell = "lstm"
    layers: Layers = 4
    width: Width = 1000
    encoder_width: Annotated[
        int | None, SIZE, "width of each direction of the encoder; None: half of width"
    ] = None
    embedding_width: EmbeddingWidth = same_as("width")
    score: Annotated[Literal["dot", "general", "concat"], "score function of attention"] = "general"
    input_feeding: Annotated[bool, "the decoder reads its last attentional state"] = True
    dropout: Dropout = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.share_embeddings, self.vocab, self.target_vocab)
        if self.encoder_width is None and self.width % 2:
            raise ValueError(f"width is half for each direction of the encoder, and {self.width} is odd")
        if self.score == "dot" and self.annotation != self.width:
            raise ValueError(
                f"the score dot is of vectors of one width: a state has {self.width} numbers, "
                f"an annotation {self.annotation}"
            )

    @property
    def annotation(self) -> int:
        """Both directions of the encoder side by side."""
        return 2 * (self.encoder_width or self.width // 2)


PRESETS = {"luong-general": LuongConfig()}


def build(config: LuongConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    source, target = embeddings(c.vocab, c.target_vocab, c.embedding_width, c.share_embeddings)
    beside = c.width if c.input_feeding else 0
    stack = Attentive(
        chain(c.cell, c.embedding_width + beside, c.width, c.layers),
        SCORES[c.score](c.width, c.annotation),
        c.annotation,
        c.dropout,
        c.input_feeding,
    )
    model = EncoderDecoder(
        reader(c.cell, source, c.annotation // 2, c.layers, c.dropout),
        Decoder(Inputs(target, dropout=c.dropout), stack, Untied(c.width, c.target_vocab, bias=True)),
    )
    initialize(model)
    for tokens in (
        source,
        target,
    ):  # an LSTM's gates let a quarter through at first: small words would not be heard
        nn.init.normal_(tokens.weight)
    return model
