"""RNNsearch (Bahdanau et al. 2015), the first attention: a bidirectional GRU reads, another GRU writes.

The encoder's GRU is torch's, the decoder's is the paper's (heedful/parts/before/recurrent.py says how they
differ).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..parts.attention import Additive
from ..parts.before.attentive_decoders import Searching
from ..parts.before.recurrent import CandidateGRU
from ..parts.embeddings import Inputs, Untied
from .base.config import Config
from .base.fields import SIZE, Dropout, EmbeddingWidth, ShareEmbeddings, TargetVocab, Vocab
from .base.recurrent import check_shared, embeddings, initialize, reader
from .base.settings import same_as
from .base.shells import Decoder, EncoderDecoder


@dataclass(frozen=True)
class BahdanauConfig(Config):
    vocab: Vocab = 30000
    target_vocab: TargetVocab = 30000
    share_embeddings: ShareEmbeddings = False
    layers: Annotated[int, SIZE, "number of encoder layers"] = 1
    width: Annotated[int, SIZE, "width of the decoder, and of each direction of the encoder"] = 1000
    embedding_width: EmbeddingWidth = same_as("width")
    score_width: Annotated[int, SIZE, "width inside the additive score"] = same_as("width")
    maxout_width: Annotated[int, SIZE, "width of the maxout layer before the output"] = same_as("width")
    dropout: Dropout = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.share_embeddings, self.vocab, self.target_vocab)


PRESETS = {"rnnsearch": BahdanauConfig(embedding_width=620, maxout_width=500)}


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
