"""A model opened in another library: the questions that it is asked, and helpers for answering them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...decode.beam import beam_search
from ...decode.beam_settings import BeamSettings
from ...decode.greedy import greedy
from ...decode.step import Step


class ForeignModel(Protocol):
    """A model opened in another library. A method returns None where that library has no answer.

    An attribute `computes` names the dtype that it computes with, if that is not float32. An attribute
    `says_log_probabilities` is True if `logits` returns log-probabilities. Three more methods are optional:

        pictures(images_BCHW) -> list[Tensor]     `logits` of each picture
        batch(rows, targets) -> list[Tensor]      `logits` of several texts, which the library pads
        other_heads(ids) -> list[Tensor]          outputs of the heads after the first
    """

    def logits(self, ids: list[int], target: list[int] | None) -> Tensor | None:
        """Scores [T, V] in fp32 after each token of one text.

        decoder            after each token of `ids`
        encoder-decoder    reads `ids`; after each token of `target`, the first of which starts decoding
        encoder            output of its first head (pooling is none), one row if it judges the whole text;
                           without a head, the hidden states and, as a last row, the pooled vector
        """

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        """The greedy continuation (or translation): at most `new` tokens, without the token that ends it."""

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        """The same by beam search without length normalization: the most probable hypothesis among those that
        ended and those that have `new` tokens."""

    def tokens(self, text: str) -> list[int] | None:
        """Token ids by the library's own tokenizer, with the special tokens around a text."""


class Searched(ABC):
    """A model of which heedful's own searches ask the scores, token by token."""

    end: int | None  # the token that ends a text

    @property
    @abstractmethod
    def writes(self) -> bool:
        """Whether the model generates text."""

    @abstractmethod
    def begun(self, ids: list[int]) -> tuple[Step, Tensor]:
        """A search's steps and the tokens that it starts from, after `ids` were read."""

    @torch.no_grad()
    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        """As `ForeignModel.greedy`."""
        if not self.writes:
            return None
        step, prompt_1T = self.begun(ids)
        return greedy(step, prompt_1T, longest=new, eos=self.end)[0].words

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        """As `ForeignModel.beam`."""
        if not self.writes:
            return None
        step, prompt_1T = self.begun(ids)
        settings = BeamSettings(width, 1, "power", 0.0, stopping="exact")
        return beam_search(step, prompt_1T, longest=new, eos=self.end, settings=settings)[0][0].words


def each_text(found: Tensor, lengths_B: Tensor, pooled_BD: Tensor | None = None) -> list[Tensor]:
    """Outputs of each text of a padded batch: a row for every real token, or one for the whole text. A pooled
    vector is the last row."""
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
