"""The data of classification: rows of texts and labels from tables, and their tokens on disk."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from ..corpora.phrasebook import labels as phrasebook_labels
from ..data.lines import TABLE_LINE, judged_lines
from ..data.report import Fault, Report
from ..data.store import Store, write_store
from ..data.tables import cells, is_json, objects, read_header
from ..data.vocab import groups
from ..errors import BadInput
from ..files import inside, one_line, read_json, write_json
from ..interop.run_folder import LABELS
from ..models import nearest
from ..models.base.settings import Part, Range
from .origin import Origin, vocabulary
from .recipe.choices import DataSize
from .recipe.settings import (
    BatchTokens,
    EmaDecay,
    FineTuning,
    LearningRate,
    Recipe,
    Schedule,
    Steps,
    TableSettings,
    WarmupSteps,
)
from .spelling import id_limit, keep_unknown, with_unknown
from .task import VocabLike, own_vocabulary


@dataclass(frozen=True)
class ClassifyData(TableSettings):
    """Texts, or pairs of texts, and their labels."""

    table: Annotated[
        str, "table with the columns text (or sentence) and label, tab-separated or JSON lines"
    ] = ""
    text_column: Annotated[str, 'column of the text; "": "sentence" or "text"'] = ""
    pair_column: Annotated[str, "column of a second text, read together with the first"] = ""
    label_column: Annotated[str, "column of the label"] = "label"
    label: Annotated[Literal["number", "tense", "mood", "translation"], "phrasebook: what to tell apart"] = (
        "number"
    )
    both_orders: Annotated[bool, "by a decoder: read pairs in both orders (similarity)"] = False


TEXT_COLUMNS = ("sentence", "text")
MOST_LABELS = 10_000  # more are texts, or numbers to be predicted


def texts_of(d: ClassifyData) -> Iterator[str]:
    """What a vocabulary is learned from."""
    for row in rows_of(d, "train", Report(d.bad_lines)):
        yield from filter(None, (row.first, row.second))


FIELDS = {"first": "texts", "second": "the texts they are paired with", "label": "numbers of their labels"}


def tokenized(recipe: Recipe, folder: Path, vocab: VocabLike, labels: list[str], report: Report) -> Store:
    """The training rows as numbers, made once and kept in the run's folder."""
    if folder.is_dir():
        return Store.open(folder, vocab.hash)
    number = {label: i for i, label in enumerate(labels)}

    def rows() -> Iterator[dict[str, list[int]]]:
        table = rows_of(recipe.data, "train", report)
        for some in groups(table, lambda row: len(row.first) + len(row.second)):
            for row, (a, b) in zip(some, encoded(vocab, some), strict=True):
                yield {"first": a, "second": b, "label": [number[row.label]]}
        keep_unknown(vocab, folder.parent)

    about = {"vocab": vocab.hash, "corpus": recipe.data.corpus, "table": recipe.data.table}
    size = id_limit(vocab, max(vocab.size, len(labels)))
    return write_store(folder, FIELDS, rows(), size, about)


def encoded(vocab: VocabLike, rows: Sequence[TextRow]) -> list[tuple[list[int], list[int]]]:
    """Token ids of both texts of each row."""
    firsts, seconds = (
        vocab.encode_batch([getattr(row, side) for row in rows]) for side in ("first", "second")
    )
    return list(zip(firsts, seconds, strict=True))


@dataclass(frozen=True)
class TextRow:
    """A line of a table."""

    line: int
    first: str
    second: str
    label: str
    number: int = -1  # of the label


def check_tables(d: ClassifyData) -> None:
    """Refuse data unless there are tables to learn from and to evaluate by, or the corpus phrasebook."""
    if d.corpus and d.pair_column:
        raise BadInput(
            "data.pair_column names a column of a table: for pairs of --corpus phrasebook, give "
            "data.label=translation"
        )
    if not d.corpus and d.label != ClassifyData.label:
        raise BadInput("data.label is for --corpus phrasebook: a table's label is its data.label_column")
    if not d.corpus and not (d.table and d.valid_table):
        raise BadInput(
            "give --data and --valid-data, files of texts and labels to learn from and to judge by, or "
            "--corpus phrasebook"
        )


def has_pairs(d: ClassifyData) -> bool:
    """Whether a row has two texts."""
    return d.label in phrasebook_labels.PAIRED if d.corpus else bool(d.pair_column)


def rows_of(d: ClassifyData, split: str, report: Report) -> Iterator[TextRow]:
    """The good rows of a split with their lines; an unpaired text has an empty second one."""
    if d.corpus:
        found = phrasebook_labels.labeled(split, d.label)
        return (TextRow(line, *row) for line, row in enumerate(found, 1))
    return table_rows(d, d.table if split == "train" else d.valid_table, report)


