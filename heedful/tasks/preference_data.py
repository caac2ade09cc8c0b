"""The pairs of reward and dpo: read, written down by a chat template as instruct writes, tokenized, packed.

Both responses to a prompt stand in one row, as two documents that do not see each other, and other pairs may
follow. The documents of a batch are numbered through: 2 p is the chosen response of its pair p, 2 p + 1 the
rejected one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from ..corpora import instructions
from ..corpora.instructions import Instruction
from ..data.batch import Seen, Tensors
from ..data.conversations import USER, Messages
from ..data.packing import Fitted
from ..data.pairs import read_pairs
from ..data.plan import RowPlan
from ..data.report import Fault, Report
from ..data.store import Store, Tokens, write_store
from ..data.vocab import groups
from ..errors import BadInput
from ..files import one_line
from ..models.base.settings import Part, Range
from ..models.xl import XLConfig
from ..train.loss import NOTHING
from ..train.preference import bradley_terry_loss
from .instruct_data import CORPUS, Apart, ResponseRow, TurnTemplate, template_of, with_end
from .origin import Origin, vocabulary
from .recipe.choices import DataSize
from .recipe.settings import Recipe, TableSettings
from .task import VocabLike, not_empty, own_vocabulary


@dataclass(frozen=True)
class PreferenceData(TableSettings):
    """Prompts, each with a response that people prefer and one that they do not."""

    table: Annotated[str, "JSON lines or a table with prompt, chosen and rejected"] = ""
    max_length: Annotated[
        int, Range(0, 1 << 20), "tokens of a prompt and a response; 0: as many as the model's context"
    ] = 0
    max_response_length: Annotated[int, Range(1, 1 << 20), "tokens of a response, at most"] = 256
    prompt_column: Annotated[str, "key of the prompt"] = "prompt"
    chosen_column: Annotated[str, "key of the preferred response"] = "chosen"
    rejected_column: Annotated[str, "key of the other response"] = "rejected"

    @property
    def columns(self) -> tuple[str, str, str]:
        return self.prompt_column, self.chosen_column, self.rejected_column


WrongPairs = Annotated[Part, "share of pairs that are thought to be the wrong way round (conservative DPO)"]


@dataclass(frozen=True)
class PairRow:
    """Two responses, what was said before them, and for the built-in corpus what its judge knows."""

    before: Messages
    chosen: str
    rejected: str
    instruction: Instruction | None = None

    @property
    def right(self) -> ResponseRow:
        """The response that was preferred."""
        return ResponseRow(self.before, self.chosen, self.instruction)

    @property
    def wrong(self) -> ResponseRow:
        return ResponseRow(self.before, self.rejected, self.instruction)


@dataclass(frozen=True)
class PairTokens:
    """A prompt and both responses with their ends, as tokens."""

    prompt: Tokens
    chosen: Tokens
    rejected: Tokens

    @property
    def sides(self) -> tuple[Tokens, Tokens]:
        return self.chosen, self.rejected

    def fits(self, length: int, longest: int) -> bool:
        """Whether both responses have at most `longest` tokens, and `length` with the prompt."""
        most = max(map(len, self.sides))
        return len(self.prompt) > 0 and most <= longest and len(self.prompt) + most <= length


def rows_of(recipe: Recipe, split: str, report: Report) -> Iterator[PairRow]:
    """The pairs of a split; if there are none, the file is named, and what was dropped of it."""
    d = recipe.data
    if d.corpus == CORPUS:
        for row in instructions.split(split):
            yield PairRow(((USER, row.prompt),), row.response, row.rejected, row)
        return
    path = d.table if split == "train" else d.valid_table
    if not path:
        files = "--data and --valid-data, pairs to learn from and to judge by"
        raise BadInput(f"give {files}, or --corpus {CORPUS}")
    rows = (PairRow(pair.before, pair.chosen, pair.rejected) for pair in read_pairs(path, d.columns, report))
    yield from not_empty(rows, lambda: f"there is no pair in {path} ({report.sentence()})")


def texts_of(template: TurnTemplate, row: PairRow) -> tuple[str, str, str] | Fault:
    """The prompt and both responses as the chat template writes them."""
    right, wrong = template.texts(row.right), template.texts(row.wrong)
    if isinstance(right, Fault) or isinstance(wrong, Fault):
        return right if isinstance(right, Fault) else wrong  # type: ignore[return-value]
    return right[0], right[1], wrong[1]


def tokenized(
    vocab: VocabLike, template: TurnTemplate, rows: Iterable[PairRow], report: Report, path: str
) -> Iterator[tuple[PairRow, PairTokens]]:
    """Rows with their tokens. Reported are those that the template refuses, and those whose responses have
    the same tokens."""
    written = []
    for number, row in enumerate(rows, 1):
        texts = texts_of(template, row)
        if isinstance(texts, Fault):
            report.bad(path, number, texts)
        else:
            written.append((number, row, texts))
    for group in groups(written, lambda one: sum(map(len, one[2]))):
        sides = zip(*(texts for _, _, texts in group), strict=True)
        prompts, *said = ([text.rstrip() if n else text for text in side] for n, side in enumerate(sides))
        ids = zip(vocab.encode_batch(prompts), *map(vocab.encode_batch, said), strict=True)
        for (number, row, _), (prompt, *both) in zip(group, ids, strict=True):
            tokens = PairTokens(prompt, *(with_end(side, vocab.eos) for side in both))
            if tokens.chosen == tokens.rejected:
                why = "the chosen and the rejected response have the same tokens"
                report.bad(path, number, Fault("with equal responses", why))
            else:
                yield row, tokens


# What a run reads


@dataclass(frozen=True)
class PairExamples:
    """What was read: pairs as tokens, held-out ones, and the model to start from, if there is one."""

    folder: Path
    vocab: Any
    template: TurnTemplate
    train: Store
    held_out: list[tuple[PairRow, PairTokens]]
    origin: Origin | None

    @property
    def size(self) -> DataSize:
        sides = ("prompt", "prompt", "chosen", "rejected")
        return DataSize(len(self.train), sum(map(self.train.tokens, sides)), "pairs")


RowsOf = Callable[[Recipe, str, Report], Iterator[PairRow]]


def read(
    recipe: Recipe, folder: Path, origin: Origin | None, say: Any, find_rows: RowsOf = rows_of
) -> PairExamples:
    """Read or generate the pairs, write them down by the chat template, and tokenize."""
    if origin is not None and isinstance(origin.config, XLConfig):
        raise BadInput(
            one_line(f"{origin.folder} remembers what it has read (xl): it cannot be started from yet")
        )
    d, report = recipe.data, Report(recipe.data.bad_lines)
    template = template_of(folder)  # first: whether texts may hold special tokens depends on it
    vocab = vocabulary_of(recipe, folder, origin, template)
    learned = find_rows(recipe, "train", report)
    train = kept_pairs(recipe.data, folder / "data", vocab, template, learned, report)
    rows = find_rows(recipe, "valid", report)
    held_out = list(tokenized(vocab, template, rows, report, d.valid_table))
    if report.counts:
        say(report.sentence())
    if not held_out or not len(train):
        raise BadInput(f"no pair is left to learn from and to judge by ({report.sentence()})")
    return PairExamples(folder, vocab, template, train, held_out, origin)


def vocabulary_of(recipe: Recipe, folder: Path, origin: Origin | None, template: TurnTemplate) -> Any:
    """The vocabulary of the model to start from, or one that is learned from the pairs."""
    if origin is not None:
        return vocabulary(folder, origin)
    texts = (texts_of(template, row) for row in rows_of(recipe, "train", Report(recipe.data.bad_lines)))
    return own_vocabulary(
        recipe, folder, (part for text in texts if isinstance(text, tuple) for part in text)
    )


FIELDS = {"prompt": "what was said before", "chosen": "the preferred response", "rejected": "the other one"}


def kept_pairs(
    d: PreferenceData,
    folder: Path,
    vocab: VocabLike,
    template: TurnTemplate,
    pairs: Iterator[PairRow],
    report: Report,
) -> Store:
    """The tokenized training pairs, made once and kept in the run's folder."""
    if folder.is_dir():
        return Store.open(folder, vocab.hash)
    about: dict[str, Any] = {"vocab": vocab.hash, "corpus": d.corpus, "table": d.table}
    found = tokenized(vocab, template, pairs, report, d.table)
    rows = ({name: getattr(tokens, name) for name in FIELDS} for _, tokens in found)
    return write_store(folder, FIELDS, rows, vocab.size, about)


