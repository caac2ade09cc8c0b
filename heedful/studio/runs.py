"""Model folders as the studio lists them: found under one folder, or named on the command line.

A folder has an id, a short hash of where it is. Requests name ids, so nothing else can be reached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..files import MEGABYTE, inside, present, read_json
from ..interop import run_files
from ..interop.run_folder import CONFIG, RECIPE, WEIGHTS

ID = 12  # characters of an id
DEEP = 3  # levels of folders that are looked through
MOST = 1000  # folders that are listed
HEADER = 16 * MEGABYTE  # bytes of the header of a safetensors file
EVALUATIONS = 200  # lines of samples that are shown, at least
SAMPLES, CHARACTERS = 8, 1000  # samples of a line, and characters of a text
LINE = 4096  # bytes at the end of metrics.jsonl, for its last lines
NO_HEADER = (TypeError, AttributeError, KeyError, RecursionError)  # of what stands in its place
SIGNALS = {"stop": signal.SIGTERM, "save": signal.SIGUSR2}


@dataclass(frozen=True)
class ModelFolder:
    """One folder with a model, or with a run that has none yet."""

    id: str
    path: Path
    named: bool = False  # on the command line

    @property
    def is_run(self) -> bool:
        return present(self.path / RECIPE)

    def card(self) -> dict[str, Any]:
        """What the list says of it. Files that cannot be read are left out."""
        config, recipe = careful_json(self.path / CONFIG), careful_json(self.path / RECIPE)
        status, owner = self.read(run_files.status), self.read(run_files.owner)
        return {
            "id": self.id,
            "name": self.path.name,
            "folder": str(self.path),
            "kind": "run" if self.is_run else "folder",
            "task": text_of(recipe.get("task")),
            "architecture": text_of(config.get("heedful")) or text_of(config.get("model_type")),
            "parameters": parameters(self.path / WEIGHTS),
            "has_model": present(self.path / CONFIG),
            "date": written(self.path),
            "status": "running" if owner else status.get("reason"),
            "step": status.get("step"),
            "best": self.read(run_files.best),
            "last": last_line(self.path / run_files.METRICS),
        }

    def detail(self) -> dict[str, Any]:
        """Everything that its small files say."""
        return {
            **self.card(),
            "recipe": careful_json(self.path / RECIPE),
            "config": careful_json(self.path / CONFIG),
            "checkpoints": self.read(run_files.checkpoints),
            "owner": self.read(run_files.owner),
        }

    def read(self, reader: Any) -> Any:
        """What a function of `run_files` finds; nothing where a file is damaged."""
        with contextlib.suppress(BadInput, OSError, ValueError):
            return reader(self.path)
        return {}

    def samples(self) -> dict[str, Any]:
        """The lines of samples.jsonl, of many lines some; texts that are very long are cut."""
        path, cursor, skipped, rows = self.path / run_files.SAMPLES, -1, 0, list[dict[str, Any]]()
        while cursor < (new := run_files.samples(path, max(0, cursor))).cursor:
            cursor, skipped = new.cursor, skipped + new.skipped
            rows += [{"step": row["step"], "samples": shortened(row["samples"])} for row in new.rows]
            rows = rows[1 - len(rows) % 2 :: 2] if len(rows) > 2 * EVALUATIONS else rows
        return {"rows": rows, "skipped": skipped}

    def send(self, order: str) -> int:
        """Tell the process that trains here to stop or to save; its number."""
        owner = run_files.owner(self.path)
        if not owner:
            raise BadInput(f"nothing trains in {self.path.name} at the moment")
        if owner.get("host") != socket.gethostname():
            raise BadInput(
                f"{self.path.name} is trained on another machine, {owner.get('host')!r}: {order} it there"
            )
        if not run_files.lives(owner) or not is_ours(owner["pid"]):
            raise BadInput(f"the process {owner['pid']}, which trains in {self.path.name}, is not ours")
        os.kill(owner["pid"], SIGNALS[order])
        return owner["pid"]


@dataclass
class ModelFolders:
    """All folders that requests may name."""

    root: Path  # folders below it are found
    named: tuple[Path, ...] = ()
    known: dict[str, ModelFolder] = field(default_factory=dict)

    def scan(self) -> list[ModelFolder]:
        """The folders that are there now: those named first, then those found, the newest first."""
        found = [ModelFolder(id_of(path), path.resolve(), True) for path in self.named]
        inside = [ModelFolder(id_of(path), path) for path in self.below()]
        inside.sort(key=lambda one: written(one.path), reverse=True)
        self.known = {}
        for one in (*found, *inside):
            self.known.setdefault(one.id, one)
        return list(self.known.values())

    def below(self) -> Iterable[Path]:
        root = self.root.resolve()
        return walk(root, root, DEEP) if root.is_dir() else ()

    def get(self, id: str) -> ModelFolder | None:
        """The folder with this id."""
        if id not in self.known:
            self.scan()
        return self.known.get(id)


def walk(folder: Path, root: Path, deep: int) -> Iterator[Path]:
    """Folders with a model or a run, at most MOST; links that lead elsewhere are left alone."""
    count = 0
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir())[:MOST]:
            if path.name.startswith(".") or not path.is_dir() or not path.resolve().is_relative_to(root):
                continue
            if present(path / RECIPE) or present(path / CONFIG):
                yield path.resolve()
                count += 1
            elif deep > 1:
                yield from walk(path, root, deep - 1)
            if count >= MOST:
                return


def id_of(path: Path) -> str:
    """A short hash of where a folder is."""
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:ID]


def is_ours(pid: int) -> bool:
    """Whether a process belongs to the user who runs the studio."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return not os.path.isdir("/proc")  # there, the system refuses the signal


def written(path: Path) -> float:
    """When something in a folder was last written, in seconds since 1970."""
    times = [0.0]
    for name in ("", run_files.METRICS, run_files.STATUS, WEIGHTS):
        with contextlib.suppress(OSError):
            times.append((path / name).stat().st_mtime)
    return max(times)


def shortened(samples: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{name: one[name][:CHARACTERS] for name in run_files.SIDES} for one in samples[:SAMPLES]]


def last_line(path: Path) -> dict[str, float]:
    """The step and the loss that a metrics file says last."""
    with contextlib.suppress(BadInput, OSError), inside(path.parent, path.name).open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LINE))
        for line in reversed(file.read(LINE).splitlines()):
            found = run_files.json_object(line) or {}
            if all(type(found.get(name)) in (int, float) for name in ("step", "loss")):
                last = {name: found[name] for name in ("step", "loss")}
                return {name: x for name, x in last.items() if abs(x) <= sys.float_info.max}
    return {}


def text_of(value: Any) -> str | None:
    """What a file says, if it is a text."""
    return value if isinstance(value, str) else None


def careful_json(path: Path) -> dict[str, Any]:
    """What a file of JSON says; nothing where it is missing or damaged."""
    with contextlib.suppress(BadInput, OSError, ValueError):
        return read_json(inside(path.parent, path.name))
    return {}


def parameters(path: Path) -> int | None:
    """The numbers in a safetensors file, by its header; None where that cannot be read."""
    with contextlib.suppress(BadInput, OSError, ValueError, struct.error, *NO_HEADER):
        with inside(path.parent, path.name).open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, HEADER)))
        shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
        return sum(product(shape) for shape in shapes)
    return None


def product(shape: list[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found
