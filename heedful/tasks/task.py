"""What a task is: `Task`, and the `Job` that it makes of a recipe. Helpers that tasks share follow below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.report import Report
from ..data.vocab import Vocab, read_vocab, train_vocab
from ..errors import BadInput
from ..files import one_line, write_text
from ..interop.run_folder import architecture_of_run, is_run
from ..models import FAMILIES, config_class, family, kind_of, nearest
from ..parts.lora import Lora
from ..train.loss import Loss
from .evaluation import EvaluationRequest, Measured
from .recipe.choices import Choice, DataSize
from .recipe.settings import Recipe, TableSettings
from .recipe.sizes import SIZES, two_thirds

if TYPE_CHECKING:
    from ..train.loop import Batch

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


SAMPLES, LONGEST_SAMPLE = 4, 500  # examples whose outputs a run keeps, and characters of each text


@dataclass(frozen=True)
class WrittenSample:
    """A held-out example, what the model wrote for it, and what was expected."""

    source: str
    output: str
    reference: str
    line: str  # as the log shows it

    def as_json(self) -> dict[str, str]:
        """The three texts, as samples.jsonl has them."""
        texts = {"source": self.source, "output": self.output, "reference": self.reference}
        return {name: cut(text, LONGEST_SAMPLE) for name, text in texts.items()}


def cut(text: str, most: int) -> str:
    """A text of at most so many characters; a longer one ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def sample_count(shown: int) -> int:
    """How many examples a model writes at an evaluation whose log shows so many: 0 asks for none at all."""
    return max(shown, SAMPLES) if shown else 0


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
    # A few examples, each a text to read; what a task writes are samples, which a run also keeps.
    show: Callable[[Any], list[str]] = lambda model: []
    samples: Callable[[Any], list[WrittenSample]] = lambda model: []
    baselines: dict[str, tuple[str, float]] = field(default_factory=dict)  # what scores so without learning
    plan: list[str] = field(default_factory=list)  # sentences about the data, for before the first step
    held_out: int = 0  # rows that an evaluation tries, where it tries rows
    labels: int = 0  # of a decoder that is to tell them apart: its head is no part of the architecture
    head_dropout: float | None = None  # before that head
    head_bias: bool = True  # in that head
    begin: Callable[[nn.Module], None] | None = None  # puts weights that are there into a new model
    tuning: Tuning | None = None  # what of such a model learns, if not all of it
    special: dict[str, int] = field(
        default_factory=dict
    )  # tokens with a meaning, of a vocabulary that came along
    facts: dict[str, Any] = field(default_factory=dict)  # what else the result depends on, for the recipe
    carried: Carried | None = None  # what the loss carries from step to step
    around: Callable[[nn.Module], nn.Module] = lambda model: model  # what learns beside it, and does not last
    figures: Callable[[], dict[str, float]] = dict  # what else is to be logged of the last step
    steady: bool = False  # batches all have one shape, and their loss never waits for the device


class Examples(Protocol):
    """What a task has read: its own dataclass, of which the pipeline knows this."""

    @property
    def size(self) -> DataSize: ...


@dataclass(frozen=True)
class Corpus:
    """A built-in corpus as a task uses it: its held-out splits, and what differs from the task's defaults."""

    splits: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    metric: str = ""  # the figure that decides, where it is another than the task's


