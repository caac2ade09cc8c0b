"""Shades of text: a heat map for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from .drawing import largest
from .shapes import Table

SHADES = "·░▒▓█"  # from next to nothing to the most; what a mask hides is blank


def shades(
    weights: Table,
    rows: Sequence[str],
    columns: Sequence[str],
    width: int = 100,
    allowed: Sequence[Sequence[bool]] | None = None,
) -> str:
    """A map for a terminal of so many characters; beside each row, where its largest weight is.

    TextLabel stand above their columns; where there is no room for that, they are written downwards.
    """
    most, left = largest(weights), max(map(columns_of, rows), default=0)
    ends = [best_of(row, columns) for row in weights]
    room = width - left - 1 - max(map(columns_of, ends), default=0) - 2
    across = [max(3, columns_of(word)) + 1 for word in columns]
    upright = sum(across) > room
    if upright:
        across = [2] * len(columns)
    fitting = max(1, min(len(columns), room // 2)) if upright else len(columns)
    lines = [" " * (left + 1) + line for line in heads_of(columns[:fitting], across, upright)]
    for j, (word, row) in enumerate(zip(rows, weights, strict=True)):
        cells = [
            shade(weight / most, allowed is None or allowed[j][i], across[i], 0 if upright else 1)
            for i, weight in enumerate(row[:fitting])
        ]
        lines.append(f"{' ' * (left - columns_of(word))}{word} {''.join(cells)} {ends[j]}".rstrip())
    if fitting < len(columns):
        lines.append(f"({len(columns) - fitting} more columns: the picture has them)")
    return "\n".join(lines)


def best_of(row: Sequence[float], columns: Sequence[str]) -> str:
    if not row or max(row) <= 0:
        return ""
    place = max(range(len(row)), key=lambda i: row[i])
    return f"{row[place]:.2f} {columns[place]}"


def heads_of(columns: Sequence[str], across: Sequence[int], upright: bool) -> list[str]:
    """The words above the columns: side by side, or each written downwards."""
    if not upright:
        return ["".join(padded(word, wide) for word, wide in zip(columns, across, strict=False)).rstrip()]
    tall = max(map(len, columns), default=0)
    letters = [f"{word:>{tall}}" for word in columns]
    return ["".join(padded(word[i], 2) for word in letters).rstrip() for i in range(tall)]


def shade(share: float, seen: bool, width: int, gap: int) -> str:
    """A cell of so many characters; next to nothing is a single dot."""
    level = round(min(1.0, max(0.0, share)) * (len(SHADES) - 1))
    filled = SHADES[level] * (width - gap if level else 1) if seen else ""
    return f"{filled:<{width}}"


def columns_of(text: str) -> int:
    """Places that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def padded(text: str, width: int) -> str:
    return text + " " * max(0, width - columns_of(text))
