"""What the lab has recorded: a folder for each claim, below `lab` in the folder of runs.

A folder has report.json, with the claim (`says`), its `verdict`, the `lecture` and a `summary`, and may have
figure.svg and records.jsonl, a line for each trial.
"""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path
from typing import Any

from ..files import MEGABYTE
from .runs import careful_json

LAB, REPORT, FIGURE, RECORDS = "lab", "report.json", "figure.svg", "records.jsonl"
VERDICTS = ("exact", "supported", "contradicted", "inconclusive", "depends")
MOST = 100  # folders
CHARACTERS = 600  # of a sentence


def lab_cards(root: Path) -> dict[str, Any]:
    """{"cards", "skipped": folders whose report is damaged or missing}, the newest card first."""
    folder, cards, skipped = root / LAB, list[dict[str, Any]](), 0
    with contextlib.suppress(OSError):
        for path in [one for one in sorted(folder.iterdir()) if one.is_dir()][:MOST]:
            found = card(path) if path.resolve().is_relative_to(root.resolve()) else None
            skipped += found is None
            cards += [found] if found else []
    return {"cards": sorted(cards, key=lambda one: -one["date"]), "skipped": skipped, "folder": str(folder)}


def card(path: Path) -> dict[str, Any] | None:
    """One claim; None where its report does not say what a report says."""
    said = careful_json(path / REPORT) if own(path / REPORT) else {}
    texts = {name: said.get(name, "") for name in ("says", "lecture", "summary")}
    if not texts["says"] or said.get("verdict") not in VERDICTS:
        return None
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    return {
        "name": path.name,
        "verdict": said["verdict"],
        "date": (path / REPORT).stat().st_mtime,
        "trials": lines(path / RECORDS),
        "figure": picture(path / FIGURE),
        **{name: text[:CHARACTERS] for name, text in texts.items()},
    }


def own(path: Path) -> bool:
    """Whether a folder has such a file itself, not a link to another place."""
    return path.is_file() and not path.is_symlink()


def lines(path: Path) -> int:
    """The lines of a file, of a long one those at its beginning."""
    if not own(path):
        return 0
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(8 * MEGABYTE).count(b"\n")
    return 0


def picture(path: Path) -> str | None:
    """A drawing as an address that holds it; a page shows it as a picture, so that no script in it runs."""
    with contextlib.suppress(OSError):
        if own(path) and 0 < path.stat().st_size <= MEGABYTE:
            return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return None