@dataclass(frozen=True)
class Starts:
    """What a task can start from (--from), and what differs then."""

    find: Callable[[Recipe, Path, Callable[[str], None]], Any]  # the model to start from, looked at once
    published: Mapping[str, Any] = field(
        default_factory=dict
    )  # settings for a published model, which is large
    own: Mapping[str, Any] = field(default_factory=dict)  # for a run
    lora: Mapping[str, Any] = field(default_factory=dict)  # for adapters beside a published model
    elmo: Mapping[str, Any] | None = None  # for a run of an elmo, whose vectors are read; None: it is not

    def reader(self, folder: str) -> str:
        """The architecture of what is trained; "": that of the folder."""
        return "elmo_reader" if self.elmo is not None and architecture_of_run(Path(folder)) == "elmo" else ""

    def settings(self, folder: str) -> dict[str, Any]:
        if self.reader(folder):
            return dict(self.elmo or {})
        return dict(self.own if is_run(Path(folder)) else self.published)

    def adapter_settings(self, folder: str) -> dict[str, Any]:
        """What differs where only adapters learn."""
        return {} if is_run(Path(folder)) else dict(self.lora)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task: its settings, how it reads data, its loss and its evaluation. `find_task` finds one.

    One pipeline turns any task and recipe into a run: `read`, then choose what is left open, then `job`.

    Attributes:
        name: Its name.
        data: Dataclass of its settings of data.
        train: Dataclass of its settings of training.
        architectures: The architectures it was tried with, the default first, and what differs for each.
        corpora: Its built-in corpora.
        read: From a recipe to examples.
        job: From a recipe and examples to batches, loss and evaluation.
        measure: The figures of a finished model on all held-out data: `Measured`.
        metric: The figure that decides which evaluation is best.
        own_data: Ways to name held-out files, as {option: settings}.
        next: Commands to go on with; {path} is the run.
        starts: What it can start from.
        sizes: Settings of the model by size.
        columns: Columns of a table, which evaluation may name otherwise.
        writes: Whether it gives an answer for each line that it reads.
        precompute: What is computed with a model before the first step.
        foresee: Settings that are chosen before the data are read.
        choose: Settings that are chosen when the data are read.
        settle: Settings that are chosen when the number of steps is known.
        chosen: What these settings are chosen by, for help.
        check: Refuses settings that do not fit together.
        concerns: Whether a setting concerns an architecture.

    Example:
        >>> from heedful.tasks import find_task
        >>> task = find_task("lm")
        >>> task.metric, task.all_architectures()[0], "llama" in task.all_architectures()
        ('loss', 'gpt2', True)
    """

    name: str
    data: type[Any]  # its dataclass of settings
    train: type[Any]
    # The architectures it was tried with, and what differs for each; the first is the default. Any other that
    # builds the same kind of model can be asked for.
    architectures: Mapping[str, Mapping[str, Any]]
    corpora: Mapping[str, Corpus]
    read: Callable[
        [Recipe, Path, Any, Callable[[str], None]], Examples
    ]  # of the model to start from, or None
    job: Callable[[Recipe, Any], Job]
    measure: Callable[[Any, EvaluationRequest], Measured]  # a finished model, on all held-out data
    metric: str  # the figure that decides which evaluation is best
    own_data: tuple[Mapping[str, tuple[str, ...]], ...]  # ways to name held-out files: {option: settings}
    next: tuple[str, ...]  # commands to go on with; {path} is the run
    starts: Starts | None = None  # what it can start from
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: SIZES)
    columns: tuple[str, ...] = ()  # of a table, which evaluation may name otherwise
    writes: bool = False  # an answer for each line that it reads
    # What is computed with a model before the first step, and kept in the run's folder.
    precompute: Callable[[Recipe, Any, torch.device, Callable[[str], None]], None] = (
        lambda recipe, examples, device, say: None
    )
    # Choices before the data are read, when they are, and when the number of steps is known.
    foresee: Callable[[Recipe], Iterable[Choice]] = lambda recipe: ()
    choose: Callable[[Recipe, Any, str], Iterable[Choice]] = lambda recipe, examples, device: ()
    settle: Callable[[Recipe, DataSize], Iterable[Choice]] = lambda recipe, size: ()
    chosen: Mapping[str, str] = field(default_factory=dict)  # {setting: what these choose it by}, for help
    check: Callable[[Recipe], None] = lambda recipe: None  # refuses settings that do not fit together
    concerns: Callable[[str, str], bool] = lambda key, architecture: True  # a setting, this architecture

    def size(self, name: str, architecture: str) -> dict[str, Any]:
        """The settings of a size, or of an architecture's preset."""
        if name in self.sizes:
            found = dict(self.sizes[name])
            if "ffn_width" in found and architecture and getattr(config_class(architecture), "gated", False):
                found["ffn_width"] = two_thirds(found["ffn_width"])
            return {f"model.{key}": value for key, value in found.items()}
        presets = family(architecture).PRESETS if architecture else {}
        if name not in presets:
            raise BadInput(f'there is no size "{name}"{nearest(name, [*self.sizes, *presets])}')
        return {f"model.{key}": value for key, value in asdict(presets[name]).items()}

    def check_architecture(self, name: str) -> str:
        """An architecture that this task can train; others are refused."""
        fitting = self.all_architectures()
        if name not in [*FAMILIES, *fitting]:
            raise BadInput(f'there is no architecture "{name}"{nearest(name, fitting)}')
        if name not in fitting:
            raise BadInput(
                f"{self.name} cannot train the architecture {name}: it can train {', '.join(fitting)}"
            )
        return name

    def all_architectures(self) -> list[str]:
        """The architectures it was tried with, and all others that build the same kind of model.

        Returns:
            Their names, the default first.
        """
        kinds = {kind_of(known) for known in self.architectures}
        others = [known for known in FAMILIES if kind_of(known) in kinds]
        return list(dict.fromkeys([*self.architectures, *others]))

    def started_architecture(self, folder: str, chosen: str | None) -> str:
        """The architecture of a run that starts from a folder: "" is what is there, or what reads it."""
        if self.starts is None:
            raise BadInput(f"{self.name} cannot start from a model: leave out --from")
        reader = self.starts.reader(folder)
        if chosen and chosen != reader:
            raise BadInput(
                "model.architecture cannot be set with --from: it comes with the model to start from"
            )
        return reader

    def metric_for(self, corpus: str) -> str:
        """The figure that decides which evaluation is best."""
        return (self.corpora[corpus].metric if corpus in self.corpora else "") or self.metric

    def corpus_settings(self, corpus: str) -> dict[str, Any]:
        return dict(self.corpora[corpus].settings) if corpus in self.corpora else {}

    def fixed_settings(self, recipe: Recipe) -> dict[str, Any]:
        """What a corpus and a model to start from set, and no choice changes."""
        folder = getattr(recipe.train, "from_", "")
        started = self.tuning_settings({"train.from": folder}) if folder and self.starts is not None else {}
        return self.corpus_settings(recipe.data.corpus) | started

    def adapter_settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What differs where adapters learn."""
        from_ = str(given.get("train.from") or "")
        lora = from_ and given.get("train.tune") == "lora" and self.starts is not None
        return self.starts.adapter_settings(from_) if lora and self.starts is not None else {}

    def tuning_settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What differs where a model is started from."""
        return {} if self.starts is None else self.starts.settings(str(given["train.from"]))


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


def check_tables(d: TableSettings, task: str, what: str) -> None:
    """Refuse a task's data unless there are tables to learn from and to evaluate by, or the corpus facts."""
    if not d.corpus and not (d.table and d.valid_table):
        files = f"--data and --valid-data, files of {what} to learn from and to judge by"
        raise BadInput(f"give {files}, or --corpus facts")


def read_held_out(rows: Iterable[T], d: TableSettings, what: str, report: Report) -> list[T]:
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
