"""How a run of reward reads what it judges: a text as it is, or an instruction and its response."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from ..data.conversations import USER
from ..data.report import Fault
from ..errors import BadInput
from ..files import one_line
from ..tasks.instruct_data import ResponseRow, template_by, with_end
from .texts import Tokenized

if TYPE_CHECKING:
    from .classify import FolderClassifier
    from .model import Model


class RewardReader:
    """A run of reward. The chat template writes an instruction and its response down, as in training."""

    def __init__(self, model: Model, plain: FolderClassifier) -> None:
        """plain: reads texts as they are, with the end token behind them."""
        if model.loaded.chat is None:
            raise BadInput(one_line(f"{model.folder} has no chat template: restore the file of this run"))
        self.model, self.plain, self.labels = model, plain, plain.labels
        self.template = template_by(model.loaded.chat)

    def check(self, seconds: Sequence[str | None]) -> None:
        """Both forms can be judged."""

    def encode(self, firsts: list[str], seconds: Sequence[str | None]) -> list[Tokenized]:
        """Texts, or instructions with their responses, as token ids up to the end."""
        rows = [self.texts(first, second) for first, second in zip(firsts, seconds, strict=True)]
        found = self.plain.encode([a for a, _ in rows], [b for _, b in rows])
        return [
            self.ended(one) if second is not None else one for one, second in zip(found, seconds, strict=True)
        ]

    def texts(self, first: str, second: str | None) -> tuple[str, str | None]:
        if second is None:
            return first, None
        written = self.template.texts(ResponseRow(((USER, first),), second))
        if isinstance(written, Fault):
            raise BadInput(one_line(f"{self.model.folder}: {written.why}"))
        return written[0], written[1].rstrip()

    def ended(self, row: Tokenized) -> Tokenized:
        """Up to the end that the template wrote, if it did."""
        prompt = row.segments.count(0)
        ids = [*row.ids[:prompt], *with_end(row.ids[prompt:], self.model.loaded.special["eos"])]
        return replace(row, ids=ids, segments=row.segments[: len(ids)])

    def scores(self, rows: list[Tokenized]) -> Tensor:
        """Rewards [B, 1]."""
        return self.plain.scores(rows)
