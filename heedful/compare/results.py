"""The result of a comparison, read from its folder: a table and a picture, also in notebooks.

from heedful.compare.results import compared
compared("runs/compare")
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import one_line, present
from ..parts.notebooks import both, framed
from ..tasks import find_task
from .comparison import ModelVariant
from .cost import VariantCost
from .plot import plot
from .report import VariantRow, as_json, report_text, rows_of
from .trials import COMPARISON, Entry, rate_records_of, read_comparison, records_of

PAPER, INK = both("#ffffff", "#16181d"), both("#222222", "#e8eaee")


@dataclass(frozen=True)
class ComparisonResult:
    """All variants of a comparison with their figures, as `compared` reads them.

    Attributes:
        folder: The folder of the comparison.
        task: The task.
        corpus: The built-in corpus; "" for files of your own.
        rows: The variants, the best first: `name`, `mean`, `interval`, `figures` by seed, `verdict`.

    Example:
        >>> ComparisonResult("runs/compare", "lm", "stories", rows=[]).seeds
        0
    """

    folder: str
    task: str
    corpus: str
    rows: list[VariantRow] = field(repr=False)

    @property
    def seeds(self) -> int:
        """How many seeds the variant with most of them has."""
        return max((len(row.records) for row in self.rows), default=0)

    def svg(self) -> str:
        """Every variant with its seeds, mean and interval.

        Returns:
            The text of an SVG file.
        """
        on = f" on {self.corpus}" if self.corpus else ""
        return plot(self.rows, f"{self.task}{on}")

    def text(self) -> str:
        """The table for a terminal.

        Returns:
            The lines.
        """
        return report_text(self.rows, self.seeds, self.task)

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return as_json(self.rows, {"task": self.task, "seeds": self.seeds, "folder": self.folder})

    def _repr_html_(self) -> str:
        colors = f"background:#fff;background:{PAPER};color:#222;color:{INK}"
        style = f"{colors};padding:8px;font-size:11px;margin:0;white-space:pre-wrap"
        return framed(f'{self.svg()}<pre style="{style}">{escape(self.text())}</pre>')


def compared(folder: str | os.PathLike[str], metric: str | None = None) -> ComparisonResult:
    """The result of `heedful compare`, as far as its trials are done.

    Args:
        folder: The folder of the comparison.
        metric: What the variants are ranked by; None: that of the task.

    Returns:
        A `ComparisonResult`: a picture in a notebook, `.text()` in a terminal.

    Raises:
        BadInput: The folder holds no comparison.

    Example:
        >>> compared("runs/demo")
        Traceback (most recent call last):
        ...
        heedful.errors.BadInput: runs/demo holds no comparison: compare.json is missing
    """
    path = Path(folder)
    if not present(path / COMPARISON):
        raise BadInput(one_line(f"{path} holds no comparison: {COMPARISON} is missing"))
    found, done = read_comparison(path), records_of(path)
    asked = found["asked"]
    entries = [
        Entry(ModelVariant(name), one["steps"], VariantCost(**one["weight"]), tuple(one.get("rates", ())))
        for name, one in found["variants"].items()
    ]
    metric = metric or find_task(asked["task"]).metric
    if not any(metric in record.scores for record in done.values()):
        raise BadInput(one_line(f'no trial in {path} has the metric "{metric}" yet'))
    rows = rows_of(entries, [done[key] for key in sorted(done)], metric, rate_records_of(path).values())
    return ComparisonResult(str(path), asked["task"], asked["corpus"], rows)
