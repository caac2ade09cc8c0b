"""Classify: the most likely label, all labels, or the score of each text, pair of texts, or image file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

from ..data.vocab import read_vocab
from ..decode.options import check_batch
from ..decode.prompts import pad
from ..errors import BadInput
from ..files import inside
from ..interop.loaded import ImageEncoder
from ..models.base.shells import DecoderClassifier, Encoder
from ..parts.places import Lengths
from .batches import finite, in_batches
from .results import Label, ScoredLabels, SingleScore
from .reward import RewardReader
from .texts import Tokenized, both, each, usable
from .wording import encoded, judged, refuse_long, tokenize_by, unknown_ids

if TYPE_CHECKING:
    from ..interop.hf.problem import Problem
    from ..tasks.classify import ClassifierKind, TextBatch
    from ..tasks.task import VocabLike
    from .model import Model

Judgment = Label | ScoredLabels | SingleScore


def can(model: Model) -> bool:
    """Whether it has a head for labels, and is not a run that learned to choose with it."""
    if model.kind is ImageEncoder:
        return bool({"classify", "classify_mean"} & set(model.output_heads))
    head = model.kind is DecoderClassifier or (model.kind is Encoder and "classify" in model.output_heads)
    return head and model.task != "choose"


@overload
def classify(  # type: ignore[overload-overlap]
    model: Model, texts: str, seconds: str | None = None, *, batch: int = 32
) -> Judgment: ...
@overload
def classify(
    model: Model, texts: Iterable[str], seconds: Iterable[str] | None = None, *, batch: int = 32
) -> list[Judgment]: ...
def classify(
    model: Model, texts: str | Iterable[str], seconds: str | Iterable[str] | None = None, *, batch: int = 32
) -> Judgment | list[Judgment]:
    """Label texts, pairs of texts, or pictures.

    A run cuts what is longer than the texts it was trained on, as it was cut in training.

    Args:
        texts: A string, or several; for a model of images, the names of files.
        seconds: One for each text, if the model reads pairs.
        batch: Texts computed at once.

    Returns:
        One result for a string, a list for several. It is a `Label` if exactly one label is right,
        `ScoredLabels` if several can be right, and a `SingleScore` if the model gives only a number.

    Raises:
        BadInput: The model has no labels, or reads pairs and `seconds` is missing.

    Example:
        >>> label = heedful.load("runs/classify").classify("Did the old king eat")
        >>> label, label.probability > 0.9, sorted(label.probabilities)
        ('question', True, ['question', 'statement'])
    """
    model.check_can("classify")
    if model.kind is ImageEncoder:
        if seconds is not None:
            raise BadInput(f"{model.folder} reads pictures, one by one: leave out the second ones")
        return each(texts, lambda files: labeled_images(model, files, batch))
    if seconds is None:
        return each(texts, lambda some: labeled(model, encode(model, some, [None] * len(some)), batch))
    return both(texts, seconds, lambda a, b: labeled(model, encode(model, a, b), batch))


def encode(model: Model, firsts: list[str], seconds: Sequence[str | None]) -> list[Tokenized]:
    """Texts, or pairs of them, as the model reads them. None: a text has no second one."""
    model.classifier.check(seconds)
    return model.classifier.encode(firsts, seconds)


def labeled(model: Model, rows: list[Tokenized], batch: int) -> list[Judgment]:
    """The labels of texts, or of pairs of them."""
    classifier = model.classifier
    usable(rows)

    def do(some: list[int]) -> list[Judgment]:
        scores_BL = finite(classifier.scores([rows[i] for i in some]).float(), model.folder)
        return judgments(model.loaded.problem, classifier.labels, scores_BL)

    return in_batches([row.ids for row in rows], batch, do)


def judgments(problem: Problem, labels: Sequence[str], scores_BL: Tensor) -> list[Judgment]:
    """What the scores of each row mean."""
    function, rows = problem.function(len(labels)), problem.values(scores_BL).tolist()
    if len(labels) == 1:
        named = "" if labels[0] in UNNAMED else labels[0]
        return [SingleScore(value, named) for (value,) in rows]
    named_rows = [dict(zip(labels, row, strict=True)) for row in rows]
    if function == "softmax":
        return [label_of(row) for row in named_rows]
    return [ScoredLabels(row, function == "sigmoid") for row in named_rows]


UNNAMED = ("0", "LABEL_0")  # what a label is called that nobody has named


def label_of(probabilities: dict[str, float]) -> Label:
    """The most likely label, with the probabilities of all."""
    by_share = sorted(probabilities.items(), key=lambda pair: -pair[1])
    return Label(by_share[0][0], dict(by_share))


def labeled_images(model: Model, files: list[str], batch: int) -> list[Judgment]:
    """The labels of image files."""
    check_batch(batch)
    found: list[Judgment] = []
    for start in range(0, len(files), batch):
        found += labeled_pixels(model, [model.read_picture(name) for name in files[start : start + batch]])
    return found


@torch.no_grad()
def labeled_pixels(model: Model, pictures: list[np.ndarray]) -> list[Judgment]:
    """The labels of pictures that are ready: pixels [H, W, C], 0 to 255."""
    from ..tasks.image_classify import scores

    weight = next(model.model.parameters())
    names = model.loaded.labels or [str(number) for number in range(model.config.labels)]
    x_BCHW = model.preprocessing.numbers(torch.from_numpy(np.stack(pictures)).to(weight.device))
    scores_BL = finite(scores(model.model, x_BCHW.to(weight.dtype)).float(), model.folder)  # type: ignore[arg-type]
    return judgments(model.loaded.problem, names, scores_BL)


def classifier_of(model: Model) -> RunClassifier | FolderClassifier | RewardReader:
    """How a model reads texts to find their labels."""
    if model.task == "reward":
        return RewardReader(model, FolderClassifier(model))
    return RunClassifier.of(model) if model.own else FolderClassifier(model)


@dataclass(frozen=True)
class RunClassifier:
    """A run that was trained to classify: it reads texts as they were read in training."""

    model: Model
    pairs: bool
    labels: list[str]
    vocab: VocabLike
    kind: ClassifierKind
    make: Callable[..., TextBatch]

    @classmethod
    def of(cls, model: Model) -> RunClassifier:
        from ..tasks.classify import LABELS, model_of, room_of
        from ..tasks.classify_data import has_pairs, read_labels
        from ..tasks.origin import FROM, find_origin, vocabulary

        run, recipe = Path(model.folder), model.recipe
        assert recipe is not None
        for name in (LABELS, FROM) if recipe.train.from_ else (LABELS,):
            inside(run, name)  # what is missing would be made again
        labels, _ = read_labels(recipe, run)
        origin = find_origin(recipe.train.from_, run) if recipe.train.from_ else None
        vocab = vocabulary(run, origin) if origin else read_vocab(run / "tokenizer.json")
        config, kind = model_of(recipe, vocab, origin, len(labels))
        make = partial(kind.collate, vocab, kind.layout, room_of(recipe.data, config.context, vocab))
        return cls(model, has_pairs(recipe.data), labels, vocab, kind, make)

    def check(self, seconds: Sequence[str | None]) -> None:
        """Refuse single texts where it learned from pairs, and pairs where it did not."""
        if self.pairs and not all(seconds):
            raise BadInput(
                f"{self.model.folder} was trained on pairs of texts: give each text its second one"
            )
        if not self.pairs and any(seconds):
            raise BadInput(f"{self.model.folder} was trained on single texts: leave out the second ones")

    def encode(self, firsts: list[str], seconds: Sequence[str | None]) -> list[Tokenized]:
        """Both texts of each row, one after the other."""
        others = [second or "" for second in seconds]
        refuse_long(list(zip(firsts, others, strict=True)))
        rows = zip(tokenize_by(self.vocab, firsts), tokenize_by(self.vocab, others), strict=True)
        return [
            Tokenized(
                a.text,
                a.ids + b.ids,
                a.unknown + b.unknown,
                segments=[0] * len(a.ids) + [1] * len(b.ids),
            )
            for a, b in rows
        ]

    def scores(self, rows: list[Tokenized]) -> Tensor:
        """Scores [B, labels] of some rows."""
        from ..tasks.classify import guesses

        ends = [row.segments.count(0) for row in rows]
        pairs = [(row.ids[:end], row.ids[end:]) for row, end in zip(rows, ends, strict=True)]
        return guesses(self.model.model, self.kind, self.make(pairs, [0] * len(rows)))


class FolderClassifier:
    """A Hugging Face folder with a head for labels, which its config names."""

    def __init__(self, model: Model) -> None:
        self.model = model
        network: Any = model.model
        count = network.linear.out_features if model.kind is DecoderClassifier else model.config.labels
        self.labels = model.loaded.labels or [str(number) for number in range(count)]

    def check(self, seconds: Sequence[str | None]) -> None:
        """Refuse pairs where the model tells no segments apart."""
        known = getattr(self.model.config, "segments", None)  # None: it tells none apart, and minds none
        pairs = any(second is not None for second in seconds)
        if pairs and known and max(self.model.wording.reads.encode("a", "a").type_ids) >= known:
            raise BadInput(f"{self.model.folder} knows one segment only: it cannot read pairs")

    def encode(self, firsts: list[str], seconds: Sequence[str | None]) -> list[Tokenized]:
        """Texts, or pairs of them, with what the tokenizer puts around them."""
        texts = [a if b is None else (a, b) for a, b in zip(firsts, seconds, strict=True)]
        refuse_long(texts)
        tokenizer = self.model.wording.reads
        unknown = unknown_ids(tokenizer)
        rows = []
        others = [second or "" for second in seconds]
        for *pair, one in zip(firsts, others, encoded(tokenizer, texts, True), strict=True):
            places = zip(one.ids, one.offsets, one.sequence_ids, strict=True)
            said = [pair[n][a:b] for number, (a, b), n in places if number in unknown and n is not None]
            words = [word.strip() or word for word in said]
            rows.append(Tokenized(pair[0], one.ids, words, segments=one.type_ids))
        return judged(rows, self.model.model)

    def scores(self, rows: list[Tokenized]) -> Tensor:
        """Scores [B, labels] of some rows."""
        network: Any = self.model.model
        if self.model.kind is DecoderClassifier:
            read = [without_padding(row.ids, self.model.special.get("pad")) for row in rows]
            tokens_BT, lengths_B = pad(read, self.model.device)
            return network(tokens_BT, Lengths(lengths_B))
        tokens_BT, lengths_B = pad([row.ids for row in rows], self.model.device)
        segments_BT, _ = pad([row.segments for row in rows], self.model.device)
        hidden_BTD = network.encoder(tokens_BT, Lengths(lengths_B), segments_BT)
        return network.heads["classify"](hidden_BTD, network.encoder.inputs)


def without_padding(ids: list[int], padding: int | None) -> list[int]:
    """A text up to its last token that is not padding, where Hugging Face's decoders are read. An end token
    may serve as padding too."""
    last = next((n for n in reversed(range(len(ids))) if ids[n] != padding), 0)
    return ids[: last + 1]
