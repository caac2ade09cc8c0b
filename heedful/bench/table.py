"""Tables for people: aligned columns of plain text, which can be pasted into a document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NOTHING = "-"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, the first and the last aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    last = len(widths) - 1

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if i in (0, last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()

    return "\n".join(map(line, [headings, *rows]))


HEADINGS = ("contender", "ms", "tokens/s", "x best peer", "spread", "of floor", "compile s", "agrees")


def contest_table(records: Sequence[dict[str, Any]]) -> str:
    """One work: a row for each contender, heedful's first, then the fastest first; those that failed last."""
    ranked = sorted(records, key=lambda r: (r["failed"] is not None, r["peer"] != "heedful", r["ms"] or 0))
    differing: dict[str, list[str]] = {}
    for r in ranked:
        if r["differs"] and not r["failed"]:
            differing.setdefault(r["differs"], []).append(r["contender"])
    notes = [f"  {'; '.join(names)}: {what}" for what, names in differing.items()]
    return "\n".join([table(HEADINGS, [contest_row(r) for r in ranked]), *notes])


def contest_row(r: dict[str, Any]) -> list[str]:
    if r["failed"]:
        return [r["contender"], *[NOTHING] * 6, f"failed: {r['failed']}"]
    return [
        r["contender"],
        milliseconds(r["ms"]),
        f"{r['tokens_per_second']:,.0f}",
        NOTHING if r["ratio"] is None else f"{r['ratio']:.2f}",
        percent(r["spread"]),
        percent(r["of_floor"]),
        NOTHING if r["compile_seconds"] is None else f"{r['compile_seconds']:.0f}",
        agrees(r),
    ]


APART = ("work", "prompts ms", "read/s", "written/s", "x best peer", "contender")


def apart_table(rows: Sequence[dict[str, Any]]) -> str:
    """Prompts and writing apart: a row for each contender at each work."""
    return table(
        APART,
        [
            [
                r["work"],
                milliseconds(r["read_ms"]),
                f"{r['read_per_second']:,.0f}",
                f"{r['written_per_second']:,.0f}",
                NOTHING if r["ratio"] is None else f"{r['ratio']:.2f}",
                r["contender"],
            ]
            for r in rows
        ],
    )


def agrees(r: dict[str, Any]) -> str:
    """Whether a contender that has heedful's weights answers as heedful does in fp32."""
    found = r["agreement"]
    if found is None:
        return "own weights"
    if "dropout" in found:
        return "with dropout"
    if "difference" in found:
        near = 1e-4 if r["numbers"] == "fp32" else 2e-2
        return "same loss" if found["difference"] <= near else f"loss differs by {found['difference']:.2g}"
    if found["alike"] == found["tokens"]:
        return "same tokens"
    return f"first {found['alike']:.0f} of {found['tokens']:.0f} tokens"


def milliseconds(ms: float) -> str:
    """Three digits or more."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.3g}"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def rate(amount: float, unit: str) -> str:
    """160 GFLOP/s, 4.3 TB/s."""
    letter = ""
    for larger in "kMGTP":
        if amount < 999.5:
            break
        amount, letter = amount / 1000, larger
    return f"{amount:.3g} {letter}{unit}"


def size(amount: float | None) -> str:
    """Bytes for people."""
    if amount is None:
        return NOTHING
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1023.5:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:,.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:,.1f} {unit}"
