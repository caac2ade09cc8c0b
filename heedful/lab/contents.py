"""What the lab has, read without importing it: torch would take seconds, and a list needs sentences only."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import read_json

FOLDER = Path(__file__).parent / "claims"
REPORT = "report.json"


@dataclass(frozen=True)
class ClaimText:
    """What the file of a claim says of it."""

    letter: str
    name: str
    says: str = ""
    lecture: str = ""
    minutes: Mapping[str, float] = field(default_factory=dict)


def claim_files() -> dict[str, Path]:
    """{name: file} of all claims, in the order of their letters."""
    return {path.stem.partition("_")[2]: path for path in sorted(FOLDER.glob("[a-z]_*.py"))}


def claim_texts() -> list[ClaimText]:
    """All claims, in the order of their letters."""
    return [read_claim(path, path.stat().st_mtime_ns) for path in claim_files().values()]


@lru_cache(maxsize=100)
def read_claim(path: Path, changed: int) -> ClaimText:
    """The plain texts and numbers that the file gives to its CLAIM. changed: when it was written."""
    found: dict[str, Any] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        called = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CLAIM" and node.value
        if isinstance(called, ast.Call):
            given = {one.arg: one.value for one in called.keywords}
            found = {name: ast.literal_eval(given[name]) for name in ("says", "lecture", "minutes")}
    letter, _, name = path.stem.partition("_")
    return ClaimText(letter, name, **found)


def last_report(folder: Path) -> dict[str, Any]:
    """The report of a claim's last run; nothing if there is none, or a damaged one."""
    try:
        found = read_json(folder / REPORT)
    except (BadInput, OSError):
        return {}
    return found if isinstance(found, dict) else {}
