"""The report of a claim on a model of one's own: for a terminal, as JSON, and with a figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...certify.certificate import finite
from ...errors import BadInput
from ...files import one_line, write_json, write_text
from ...inside.look.drawing import Drawing, Pictured
from ...models.base.shells import shells_of
from ...parts.positions.base import NoPosition, Position
from ...runs.folder import make_folders
from ...tasks.student import LEVEL, mean_interval
from ..claim import combined
from ..report import FIGURE, REPORT
from ..rules import CONTRADICTED, EXACT, INCONCLUSIVE, SUPPORTED, Ruling, chance_beyond, ends

if TYPE_CHECKING:
    from ...use.model import Model

SHOWN = 16  # rows of numbers in a terminal


@dataclass(frozen=True)
class TriedStatement:
    """One statement about the model, and what its numbers say of it."""

    says: str
    verdict: str
    why: str
    control: bool = False  # shows that the measurement works here: if it fails, all is inconclusive


@dataclass(frozen=True, eq=False)
class OwnModelReport(Pictured):
    """A claim, and what one model says of it."""

    name: str  # of the claim
    model: str  # its folder
    asked: str
    statements: tuple[TriedStatement, ...]
    finding: str  # the verdict in plain words
    measured: str  # on what
    rows: str  # what a row of the numbers is
    numbers: Mapping[str, Mapping[str, float]]  # {row: {measure: value}}
    drawing: Drawing = field(repr=False)
    shown: tuple[str, ...] | None = None  # the measures that a terminal shows; None: all of them
    letter: str = ""
    says: str = ""  # what the claim says
    lecture: str = ""

    @property
    def verdict(self) -> str:
        """One word of `rules.VERDICTS`, from all statements."""
        return combined([(each.control, each.verdict) for each in self.statements])

    def picture(self) -> Drawing:
        return self.drawing

    def as_json(self) -> dict[str, Any]:
        """What report.json says. Infinite numbers are null."""
        said = {
            "name": self.name,
            "letter": self.letter,
            "model": self.model,
            "verdict": self.verdict,
            "says": self.says,
            "lecture": self.lecture,
            "asked": self.asked,
            "summary": self.finding,
            "statements": [
                {"says": each.says, "verdict": each.verdict, "why": each.why, "control": each.control}
                for each in self.statements
            ],
            "measured": self.measured,
            "numbers": {row: dict(values) for row, values in self.numbers.items()},
        }
        return finite(said)

    def text(self) -> str:
        """The report for a terminal."""
        lines = [f"{self.letter}  {self.name} on {one_line(self.model)}: {self.verdict}".strip()]
        if self.says:
            lines.append(f"   claim        {self.says} ({self.lecture})")
        lines.append(f"   question     {self.asked}")
        for each in self.statements:
            control = " (control)" if each.control else ""
            lines += [f"   {each.verdict:<12} {each.says}{control}", f"   {'':<13}{each.why}"]
        lines += [f"   verdict      {self.finding}", f"   measured     {self.measured}"]
        table = self.table()
        return "\n".join([*lines, "", *table] if table else lines)

    def table(self, most: int = SHOWN) -> list[str]:
        """The numbers, a line for each row."""
        names = list(dict.fromkeys(name for values in self.numbers.values() for name in values))
        names = [name for name in names if self.shown is None or name in self.shown]
        if not names:
            return []
        head = [self.rows, *names]
        body = [
            [row, *(f"{values[name]:.3g}" if name in values else "" for name in names)]
            for row, values in list(self.numbers.items())[:most]
        ]
        wide = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
        lines = [
            "   " + "  ".join([line[0].ljust(wide[0]), *map(str.rjust, line[1:], wide[1:])]).rstrip()
            for line in [head, *body]
        ]
        left_out = len(self.numbers) - len(body)
        return [*lines, f"   and {left_out} more; --json has all"] if left_out else lines


def write_tried(folder: Path, report: OwnModelReport) -> list[Path]:
    """report.json and figure.svg."""
    make_folders(folder)
    write_text(folder / FIGURE, report.picture().svg())
    write_json(folder / REPORT, report.as_json())
    return [folder / REPORT, folder / FIGURE]


# What the six claims share.


def refusal(claim: str, model: Model, why: str) -> BadInput:
    """A claim does not apply to a model, for a reason."""
    return BadInput(one_line(f"{claim} does not apply to {model.folder}: {why}"))


def schemes_of(model: Model) -> list[Position]:
    """All the ways in which positions enter a model, those at its input first."""
    modules = (module for shell in shells_of(model.model).values() for module in shell.modules())
    return [one for one in modules if isinstance(one, Position) and not isinstance(one, NoPosition)]


def held(says: str, largest: float, tolerance: float, what: str) -> TriedStatement:
    """An identity: a difference is at most its tolerance, if it is a number at all."""
    why = f"{what} at most {largest:.1e} (tolerance {tolerance:g})"
    return TriedStatement(says, EXACT if largest <= tolerance else CONTRADICTED, why)


def directed(differences: Sequence[float], unit: str, margin: float = 0.0) -> Ruling:
    """Whether a mean lies above a margin: t-test at 5 %. unit: what a difference is of, such as texts."""
    if not all(map(math.isfinite, differences)):
        return Ruling(INCONCLUSIVE, f"not all numbers of {len(differences)} {unit} are finite")
    p, mean = chance_beyond(differences, margin), statistics.fmean(differences)
    interval = ends(*mean_interval(differences))
    why = f"mean difference {mean:.3g} over {len(differences)} {unit}, {interval}, margin {margin:g}"
    if p >= LEVEL:
        return Ruling(INCONCLUSIVE, why, p)
    return Ruling(SUPPORTED if mean > margin else CONTRADICTED, why, p)
