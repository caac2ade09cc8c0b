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
    """What a model is evaluated on.

    Attributes:
        run: The folder of the run.
        recipe: The recipe of the run. To evaluate on files of your own, change its held-out files.
        split: The split of a built-in corpus.
        own: Whether the data are your own, and not those that training held out.
        rows: Rows in a batch.
        track: Hands on rows one by one, to show progress.
        write: How answers are written; None: greedily.
        decoding: The same in words, for the signature.

    Example:
        >>> from pathlib import Path
        >>> from heedful.runs.finished import read_run
        >>> from heedful.tasks import find_task
        >>> request = EvaluationRequest(Path("runs/choose"), read_run("runs/choose")[0])
        >>> with torch.no_grad():
        ...     measured = find_task("choose").measure(heedful.load("runs/choose").model, request)
        >>> measured.examples, sorted(measured.metrics)
        (18, ['accuracy', 'loss'])
    """

    run: Path
    recipe: Recipe
    split: str = "valid"
    own: bool = False
    rows: int = 32
    track: Track = silently
    write: WriteAnswers | None = None
    decoding: str = "greedy"

    def vocab(self) -> Vocab:
        """The run's vocabulary, if it is one of heedful's own."""
        return read_vocab(self.run / TOKENIZER)


@dataclass(frozen=True)
class Measured:
    """What an evaluation found.

    Attributes:
        examples: Number of examples.
        unit: What an example is, in the plural.
        metrics: The figures by name, such as "loss" and "bleu".
        per: What the loss is a mean over.
        loss_in: Unit of the loss.
        intervals: 95 % intervals of some figures.
        baselines: Figures without learning, each with what reaches it.
        signature: How figures were computed.
        details: What is no single number, such as a confusion matrix.
        counts: Counts of the data.
        report: Bad lines.
        lines: Answers, one for each line of the input.
        beside: Figures of another form of the model.

    Example:
        >>> Measured(examples=100, unit="texts", metrics={"accuracy": 0.75}).metrics["accuracy"]
        0.75
    """

    examples: int
    unit: str
    metrics: dict[str, float]
    per: str = "token"
    loss_in: str = "nats"
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    baselines: dict[str, tuple[str, float]] = field(default_factory=dict)
    signature: dict[str, str] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    lines: list[str] = field(default_factory=list)
    beside: dict[str, dict[str, float]] = field(default_factory=dict)


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
