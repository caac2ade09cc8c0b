"""A model opened in another library: the questions that it is asked, and helpers for answering them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..decode.beam import beam_search
from ..decode.beam_settings import BeamSettings
from ..decode.greedy import greedy
from ..decode.step import Step

Outputs = dict[str, Tensor]  # {name: [T, V], or [1, V] of the whole text}
SPANS = ("start_logits", "end_logits")  # a number for each token


@dataclass(frozen=True)
class NetworkInput:
    """One input of a network: its tokens, what an encoder-decoder decodes, and segments if it has any."""

    ids: list[int]
    target: list[int] | None = None
    segments: list[int] | None = None


@dataclass(frozen=True)
class InputLimits:
    """How much a library may be given in a comparison."""

    numbers: int  # logits of one input
    work: float  # multiplications of one pass over all inputs


class ForeignModel(Protocol):
    """A model opened in another library. A method returns None where that library has no answer.

    More methods are optional, and so is each of a file in heedful/certify/checks:

        pictures(images_BCHW) -> list[Outputs]    `outputs` of each picture
        embedding() -> Tensor                     the rows of the token embedding, as the library holds them
        attention(row) -> Outputs                 weights [H, T, S] of each layer, such as "encoder.self.0"

    A model may have `limits` (InputLimits) and `versions`, {name: version} of what it runs on.
    """

    def outputs(self, rows: list[NetworkInput]) -> list[Outputs]:
        """Everything that the network returns for each row of one batch, by Hugging Face's names.

        decoder            logits after each token of `ids`
        encoder-decoder    reads `ids`; logits after each token of `target`, whose first one starts decoding
        encoder            last_hidden_state, pooler_output, and what each head returns
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


def each_text(found: Mapping[str, Tensor], lengths_B: Tensor) -> list[Outputs]:
    """Outputs of each text of a padded batch, in fp32: a row for every real token, or one for the whole."""
    parts = {name: part[..., None] if name in SPANS else part for name, part in found.items()}
    return [
        {
            name: part[at, :n].float() if part.ndim == 3 else part[at][None].float()
            for name, part in parts.items()
        }
        for at, n in enumerate(lengths_B.tolist())
    ]


def padded(rows: Sequence[list[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    """Rows as one tensor, padded at their ends; and how long each is."""
    longest = max(map(len, rows))
    tokens_BT = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    return tokens_BT, torch.tensor([len(row) for row in rows])


def real(tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
    """1 where a token is real, 0 in padding."""
    return (torch.arange(tokens_BT.shape[1]) < lengths_B[:, None]).long()
