"""What recurrent models share: how a language model, an encoder and their embeddings are put together."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ...parts.before.recurrent import (
    CELLS,
    BidirectionalStack,
    BothWays,
    Recurrence,
    RecurrentStack,
    orthogonal_,
)
from ...parts.embeddings import Inputs, TokenEmbedding, Untied
from .config import Config
from .fields import Context, Dropout, Layers, Vocab, Width
from .initialize import xavier_
from .shells import Decoder, Encoder


@dataclass(frozen=True)
class RecurrentConfig(Config):
    """Sizes of a recurrent language model, whatever its cells."""

    vocab: Vocab = 10000
    context: Context = 35
    layers: Layers = 2
    width: Width = 650
    dropout: Dropout = 0.5


def language_model(cell: str, config: RecurrentConfig) -> Decoder:
    """A stack of recurrent layers with dropout between them and never through time (Zaremba et al. 2014)."""
    c = config
    inputs = Inputs(TokenEmbedding(c.vocab, c.width), dropout=c.dropout)
    stack = RecurrentStack(chain(cell, c.width, c.width, c.layers), c.dropout)
    model = Decoder(inputs, stack, Untied(c.width, c.vocab, bias=True))
    initialize(model)
    return model


def chain(cell: str, inputs: int, width: int, layers: int) -> list[Recurrence]:
    """Layers from left to right."""
    return [CELLS[cell](inputs if i == 0 else width, width) for i in range(layers)]


def reader(cell: str, tokens: TokenEmbedding, width: int, layers: int, dropout: float) -> Encoder:
    """An encoder that reads both ways, `width` in each direction."""
    embedding = tokens.weight.shape[1]
    ins = [embedding, *[2 * width] * (layers - 1)]
    blocks = [BothWays(CELLS[cell](i, width), CELLS[cell](i, width)) for i in ins]
    return Encoder(Inputs(tokens, dropout=dropout), BidirectionalStack(blocks, dropout))


def embeddings(
    vocab: int, target_vocab: int, width: int, shared: bool
) -> tuple[TokenEmbedding, TokenEmbedding]:
    """Of the source and of the target; one and the same, if they share a vocabulary."""
    source = TokenEmbedding(vocab, width)
    return source, source if shared else TokenEmbedding(target_vocab, width)


def check_shared(shared: bool, vocab: int, target_vocab: int) -> None:
    if shared and vocab != target_vocab:
        raise ValueError(f"a shared vocabulary has one size, not {vocab} and {target_vocab}")


def initialize(model: nn.Module) -> None:
    """Glorot's, orthogonal where a state is read, and small scores at first."""
    xavier_(model)
    orthogonal_(model)
    for module in model.modules():
        if isinstance(module, Untied):
            nn.init.normal_(module.linear.weight, std=0.02)