class StoredPairs(Sequence[PairTokens]):
    """The pairs of a store that fit, without a copy of them in memory."""

    def __init__(self, store: Store, length: int, longest: int) -> None:
        self.store = store
        most = np.maximum(store.lengths("chosen"), store.lengths("rejected"))
        prompts = store.lengths("prompt")
        self.places = np.flatnonzero((prompts > 0) & (most <= longest) & (prompts + most <= length))
        self.left_out = len(store) - len(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, place: Any) -> Any:
        number = int(self.places[place])
        return PairTokens(*(self.store.row(name, number) for name in FIELDS))


def check_fits(kept: Sequence[Any], d: PreferenceData, length: int, split: str) -> None:
    if not len(kept):
        sizes = f"data.max_length ({length} tokens) or data.max_response_length ({d.max_response_length})"
        raise BadInput(one_line(f"no {split} pair is left: all are over {sizes}"))


# Rows


@dataclass(frozen=True)
class PreferenceBatch(Tensors):
    """Pairs in rows, and where each response is answered and ends."""

    tokens_BT: Tensor
    answers_BT: Tensor  # the next token of a response; NOTHING elsewhere
    documents_BT: Tensor  # 2 p and 2 p + 1 of pair p; -1 in the padding
    ends_N: Tensor  # the place of the last token of each document, in all rows one after the other
    ids: tuple[int, ...] = ()  # the numbers of the pairs

    @property
    def count(self) -> int:
        return len(self.ids)

    @property
    def seen(self) -> Seen:
        return Seen(self.count, "pairs")


