"""Folders of the lab as `heedful lab run` writes them, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIGURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="700" height="60" viewBox="0 0 700 60">'
    '<rect width="700" height="60" fill="#fff"/><text x="9" y="30">error of the map</text></svg>'
)


def record_line(arm: str, seed: int, size: str = "quick", **numbers: Any) -> str:
    """A line of records.jsonl; names of numbers have underscores for spaces."""
    named = {name.replace("_", " "): value for name, value in numbers.items()}
    said = {"arm": arm, "seed": seed, "size": size, "key": f"{seed:024x}", "numbers": named, "seconds": 0.5}
    return json.dumps(said) + "\n"


def report_of(**more: Any) -> dict[str, Any]:
    """What report.json says of the claim about offsets."""
    part = {
        "name": "rotation",
        "says": "One rotation maps every position to the position k words further on.",
        "rule": "For every seed, error is at most 1e-12.",
        "verdict": "exact",
        "expected": "exact",
        "control": False,
        "why": "error at most 5.7e-14 (tolerance 1e-12)",
    }
    control = part | {
        "name": "random table",
        "verdict": "inconclusive",
        "expected": "supported",
        "control": True,
    }
    said = {
        "name": "offsets",
        "says": "The position k words further on is a linear function of the position here.",
        "verdict": "exact",
        "lecture": "L1 L5",
        "summary": "Yes, exactly: moving by k words is one fixed rotation.",
        "date": "2026-11-18",
        "trials": 4,
        "size": "quick",
        "parts": [part, control],
    }
    return said | more


def lab_folder(root: Path, name: str, *lines: str, report: dict[str, Any] | None = None) -> Path:
    """A folder of a claim with records and, if there is one, a report with a figure."""
    folder = root / "lab" / name
    folder.mkdir(parents=True)
    if lines:
        (folder / "records.jsonl").write_text("".join(lines))
    if report is not None:
        (folder / "figure.svg").write_text(FIGURE)
        (folder / "report.json").write_text(json.dumps(report))
    return folder


def append(folder: Path, text: str) -> None:
    """Write to the end of the records, as a run does."""
    with (folder / "records.jsonl").open("a") as file:
        file.write(text)


def write_lab(root: Path) -> None:
    """A claim with a report, and one of two sizes that is being measured."""
    done = [
        record_line(arm, seed, error=10.0 ** (seed - far))
        for arm, far in (("closed form", 14), ("dense fit", 1))
        for seed in (0, 1)
    ]
    lab_folder(root, "offsets", *done, report=report_of())
    arms = ("no positions", "learned", "rotary, with a name so long that it needs two lines on a phone")
    lines = [
        record_line(arm, seed, size, learning_rate=0.001, accuracy=0.5 + seed / 10, steps=100 * seed)
        for size in ("quick", "standard")
        for seed in range(3)
        for arm in arms
    ]
    lab_folder(root, "order", *lines)
