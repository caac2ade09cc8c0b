"""Positions as the Positions page shows them: tables with their axes, and curves by offset."""

from __future__ import annotations

from typing import Any

from ..inside.look.positions import PositionLook
from ..inside.look.sheets import Sheet


def ordered(look: PositionLook) -> dict[str, Any]:
    """All the numbers of a scheme, and beside them what the page draws them with."""
    found = look.as_json()
    sheets = [
        table | axes(sheet, look.trained) for table, sheet in zip(found["tables"], look.sheets, strict=True)
    ]
    return found | {"tables": sheets, "curve": curve(look)}


def axes(sheet: Sheet, trained: int | None) -> dict[str, Any]:
    """The names of rows and columns, and how many rows training can have seen."""
    rows, columns = sheet.size
    seen = rows if sheet.rows else min(rows, trained or rows)
    return {
        "down": list(sheet.rows) or [f"{row}" if row < seen else f"{row} ×" for row in range(rows)],
        "across": [str(column) for column in range(sheet.first, sheet.first + columns)],
        "seen": seen,
    }


def curve(look: PositionLook) -> dict[str, Any]:
    """Scores by offset: of two positions with their spread, or the bias of each head."""
    series: list[dict[str, Any]]
    if look.similarity is None:
        sheet = look.sheets[0]
        series = [{"name": name, "values": row} for name, row in zip(sheet.rows, sheet.numbers, strict=True)]
        x = [sheet.first + n for n in range(sheet.size[1])]
        return {"label": "What each head adds to the score", "x": x, "series": series, "bands": []}
    named = {"mean": look.similarity.mean, "least": look.similarity.low, "greatest": look.similarity.high}
    series = [{"name": name, "values": row, "hue": 0, "faint": name != "mean"} for name, row in named.items()]
    label = "q·k of equal vectors" if look.kind == "rotary" else "Product of two positions"
    return {"label": label, "x": list(range(len(look.similarity.mean))), "series": series, "bands": [[1, 2]]}
