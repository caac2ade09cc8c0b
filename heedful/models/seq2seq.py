"""Sequence to sequence without attention (Sutskever et al. 2014): one vector must hold a whole sentence.

The decoder begins with the states that the encoder ends with. Whatever it knows of the source passes through
them, however long the source is: the bottleneck that attention was invented for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..parts.before.recurrent import LastStates, RecurrentStack
from ..parts.embeddings import Inputs, Untied
from .base.config import Config
from .base.fields import Cell, Dropout, EmbeddingWidth, Layers, ShareEmbeddings, TargetVocab, Vocab, Width
from .base.recurrent import chain, check_shared, embeddings, initialize
from .base.settings import same_as
from .base.shells import Decoder, Encoder, EncoderDecoder


@dataclass(frozen=True)
class Seq2SeqConfig(Config):
    vocab: Vocab = 160000
    target_vocab: TargetVocab = 80000
    share_embeddings: ShareEmbeddings = False
    cell: Cell = "lstm"
    layers: Layers = 4
    width: Width = 1000
    embedding_width: EmbeddingWidth = same_as("width")
    reverse_source: Annotated[bool, "read the source from its end (Sutskever et al. 2014)"] = True
    context_every_step: Annotated[bool, "feed the source vector at every step (Cho et al. 2014)"] = False
    dropout: Dropout = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.share_embeddings, self.vocab, self.target_vocab)


PRESETS = {"seq2seq-sutskever": Seq2SeqConfig()}


def build(config: Seq2SeqConfig) -> EncoderDecoder:
    """The encoder-decoder, with fresh weights."""
    c = config
    source, target = embeddings(c.vocab, c.target_vocab, c.embedding_width, c.share_embeddings)
    beside = c.width if c.context_every_step else 0
    model = EncoderDecoder(
        Encoder(
            Inputs(source, dropout=c.dropout),
            LastStates(chain(c.cell, c.embedding_width, c.width, c.layers), c.dropout, c.reverse_source),
        ),
        Decoder(
            Inputs(target, dropout=c.dropout),
            RecurrentStack(
                chain(c.cell, c.embedding_width + beside, c.width, c.layers), c.dropout, c.context_every_step
            ),
            Untied(c.width, c.target_vocab, bias=True),
        ),
    )
    initialize(model)
    return model
