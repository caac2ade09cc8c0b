"""A task turns a recipe into a job: all that training needs. Helpers that the tasks share follow below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.report import Report
from ..data.vocab import Vocab, read_vocab, train_vocab
from ..errors import BadInput
from ..files import one_line, write_text
from ..parts.lora import Lora
from ..train.loop import Batch
from ..train.loss import Loss
from .recipe.settings import DataSettings, Recipe

T = TypeVar("T")


class VocabLike(Protocol):
    """What a task asks of a vocabulary: heedful's own (`Vocab`), or one that came with a model."""

    kind: str
    size: int
    pad: int
    bos: int
    eos: int
    cls: int
    sep: int

    @property
    def hash(self) -> str: ...

    def encode_batch(self, texts: list[str]) -> list[list[int]]: ...

    def decode(self, ids: Iterable[int]) -> str: ...


class Batches(Protocol):
    """The micro-batches of a step for one process of several: a pure function of these three numbers."""

    def __call__(self, step: int, rank: int = 0, world: int = 1) -> Sequence[Batch]: ...


class Carried(Protocol):
    """What a step leaves to the next one beside weights: part of the state that is saved."""

    def tensors(self) -> dict[str, Tensor]:
        """All of it, as it is after the last step."""

    def load(self, tensors: dict[str, Tensor], steps: int) -> None:
        """Go on after so many steps."""


class Tuning(Protocol):
    """What of a model learns; the rest stays as it came."""

    def arrange(self, model: nn.Module) -> None:
        """Hold fast what is not to learn, and put in what is."""

    @property
    def lora(self) -> Lora | None:
        """The adapters, if there are any."""


@dataclass(frozen=True)
class Job:
    """What a task makes of a recipe and its data."""

    task: str
    architecture: str  # the file in heedful/models
    config: Any
    vocab: VocabLike | None  # of a model that reads words
    batches: Batches
    steps_per_epoch: int
    loss: Callable[[Any, Any], Loss]  # of the model and a batch
    evaluate: Callable[[Any], dict[str, float]]  # on held-out data; "loss" is what best is judged by
    show: Callable[[Any], list[str]]  # a few examples, each a text to read
    baselines: dict[str, tuple[str, float]] = field(default_factory=dict)  # what scores so without learning
    plan: list[str] = field(default_factory=list)  # sentences about the data, for before the first step
    held_out: int = 0  # rows that an evaluation tries, where it tries rows
    labels: int = 0  # of a decoder that is to tell them apart: its head is no part of the architecture
    head_dropout: float | None = None  # before that head
    begin: Callable[[nn.Module], None] | None = None  # puts weights that are there into a new model
    tuning: Tuning | None = None  # what of such a model learns, if not all of it
    special: dict[str, int] = field(
        default_factory=dict
    )  # tokens with a meaning, of a vocabulary that came along
    facts: dict[str, Any] = field(default_factory=dict)  # what else the result depends on, for the recipe
    carried: Carried | None = None  # what the loss carries from step to step
    steady: bool = False  # batches all have one shape, and their loss never waits for the device


def own_vocabulary(recipe: Recipe, folder: Path, texts: Iterator[str]) -> Vocab:
    """The vocabulary in the run's folder; if there is none yet, one that is learned from the texts."""
    tokenizer, d = folder / "tokenizer.json", recipe.data
    if tokenizer.is_file():
        return read_vocab(tokenizer)
    vocab = train_vocab(d.tokenizer, texts, d.vocab_size, d.lowercase)
    write_text(tokenizer, vocab.to_json())
    return vocab


def pad(rows: Sequence[np.ndarray | list[int]], filler: int) -> Tensor:
    """Rows of unequal length as one tensor."""
    longest = max((len(row) for row in rows), default=0)
    table = np.full((len(rows), max(1, longest)), filler, dtype=np.int64)
    for out, row in zip(table, rows, strict=True):
        out[: len(row)] = row
    return torch.from_numpy(table)


def describe_data(train: str, tried: int, there: int, padding: float) -> str:
    """A sentence about the examples; of the held-out ones, perhaps not all are tried each time."""
    some = f" ({tried:,} of them tried each time)" if tried < there else ""
    return f"data: {train}, {there:,} held out{some}, {padding:.0%} of a batch is padding"


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of at most `size` items."""
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def shortened(text: str, most: int) -> str:
    """A text to show, cut after so many characters."""
    return text if len(text) <= most else f"{text[:most]}..."


def check_tables(d: DataSettings, task: str, what: str) -> None:
    """Refuse a task's data unless there are tables to learn from and to evaluate by, or the corpus facts."""
    if d.corpus and d.corpus != "facts":
        raise BadInput(f'{task} has no built-in corpus "{d.corpus}"; it has facts')
    if not d.corpus and not (d.table and d.valid_table):
        files = f"--data and --valid-data, files of {what} to learn from and to judge by"
        raise BadInput(f"give {files}, or --corpus facts")


def read_held_out(rows: Iterable[T], d: DataSettings, what: str, report: Report) -> list[T]:
    """All held-out rows; if there are none, the file is named, and what was dropped of it."""
    found = list(rows)
    if not found:
        none = f"no {what} to judge the model by ({report.sentence()})"
        raise BadInput(one_line(f"{d.valid_table} has {none}"))
    return found


def not_empty(items: Iterable[T], why: Callable[[], str]) -> Iterator[T]:
    """The same items; if there are none, an error says why."""
    some = False
    for item in items:
        some = True
        yield item
    if not some:
        raise BadInput(one_line(why()))


def spread(rows: list[T], most: int) -> list[T]:
    """At most so many rows from all over the file, which may be sorted by label."""
    if not most or len(rows) <= most:
        return rows
    return [rows[i] for i in np.linspace(0, len(rows) - 1, most).astype(int)]


def label_predictions(
    scored: Iterable[tuple[Tensor, Tensor]],
) -> tuple[list[int], list[int], float]:
    """(labels found, right labels, mean loss) of batches of (scores [B, labels], right labels [B])."""
    found: list[int] = []
    right: list[int] = []
    nll = 0.0
    for scores_BL, labels_B in scored:
        nll += float(F.cross_entropy(scores_BL, labels_B, reduction="sum"))
        found += scores_BL.argmax(-1).tolist()
        right += labels_B.tolist()
    return found, right, nll / max(1, len(right))
