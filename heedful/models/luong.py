"""Effective attention (Luong et al. 2015): look after the step, not before it, and remember what was seen.

The score is `dot`, `general` or `concat`. The paper's encoder reads from left to right only; this one reads
both ways. Each direction is half as wide as a state by default, so that an annotation is as wide as a state:
`dot` needs that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from ..parts.attention import Additive, Bilinear, Dot, Score
from ..parts.before.attentive_decoders import Attentive
from ..parts.before.recurrent import check_cell
from ..parts.embeddings import Inputs, Untied
from .base.config import Config, check
from .base.recurrent import chain, check_shared, embeddings, initialize, reader
from .base.shells import Decoder, EncoderDecoder

# From the widths of a state and of an annotation.
SCORES: dict[str, Callable[[int, int], Score]] = {
    "dot": lambda state, annotation: Dot(),
    "general": Bilinear,
    "concat": lambda state, annotation: Additive(state, annotation, state),
}


@dataclass(frozen=True)
class LuongConfig(Config):
    vocab: int = 50000
    target_vocab: int = 50000
    share_embeddings: bool = False  # one vocabulary, and one embedding, for source and target
    cell: str = "lstm"  # or "gru" or "rnn"
    layers: int = 4
    width: int = 1000
    encoder_width: int | None = None  # the width of each direction of the encoder; None: half of the above
    embedding_width: int = 1000
    score: str = "general"  # or "dot" or "concat"
    input_feeding: bool = True
    dropout: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.share_embeddings, self.vocab, self.target_vocab)
        check_cell(self.cell)
        if self.score not in SCORES:
            raise ValueError(f'there is no score "{self.score}"; there are {", ".join(SCORES)}')
        if self.encoder_width is not None:
            check("encoder_width", "int", self.encoder_width)
        elif self.width % 2:
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
