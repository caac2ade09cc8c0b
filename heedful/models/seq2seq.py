"""Sequence to sequence without attention (Sutskever et al. 2014): one vector must hold a whole sentence.

The decoder begins with the states that the encoder ends with. Whatever it knows of the source passes through
them, however long the source is: the bottleneck that attention was invented for.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..parts.before.recurrent import LastStates, RecurrentStack, check_cell
from ..parts.embeddings import Inputs, Untied
from .base.config import Config
from .base.recurrent import chain, check_shared, embeddings, initialize
from .base.shells import Decoder, Encoder, EncoderDecoder


@dataclass(frozen=True)
class Seq2SeqConfig(Config):
    vocab: int = 160000
    target_vocab: int = 80000
    share_embeddings: bool = False  # one vocabulary, and one embedding, for source and target
    cell: str = "lstm"  # or "gru" or "rnn"
    layers: int = 4
    width: int = 1000
    embedding_width: int = 1000
    reverse_source: bool = True  # the source is read from its end, so that its first words are the freshest
    context_every_step: bool = (
        False  # the decoder reads the encoder's last word with every token (Cho et al. 2014)
    )
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shared(self.share_embeddings, self.vocab, self.target_vocab)
        check_cell(self.cell)


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
