"""What the lab has: its claims, and what was recorded of them below `lab` in the folder of runs.

A claim is a file in heedful/lab/claims. It is read and not imported, since that would import torch. A folder
of the lab has records.jsonl, which gets a line with each measurement, and after a whole run report.json with
the claim (`says`), its `verdict`, the `lecture`, a `summary` and its parts, and figure.svg.

The card of a folder has a mark, which says how much of it was sent. Whoever sends the marks of its cards gets
what is new: cards that changed, with the records that came, and with the report if it is another one.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
import shlex
import sys
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import BadInput
from ..files import MEGABYTE, present
from ..interop.run_files import metrics
from ..lab.contents import claim_texts
from ..lab.rules import VERDICTS
from .runs import careful_json

LAB, REPORT, FIGURE, RECORDS = "lab", "report.json", "figure.svg", "records.jsonl"
USUAL = Path("runs/lab")  # where `heedful lab` writes without --run
SIZES = ("quick", "standard", "full")
MOST = 100  # folders, and parts of a claim
CHARACTERS = 600  # of a sentence
LONGEST, NUMBERS = 200, 500  # characters of the name of an arm or a number, and numbers of a record
TAIL = 256  # bytes that tell a file from one that was written anew
SENTENCES = ("says", "lecture", "summary")
PART = ("name", "says", "rule", "verdict", "expected", "why")
NO_REPORT: dict[str, Any] = {"verdict": None, "parts": []}
TRAINED = ("learning rate", "validation")  # numbers that say how an arm was trained
MARK = re.compile(r"([0-9a-f]{8})-([0-9a-f]{8})-([0-9]{1,12})-([0-9a-f]{8})")


class CardMark(NamedTuple):
    """How much of a folder somebody has; the names are checksums."""

    folder: str
    report: str
    read: int  # bytes of its records
    tail: str  # the last of these bytes

    def __str__(self) -> str:
        return "-".join(map(str, self))


def lab_cards(root: Path, after: str = "") -> dict[str, Any]:
    """{"cards": folders with something new, "skipped": how many folders have a damaged report}.

    after: the marks of the cards that somebody has, with commas. Without it, there are also all "claims", the
    "folder", and the "code" that reads it.
    """
    folder, cards, skipped = root / LAB, list[dict[str, Any]](), 0
    known = {claim["name"]: claim for claim in claims(folder)}
    marks = {one[1]: CardMark(one[1], one[2], int(one[3]), one[4]) for one in MARK.finditer(after)}
    with contextlib.suppress(OSError):
        for path in [one for one in sorted(folder.iterdir()) if one.is_dir()][:MOST]:
            inside, mark = path.resolve().is_relative_to(root.resolve()), marks.get(checksum(path.name))
            damaged, new = card(path, mark) if inside else (True, {})
            skipped += damaged
            if new and (path.name in known or mark or new["verdict"]):
                cards.append(with_claim(new, known.get(path.name)))
    found = {"cards": cards, "skipped": skipped}
    return (
        found
        if after
        else {"claims": list(known.values()), **found, "folder": str(folder), "code": code_of_lab(folder)}
    )


def with_claim(new: dict[str, Any], claim: dict[str, Any] | None) -> dict[str, Any]:
    """A card with the id of its claim, and with the command of the run that it reports."""
    if claim is None:
        return {"id": f"~{new['name']}", **new}
    command = {"command": f"{claim['command']} --{new['size']}"} if new.get("size") in SIZES else {}
    return {"id": claim["id"], **new, **command}


# Claims.


def claims(folder: Path) -> list[dict[str, Any]]:
    """All claims in the order of their letters, each with the command that runs it into a folder."""
    where = "" if folder == USUAL else f" --run {shlex.quote(str(folder))}"
    found = []
    for claim in claim_texts():
        minutes = claim.minutes["quick"]
        long = f"{math.ceil(minutes)} minutes" if minutes > 1 else "a minute"
        told = {"says": claim.says, "lecture": claim.lecture, "note": f"Takes about {long} on two cores:"}
        command = {"command": f"heedful lab run {claim.letter}{where}"}
        named = {"id": f"{claim.letter}.{claim.name}", "letter": claim.letter, "name": claim.name}
        found.append({**named, **told, **command})
    return found


def code_of_lab(folder: Path) -> str:
    """The Python that reads the reports of a folder."""
    lines = [
        "import json",
        "from pathlib import Path",
        "",
        f"for path in Path({json.dumps(str(folder))}).glob('*/report.json'):",
        "    report = json.loads(path.read_text())",
        "    print(report['name'], report['verdict'], report['arms'])",
    ]
    return "\n".join([*lines, ""])


# Folders.


def card(path: Path, mark: CardMark | None) -> tuple[bool, dict[str, Any]]:
    """Whether the report of a folder is damaged, and what is new in the folder; {} if nothing is."""
    stamp = stamp_of(path / REPORT)
    report = report_in(path / REPORT, stamp)
    damaged = present(path / REPORT) and report["verdict"] is None
    anew = mark is None or tail_of(path / RECORDS, mark.read) != mark.tail
    rows, read = new_records(path / RECORDS, 0 if mark is None or anew else mark.read)
    now = CardMark(checksum(path.name), stamp, read, tail_of(path / RECORDS, read))
    if now == mark or (mark is None and not read and report["verdict"] is None):
        return damaged, {}
    found = {"name": path.name, "mark": str(now), "rows": rows, "anew": anew, "live": live_note(path)}
    if mark is None or mark.report != stamp:
        found |= {**report, "figure": picture(path / FIGURE)}
    return damaged, found


@lru_cache(maxsize=MOST)
def report_in(path: Path, stamp: str) -> dict[str, Any]:
    """What a report says; no verdict where it is missing or not what a report is. stamp: of the file."""
    said = careful_json(path) if own(path) else {}
    texts = {name: said.get(name, "") for name in SENTENCES}
    if said.get("verdict") not in VERDICTS or not texts["says"]:
        return NO_REPORT
    if not all(isinstance(text, str) for text in texts.values()):
        return NO_REPORT
    parts, date, trials = said.get("parts"), str(said.get("date", "")), said.get("trials")
    size, trials = str(said.get("size"))[:10], trials if type(trials) is int and 0 <= trials < 10**9 else 0
    return {
        "verdict": said["verdict"],
        "size": size,
        "trials": trials,
        "note": f"{date[:10]}, {size}, {trials} measurements:",
        "parts": [part for part in map(part_of, parts[:MOST]) if part] if isinstance(parts, list) else [],
        **{name: text[:CHARACTERS] for name, text in texts.items()},
    }


def part_of(said: Any) -> dict[str, Any] | None:
    """A part of a claim with its verdict, its rule and its numbers in words; None if it is something else."""
    if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in PART):
        return None
    if said["verdict"] not in VERDICTS or said["expected"] not in VERDICTS:
        return None
    notes = ["control"] if said.get("control") is True else []
    notes += [f"expected: {said['expected']}"] if said["expected"] != said["verdict"] else []
    found = {name: said[name][:CHARACTERS] for name in ("name", "verdict", "says", "rule", "why")}
    return found | {"says": found["says"] + (f" ({', '.join(notes)})" if notes else "")}


def live_note(path: Path) -> str:
    """How the report stands to the records of a folder; nothing if the report has all of them."""
    with contextlib.suppress(OSError):
        written = (path / RECORDS).stat().st_mtime_ns
        if not present(path / REPORT):
            return "no report yet"
        return "newer than the report" if written > (path / REPORT).stat().st_mtime_ns else ""
    return ""


# Records.


def new_records(path: Path, start: int) -> tuple[list[dict[str, Any]], int]:
    """The records after so many bytes, about a megabyte of them, and where they end."""
    with contextlib.suppress(BadInput, OSError):
        if own(path):
            found = metrics(path, start)
            return [row for row in map(record, found.rows) if row], found.cursor
    return [], start


def record(said: dict[str, Any]) -> dict[str, Any] | None:
    """A measurement with numbers of six digits; None if a line says something else."""
    arm, seed, size, numbers = (said.get(name) for name in ("arm", "seed", "size", "numbers"))
    if not is_name(arm) or type(seed) is not int or size not in SIZES or not isinstance(numbers, dict):
        return None
    named = [(name, x) for name, x in numbers.items() if is_name(name) and type(x) in (int, float)][:NUMBERS]
    named.sort(key=lambda pair: pair[0].startswith(TRAINED))  # a page shows the first that most arms have
    kept = {name: float(f"{x:.6g}") for name, x in named if abs(x) <= sys.float_info.max}
    return {"arm": arm, "seed": seed, "size": size, "numbers": kept} if abs(seed) < 10**9 else None


def is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST


# Files.


def own(path: Path) -> bool:
    """Whether a folder has such a file itself, not a link to another place."""
    return path.is_file() and not path.is_symlink()


def checksum(said: str | bytes) -> str:
    return f"{zlib.crc32(said if isinstance(said, bytes) else said.encode(errors='replace')):08x}"


def stamp_of(path: Path) -> str:
    """Another one for each version of a file."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        return checksum(f"{found.st_ino} {found.st_size} {found.st_mtime_ns}")
    return checksum("")


def tail_of(path: Path, end: int) -> str:
    """The checksum of the bytes before a place; another one if the file is shorter."""
    start = max(0, end - TAIL)
    with contextlib.suppress(OSError):
        if own(path):
            with path.open("rb") as file:
                file.seek(start)
                return checksum(file.read(end - start))
    return checksum(b"")


def picture(path: Path) -> str | None:
    """A drawing as an address that holds it; a page shows it as a picture, so that no script in it runs."""
    with contextlib.suppress(OSError):
        if own(path) and 0 < path.stat().st_size <= MEGABYTE:
            return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return None
