"""How an article and its summary are given to a model: to an encoder-decoder, or to a decoder in one row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Tensors
from ..data.store import Store
from ..data.vocab import Vocab
from ..decode.step import step_of
from ..models import kind_of
from ..models.base.shells import Decoder, decoder_of
from ..parts.experts import auxiliary
from ..parts.places import IN_ORDER, Lengths
from ..train.loss import NOTHING, Loss, scores_of, sequence_loss, with_aux
from . import translate
from .configs import config_of
from .recipe.settings import Recipe
from .task import pad
from .translate_rows import collate

Row = Sequence[int] | np.ndarray


class Form(ABC):
    """From token numbers to batches, losses and summaries."""

    @abstractmethod
    def config(self, recipe: Recipe, vocab: int) -> Any:
        """The Config of the recipe's architecture, which has room for the longest row."""

    @abstractmethod
    def lengths(self, store: Store) -> list[np.ndarray]:
        """Of every row, on each side that it has."""

    @abstractmethod
    def batch(
        self, vocab: Vocab, sources: Sequence[Row], targets: Sequence[Row], ids: Sequence[int]
    ) -> Any: ...

    @abstractmethod
    def loss(self, model: Any, batch: Any, smoothing: float) -> Loss:
        """What is minimized."""

    @abstractmethod
    def nll(self, model: Any, batch: Any) -> Loss:
        """What a model is judged by: the summary's tokens and its end, given the article."""

    @abstractmethod
    def answers(self, batch: Any) -> np.ndarray:
        """The tokens of the summaries of a batch, with their ends."""

    @abstractmethod
    def prompt(self, model: Any, vocab: Vocab, rows: Sequence[Row]) -> tuple[Any, Tensor, Tensor]:
        """A step that has read articles, and what it goes on from: (step, prompts, lengths)."""


class EncoderDecoderForm(Form):
    """T-ED, and every other encoder-decoder: the encoder reads, the decoder writes."""

    def config(self, recipe: Recipe, vocab: int) -> Any:
        d = recipe.data
        longest = max(d.max_length, d.max_summary_length + 1, recipe.model.sizes.get("context", 0))
        return config_of(recipe, vocab=vocab, target_vocab=vocab, share_embeddings=True, context=longest)

    def lengths(self, store: Store) -> list[np.ndarray]:
        return [store.lengths("source"), store.lengths("target") + 1]

    def batch(self, vocab: Vocab, sources: Sequence[Row], targets: Sequence[Row], ids: Sequence[int]) -> Any:
        read, to_write = ([np.asarray(row) for row in rows] for rows in (sources, targets))
        return collate(read, to_write, vocab.bos, vocab.eos, vocab.pad, ids)

    def loss(self, model: Any, batch: Any, smoothing: float) -> Loss:
        return translate.loss_of(model, batch, smoothing)

    def nll(self, model: Any, batch: Any) -> Loss:
        return translate.loss_of(model, batch)

    def answers(self, batch: Any) -> np.ndarray:
        return batch.answers_BT[batch.answers_BT >= 0].numpy()

    def prompt(self, model: Any, vocab: Vocab, rows: Sequence[Row]) -> tuple[Any, Tensor, Tensor]:
        device = device_of(model)
        source_BS, lengths_B = padded(rows, vocab.pad, device)
        ones_B = torch.ones_like(lengths_B)
        return step_of(model, source_BS, lengths_B), ones_B[:, None] * vocab.bos, ones_B


@dataclass(frozen=True)
class RowBatch(Tensors):
    """Articles and summaries, a row each, padded at the end."""

    tokens_BT: Tensor
    answers_BT: Tensor  # the token after each; NOTHING in the padding
    lengths_B: Tensor  # of all but the padding
    starts_B: Tensor  # where the separator stands, after which the summary is predicted
    count: int  # tokens that are learned from
    ids: tuple[int, ...] = ()

    @property
    def summaries_BT(self) -> Tensor:
        """The answers that belong to the summaries; NOTHING elsewhere."""
        places_T = torch.arange(self.answers_BT.shape[1], device=self.answers_BT.device)
        return self.answers_BT.masked_fill(places_T < self.starts_B[:, None], NOTHING)


