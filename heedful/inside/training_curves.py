"""The curves of a run: what its metrics.jsonl says of every step and evaluation. Reading them needs no torch.

curves = heedful.load("runs/demo").curves()     # in a notebook, a picture
print(curves.text())
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..interop.run_files import METRICS, metrics
from .look.charts import CurveLine, chart
from .look.drawing import Drawing, Pictured, heading
from .look.shapes import FAINT, INKS, MARGIN, SMALL, TextLabel

MOST = 400  # points of a line; more are averaged in groups
WIDE, HIGH, GAP = 300, 170, 34  # pixels of a field, and what is between fields
VALID = "valid_"
BARS = "▁▂▃▄▅▆▇█"
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class TrainingCurves(Pictured):
    """Figures over the steps of a run. It is a picture in a notebook.

    Attributes:
        name: Name of the run.
        figures: (step, figure) of every line of the log, by name: "loss", "rate" and "norm" of steps,
            "valid_loss" and other scores of evaluations.

    Example:
        >>> curves = curves_of("runs/choose")
        >>> curves.steps, [step for step, loss in curves.figures["valid_loss"]]
        (150, [150])
        >>> curves.svg()[:4]
        '<svg'
    """

    name: str
    figures: dict[str, Points] = field(repr=False)

    @property
    def steps(self) -> int:
        """The last step that was logged."""
        return int(max((points[-1][0] for points in self.figures.values() if points), default=0))

    def picture(self) -> Drawing:
        """Losses together, then a field for each held-out score, and the learning rate."""
        picture = Drawing()
        top = heading(picture, f"{self.name}: {self.finding()}\n{self.steps:,} steps")
        loss = [
            CurveLine("training", thinned(self.figures.get("loss", [])), INKS[1], 1.2),
            CurveLine("held-out", self.figures.get(f"{VALID}loss", []), INKS[0], 2.2),
        ]
        scores = [name for name in self.figures if name.startswith(VALID) and name != f"{VALID}loss"]
        fields = [("loss (nats)", loss)]
        fields += [
            (name.removeprefix(VALID).replace("_", " "), [CurveLine("held-out", self.figures[name])])
            for name in scores[:4]
        ]
        if self.figures.get("rate"):
            fields.append(("learning rate", [CurveLine("rate", thinned(self.figures["rate"]), INKS[2])]))
        for i, (title, lines) in enumerate(fields):
            place = MARGIN + i % 2 * (WIDE + 160), top + 4 + i // 2 * (HIGH + 52 + GAP)
            chart(picture, lines, place, (WIDE, HIGH), title, "step", self.steps)
        low = top + 4 + (len(fields) + 1) // 2 * (HIGH + 52 + GAP)
        if len(self.figures.get("loss", [])) > MOST:
            note = f"the training loss is averaged over {group(self.figures['loss'])} steps a point"
            picture.add(TextLabel(MARGIN, low, note, SMALL + 1, fill=FAINT))
        return picture

    def finding(self) -> str:
        """How the held-out loss ended, in a few words; the training loss where nothing was held out."""
        for name, what in ((f"{VALID}loss", "held-out loss"), ("loss", "training loss")):
            if points := self.figures.get(name):
                (first, least), last = min(points, key=lambda point: point[1]), points[-1][1]
                rises = (
                    "" if last <= 1.02 * least or first == points[-1][0] else f", then rises to {last:.3g}"
                )
                return f"the {what} goes from {points[0][1]:.3g} to {least:.3g} at step {first:,.0f}{rises}"
        return "what was logged"

    def text(self, width: int = 60) -> str:
        """Write a line for each figure: its course, its first number and its last.

        Args:
            width: Characters of a course.

        Returns:
            The lines.

        Example:
            >>> print(TrainingCurves("mine", {"loss": [(1, 4.0), (2, 3.0), (3, 2.0)]}).text(width=5))
            mine: 3 steps
            loss  █▅▁    4 → 2
        """
        lines = [f"{self.name}: {self.steps:,} steps"]
        longest = max(map(len, self.figures), default=0)
        for name, points in self.figures.items():
            course = bars([y for _, y in thinned(points, width)])
            lines.append(f"{name:<{longest}}  {course:<{width}}  {points[0][1]:.4g} → {points[-1][1]:.4g}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {"run": self.name, "steps": self.steps, "figures": self.figures}


def curves_of(run: str | Path) -> TrainingCurves:
    """Read the training curves of a run.

    Args:
        run: The folder of the run, which may still be training.

    Returns:
        `TrainingCurves`.

    Raises:
        BadInput: There are no metrics yet.

    Example:
        >>> curves_of("runs/choose").steps
        150
    """
    run = Path(run)
    path, after, figures = run / METRICS, 0, dict[str, Points]()
    while True:
        new = metrics(path, after)
        for row in new.rows:
            add(figures, row)
        if new.cursor == after:
            break
        after = new.cursor
    if not figures:
        raise BadInput(f"{run} has no {METRICS} with figures: curves are there once a run has begun to train")
    return TrainingCurves(run.name or str(run), figures)


def add(figures: dict[str, Points], row: dict[str, Any]) -> None:
    """A line of the log: every finite number of its step, but the count of tokens."""
    step = row.get("step")
    if not isinstance(step, int):
        return
    for name, value in row.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and name not in ("step", "tokens") and math.isfinite(value):
            figures.setdefault(name, []).append((step, value))


def group(points: Points, most: int = MOST) -> int:
    """How many points become one."""
    return -(-len(points) // most)


def thinned(points: Points, most: int = MOST) -> Points:
    """At most so many points: the means of equal groups."""
    n = group(points, most)
    if n <= 1:
        return points
    groups = [points[i : i + n] for i in range(0, len(points), n)]
    return [(some[-1][0], sum(y for _, y in some) / len(some)) for some in groups]


def bars(numbers: list[float]) -> str:
    """Numbers as a row of small bars."""
    low, high = min(numbers), max(numbers)
    return "".join(BARS[round((x - low) / ((high - low) or 1) * (len(BARS) - 1))] for x in numbers)
