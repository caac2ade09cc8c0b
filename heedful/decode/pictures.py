"""Pictures, sampled cell by cell by a step that scores only the tokens which can stand in the next place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models.dalle import Dalle
from .filters import Filter, temperature, top_k
from .sampling import sample
from .step import DecoderStep, Step


class PictureStep(Step):
    """A decoder of captions and pictures with a cache.

    All rows are in the same place: captions are padded.
    """

    def __init__(self, model: Dalle) -> None:
        self.model, self.step, self.fed = model, DecoderStep(model.decoder), 0

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        if lengths_B is not None and bool((lengths_B != tokens_BT.shape[1]).any()):
            raise ValueError("captions are padded by tokens of their own: all rows have one length")
        scores_BTV = self.model.restricted(self.step(tokens_BT), self.fed)
        self.fed += tokens_BT.shape[1]
        return scores_BTV

    def last(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        self.fed += tokens_BT.shape[1]
        return self.model.restricted(self.step.last(tokens_BT)[:, None], self.fed - 1)[:, 0]

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        self.step.reorder(rows, siblings)

    def rewind(self, lengths_B: Tensor) -> None:
        self.step.rewind(lengths_B)
        self.fed = int(lengths_B[0])

    @property
    def chunk(self) -> int:
        return self.step.chunk

    @property
    def tokens_left(self) -> int | None:
        return self.step.tokens_left


@torch.no_grad()
def draw_codes(
    model: Dalle,
    words_BL: Tensor,
    lengths_B: Tensor,
    seed: int | Sequence[int] = 0,
    heat: float = 1.0,
    k: int = 0,
) -> Tensor:
    """Codes [B, rows, columns] of a picture for each caption.

    heat: the temperature; k: only the k most likely, or 0 for all.
    """
    c = model.config
    filters: list[Filter] = [temperature(heat)] if heat != 1 else []
    filters += [top_k(k)] if 0 < k < c.codes else []
    prompts_BT = model.stream(words_BL, lengths_B)
    found = sample(PictureStep(model), prompts_BT, longest=c.cells, seed=seed, filters=filters)
    tokens_BN = torch.tensor([h.tokens for h in found], device=words_BL.device)
    return tokens_BN.unflatten(1, (c.rows, c.columns)) - c.first_code
