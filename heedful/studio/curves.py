"""Training curves: metrics.jsonl as columns, read once and then only what is new, and thinned for a screen.

A cursor says which rows a client has. It holds a mark of the file it belongs to, so that a client of a run
that began anew gets everything again. The file has no times, since equal runs write equal files: rows that
come while somebody watches get "seconds" since the first look, and the last of them "tokens_per_second".
"""

from __future__ import annotations

import itertools
import json
import math
import struct
import time
from array import array
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..files import inside, present
from ..interop.run_files import METRICS, metrics

COLUMNS = 64  # names of figures; more are left out
LONGEST = 64  # characters of a name
TAIL = 256  # bytes that tell a file from one that was written anew
KEPT = 16  # files whose rows are kept
NUMBERS = itertools.count(1)
LARGEST = 3.4e38  # what float32 holds
TOKENS, SECONDS, SPEED = "tokens", "seconds", "tokens_per_second"
WATCHED = 3.0  # seconds between two looks at most, so that the time of a row is known


@dataclass
class Curves:
    """The rows of one file so far. Every column has a number for each row, NaN where a line has none."""

    path: Path
    columns: dict[str, array[float]] = field(default_factory=dict)
    rows: int = 0
    read: int = 0  # bytes
    mark: int = field(default_factory=lambda: next(NUMBERS))
    tail: bytes = b""  # the last bytes that were read
    whole: bool = False  # all that is in the file has been read
    began: float = field(default_factory=time.monotonic)
    looked: float | None = None  # when all of it had been read the last time
    tokens: Any = None  # of the last step; an evaluation has those of the step before it

    def load(self) -> None:
        """Read about a megabyte of what is new; `whole` tells whether that was all."""
        if self.end() != self.tail:
            self.columns, self.rows, self.read, self.mark = {}, 0, 0, next(NUMBERS)
            self.looked = self.tokens = None
        new = metrics(self.path, self.read)
        self.whole, self.read = new.cursor == self.read, new.cursor
        self.tail = self.end()
        self.stamp(new.rows)
        for row in new.rows:
            self.tokens = row.get(TOKENS, self.tokens)
            self.add({TOKENS: self.tokens} | row)

    def stamp(self, rows: list[dict[str, Any]]) -> None:
        """Write into new rows when they were seen, and how fast the run was since the last look."""
        now = time.monotonic()
        if self.looked is not None and now - self.looked < WATCHED:
            for row in rows:
                row.setdefault(SECONDS, round(now - self.began, 1))
            counted = [row for row in rows if type(row.get(TOKENS)) is int]
            if counted and type(self.tokens) is int and now > self.looked:
                counted[-1].setdefault(SPEED, (counted[-1][TOKENS] - self.tokens) / (now - self.looked))
        if self.whole:
            self.looked = now

    def end(self) -> bytes:
        """The last bytes of what was read: others stand there once the file was written anew."""
        start = max(0, self.read - TAIL)
        if not present(self.path):
            return b""
        with inside(self.path.parent, self.path.name).open("rb") as file:
            file.seek(start)
            return file.read(self.read - start)

    def add(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            number = as_number(value)
            if math.isnan(number) and not (isinstance(value, float) and name in self.columns):
                continue
            if name not in self.columns:
                if len(self.columns) >= COLUMNS or len(name) > LONGEST:
                    continue
                self.columns[name] = array("d", [math.nan]) * self.rows
            column = self.columns[name]
            column.extend([math.nan] * (self.rows - len(column)))
            column.append(number)
        self.rows += 1
        for column in self.columns.values():
            if len(column) < self.rows:
                column.append(math.nan)

    @property
    def cursor(self) -> str:
        return f"{self.mark}-{self.rows}"

    def seen(self, cursor: str) -> int:
        """How many of the rows whoever has this cursor knows; 0 of another file."""
        mark, _, rows = cursor.partition("-")
        fits = mark == str(self.mark) and rows.isascii() and rows.isdigit() and len(rows) < 12
        return min(int(rows), self.rows) if fits else 0

    def since(self, cursor: str, most: int, first: float = -math.inf, last: float = math.inf) -> Thinned:
        """The rows after a cursor whose steps are in a range, at most so many."""
        start = self.seen(cursor)
        named = {name: np.frombuffer(column, np.float64)[start:] for name, column in self.columns.items()}
        if "step" in named and (first > -math.inf or last < math.inf):
            inside = (named["step"] >= first) & (named["step"] <= last)
            named = {name: column[inside] for name, column in named.items()}
        count = len(next(iter(named.values()))) if named else 0
        thin = count > most
        columns = thinned_rows(named, most) if thin else named
        return Thinned(
            {name: column.copy() for name, column in columns.items()}, self.cursor, start == 0, thin
        )


@dataclass(frozen=True)
class Thinned:
    """Columns for a client."""

    columns: dict[str, np.ndarray]
    cursor: str
    anew: bool  # the client has to forget what it has
    thin: bool  # each two rows are the least and the greatest of many

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def head(self) -> dict[str, Any]:
        return {"cursor": self.cursor, "anew": self.anew, "thinned": self.thin, "rows": self.rows}

    def bytes(self) -> bytes:
        """The length of the head, the head as JSON, and the columns in its order, as float32."""
        head = json.dumps({**self.head(), "columns": list(self.columns)}).encode()
        head += b" " * (-len(head) % 4)
        body = b"".join(narrow(column).tobytes() for column in self.columns.values())
        return struct.pack("<I", len(head)) + head + body

    def as_json(self) -> dict[str, Any]:
        """The same as lines with the numbers of six digits that they have."""
        names = list(self.columns)
        lines = zip(*(column.tolist() for column in self.columns.values()), strict=True)
        rows = [
            {name: float(f"{x:.6g}") for name, x in zip(names, line, strict=True) if math.isfinite(x)}
            for line in lines
        ]
        return {**self.head(), "rows": rows}


def narrow(column: np.ndarray) -> np.ndarray:
    """A column as float32; what is too large for it is infinite."""
    with np.errstate(over="ignore"):
        return column.astype("<f4")


def thinned_rows(named: dict[str, np.ndarray], most: int) -> dict[str, np.ndarray]:
    """Columns thinned together. Lines without a training loss, such as evaluations, stay if they are few."""
    steps = ~np.isnan(named["loss"]) if "loss" in named else np.ones(len(next(iter(named.values()))), bool)
    if (~steps).sum() > most // 2:
        steps[:] = True
    here, there = np.flatnonzero(steps), np.flatnonzero(~steps)
    places = thinned(here.astype(float), most - len(there))
    order = np.concatenate([places, there]).argsort(kind="stable")
    return {
        name: np.concatenate([thinned(column[here], most - len(there)), column[there]])[order]
        for name, column in named.items()
    }


def thinned(column: np.ndarray, most: int) -> np.ndarray:
    """Two numbers for each part of a column, its least and its greatest, in the order in which they come."""
    found = np.full(2 * (most // 2), np.nan)
    edges = np.linspace(0, len(column), most // 2 + 1).astype(int)
    for place, (start, end) in enumerate(itertools.pairwise(edges)):
        part = column[start:end]
        known = np.flatnonzero(~np.isnan(part))
        if len(known):
            low, high = known[part[known].argmin()], known[part[known].argmax()]
            found[2 * place : 2 * place + 2] = part[sorted((low, high))]
    return found


def as_number(value: Any) -> float:
    """A figure of a line; NaN for anything else."""
    if type(value) not in (int, float):
        return math.nan
    if value >= LARGEST:  # a whole number may have too many digits for a float
        return math.inf
    return -math.inf if value <= -LARGEST else float(value)


class CurveFiles:
    """The curves of the runs that were looked at last."""

    def __init__(self) -> None:
        self.found: OrderedDict[Path, Curves] = OrderedDict()

    def of(self, folder: Path) -> Curves:
        """The curves of a run, as far as they have been read."""
        curves = self.found.setdefault(folder, Curves(folder / METRICS))
        self.found.move_to_end(folder)
        while len(self.found) > KEPT:
            self.found.popitem(last=False)
        return curves