@dataclass(frozen=True)
class DecoderForm(Form):
    """T-D and T-DMCA: one decoder reads on from the article into the summary."""

    lm_weight: float = 1.0  # what the article's own tokens count; at 0 nothing is learned from them

    def config(self, recipe: Recipe, vocab: int) -> Any:
        d = recipe.data
        return config_of(recipe, vocab=vocab, context=d.max_length + 1 + d.max_summary_length)

    def lengths(self, store: Store) -> list[np.ndarray]:
        return [store.lengths("source") + store.lengths("target") + 1]

    def batch(
        self, vocab: Vocab, sources: Sequence[Row], targets: Sequence[Row], ids: Sequence[int]
    ) -> RowBatch:
        pairs = list(zip(sources, targets, strict=True))
        rows = [np.concatenate((source, [vocab.sep], target, [vocab.eos])) for source, target in pairs]
        lengths = [len(row) - 1 for row in rows]
        learned = lengths if self.lm_weight else [len(target) + 1 for target in targets]
        return RowBatch(
            pad([row[:-1] for row in rows], vocab.pad),
            pad([row[1:] for row in rows], NOTHING),
            torch.tensor(lengths),
            torch.tensor([len(source) for source in sources]),
            sum(learned),
            tuple(map(int, ids)),
        )

    def loss(self, model: Decoder, batch: RowBatch, smoothing: float) -> Loss:
        """Every token counts, those of the article `lm_weight` times."""
        weight, summaries_BT = self.lm_weight, batch.summaries_BT
        if weight == 1:
            return self.of(model, batch, [(1.0, batch.answers_BT)], batch.count, smoothing)
        articles_BT = batch.answers_BT.masked_fill(summaries_BT != NOTHING, NOTHING)
        parts = [(1.0, summaries_BT), *([(weight, articles_BT)] if weight else [])]
        return self.of(model, batch, parts, batch.count, smoothing)

    def nll(self, model: Decoder, batch: RowBatch) -> Loss:
        return self.of(model, batch, [(1.0, batch.summaries_BT)], self.written(batch))

    def of(
        self,
        model: Decoder,
        batch: RowBatch,
        parts: Sequence[tuple[float, Tensor]],
        count: int,
        smoothing: float = 0.0,
    ) -> Loss:
        """The weighted loss of some answers. No mask hides padding: it lies in every token's future."""
        aux = auxiliary(model)
        places = IN_ORDER if aux is None else Lengths(batch.lengths_B)  # experts must not see padding
        hidden_BTD = model.hidden(batch.tokens_BT, places, aux=aux)
        scores = scores_of(model)
        losses = [
            (weight, sequence_loss(scores, hidden_BTD, answers_BT, count, smoothing))
            for weight, answers_BT in parts
        ]
        total = sum(weight * loss.total for weight, loss in losses)
        nll = sum(loss.nll for _, loss in losses)
        return with_aux(Loss(total, nll, count), aux)  # type: ignore[arg-type]

    def written(self, batch: RowBatch) -> int:
        """How many tokens the summaries have, with their ends."""
        return int((batch.lengths_B - batch.starts_B).sum())

    def answers(self, batch: RowBatch) -> np.ndarray:
        return batch.summaries_BT[batch.summaries_BT >= 0].numpy()

    def prompt(self, model: Any, vocab: Vocab, rows: Sequence[Row]) -> tuple[Any, Tensor, Tensor]:
        prompts = [[*row, vocab.sep] for row in rows]
        return step_of(model), *padded(prompts, vocab.pad, device_of(model))


def in_one_row(architecture: str) -> bool:
    """Whether a decoder reads article and summary as one row."""
    return kind_of(architecture) == "Decoder"


def form_of(recipe: Recipe) -> Form:
    in_rows = in_one_row(recipe.model.architecture)
    return DecoderForm(recipe.train.lm_loss_weight) if in_rows else EncoderDecoderForm()


def padded(rows: Sequence[Row], filler: int, device: torch.device) -> tuple[Tensor, Tensor]:
    lengths_B = torch.tensor([len(row) for row in rows], device=device)
    return pad([np.asarray(row) for row in rows], filler).to(device), lengths_B


def device_of(model: Any) -> torch.device:
    return decoder_of(model).inputs.tokens.weight.device
