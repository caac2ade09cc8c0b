"""What lies in a run's folder, without torch: recipe, status, owner, metrics, samples, checkpoints, best.

Whoever lists runs or watches them reads here. Nothing is locked and nothing is written; a run may be at work
in the folder meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import files
from ..errors import BadInput
from ..files import MEGABYTE, inside, naming, present, read_json
from .run_folder import RECIPE

METRICS, SAMPLES, STATUS, LOCK = "metrics.jsonl", "samples.jsonl", "status.json", "lock"
CHECKPOINTS = "checkpoints"
NUMBERED = re.compile(r"step-(0|[1-9][0-9]{0,17})")
READ = MEGABYTE  # bytes of metrics at a time
SIDES = ("source", "output", "reference")  # the texts of a sample
OWNER = 4096  # bytes of a lock file


class NewMetrics(NamedTuple):
    """Lines of metrics.jsonl or samples.jsonl since the last time.

    Attributes:
        rows: What the lines say, as dictionaries.
        cursor: Bytes that have been read: where the next call goes on.
        skipped: Lines that are not what they should be.

    Example:
        >>> NewMetrics([{"step": 1, "loss": 4.0}], cursor=24, skipped=0).rows[0]["loss"]
        4.0
    """

    rows: list[dict[str, Any]]
    cursor: int  # bytes that have been read: where the next call goes on
    skipped: int  # lines that are not what they should be


def metrics(path: str | Path, after: int = 0, most: int = READ) -> NewMetrics:
    """Read the whole lines of a metrics file after so many bytes, about `most` bytes of them.

    The last line waits until it is whole. A file that is shorter than `after` was written anew, as a resumed
    run does, and is read from its beginning. Call again until the cursor stays.

    Args:
        path: metrics.jsonl in the folder of a run.
        after: Bytes that were read before: `cursor` of the last call.
        most: Bytes to read, about.

    Returns:
        `NewMetrics`. A row has "step" and the figures of a step or of an evaluation.

    Raises:
        BadInput: `after` or `most` is out of range.

    Example:
        >>> new = metrics("runs/choose/metrics.jsonl")
        >>> new.rows[0]["step"], sorted(new.rows[0]), new.skipped
        (1, ['loss', 'norm', 'rate', 'step', 'tokens'], 0)
        >>> metrics("runs/choose/metrics.jsonl", after=new.cursor).rows
        []
    """
    if after < 0 or most < 1:
        raise BadInput(
            f"metrics cannot be read from byte {after}, {most} at a time: give numbers from 0 and 1"
        )
    path = Path(path)
    if not present(path):
        return NewMetrics([], 0, 0)
    with naming(path), inside(path.parent, path.name).open("rb") as file:
        start = after if after <= os.fstat(file.fileno()).st_size else 0
        file.seek(start)
        data = file.read(most)
        if b"\n" not in data and len(data) == most:  # a line longer than that: to its end
            data += file.readline(8 * MEGABYTE)
    whole = data[: data.rfind(b"\n") + 1]
    found = [json_object(line) for line in whole.splitlines() if line.strip()]
    rows = [row for row in found if row is not None]
    return NewMetrics(rows, start + len(whole), len(found) - len(rows))


def samples(path: str | Path, after: int = 0, most: int = READ) -> NewMetrics:
    """Read the whole lines of a samples file, as `metrics` reads: what the model wrote at each evaluation.

    Args:
        path: samples.jsonl in the folder of a run.
        after: Bytes that were read before: `cursor` of the last call.
        most: Bytes to read, about.

    Returns:
        `NewMetrics`. A row has "step" and "samples": a list of {"source", "output", "reference"}.

    Example:
        >>> row = samples("runs/summarize/samples.jsonl").rows[-1]
        >>> row["step"], sorted(row["samples"][0])
        (60, ['output', 'reference', 'source'])
    """
    found = metrics(path, after, most)
    rows = [row for row in found.rows if holds_samples(row)]
    return found._replace(rows=rows, skipped=found.skipped + len(found.rows) - len(rows))


def holds_samples(row: Mapping[str, Any]) -> bool:
    """Whether a row has a step and texts, as a run writes them."""
    step, texts = row.get("step"), row.get("samples")
    return (
        type(step) is int
        and isinstance(texts, list)
        and all(
            isinstance(one, dict) and all(isinstance(one.get(name), str) for name in SIDES) for one in texts
        )
    )


def json_object(line: bytes) -> dict[str, Any] | None:
    """What a line says; None if it is no JSON object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def recipe(run: Path) -> dict[str, Any]:
    """The settings of a run by their groups: "task", "data", "model", "train" and so on."""
    with naming(run / RECIPE):
        return read_json(inside(run, RECIPE))


def status(run: str | Path) -> dict[str, Any]:
    """Why a run stopped.

    Args:
        run: The folder of the run.

    Returns:
        A dictionary with "reason", "time" and "step"; an empty one for a run that has not stopped yet.

    Example:
        >>> status("runs/choose")["reason"]
        'done'
    """
    run = Path(run)
    if not present(run / STATUS):
        return {}
    with naming(run / STATUS):
        return read_json(inside(run, STATUS))


def owner(run: Path) -> dict[str, Any]:
    """The process that trains in a folder ("pid", "host"); empty if none does, as far as can be seen here."""
    try:
        handle = os.open(run / LOCK, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        found = read_owner(handle)
    finally:
        os.close(handle)
    elsewhere = bool(found) and found.get("host") != socket.gethostname()
    return found if elsewhere or lives(found) or found.get("pid") == os.getpid() else {}


def read_owner(handle: int) -> dict[str, Any]:
    """What a lock file says; nothing if its owner was killed while writing it."""
    try:
        found = json.loads(os.read(handle, OWNER))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("pid"), int) else {}


def lives(owner: Mapping[str, Any]) -> bool:
    """Whether the owner is a process of this machine that runs, and not another one with its number."""
    if not owner or owner.get("host") != socket.gethostname() or owner["pid"] == os.getpid():
        return False
    began = files.started(owner["pid"])
    return began is not None and (began == "" or not owner.get("started") or began == owner["started"])


def checkpoints(run: str | Path) -> list[int]:
    """The steps of the checkpoints in a run's folder. Their bytes are not checked.

    Args:
        run: The folder of the run.

    Returns:
        The steps, the newest first.

    Example:
        >>> checkpoints("runs/choose")
        [150]
    """
    folder = Path(run) / CHECKPOINTS
    with naming(folder):
        names = [path.name for path in folder.iterdir() if path.is_dir()] if present(folder) else []
    return sorted((int(found[1]) for name in names if (found := NUMBERED.fullmatch(name))), reverse=True)


def best(run: str | Path) -> dict[str, Any]:
    """The best evaluation of a run that is done.

    Args:
        run: The folder of the run.

    Returns:
        A dictionary with the "step" of the best weights and its figures; an empty one before the run is done.

    Example:
        >>> sorted(best("runs/choose"))
        ['accuracy', 'loss', 'step']
    """
    said = status(run)
    figures = said.get("best")
    step = said.get("best_step")
    return {"step": step, **figures} if isinstance(figures, dict) and type(step) is int else {}
