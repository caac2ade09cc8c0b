"""Pictures with captions, as text-to-image learns from them. The names of classes serve as captions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Seen, Tensors
from ..data.images.folders import CAPTIONS
from ..data.images.gallery import Gallery, GalleryRow
from ..data.plan import RowPlan, shares
from ..data.report import Report
from ..data.vocab import Vocab, read_vocab, train_vocab
from ..errors import BadInput
from ..files import write_text
from ..interop.hf.tokenizer import TOKENIZER
from ..models.base.settings import Range
from .evaluation import EvaluationRequest
from .galleries import galleries, split_rows
from .recipe.settings import PictureSettings, Recipe, TokenSettings
from .task import DataSize

DATA = "data"
MOST = 256  # pictures at once, where nothing is learned
B = TypeVar("B")


@dataclass(frozen=True)
class CaptionTokens(TokenSettings):
    """How captions become tokens."""

    tokenizer: Annotated[
        Literal["bpe", "wordpiece", "char", "word", "spaced"], "kind of vocabulary to learn"
    ] = "word"
    vocab_size: Annotated[int, Range(8, 1_000_000), "tokens in the vocabulary, at most"] = 4000
    lowercase: Annotated[bool, "lowercase all captions"] = True
    max_length: Annotated[int, Range(1, 1_000_000), "tokens of a caption; longer ones are cut"] = 12

    def config_fields(self) -> dict[str, Any]:
        return {**super().config_fields(), "text_length": self.max_length}


@dataclass(frozen=True)
class PictureExamples:
    """Pictures to learn from and held-out ones, and how many tokens a step counts for each."""

    train: Gallery
    valid: Gallery
    length: int

    @property
    def size(self) -> DataSize:
        return DataSize(len(self.train), len(self.train) * self.length, "pictures")


def have_captions(d: PictureSettings) -> bool:
    """Whether the pictures have captions of their own, rather than classes."""
    return bool(d.corpus) or any((Path(d.images) / name).is_file() for name in CAPTIONS)


def pictures_of(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> tuple[Gallery, Gallery]:
    """The pictures to learn from and those held out, made ready once."""
    d = recipe.data
    report = Report(d.bad_lines, "image")
    found = galleries(d, folder / DATA, have_captions(d), report)
    if report.counts:
        say(report.sentence())
    return found["train"], found["valid"]


def evaluation_rows(asked: EvaluationRequest) -> list[GalleryRow]:
    """All pictures of the split that a model is to be judged by."""
    d = asked.recipe.data
    return list(split_rows(d, asked.split, have_captions(d), Report(d.bad_lines, "image")))


def caption_of(gallery: Gallery, i: int) -> str:
    return gallery.caption(i) or gallery.label(i)


def captions_of(gallery: Gallery) -> list[str]:
    return [caption_of(gallery, i) for i in range(len(gallery))]


def vocabulary_of(recipe: Recipe, folder: Path, captions: Sequence[str]) -> Vocab:
    """A vocabulary learned from captions, kept in the run's folder."""
    path, d = folder / TOKENIZER, recipe.data
    if not path.is_file():
        write_text(path, train_vocab(d.tokenizer, captions, d.vocab_size, d.lowercase).to_json())
    return read_vocab(path)


def padded(rows: Sequence[Sequence[int]], longest: int) -> tuple[Tensor, Tensor]:
    """Captions' tokens [B, longest], cut if they are longer, and how many each has."""
    lengths = [min(len(row), longest) for row in rows]
    words_BL = torch.zeros(len(rows), longest, dtype=torch.long)
    for b, row in enumerate(rows):
        words_BL[b, : lengths[b]] = torch.tensor(row[:longest], dtype=torch.long)
    return words_BL, torch.tensor(lengths)


def spread(count: int, most: int) -> np.ndarray:
    """At most so many numbers from all over 0, 1, .. count - 1: a folder may be sorted."""
    return np.linspace(0, count - 1, min(count, most)).astype(int)


def in_parts(ids: np.ndarray) -> Iterator[np.ndarray]:
    """Pictures in as many as are looked at together."""
    for start in range(0, len(ids), MOST):
        yield ids[start : start + MOST]


def planned(recipe: Recipe, count: int, length: int) -> RowPlan:
    """Batches of as many pictures as have about so many tokens together."""
    return RowPlan(count, max(1, recipe.train.batch_tokens // length), recipe.train.seed)


def batches_of(plan: RowPlan, recipe: Recipe, make: Callable[[np.ndarray, int], B]) -> Callable[..., list[B]]:
    """The micro-batches of a step: `make` is given their pictures' numbers and the step."""

    def batches(step: int, rank: int = 0, world: int = 1) -> list[B]:
        parts = shares(plan.batch(step), recipe.train.accumulation_steps, rank, world)
        return [make(part, step) for part in parts]

    return batches


@dataclass(frozen=True)
class PictureBatch(Tensors):
    """Tensors of some pictures; `length` tokens each, as the memory that training takes is reckoned."""

    length: int
    ids: tuple[int, ...] = ()

    @property
    def seen(self) -> Seen:
        return Seen(len(self.ids), "pictures")


def describe_data(train: int, tried: int, held_out: int, d: PictureSettings, more: str = "") -> str:
    """The first sentence of a plan."""
    gray = "" if d.color else " of gray"
    return (
        f"data: {train:,} pictures of {d.image_size} x {d.image_size} pixels{gray}, "
        f"{tried:,} of {held_out:,} held-out ones tried each time{more}"
    )


def cells_of(image: int, cell: int, what: str = "cells") -> int:
    """Cells along a picture's side, if they divide it."""
    if image % cell:
        near = [size for size in (image // cell * cell, (image // cell + 1) * cell) if size]
        raise BadInput(
            f"data.image_size is {image} pixels, which {what} of {cell} do not divide: set it to "
            f"{' or '.join(map(str, near))}"
        )
    return image // cell


def check_cells(recipe: Recipe) -> None:
    """Refuse pictures that the cells of a model do not divide."""
    cells_of(recipe.data.image_size, recipe.model.patch_size)
