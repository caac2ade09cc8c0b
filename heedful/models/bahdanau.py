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
    share_embeddings: bool = False  # one vocabulary, and one embedding, for source and target
    layers: int = 1  # of the encoder
    width: int = 1000  # of each direction of the encoder, and of the decoder
    embedding_width: int = 620
    score_width: int = 1000  # width inside the score
    maxout_width: int = 500
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.share_embeddings, self.vocab, self.target_vocab)


PRESETS = {"rnnsearch": BahdanauConfig()}


def build(config: BahdanauConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    source, target = embeddings(c.vocab, c.target_vocab, c.embedding_width, c.share_embeddings)
    annotation = 2 * c.width
    stack = Searching(
        CandidateGRU(c.embedding_width, annotation, c.width),
        Additive(c.width, annotation, c.score_width),
        annotation,
        c.maxout_width,
        c.dropout,
    )
    model = EncoderDecoder(
        reader("gru", source, c.width, c.layers, c.dropout),
        Decoder(Inputs(target, dropout=c.dropout), stack, Untied(c.maxout_width, c.target_vocab, bias=True)),
    )
    initialize(model)
    return model
