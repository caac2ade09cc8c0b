"""Evaluation: what evaluating a finished model asks of its task, and what it gets back. Needs no torch.

Every task has a function `measure(model, asked)`. It reads all of the held-out data, where training tries a
part of it, judges by the same rules, and changes nothing in the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..data.report import Report
from ..data.vocab import Vocab, read_vocab
from ..interop.hf.tokenizer import TOKENIZER
from .metrics import accuracy, accuracy_of_majority, interval, label_details, macro_f1
from .recipe.settings import Recipe

T = TypeVar("T")
MOST_TOKENS = 1 << 14  # of a batch: long sentences go in smaller ones


# Each metric in words and digits, in the order in which they are shown.
SHOWN = {
    "bleu": ("BLEU", "{:.2f}"),
    "chrf": ("chrF", "{:.2f}"),
    "rouge1": ("ROUGE-1", "{:.2f}"),
    "rouge2": ("ROUGE-2", "{:.2f}"),
    "rougeL": ("ROUGE-L", "{:.2f}"),
    "exact": ("exact match", "{:.1%}"),
    "reward": ("reward", "{:.3f}"),
    "score": ("score", "{:.3f}"),
    "kl": ("KL divergence", "{:.3f}"),
    "f1": ("F1", "{:.1%}"),
    "facts": ("facts right", "{:.1%}"),
    "uas": ("UAS", "{:.2%}"),
    "las": ("LAS", "{:.2%}"),
    "accuracy": ("accuracy", "{:.1%}"),
    "margin": ("margin", "{:.3f}"),
    "chosen": ("chosen reward", "{:.3f}"),
    "macro_f1": ("macro F1", "{:.4f}"),
    "next_sentence": ("next sentence", "{:.1%}"),
    "things": ("shapes and colors right", "{:.1%}"),
    "relation": ("relation right", "{:.1%}"),
    "off": ("pixels off by", "{:.4f}"),
    "codes": ("codes in use", "{:,.0f}"),
    "text": ("nats per word", "{:.4f}"),
    "picture": ("nats per cell", "{:.4f}"),
    "loss": ("loss", "{:.4f}"),
    "perplexity": ("perplexity", "{:,.2f}"),
    "forward": ("forward perplexity", "{:,.2f}"),
    "backward": ("backward perplexity", "{:,.2f}"),
    "bits_per_byte": ("bits per byte", "{:.4f}"),
    "unknown": ("unknown tokens", "{:.2%}"),
}


LOWER_IS_BETTER = ("loss", "perplexity", "bits_per_byte", "forward", "backward", "off", "text", "picture")


def format_score(name: str, score: float) -> str:
    """A score as people read it, while it trains and afterwards alike."""
    title, form = SHOWN[name]
    return f"{title} {form.format(score)}"


class Track(Protocol):
    """Hands on items one by one, and may say how far it is."""

    def __call__(self, items: Iterable[T], doing: str) -> Iterator[T]: ...


class WriteAnswers(Protocol):
    """Writes the answers to sources: sentences, articles, or images that are ready for the model."""

    def __call__(self, sources: list[Any]) -> Sequence[str]: ...


def silently(items: Iterable[T], doing: str) -> Iterator[T]:
    """A `Track` that says nothing."""
    return iter(items)


@dataclass(frozen=True)
class EvaluationRequest:
    """What a model is to be judged by."""

    run: Path
    recipe: Recipe  # the run's; the user's own files stand where its held-out ones stood
    split: str = "valid"  # of a built-in corpus
    own: bool = False  # the data are the user's, and not those that training held out
    rows: int = 32  # in a batch
    track: Track = silently
    write: WriteAnswers | None = None  # how answers are written; None: greedily
    decoding: str = "greedy"  # the same for the signature

    def vocab(self) -> Vocab:
        """The run's vocabulary, if it is one of heedful's own."""
        return read_vocab(self.run / TOKENIZER)


@dataclass(frozen=True)
class Measured:
    """What a task found."""

    examples: int
    unit: str  # what an example is, in the plural
    metrics: dict[str, float]
    per: str = "token"  # what the loss is a mean over
    loss_in: str = "nats"  # its unit
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)  # of some metrics, at 95 %
    baselines: dict[str, tuple[str, float]] = field(default_factory=dict)  # what scores so without learning
    signature: dict[str, str] = field(default_factory=dict)  # what figures may be compared with these
    details: dict[str, Any] = field(default_factory=dict)  # what is no single number
    counts: dict[str, int] = field(default_factory=dict)  # of the data
    report: Report = field(default_factory=Report)  # of bad lines
    lines: list[str] = field(default_factory=list)  # answers, one for each line of the input
    beside: dict[str, dict[str, float]] = field(
        default_factory=dict
    )  # the metrics of another form of the model


def measured_labels(
    predicted: tuple[list[int], list[int], float],
    labels: Sequence[str],
    counts: Sequence[int],
    unit: str,
    report: Report,
) -> Measured:
    """A classifier's figures. predicted: (labels found, right labels, loss); unit: what has a label."""
    found, right, loss = predicted
    share = accuracy(found, right)
    return Measured(
        examples=len(right),
        unit=f"{unit}s",
        per=unit,
        metrics={"accuracy": share, "macro_f1": macro_f1(found, right), "loss": loss},
        intervals={"accuracy": interval(share, len(right))},
        baselines={"accuracy": ("always the most frequent label", accuracy_of_majority(counts, right))},
        signature={"macro_f1": "average:macro|labels:found or right|zero_division:0"},
        details=label_details(found, right, labels),
        report=report,
    )


def with_lines(items: Iterable[T], report: Report) -> tuple[list[T], list[int]]:
    """Items, and the line of its file that each stands in, counted from 0 past the bad ones."""
    found: list[T] = []
    lines = []
    for item in items:
        lines.append(len(found) + report.counts.total())
        found.append(item)
    return found, lines


def by_length(lengths: Sequence[int], rows: int, most: int = MOST_TOKENS) -> list[list[int]]:
    """Indices in groups of like length: at most `rows` items and `most` tokens with padding, or one item."""
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not groups or len(groups[-1]) == rows or (len(groups[-1]) + 1) * lengths[i] > most:
            groups.append([])
        groups[-1].append(i)
    return groups
