"""Translate: read a sentence, write another. The target is shifted right: each word is predicted from those before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from ..models.shells import EncoderDecoder
from ..models.transformer import TransformerConfig
from ..parts.masks import right_padded
from ..recipe import Recipe
from ..train.loss import NOTHING, Loss, sequence_loss


@dataclass(frozen=True)
class PairBatch:
    """Some sentence pairs, padded at the end."""

    source_BS: Tensor
    source_lengths_B: Tensor
    target_BT: Tensor  # begins with bos
    answers_BT: Tensor  # ends with eos; NOTHING in the padding
    count: int  # target tokens, eos included
    ids: tuple[int, ...] = ()

    def to(self, device: torch.device) -> PairBatch:
        if device.type == "cpu":
            return self
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        moved = {n: t.to(device, non_blocking=True) for n, t in tensors.items() if isinstance(t, Tensor)}
        return replace(self, **moved)  # type: ignore[arg-type]


def pad(rows: Sequence[np.ndarray | list[int]], filler: int) -> Tensor:
    """Rows of unequal length as one tensor."""
    longest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), max(1, longest)), filler, dtype=np.int64)
    for out, row in zip(table, rows, strict=True):
        out[: len(row)] = row
    return torch.from_numpy(table)


def collate(
    sources: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    bos: int,
    eos: int,
    padding: int,
    ids: Sequence[int] = (),
) -> PairBatch:
    """Token ids of sentence pairs to a batch."""
    lengths = torch.tensor([len(row) for row in sources])
    inputs = [np.concatenate(([bos], row)) for row in targets]
    answers = [np.concatenate((row, [eos])) for row in targets]
    count = sum(map(len, answers))
    return PairBatch(
        pad(sources, padding),
        lengths,
        pad(inputs, padding),
        pad(answers, NOTHING),
        count,
        tuple(map(int, ids)),
    )


def loss_of(model: EncoderDecoder, batch: PairBatch, smoothing: float = 0.0) -> Loss:
    """The loss of a batch. Padding of the target lies in the future of every real token: no mask is needed for it."""
    memory_BSD = model.encoder(batch.source_BS, batch.source_lengths_B)
    decoder = model.decoder
    positions = right_padded(batch.source_lengths_B, memory_BSD.shape[1])
    hidden_BTD = decoder.hidden(batch.target_BT, source_BSD=memory_BSD, source_positions=positions)
    return sequence_loss(
        lambda x: decoder.head(x, decoder.inputs.tokens), hidden_BTD, batch.answers_BT, batch.count, smoothing
    )


def config_of(recipe: Recipe, vocab: int) -> TransformerConfig:
    """The Transformer of a recipe: one vocabulary for both sides, one matrix for all three of its uses."""
    m = recipe.model
    return TransformerConfig(
        vocab=vocab,
        target_vocab=vocab,
        layers=m.layers,
        decoder_layers=m.layers,
        width=m.width,
        heads=m.heads,
        decoder_heads=m.heads,
        hidden=m.hidden,
        decoder_hidden=m.hidden,
        activation=m.activation,
        norm=m.norm,
        dropout=m.dropout,
        attention_dropout=0.0,
    )
