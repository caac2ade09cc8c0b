"""Running claims: each arm with each seed, two at a time, and a record of those that are done.

FOLDER/NAME/
  records.jsonl   a line for each arm and seed: it is not measured again
  report.json     the verdict, as the studio's Lab page reads it
  figure.svg

A record has a key: the hash of everything that its numbers depend on. A record whose key is no longer right,
because a file has changed, is dropped and measured again.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import torch

from ..files import present, write_bytes
from ..runs.folder import Metrics, make_folders
from .claim import Claim
from .contents import claim_files
from .processes import at_once, in_turn
from .results import Results

RECORDS = "records.jsonl"
ROOT = Path(__file__).parents[1]
# What a claim's file imports and numbers do not depend on: rules, words and pictures.
NOT_FOLLOWED = ("claim.py", "rules.py", "results.py", "figures.py", "drawing.py")


@dataclass(frozen=True)
class ArmRecord:
    """An arm that was measured with a seed."""

    arm: str
    seed: int
    size: str
    key: str
    numbers: Mapping[str, float]
    seconds: float


# Keys.


def imports_of(path: Path) -> list[Path]:
    """The files of heedful that a file imports by itself, wherever in the file."""
    package, found = list(path.relative_to(ROOT).parts[:-1]), []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            parent = ROOT.joinpath(*(part for part in base if part))
            for name in (alias.name for alias in node.names):
                places = (parent / f"{name}.py", parent.with_suffix(".py"), parent / "__init__.py")
                found += [place for place in places if place.is_file()][:1]
    return found


def sources_of(path: Path) -> list[Path]:
    """A claim's file and every file that its numbers depend on, in a fixed order."""
    found, waiting = {path}, [path]
    while waiting:
        for target in imports_of(waiting.pop()):
            followed = target.parent.name not in ("lab", "look") or target.name not in NOT_FOLLOWED
            if followed and target not in found:
                found.add(target)
                waiting.append(target)
    return sorted(found)


@cache
def code_hash(path: Path) -> str:
    """The hash of these files and of torch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    for source in sources_of(path):
        digest.update(source.relative_to(ROOT).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()


def key_of(claim: Claim, arm: str, seed: int, size: str) -> str:
    code = code_hash(claim_files()[claim.name])
    return hashlib.sha256(repr((code, arm, seed, size)).encode()).hexdigest()[:24]


# Records.


def records_in(folder: Path, claim: Claim) -> dict[tuple[str, int, str], ArmRecord]:
    """What is done and still right; a line that a kill has torn is not there."""
    found: dict[tuple[str, int, str], ArmRecord] = {}
    for said in Metrics(folder / RECORDS).read():
        arm, seed, size = str(said.get("arm")), said.get("seed"), str(said.get("size"))
        if isinstance(seed, int) and arm in claim.arms and said.get("key") == key_of(claim, arm, seed, size):
            numbers = {name: float(value) for name, value in said["numbers"].items()}
            found[arm, seed, size] = ArmRecord(arm, seed, size, said["key"], numbers, said["seconds"])
    return found


def trials(claim: Claim, size: str, seeds: int | None = None) -> list[tuple[str, int]]:
    """(arm, seed) of all measurements, seed by seed: an early stop leaves as many of one arm as of another.

    seeds: how many, instead of what the parts say.
    """
    counts = {name: seeds or many[size] for name, (_, many) in claim.arms.items()}
    rounds = range(max(counts.values()))
    return [(arm, claim.first_seed + i) for i in rounds for arm, count in counts.items() if i < count]


class ClaimRun:
    """The measurements of a claim that are not done yet, one by one; then the results of all."""

    def __init__(
        self, claim: Claim, folder: Path, size: str = "quick", seeds: int | None = None, processes: int = 1
    ) -> None:
        self.claim, self.folder, self.size, self.seeds = claim, folder, size, seeds
        self.processes = processes
        self.wanted = trials(claim, size, seeds)
        self.done = records_in(folder, claim)
        self.todo = [(arm, seed) for arm, seed in self.wanted if (arm, seed, size) not in self.done]

    def __len__(self) -> int:
        return len(self.todo)

    def __iter__(self) -> Iterator[ArmRecord]:
        make_folders(self.folder)
        log = Metrics(self.folder / RECORDS)
        self.drop_stale(log)
        together = [(arm, seed) for arm, seed in self.todo if arm not in self.claim.clocked]
        alone = [(arm, seed) for arm, seed in self.todo if arm in self.claim.clocked]
        try:
            for found in (
                at_once(self.claim, together, self.size, self.processes),
                in_turn(self.claim, alone, self.size),
            ):
                for arm, seed, numbers, seconds in found:
                    key = key_of(self.claim, arm, seed, self.size)
                    record = ArmRecord(arm, seed, self.size, key, numbers, round(seconds, 3))
                    log.append(asdict(record))
                    self.done[arm, seed, self.size] = record
                    yield record
        finally:
            log.close()

    def drop_stale(self, log: Metrics) -> None:
        """Keep the lines that are still right, and no torn one."""
        if present(log.path):
            text, keys = log.path.read_bytes(), {record.key for record in self.done.values()}
            kept = b"".join(line + b"\n" for line, said in log.lines(text) if said.get("key") in keys)
            if kept != text:
                write_bytes(log.path, kept)

    @property
    def results(self) -> Results:
        """The numbers of all arms and seeds that were wanted."""
        found: dict[str, dict[int, Mapping[str, float]]] = {}
        for arm, seed in self.wanted:
            found.setdefault(arm, {})[seed] = self.done[arm, seed, self.size].numbers
        return Results(found)

    @property
    def seconds(self) -> float:
        """The processor time of all measurements, whenever they were made."""
        return sum(self.done[arm, seed, self.size].seconds for arm, seed in self.wanted)