class PairRows:
    """Pairs in rows of one length. A model that reads across the documents of a row gets one in each."""

    def __init__(self, tokens: Sequence[PairTokens], length: int, packed: bool = True) -> None:
        """length: of a prompt with one response, at most."""
        self.tokens, self.longest, self.packed = tokens, length, packed
        sizes = np.array([[len(one.prompt) + len(side) for side in one.sides] for one in tokens], np.int64)
        sizes = sizes.reshape(-1, 2)
        self.apart: Apart = (
            Fitted(sizes.sum(1), 2 * length) if packed else TwoRows(len(sizes), int(sizes.max(initial=1)))
        )
        self.filled = float(sizes.sum()) / max(1, self.apart.rows * self.tokens_in_row)

    @property
    def tokens_in_row(self) -> int:
        """Places that the pairs of one row take."""
        return self.apart.length * (1 if self.packed else 2)

    def plan(self, batch_tokens: int, seed: int) -> RowPlan:
        return RowPlan(self.apart.rows, max(1, batch_tokens // self.tokens_in_row), seed)

    def batch(self, rows: Sequence[int] | np.ndarray) -> PreferenceBatch:
        """Some rows as a batch."""
        pairs = [self.apart.pieces(int(number)) for number in rows]
        numbers = [number for row in pairs for number in row]
        lines = self.lines(pairs)
        shape = len(lines), self.apart.length
        tokens, answers, documents = (np.full(shape, value) for value in (0, NOTHING, -1))
        ends: list[int] = []
        for row, line in enumerate(lines):
            at = 0
            for prompt, response in line:
                first, end = at + len(prompt), at + len(prompt) + len(response)
                tokens[row, at:end] = [*prompt, *response]
                answers[row, first - 1 : end - 1] = response
                documents[row, at:end] = len(ends)
                ends.append(row * shape[1] + end - 1)
                at = end
        tokens_BT, answers_BT, documents_BT = map(torch.from_numpy, (tokens, answers, documents))
        return PreferenceBatch(tokens_BT, answers_BT, documents_BT, torch.tensor(ends), tuple(numbers))

    def lines(self, pairs: list[list[int]]) -> list[list[tuple[Tokens, Tokens]]]:
        """What stands in each row: prompts with their responses."""
        sides = [
            [(one.prompt, side) for one in map(self.tokens.__getitem__, row) for side in one.sides]
            for row in pairs
        ]
        return sides if self.packed else [[side] for row in sides for side in row]


class TwoRows:
    """A pair for every number, whose two responses have a row each."""

    def __init__(self, pairs: int, length: int) -> None:
        self.rows, self.length = pairs, length

    def pieces(self, number: int) -> list[int]:
        return [number]


def by_pair(found_N: Tensor) -> tuple[Tensor, Tensor]:
    """What was found of the chosen responses [P] and of the rejected ones [P]."""
    chosen_P, rejected_P = found_N.view(-1, 2).unbind(1)
    return chosen_P, rejected_P


def pair_losses(chosen_P: Tensor, rejected_P: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """(smoothed, plain) sums of Bradley and Terry's loss of rewards. smoothing: the share of pairs that are
    thought to be the wrong way round (https://ericmitchell.ai/cdpo.pdf)."""
    plain = bradley_terry_loss(chosen_P, rejected_P).sum()
    if not smoothing:
        return plain, plain
    turned = bradley_terry_loss(rejected_P, chosen_P).sum()
    return (1 - smoothing) * plain + smoothing * turned, plain
