"""A model opened in another library: the questions that it is asked, and helpers for answering them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class ForeignModel(Protocol):
    """A model opened in another library. None where that library does not say.

    An attribute `computes` names the kind of numbers it computes with, if it is another than float32.
    Three methods more are used where there are any: `pictures(images_BCHW) -> list[Tensor]`, what `logits` would say of
    each picture; `batch(rows, targets) -> list[Tensor]`, `logits` of several texts that it pads; and `other_heads(ids) ->
    list[Tensor]`, what the heads after the first say.
    """

    def logits(self, ids: list[int], target: list[int] | None) -> Tensor | None:
        """Scores [T, V] in fp32 after each token of one text: of `ids` for a decoder; of `target`, which begins with the
        token that decoding starts with, for an encoder-decoder that reads `ids`. Of an encoder, what its first head says
        (pooling is none), or without a head its hidden states and, as a last row, what it pools; a head that says one
        thing of a whole text gives one row.
        Log-probabilities will do, if an attribute `says_log_probabilities` is True."""

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        """The likeliest continuation (or translation): at most `new` tokens, without the token that ends it."""

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        """The same by beam search with no length normalization: the hypothesis of highest probability among those that
        ended, and those that have `new` tokens."""

    def tokens(self, text: str) -> list[int] | None:
        """The text by its own tokenizer, special tokens included as for a text to be read."""


def each_text(found: Tensor, lengths_B: Tensor, pooled_BD: Tensor | None = None) -> list[Tensor]:
    """Of a padded batch, what was said of each text: a row for every real token, or one for the whole; and what was
    pooled after them."""
    if found.ndim == 2:
        return list(found[:, None].float())
    rows = [row[:n].float() for row, n in zip(found, lengths_B.tolist(), strict=True)]
    if pooled_BD is None:
        return rows
    return [torch.cat([row, one[None].float()]) for row, one in zip(rows, pooled_BD, strict=True)]


def padded(rows: Sequence[list[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    """Rows as one tensor, padded at their ends; and how long each is."""
    longest = max(map(len, rows))
    tokens_BT = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    return tokens_BT, torch.tensor([len(row) for row in rows])


def real(tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """1 where a token is real, 0 in padding."""
    return (torch.arange(tokens_BT.shape[1]) < lengths_B[:, None]).long()