def table_rows(d: ClassifyData, path: str, report: Report) -> Iterator[TextRow]:
    """The good rows of a table."""
    columns = [text_column(d, path), *([d.pair_column] if d.pair_column else []), d.label_column]
    lines = enumerate(judged_lines(path, TABLE_LINE), 1)
    read = objects(path, columns) if is_json(path) else cells(path, columns, lines)
    for number, line in lines:
        row = line if isinstance(line, Fault) else read(line)
        if isinstance(row, Fault):
            report.bad(path, number, row)
        else:
            yield TextRow(number, row[0], row[1] if d.pair_column else "", row[-1])


def text_column(d: ClassifyData, path: str) -> str:
    """The column named in the recipe, or the one with a usual name."""
    if d.text_column:
        return d.text_column
    names = columns_of(path)
    found = [name for name in TEXT_COLUMNS if name in names]
    if len(found) != 1:
        usual = " or ".join(f'"{name}"' for name in TEXT_COLUMNS)
        why = f"no column {usual}" if not found else f"both columns {usual}"
        raise BadInput(
            one_line(f"{path} has {why}: name one of {', '.join(names)} by --set data.text_column=NAME")
        )
    return found[0]


def columns_of(path: str) -> list[str]:
    """The names in a table's header, or in its first object."""
    lines = enumerate(judged_lines(path, TABLE_LINE), 1)
    if not is_json(path):
        return read_header(path, lines)
    for _, line in lines:
        try:
            found = json.loads(line) if isinstance(line, str) else None
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return [str(name) for name in found]
    return []


def read_labels(recipe: Recipe, folder: Path) -> tuple[list[str], list[int]]:
    """The labels of the training file, sorted, and how often each occurs; kept in the run's folder."""
    if (folder / LABELS).is_file():
        found = read_json(inside(folder, LABELS), 1 << 24)
        return list(found), list(found.values())
    d = recipe.data
    report = Report(d.bad_lines)
    counts = Counter(row.label for row in rows_of(d, "train", report))
    if len(counts) < 2:
        only = "no row" if not counts else f'no label but "{next(iter(counts))}"'
        raise BadInput(
            one_line(
                f"{d.table} has {only} in its column {d.label_column}: at least two are needed "
                f"({report.sentence()})"
            )
        )
    if len(counts) > MOST_LABELS:
        raise BadInput(
            one_line(
                f"{d.table} has {len(counts):,} different labels in its column {d.label_column}: is it the "
                "right one?"
            )
        )
    write_json(folder / LABELS, {label: counts[label] for label in sorted(counts)})
    return sorted(counts), [counts[label] for label in sorted(counts)]


def held_out_rows(recipe: Recipe, labels: list[str], report: Report, split: str = "valid") -> list[TextRow]:
    """The rows of a held-out split; a label unknown to training is refused: no answer could be right."""
    d, number = recipe.data, {label: i for i, label in enumerate(labels)}
    rows = []
    for row in rows_of(d, split, report):
        if row.label not in number:
            place = f"{d.valid_table}:{row.line}"
            raise BadInput(
                one_line(f'{place}: {d.table} has no label "{row.label}"{nearest(row.label, labels)}')
            )
        rows.append(replace(row, number=number[row.label]))
    if not rows:
        raise BadInput(one_line(f"{d.valid_table} has no row to judge the model by"))
    return rows


@dataclass(frozen=True)
class ClassifyTraining(FineTuning):
    steps: Steps = 1000
    batch_tokens: BatchTokens = 2048
    learning_rate: LearningRate = 5e-4
    warmup_steps: WarmupSteps = 100
    schedule: Annotated[Schedule, "learning rate after the warm-up"] = "linear"
    label_smoothing: Annotated[Part, "share of the target spread over all labels"] = 0.1
    ema_decay: EmaDecay = 0.999
    lm_loss_weight: Annotated[
        float, Range(0, 1000), "weight of the auxiliary language-modeling loss, from a decoder (GPT-1)"
    ] = 0.5
    mix_l2: Annotated[float, Range(0, 1000), "L2 penalty on the weights of ELMo's mix, from an elmo"] = 0.001


@dataclass(frozen=True)
class LabeledTexts:
    """What was read: labels, texts as tokens, held-out texts, and the model to start from."""

    labels: list[str]
    counts: list[int]
    vocab: VocabLike
    train: Store
    held_out: list[TextRow]
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        tokens = int((self.train.lengths("first") + self.train.lengths("second")).sum())
        return DataSize(len(self.train), tokens, "rows")


def read(recipe: Recipe, folder: Path, origin: Origin | None, say: Callable[[str], None]) -> LabeledTexts:
    """Read the labels, learn or take over a vocabulary, and tokenize."""
    d = recipe.data
    check_tables(d)
    report = Report(d.bad_lines)
    labels, counts = read_labels(recipe, folder)
    vocab = vocabulary(folder, origin) if origin else own_vocabulary(recipe, folder, texts_of(d))
    vocab = with_unknown(vocab, folder) if (folder / "data").is_dir() else vocab
    train = tokenized(recipe, folder / "data", vocab, labels, report)
    held_out = held_out_rows(recipe, labels, report)
    if report.counts:
        say(report.sentence())
    return LabeledTexts(labels, counts, vocab, train, held_out, origin)
