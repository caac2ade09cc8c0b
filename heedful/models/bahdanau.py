"""RNNsearch (Bahdanau et al. 2015), the first attention: a bidirectional GRU reads, another GRU writes.

The encoder's GRU is torch's, the decoder's is the paper's (heedful/parts/before/recurrent.py says how they
differ).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..parts.attention import Additive
from ..parts.before.attentive_decoders import Searching
from ..parts.before.recurrent import CandidateGRU
from ..parts.embeddings import Inputs, Untied
from .base.config import Config
from .base.recurrent import check_shared, embeddings, initialize, reader
from .base.shells import Decoder, EncoderDecoder


@dataclass(frozen=True)
class BahdanauConfig(Config):
    vocab: int = 30000
    target_vocab: int = 30000
    shared: bool = False  # one vocabulary, and one embedding, for source and target
    layers: int = 1  # of the encoder
    width: int = 1000  # of each direction of the encoder, and of the decoder
    embedding: int = 620
    alignment: int = 1000  # width inside the score
    maxout: int = 500
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.shared, self.vocab, self.target_vocab)


PRESETS = {"rnnsearch": BahdanauConfig()}


def build(config: BahdanauConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    source, target = embeddings(c.vocab, c.target_vocab, c.embedding, c.shared)
    annotation = 2 * c.width
    stack = Searching(
        CandidateGRU(c.embedding, annotation, c.width),
        Additive(c.width, annotation, c.alignment),
        annotation,
        c.maxout,
        c.dropout,
    )
    model = EncoderDecoder(
        reader("gru", source, c.width, c.layers, c.dropout),
        Decoder(Inputs(target, dropout=c.dropout), stack, Untied(c.maxout, c.target_vocab, bias=True)),
    )
    initialize(model)
    return model
