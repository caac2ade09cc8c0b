"""The picture of a comparison: a line for each variant, with its seeds, its mean and its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..bench.plot import line, text
from ..inside.look.charts import GRID, round_numbers
from ..inside.look.shapes import FAINT, FONT, INKS, MARGIN, SMALL, width_of
from ..inside.look.svg import clean, number, of, svg_file
from ..tasks.evaluation import LOWER_IS_BETTER, SHOWN
from .report import SAME, VariantRow
from .significance import TEST

WIDTH, STEP = 460, 34  # of the field, and from one variant to the next
SURE, UNSURE = INKS[0], (118, 118, 118)  # worse than the best for sure, or not
BEST = INKS[1]


def plot(rows: Sequence[VariantRow], what: str) -> str:
    """An SVG; what: what was compared."""
    title = f"{what}: {finding(rows)}"
    there = [row for row in rows if row.figures]
    shown, form = SHOWN[rows[0].metric]
    left = MARGIN + max((width_of(row.name, FONT) for row in there), default=0) + 20
    top = MARGIN + FONT + 34
    shapes = [text(MARGIN, MARGIN + FONT + 2, title, FONT + 2, bold=True)]
    bottom = top + STEP * len(there)
    if there:
        ends = round_numbers([number for row in there for number in reach(row)], 7)

        def place(value: float) -> float:
            return left + (value - ends[0]) / (ends[-1] - ends[0]) * WIDTH

        for value in ends:
            shapes.append(line(place(value), top, place(value), bottom, GRID))
            shapes.append(text(place(value), bottom + 16, form.format(value), SMALL, "middle", FAINT))
        for i, row in enumerate(there):
            shapes += drawn(row, left, top + (i + 0.5) * STEP, place)
    better = "lower" if rows[0].metric in LOWER_IS_BETTER else "higher"
    below = [
        f"{shown}, {better} is better. Circles: seeds. Diamond and bar: mean and its 95 % interval.",
        *wrapped(f"Gray: {SAME} from the best ({TEST})."),
    ]
    shapes += [
        text(MARGIN, bottom + 42 + 16 * i, told, SMALL + 1, fill=FAINT) for i, told in enumerate(below)
    ]
    width = max(left + WIDTH + 3 * MARGIN, 2 * MARGIN + 1.12 * width_of(title, FONT + 2))
    return svg_file(shapes, width, bottom + 42 + 16 * len(below), title)


def finding(rows: Sequence[VariantRow]) -> str:
    """Which variant is best, and how many others are worse by more than chance."""
    name = SHOWN[rows[0].metric][0]
    best = next((row.name for row in rows if row.verdict == "best"), None)
    if best is None:
        return name
    worse = sum(bool(row.to_best and row.to_best.distinguishable) for row in rows)
    return f"{best} has the best {name}; {worse} of {len(rows) - 1} others are worse"


def reach(row: VariantRow) -> list[float]:
    return [*row.figures.values(), *(row.interval or ())]


def wrapped(words: str, most: int = 96) -> list[str]:
    """Lines of at most so many characters."""
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) + 1 > most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def drawn(row: VariantRow, left: float, y: float, at: Callable[[float], float]) -> list[str]:
    """A variant: its name, the interval as a bar, seeds as circles, the mean as a diamond."""
    color = BEST if row.verdict == "best" else SURE if row.to_best and row.to_best.distinguishable else UNSURE
    shapes = [text(left - 10, y + 4, row.name, FONT, "end")]
    mean, between, ink = row.mean, row.interval, of(color)
    assert mean is not None
    if between is not None:
        a, b = (number(at(end)) for end in between)
        shapes.append(
            f'<line x1="{a}" y1="{number(y)}" x2="{b}" y2="{number(y)}" stroke="{ink}" stroke-width="2"/>'
        )
    for seed, value in row.figures.items():
        told = f"<title>{clean(f'{row.name}, seed {seed}: {value:.4g}')}</title>"
        center = f'cx="{number(at(value))}" cy="{number(y)}"'
        shapes.append(f'<circle {center} r="4" fill="none" stroke="{ink}">{told}</circle>')
    x = at(mean)
    corners = " ".join(f"{number(x + dx)},{number(y + dy)}" for dx, dy in ((0, -6), (6, 0), (0, 6), (-6, 0)))
    told = f"<title>{clean(f'{row.name}: {mean:.4g}, {row.verdict}')}</title>"
    return [*shapes, f'<polygon points="{corners}" fill="{ink}">{told}</polygon>']
